//! Other programs, to their end within a time. They are in process groups of their own, so that Ctrl-C
//! leaves it to us in which order they end, and write to files, so that no process waits for a pipe.

use crate::interrupt;
use anyhow::{Context, bail};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Interval of checks for the end of a process.
const POLL: Duration = Duration::from_millis(10);
/// A process that was killed and is not gone by then is stuck in the kernel, and left.
const STUCK: Duration = Duration::from_secs(5);

/// A program by that name in PATH and where Debian puts what is for root.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    path.split(':').map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

/// A command whose arguments are the words of `line`: none may contain blanks.
pub(crate) fn words(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words);
    command
}

/// Runs it to its end, which has to be a success; gives what it printed.
pub(crate) fn run(command: &mut Command, limit: Duration) -> anyhow::Result<String> {
    watched(command, limit, POLL, |_| interrupt::check())
}

/// The same for undoing: an interrupt does not stop it.
pub(crate) fn undo(command: &mut Command, limit: Duration) -> anyhow::Result<()> {
    watched(command, limit, POLL, |_| Ok(())).map(drop)
}

/// Runs a command and calls `observe` with its number every `period`; an error of `observe` ends the command.
pub(crate) fn watched(
    command: &mut Command,
    limit: Duration,
    period: Duration,
    mut observe: impl FnMut(u32) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let name = command.get_program().display().to_string();
    let (mut stdout, mut stderr) = (nameless()?, nameless()?);
    let mut child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .spawn()
        .with_context(|| format!("run {name}"))?;
    let until = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let seen = match Instant::now() < until {
            true => observe(child.id()),
            false => Err(anyhow::anyhow!("{name} did not end within {} s", limit.as_secs())),
        };
        if let Err(e) = seen {
            kill(&mut child);
            return Err(e);
        }
        thread::sleep(period);
    };
    let said = text(&mut stdout)?;
    if !status.success() {
        bail!("{name}: {status}: {}", last_words(&text(&mut stderr)?, &said));
    }
    Ok(said)
}

/// The line that says most about a failure.
fn last_words<'a>(stderr: &'a str, stdout: &'a str) -> &'a str {
    let filled = |text: &'a str| text.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = filled(stderr).find(|line| line.to_lowercase().contains("error"));
    error
        .or_else(|| filled(stderr).next_back())
        .or_else(|| filled(stdout).next_back())
        .unwrap_or("(silent)")
}

/// A file without a name that is gone when it is closed.
fn nameless() -> anyhow::Result<File> {
    let folder = std::env::temp_dir();
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE);
    options.open(&folder).with_context(|| format!("a temporary file in {}", folder.display()))
}

fn text(file: &mut File) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Sends a signal to a child, or to all of its group.
pub(crate) fn signal(child: &Child, signal: libc::c_int, group: bool) {
    let pid = child.id() as libc::pid_t;
    // SAFETY: no pointers; the child is ours and not reaped yet, so the number is still its own.
    unsafe { libc::kill(if group { -pid } else { pid }, signal) };
}

/// Ends a child and all of its group.
pub(crate) fn kill(child: &mut Child) {
    signal(child, libc::SIGKILL, true);
    if !ends(child, STUCK) {
        eprintln!("  process {} is stuck", child.id());
    }
}

/// True if it ends within a time.
pub(crate) fn ends(child: &mut Child, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < until => thread::sleep(POLL),
            Ok(status) => return status.is_some(),
            Err(_) => return true,
        }
    }
}

/// How a child has ended, if it has.
pub(crate) fn ended(child: &mut Child) -> Option<ExitStatus> {
    child.try_wait().ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn what_is_printed_is_given() {
        assert_eq!(run(&mut words("echo one two"), LIMIT).expect("it is there"), "one two\n");
    }

    #[test]
    fn a_failure_says_why() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo fine; echo Error: no >&2; echo usage >&2; exit 3"]);
        let error = run(&mut command, LIMIT).expect_err("status 3").to_string();
        assert!(error.ends_with("Error: no"), "{error}");
        assert_eq!(last_words("", " a \n b \n\n"), "b");
        assert_eq!(last_words("\n", ""), "(silent)");
    }

    #[test]
    fn a_command_ends_at_its_limit() {
        let error = run(&mut words("sleep 3600"), Duration::ZERO).expect_err("too long");
        assert!(error.to_string().contains("did not end"), "{error}");
        let stop = |_| bail!("enough");
        let error = watched(&mut words("sleep 3600"), LIMIT, POLL, stop).expect_err("stopped");
        assert_eq!(error.to_string(), "enough");
    }

    #[test]
    fn programs_are_found() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-anywhere").is_none());
    }
}
