//! `roadtrain serve` without arguments: suggests command lines.

use std::ffi::OsString;

/// The three commands that most users need first.
pub(crate) const OF_SERVE: &str = "\
roadtrain serve: say what to export, and where. Most likely one of these:

  memory, to try it on this machine:
    roadtrain serve -a 127.0.0.1 -n nqn.2025-01.io.example:disk --namespace mem:1GiB
  a file, created if it is not there, for every machine that reaches this one:
    roadtrain serve -a 0.0.0.0 -n nqn.2025-01.io.example:disk --namespace file:disk.img,size=10GiB
  what a configuration file says (--print-config behind other options makes one):
    roadtrain serve --config serve.toml

roadtrain serve --help has all options, roadtrain doctor checks this machine.
";

/// True if the arguments, with the program's name first, are `serve` alone.
pub(crate) fn are_needed(arguments: &[OsString]) -> bool {
    matches!(arguments, [_, command] if command == "serve")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::CommandLine;
    use clap::Parser;

    #[test]
    fn what_it_proposes_can_be_written() {
        let lines = OF_SERVE.lines().filter_map(|line| line.strip_prefix("    "));
        let commands: Vec<&str> = lines.collect();
        assert_eq!(commands.len(), 3);
        for command in commands {
            CommandLine::try_parse_from(command.split_whitespace())
                .unwrap_or_else(|e| panic!("{e}"));
        }
    }

    #[test]
    fn only_serve_alone_shows_it() {
        let suggests = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            are_needed(&words)
        };
        assert!(suggests("roadtrain serve"));
        for line in
            ["roadtrain", "roadtrain attach", "roadtrain serve -a ::1", "roadtrain help serve"]
        {
            assert!(!suggests(line), "{line}");
        }
    }
}
