//! Keys and derivations against values from sessions of a Linux kernel.

mod concatenation;
mod dhchap;
mod helpers;
mod keys;
mod proofs;

use helpers::{HOST, SUBSYSTEM, counting};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|two| u8::from_str_radix(core::str::from_utf8(two).unwrap(), 16).unwrap())
        .collect()
}
