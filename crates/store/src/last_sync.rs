//! The last sync of a store.

use std::io;

/// What brings to stable storage what was written to a store that is gone.
pub type LastSync = Box<dyn FnOnce() -> io::Result<()> + Send>;
