//! Answers to operations, and the tokens that they carry.

use roadtrain_system::buffer::Buffer;
use roadtrain_system::ring::UserData;
use roadtrain_wire::status::Status;
use std::fmt;
use std::sync::Arc;

/// Whose token it is.
const CALLER: u8 = 0;
const EXECUTOR: u8 = 1;
const NOBODY: u8 = 2;

/// Names an operation that was submitted, among all that one executor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(u64);

impl Token {
    /// Of an executor's caller: where it keeps the command, and which use of that place it is (24 bits).
    #[inline]
    #[must_use]
    pub fn new(index: u32, generation: u32) -> Token {
        Token(UserData { kind: CALLER, index, generation }.pack())
    }

    /// What it was made of.
    #[inline]
    #[must_use]
    pub fn parts(self) -> (u32, u32) {
        let UserData { index, generation, .. } = UserData::unpack(self.0);
        (index, generation)
    }

    /// Of an executor, for an operation on a store below another one.
    pub(crate) fn below(index: u32, generation: u32) -> Token {
        Token(UserData { kind: EXECUTOR, index, generation }.pack())
    }

    pub(crate) fn is_executors(self) -> bool {
        UserData::unpack(self.0).kind == EXECUTOR
    }
}

/// The answer to an operation.
#[derive(Debug)]
pub struct Completion {
    /// As submitted.
    pub token: Token,
    /// How it went.
    pub result: Result<(), Status>,
    /// As submitted; filled, if it was a read that went well.
    pub buffer: Option<Buffer>,
    /// A write with Force Unit Access went well, but is not stable before a flush: whoever has submitted it flushes then.
    pub is_unforced: bool,
}

impl Completion {
    /// An answer that leaves nothing to do.
    #[must_use]
    pub fn new(token: Token, result: Result<(), Status>, buffer: Option<Buffer>) -> Completion {
        Completion { token, result, buffer, is_unforced: false }
    }

    /// Gives back the buffer of an operation that was answered without it: the one way in which a store may answer
    /// before it is done with a buffer.
    #[must_use]
    pub fn late(buffer: Buffer) -> Completion {
        let token = Token(UserData { kind: NOBODY, index: 0, generation: 0 }.pack());
        Completion::new(token, Ok(()), Some(buffer))
    }

    /// The buffer, if it is one that comes [late](Self::late).
    ///
    /// # Errors
    /// It is an answer.
    pub fn into_late(self) -> Result<Option<Buffer>, Completion> {
        match UserData::unpack(self.token.0).kind {
            NOBODY => Ok(self.buffer),
            _ => Err(self),
        }
    }
}

/// Brings answers from other threads to the reactor.
#[derive(Clone)]
pub struct Completions(Arc<dyn Fn(Completion) -> bool + Send + Sync>);

impl Completions {
    /// By `send`, which wakes the reactor and has it call [`crate::Executor::complete`]; `false` when it has ended.
    #[must_use]
    pub fn new(send: impl Fn(Completion) -> bool + Send + Sync + 'static) -> Completions {
        Completions(Arc::new(send))
    }

    /// Answers; `false` when the reactor has ended, and nobody wants to know.
    pub fn send(&self, completion: Completion) -> bool {
        (self.0)(completion)
    }
}

impl fmt::Debug for Completions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completions")
    }
}
