//! Write Uncorrectable (NVM Command Set 1.1, section 3.3.7): blocks that cannot be read until they are written.
//!
//! - [`Extents`] are the marks of a store, as a list of ranges.
//! - [`Marks`] is how they change while the target runs: a change is saved, then it is in force, then it is answered.
//!
//! ```text
//! Write Uncorrectable   alone with the blocks -> saved -> in force -> answered
//! write of such blocks  alone with the blocks -> written, on stable storage -> cleared: saved -> in force -> answered
//! read of such blocks   Unrecovered Read Error
//! ```
//!
//! Both are alone with their blocks ([`exclusion`](super::exclusion)), so that marks and contents change together: no
//! other write begins between a write and its clearing, on whichever reactor. What the power leaves is right at each
//! moment: contents are stable before the file says that they are good.
//!
//! A write that had begun before the mark, and ends after it, leaves the mark: its host has not waited for its answer,
//! so it is as if it had come first.
//!
//! Deallocation does not clear a mark: the specification wants a write for that, and says nothing of deallocation.

mod changes;
mod extents;
mod image;

pub use changes::{Change, Marks, Place, Step};
pub use extents::{Extents, MARKS_MAX, SPLIT_MAX};
pub use image::parse as parse_image;
