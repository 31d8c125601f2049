//! Frames, records and set-up bodies of docs/reference/ethernet.md.

mod golden;
mod properties;
