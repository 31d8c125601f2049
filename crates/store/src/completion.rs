//! Completions of operations, and their tokens.

use roadtrain_system::buffer::Buffer;
use roadtrain_system::ring::UserData;
use roadtrain_wire::status::Status;
use std::fmt;
use std::sync::Arc;

/// Kinds of tokens: of the executor's caller, ...
const CALLER: u8 = 0;
const EXECUTOR: u8 = 1;
const LATE: u8 = 2;

/// Identifies a submitted operation among all those of one executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreToken(u64);

impl StoreToken {
    /// Makes a token of an executor's caller: `index` of its command, and `generation` of that index (24 bits).
    #[inline]
    #[must_use]
    pub fn new(index: u32, generation: u32) -> StoreToken {
        StoreToken(UserData { kind: CALLER, index, generation }.pack())
    }

    /// Returns the index and the generation.
    #[inline]
    #[must_use]
    pub fn parts(self) -> (u32, u32) {
        let UserData { index, generation, .. } = UserData::unpack(self.0);
        (index, generation)
    }

    /// Makes an executor's token for an operation on a store below another one.
    pub(crate) fn below(index: u32, generation: u32) -> StoreToken {
        StoreToken(UserData { kind: EXECUTOR, index, generation }.pack())
    }

    pub(crate) fn is_executors(self) -> bool {
        UserData::unpack(self.0).kind == EXECUTOR
    }
}

/// Completion of an operation.
#[derive(Debug)]
pub struct StoreCompletion {
    /// Token as submitted.
    pub token: StoreToken,
    /// Success, or the status of the error.
    pub result: Result<(), Status>,
    /// Buffer as submitted; filled by a successful read.
    pub buffer: Option<Buffer>,
    /// True after a successful write with Force Unit Access that is not stable before a flush: the submitter flushes
    /// then.
    pub is_unforced: bool,
}

impl StoreCompletion {
    /// Makes a completion that needs no flush.
    #[must_use]
    pub fn new(
        token: StoreToken,
        result: Result<(), Status>,
        buffer: Option<Buffer>,
    ) -> StoreCompletion {
        StoreCompletion { token, result, buffer, is_unforced: false }
    }

    /// Gives back the buffer of an operation that has completed without it. This is the only way in which a store may
    /// complete an operation before it is done with the buffer.
    #[must_use]
    pub fn late(buffer: Buffer) -> StoreCompletion {
        let token = StoreToken(UserData { kind: LATE, index: 0, generation: 0 }.pack());
        StoreCompletion::new(token, Ok(()), Some(buffer))
    }

    /// Returns the buffer, if it comes [late](Self::late).
    ///
    /// # Errors
    /// Returns the completion, if it is one of an operation.
    pub fn into_late(self) -> Result<Option<Buffer>, StoreCompletion> {
        match UserData::unpack(self.token.0).kind {
            LATE => Ok(self.buffer),
            _ => Err(self),
        }
    }
}

/// Sends completions from other threads to the reactor.
#[derive(Clone)]
pub struct StoreCompletions(Arc<dyn Fn(StoreCompletion) -> bool + Send + Sync>);

impl StoreCompletions {
    /// Uses `send`, which wakes the reactor and has it call [`crate::StoreExecutor::complete`]; it returns `false` once the
    /// reactor has ended.
    #[must_use]
    pub fn new(send: impl Fn(StoreCompletion) -> bool + Send + Sync + 'static) -> StoreCompletions {
        StoreCompletions(Arc::new(send))
    }

    /// Returns a number of the executor, unique among those that exist.
    pub(crate) fn executor(&self) -> usize {
        Arc::as_ptr(&self.0).cast::<()>() as usize
    }

    /// Sends a completion. Returns `false` if the reactor has ended and needs no completion.
    pub fn send(&self, completion: StoreCompletion) -> bool {
        (self.0)(completion)
    }
}

impl fmt::Debug for StoreCompletions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completions")
    }
}
