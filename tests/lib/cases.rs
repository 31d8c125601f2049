//! Sizes of random tests: a tenth, or full with `THOROUGH=1`.
#![allow(dead_code, reason = "each user needs some of it")]

/// Least number of cases of a property.
const CASES_MIN: u32 = 16;

/// True if tests run as long as they can.
pub(crate) fn is_thorough() -> bool {
    std::env::var("THOROUGH").is_ok_and(|value| value == "1")
}

/// Number of examples that a test tries: every one with `THOROUGH=1`, else `few`.
pub(crate) fn examples(few: usize) -> usize {
    if is_thorough() { usize::MAX } else { few }
}

/// Returns the cases of a property: `full`, or a tenth of them.
pub(crate) fn cases(full: u32) -> u32 {
    if is_thorough() { full } else { (full / 10).max(CASES_MIN.min(full)) }
}
