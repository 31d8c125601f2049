//! Failure of a command: an exit status and one line with advice.

use std::fmt;

/// Exit status of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// 1: the work itself failed: an I/O error, wrong data, a missing resource.
    Failed,
    /// 2: the command line or the configuration file is wrong.
    Usage,
    /// 3: no connection: no process listens, the host is refused, the subsystem does not exist.
    Connect,
}

/// The end of a command that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandFailure {
    /// Determines the exit status.
    pub kind: FailureKind,
    /// `problem: advice`, without the program's name; empty if it was already printed.
    pub message: String,
}

/// Result of every command.
pub type CommandResult<T = ()> = Result<T, CommandFailure>;

impl CommandFailure {
    /// Creates a failure of the work.
    pub fn failed(message: impl fmt::Display) -> CommandFailure {
        CommandFailure { kind: FailureKind::Failed, message: message.to_string() }
    }

    /// Creates a failure for an invalid command line or configuration.
    pub fn usage(message: impl fmt::Display) -> CommandFailure {
        CommandFailure { kind: FailureKind::Usage, message: message.to_string() }
    }

    /// Creates a failure for an unreachable target or process.
    pub fn connect(message: impl fmt::Display) -> CommandFailure {
        CommandFailure { kind: FailureKind::Connect, message: message.to_string() }
    }

    /// Creates the failure of a child process that ended with `code` and has printed the reason.
    pub fn of_child(code: Option<i32>) -> CommandFailure {
        let kind = match code {
            Some(2) => FailureKind::Usage,
            Some(3) => FailureKind::Connect,
            _ => FailureKind::Failed,
        };
        let message = match code {
            Some(_) => String::new(),
            None => "the process was killed".to_owned(),
        };
        CommandFailure { kind, message }
    }

    /// Returns the process's exit status.
    pub fn status(&self) -> u8 {
        match self.kind {
            FailureKind::Failed => 1,
            FailureKind::Usage => 2,
            FailureKind::Connect => 3,
        }
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "roadtrain: {}", self.message)
    }
}

impl From<std::io::Error> for CommandFailure {
    fn from(error: std::io::Error) -> CommandFailure {
        CommandFailure::failed(error)
    }
}
