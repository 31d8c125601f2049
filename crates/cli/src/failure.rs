//! How a command ends: an exit status and one line that says what to do.

use std::fmt;

/// What went wrong, as scripts see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 1: the work itself failed: an I/O error, wrong data, a resource that is not there.
    Failed,
    /// 2: the command line or the configuration file is wrong.
    Usage,
    /// 3: no connection: nobody listens, the host is refused, the subsystem does not exist.
    Connect,
}

/// The end of a command that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Decides the exit status.
    pub kind: Kind,
    /// `what: what to do`, without the program's name; empty when it has been said.
    pub message: String,
}

/// What every command returns.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// The work failed.
    pub fn failed(message: impl fmt::Display) -> Failure {
        Failure { kind: Kind::Failed, message: message.to_string() }
    }

    /// The caller asked for something that makes no sense.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure { kind: Kind::Usage, message: message.to_string() }
    }

    /// The other end could not be reached.
    pub fn connect(message: impl fmt::Display) -> Failure {
        Failure { kind: Kind::Connect, message: message.to_string() }
    }

    /// A child of ours ended with `code`, and has said why.
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

    /// The process's exit status.
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
