//! A test that cannot run here says so, for people and for scripts/test.sh, which counts it.
#![allow(dead_code, reason = "each user needs some of it")]

use std::fmt::Display;
use std::io::Write;

/// Name of the test whose thread this is.
pub(crate) fn this_test() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}

/// Says that this test is skipped, and why.
pub(crate) fn skipped(why: impl Display) {
    skipped_test(&this_test(), why);
}

/// Says that a test is skipped, from a thread of its own. Written past the capture of what tests print: that is
/// shown for those that fail only.
pub(crate) fn skipped_test(test: &str, why: impl Display) {
    let line = format!("SKIPPED {test}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
