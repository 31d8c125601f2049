//! Failure of a command: an exit status and one line with advice.

use std::fmt;

/// Exit status of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 1: the work itself failed: an I/O error, wrong data, a missing resource.
    Failed,
    /// 2: the command line or the configuration file is wrong.
    Usage,
    /// 3: no connection: no process listens, the host is refused, the subsystem does not exist.
    Connect,
}

/// The end of a command that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Determines the exit status.
    pub kind: Kind,
    /// `problem: advice`, without the program's name; empty if it was already printed.
    pub message: String,
}

/// Result of every command.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// Creates a failure of the work.
    pub fn failed(message: impl fmt::Display) -> Failure {
        Failure { kind: Kind::Failed, message: message.to_string() }
    }

    /// Creates a failure for an invalid command line or configuration.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure { kind: Kind::Usage, message: message.to_string() }
    }

    /// Creates a failure for an unreachable target or process.
    pub fn connect(message: impl fmt::Display) -> Failure {
        Failure { kind: Kind::Connect, message: message.to_string() }
    }

    /// Creates the failure of a child process that ended with `code` and has printed the reason.
    pub fn of_child(code: Option<i32>) -> Failure {
        let kind = match code {
            Some(2) => Kind::Usage,
            Some(3) => Kind::Connect,
            _ => Kind::Failed,
        };
        let message = match code {
            Some(_) => String::new(),
            None => "the process was killed".to_owned(),
        };
        Failure { kind, message }
    }

    /// Returns the process's exit status.
    pub fn status(&self) -> u8 {
        match self.kind {
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Connect => 3,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "roadtrain: {}", self.message)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::failed(error)
    }
}
