//! Reports of tests that cannot run on this machine, for people and for scripts/test.sh, which counts them.
#![allow(dead_code, reason = "each user needs some of it")]

use std::fmt::Display;
use std::io::Write;

/// Returns the name of the test that runs on this thread.
pub(crate) fn this_test() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}

/// Reports that this test is skipped, and why.
pub(crate) fn skipped(why: impl Display) {
    skipped_test(&this_test(), why);
}

/// Reports a skipped test from another thread. The line bypasses the capture of test output, which is shown for
/// failed tests only.
pub(crate) fn skipped_test(test: &str, why: impl Display) {
    let line = format!("SKIPPED {test}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
