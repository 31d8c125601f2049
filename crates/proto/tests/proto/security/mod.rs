//! Keys and derivations against values that a Linux kernel's sessions have shown.

mod bring_up;
mod concatenation;
mod dhchap;
mod keys;
mod proofs;

/// The host of the vectors.
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000015";
/// The subsystem of the vectors.
const SUBSYSTEM: &str = "nqn.2024-01.test:kernel";

/// Octets from `first`, each one more than the one before.
fn counting(first: u8, count: usize) -> Vec<u8> {
    (0..count).map(|at| first.wrapping_add(at as u8)).collect()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|two| u8::from_str_radix(core::str::from_utf8(two).unwrap(), 16).unwrap())
        .collect()
}
