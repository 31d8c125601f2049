//! Frames, records and set-up bodies of docs/ETHERNET.md.

mod golden;
mod properties;
