//! The program: its commands, its targets and attachments, its configuration.
#![allow(unreachable_pub, reason = "a test exports nothing")]

mod authentication;
mod configuration_page;
mod harness;
mod json_output;
mod json_schema;
mod keyring;
mod keys;
mod killed;
mod life;
mod program;
#[path = "../../../../tests/lib/skipped.rs"]
mod skipped;
mod state;
mod target;
mod uncorrectable;
