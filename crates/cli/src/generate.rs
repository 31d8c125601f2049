//! Man pages and completions, from the same definition as the parser.

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::{Failure, Outcome};
use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;
use std::fs;
use std::path::Path;

/// Prints one shell's completions, or writes those of all.
pub(crate) fn completions(args: &CompletionsArgs) -> Outcome {
    let mut command = Cli::command();
    if let Some(shell) = args.shell {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, "roadtrain", &mut text);
        return crate::output::line(&String::from_utf8_lossy(&text));
    }
    if let Some(dir) = &args.dir {
        make(dir)?;
        for shell in Shell::value_variants() {
            clap_complete::generate_to(*shell, &mut command, "roadtrain", dir)
                .map_err(|e| Failure::failed(format!("{}: {e}", dir.display())))?;
        }
    }
    Ok(())
}

/// Writes a man page for the program and for each command.
pub(crate) fn man(args: &ManArgs) -> Outcome {
    make(&args.dir)?;
    clap_mangen::generate_to(Cli::command(), &args.dir)
        .map_err(|e| Failure::failed(format!("{}: {e}", args.dir.display())))
}

fn make(dir: &Path) -> Outcome {
    fs::create_dir_all(dir).map_err(|e| Failure::failed(format!("{}: {e}", dir.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_completions_are_written() {
        let dir = tempfile::tempdir().unwrap();
        man(&ManArgs { dir: dir.path().join("man") }).unwrap();
        for page in ["roadtrain.1", "roadtrain-serve.1", "roadtrain-bench.1"] {
            let text = fs::read_to_string(dir.path().join("man").join(page)).expect(page);
            assert!(text.contains("Example"), "{page}");
        }
        let all = CompletionsArgs { shell: None, dir: Some(dir.path().join("completions")) };
        completions(&all).unwrap();
        let bash = fs::read_to_string(dir.path().join("completions/roadtrain.bash")).unwrap();
        assert!(bash.contains("--ctrl-loss-tmo"));
    }
}
