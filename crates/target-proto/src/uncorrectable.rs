//! Write Uncorrectable (NVM Command Set 1.1, section 3.3.7): blocks that cannot be read until they are written.
//!
//! - [`ByteExtents`] are the marks of a store, as a list of ranges.
//! - [`Marks`] are the same at a running target: a change is saved, then it takes effect, then its command completes.
//!
//! ```text
//! Write Uncorrectable     exclusive access -> saved -> in effect -> completed
//! write of marked blocks  exclusive access -> written, on stable storage -> cleared: saved -> in effect -> completed
//! read of marked blocks   Unrecovered Read Error
//! ```
//!
//! Both have exclusive access to their blocks ([`exclusion`](super::exclusion)), so that marks and contents change
//! together: no other write begins between a write and its clearing, on any reactor. A power loss at any time leaves a
//! correct state: contents are stable before the file clears their marks.
//!
//! A write that had begun before the mark, and ends after it, leaves the mark: its host has not waited for its
//! completion, so it counts as the earlier one.
//!
//! Deallocation does not clear a mark: the specification requires a write for that, and does not mention deallocation.

mod changes;
mod extents;
mod image;

pub use changes::{MarkChange, Marks, MarksPlace, MarksStep};
pub use extents::{ByteExtents, MARKS_MAX, SPLIT_MAX};
pub use image::parse as parse_image;
