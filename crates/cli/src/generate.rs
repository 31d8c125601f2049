//! Man pages and completions, from the parser's definition.

use crate::args::{CommandLine, CompletionsArgs, ManArgs};
use crate::failure::{CommandFailure, CommandResult};
use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::env::{CompleteEnv, Shells};
use clap_complete::{Generator, Shell};
use clap_mangen::Man;
use std::fs;
use std::io;
use std::path::Path;

/// Environment variable that the scripts set to the name of the shell.
const SHELL_VARIABLE: &str = "ROADTRAIN_COMPLETE";

/// Prints one shell's completions, or writes those of all.
pub(crate) fn completions(args: &CompletionsArgs) -> CommandResult {
    let script = |shell: Shell| {
        script_of(shell).map_err(|e| CommandFailure::failed(format!("completions of {shell}: {e}")))
    };
    if let Some(shell) = args.shell {
        return crate::output::line(&String::from_utf8_lossy(&script(shell)?));
    }
    if let Some(dir) = &args.dir {
        make(dir)?;
        for shell in Shell::value_variants() {
            let path = dir.join(shell.file_name("roadtrain"));
            fs::write(&path, script(*shell)?)
                .map_err(|e| CommandFailure::failed(format!("{}: {e}", path.display())))?;
        }
    }
    Ok(())
}

/// Replies to a shell's request for completions and ends the process, if there is such a request.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(CommandLine::command).var(SHELL_VARIABLE).complete();
}

/// Returns a script with which a shell requests completions from this program: names come from the running target.
fn script_of(shell: Shell) -> io::Result<Vec<u8>> {
    let (shells, name) = (Shells::builtins(), "roadtrain");
    let mut script = Vec::new();
    let completer = shells.completer(&shell.to_string()).ok_or(io::ErrorKind::Unsupported)?;
    completer.write_registration(SHELL_VARIABLE, name, name, name, &mut script)?;
    Ok(script)
}

/// Writes a man page for the program and for each command.
pub(crate) fn man(args: &ManArgs) -> CommandResult {
    make(&args.dir)?;
    let mut command = CommandLine::command().disable_help_subcommand(true);
    command.build();
    pages(&command, &args.dir)
        .map_err(|e| CommandFailure::failed(format!("{}: {e}", args.dir.display())))
}

/// Writes the page of a command, and those of its subcommands.
fn pages(command: &Command, dir: &Path) -> io::Result<()> {
    let subcommands = || command.get_subcommands().filter(|sub| !sub.is_hide_set());
    subcommands().try_for_each(|sub| pages(sub, dir))?;
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    if command.get_arguments().any(|arg| !arg.is_hide_set()) {
        page.render_options_section(&mut text)?;
    }
    if subcommands().next().is_some() {
        page.render_subcommands_section(&mut text)?;
    }
    let more = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    text.extend(sections(&more).into_bytes());
    if command.get_version().is_some() {
        page.render_version_section(&mut text)?;
    }
    fs::write(dir.join(page.get_filename()), text)
}

/// Splits the text behind the options of a help text into sections of a page.
fn sections(text: &str) -> String {
    const HEADS: [&str; 3] = ["NOTES", "EXIT STATUS", "EXAMPLES"];
    let mut all: [Vec<&str>; 3] = Default::default();
    let mut at = 0;
    for line in text.lines() {
        let line = match (line.strip_prefix("Exit status:"), line) {
            (Some(rest), _) => {
                at = 1;
                rest.trim()
            }
            (None, "Examples:" | "Example:") => {
                at = 2;
                continue;
            }
            _ => line,
        };
        match (line.is_empty(), all[at].is_empty()) {
            (false, _) => all[at].push(line),
            (true, true) => {}
            // Text after a blank line is not part of the exit status.
            (true, false) if at == 1 => at = 0,
            (true, false) => all[at].push(line),
        }
    }
    let section = |(head, lines): (&str, Vec<&str>)| {
        let lines: String = lines.iter().map(|line| format!("{}\n", escaped(line))).collect();
        (!lines.is_empty()).then(|| format!(".SH {head:?}\n.nf\n{lines}.fi\n"))
    };
    HEADS.into_iter().zip(all).filter_map(section).collect()
}

/// Escapes a line of a page, so that nothing formats it.
fn escaped(line: &str) -> String {
    let plain = line.replace('\\', "\\e").replace('-', "\\-");
    if plain.starts_with(['.', '\'']) { format!("\\&{plain}") } else { plain }
}

fn make(dir: &Path) -> CommandResult {
    fs::create_dir_all(dir).map_err(|e| CommandFailure::failed(format!("{}: {e}", dir.display())))
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
            for section in [".SH \"EXAMPLES\"", ".SH SYNOPSIS", ".SH OPTIONS"] {
                assert!(text.contains(section), "{page} has no {section}: {text}");
            }
        }
        let text = fs::read_to_string(dir.path().join("man/roadtrain-detach.1")).unwrap();
        let (_, exit) = text.split_once(".SH \"EXIT STATUS\"\n.nf\n").unwrap();
        assert!(exit.starts_with("0 when everything has ended in order"), "{exit}");
        assert!(
            exit.contains("\nroadtrain detach \\-\\-all\n")
                || exit.contains("  roadtrain detach \\-\\-all\n")
        );
        let all = CompletionsArgs { shell: None, dir: Some(dir.path().join("completions")) };
        completions(&all).unwrap();
        for name in ["roadtrain.bash", "_roadtrain", "roadtrain.fish"] {
            let script = fs::read_to_string(dir.path().join("completions").join(name)).expect(name);
            assert!(script.contains(SHELL_VARIABLE), "{name}: {script}");
        }
    }
}
