//! Dirty bitmaps: parts of a disk that its attachment has changed since the last backup.
//!
//! ```text
//! a write --> bits are set --> the lane --> the target          TrackedWrite: from its start to its end
//!
//! start of a backup:   changed -> in backup, then the writes that have begun before are waited for
//! a client copies what is in either set
//! finish:              in backup is emptied: what has changed since the start stays dirty
//! ```
//!
//! Nothing is lost if a backup fails: without its finish the next start adds to the same set. A bitmap that does not
//! know all changes is *invalid*: everything counts as dirty until a full backup has finished.
//!
//! | file | purpose |
//! |---|---|
//! | `bits` | a set of bits that grows, for all threads, without a lock |
//! | `bitmap` | one bitmap: its sets, its validity, its backups |
//! | `file` | the file of a bitmap: identity, size, clean mark |
//! | `writes` | all bitmaps of a disk, and the writes in flight |

mod bitmap;
mod bits;
mod file;
mod writes;

pub use bitmap::{BitmapBackup, BitmapError, BitmapView};
pub use file::BitmapIdentity;
pub(crate) use writes::TrackedWrite;
pub use writes::{BITMAPS_MAX, BitmapSpec, DirtyBitmaps, GRANULARITY_BYTES};
