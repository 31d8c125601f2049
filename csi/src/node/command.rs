//! Commands of the system.

use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// End of a command.
#[derive(Clone, Debug)]
pub(crate) struct CommandOutput {
    /// Exit status; `None` after a signal.
    pub(crate) status: Option<i32>,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
    words: String,
}

impl CommandOutput {
    /// True if it succeeded.
    pub(crate) fn is_ok(&self) -> bool {
        self.status == Some(0)
    }

    /// Describes the failure, with the last lines of its output.
    pub(crate) fn failure(&self) -> String {
        let said = if self.err.trim().is_empty() { &self.out } else { &self.err };
        let lines: Vec<&str> = said.trim().lines().rev().take(3).collect();
        let said = lines.into_iter().rev().collect::<Vec<_>>().join("; ");
        match self.status {
            Some(status) => format!("{}: status {status}: {said}", self.words),
            None => format!("{}: ended by a signal: {said}", self.words),
        }
    }

    /// Returns the standard output of a command that succeeded.
    ///
    /// # Errors
    /// Description of the failure.
    pub(crate) fn ok(self) -> Result<String, String> {
        if self.is_ok() { Ok(self.out) } else { Err(self.failure()) }
    }
}

/// Runs a command and waits for its end.
///
/// # Errors
/// It cannot be started, or has not ended in time. Then it is killed.
pub(crate) async fn run(words: &[&str], limit: Duration) -> Result<CommandOutput, String> {
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let shown = [*program, arguments.first().copied().unwrap_or_default()].join(" ");
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let ended = tokio::time::timeout(limit, command.output()).await;
    let output = match ended {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(format!("{program}: {error}")),
        Err(_) => return Err(format!("{shown}: not done within {} s", limit.as_secs())),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    tracing::debug!(command = shown, status = output.status.code(), "command");
    Ok(CommandOutput {
        status: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
        words: shown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn commands_end() {
        let limit = Duration::from_secs(20);
        assert_eq!(run(&["echo", "a"], limit).await.unwrap().ok(), Ok("a\n".to_owned()));
        let failed =
            run(&["sh", "-c", "echo first; echo second >&2; exit 3"], limit).await.unwrap();
        assert_eq!(failed.status, Some(3));
        assert_eq!(failed.ok().unwrap_err(), "sh -c: status 3: second");
        assert!(run(&["/nonexistent/program"], limit).await.is_err());
        let late = run(&["sleep", "60"], Duration::from_millis(10)).await.unwrap_err();
        assert!(late.contains("not done within"), "{late}");
    }
}
