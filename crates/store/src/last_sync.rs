//! The last sync of a store.

use std::io;

/// Function that brings the writes of a closed store to stable storage.
pub type LastSync = Box<dyn FnOnce() -> io::Result<()> + Send>;
