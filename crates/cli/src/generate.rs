//! Man pages and completions, from the same definition as the parser.

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::{Failure, Outcome};
use clap::{CommandFactory, ValueEnum};
use clap_complete::env::{CompleteEnv, Shells};
use clap_complete::{Generator, Shell};
use std::fs;
use std::io;
use std::path::Path;

/// Set by the scripts, to the shell that asks.
const ASKED_BY: &str = "ROADTRAIN_COMPLETE";

/// Prints one shell's completions, or writes those of all.
pub(crate) fn completions(args: &CompletionsArgs) -> Outcome {
    let script = |shell: Shell| {
        script_of(shell).map_err(|e| Failure::failed(format!("completions of {shell}: {e}")))
    };
    if let Some(shell) = args.shell {
        return crate::output::line(&String::from_utf8_lossy(&script(shell)?));
    }
    if let Some(dir) = &args.dir {
        make(dir)?;
        for shell in Shell::value_variants() {
            let path = dir.join(shell.file_name("roadtrain"));
            fs::write(&path, script(*shell)?)
                .map_err(|e| Failure::failed(format!("{}: {e}", path.display())))?;
        }
    }
    Ok(())
}

/// Answers a shell that wants to know what may follow, and ends the process; if one asks.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(Cli::command).var(ASKED_BY).complete();
}

/// What has a shell ask us, each time: names come from the target that runs then.
fn script_of(shell: Shell) -> io::Result<Vec<u8>> {
    let (shells, name) = (Shells::builtins(), "roadtrain");
    let mut script = Vec::new();
    let completer = shells.completer(&shell.to_string()).ok_or(io::ErrorKind::Unsupported)?;
    completer.write_registration(ASKED_BY, name, name, name, &mut script)?;
    Ok(script)
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
        for name in ["roadtrain.bash", "_roadtrain", "roadtrain.fish"] {
            let script = fs::read_to_string(dir.path().join("completions").join(name)).expect(name);
            assert!(script.contains(ASKED_BY), "{name}: {script}");
        }
    }
}
