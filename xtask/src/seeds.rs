//! First inputs of the fuzz targets: those cut from the recordings, and their fixed inputs.

use crate::capture::{self, Recorded};
use crate::inputs;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Most bytes of a PDU in a seed: longer ones only repeat data.
const SEED_BYTES_MAX: usize = 8192;
/// Longest request of JSON-RPC, in bytes.
const REQUEST_BYTES_MAX: usize = 256 << 10;

/// Writes `fuzz/corpus/TARGET/NAME` files.
pub(crate) fn write(root: &Path) -> Result<()> {
    let corpus = root.join("fuzz/corpus");
    let mut written = 0;
    for name in capture::names() {
        let pdus = capture::pdus(&name);
        written += write_pdus(&corpus, &name, &pdus)?;
        written += write_streams(&corpus, &name, &pdus)?;
        written += write_authentications(&corpus, &name, &pdus)?;
    }
    written += write_nbd(&corpus)?;
    written += write_rpc(root, &corpus)?;
    written += write_fixed(&corpus)?;
    println!("seeds: {written} files in {}", corpus.display());
    Ok(())
}

/// Writes one PDU a file for the parsers, and one payload a file for the formats inside them.
fn write_pdus(corpus: &Path, name: &str, pdus: &[Recorded]) -> Result<usize> {
    let mut written = 0;
    for (number, pdu) in pdus.iter().enumerate().filter(|(_, p)| p.bytes.len() <= SEED_BYTES_MAX) {
        let file = format!("{name}-{number}");
        save(corpus, "pdu", &file, &pdu.bytes)?;
        let pdo = usize::from(pdu.bytes[3]);
        written += 1;
        let targets: &[&str] = match pdu.bytes[0] {
            4 => {
                save(corpus, "command", &file, &pdu.bytes[8..72])?;
                // Byte 0 belongs to the fuzz target: an admin command to the first controller.
                let admin = [&[4], &pdu.bytes[8..72], &pdu.bytes[pdo.max(72)..]].concat();
                save(corpus, "control", &file, &admin)?;
                &["connect"]
            }
            7 => &["identify", "log", "discovery"],
            _ => &[],
        };
        for target in targets.iter().filter(|_| pdo > 0) {
            save(corpus, target, &file, &pdu.bytes[pdo..])?;
            written += 1;
        }
    }
    Ok(written)
}

/// Writes the bytes that one end received on one connection to one file, for the queue pairs' state machines.
fn write_streams(corpus: &Path, name: &str, pdus: &[Recorded]) -> Result<usize> {
    let mut streams: BTreeMap<(usize, bool), Vec<u8>> = BTreeMap::new();
    for pdu in pdus {
        let key = (pdu.connection, pdu.from_host);
        // The first bytes belong to the fuzz targets: digests and policy, and size of the pieces less one. ICReq and
        // ICResp come first, with the digests in byte 11.
        let stream = streams.entry(key).or_insert_with(|| vec![pdu.bytes[11] & 3, u8::MAX]);
        if stream.len() + pdu.bytes.len() <= SEED_BYTES_MAX {
            stream.extend_from_slice(&pdu.bytes);
        }
    }
    for ((connection, from_host), bytes) in &streams {
        let target = if *from_host { "target_qpair" } else { "host_qpair" };
        save(corpus, target, &format!("{name}-{connection}"), bytes)?;
    }
    Ok(streams.len())
}

/// Writes the messages of an authentication that each end received on one connection to one file: a plan with the
/// T_ID of the recording, and the messages as an attacker's forgeries.
fn write_authentications(corpus: &Path, name: &str, pdus: &[Recorded]) -> Result<usize> {
    let mut sessions: BTreeMap<(usize, bool), Vec<u8>> = BTreeMap::new();
    let mut receives = BTreeSet::new();
    for pdu in pdus {
        let (kind, pdo) = (pdu.bytes[0], usize::from(pdu.bytes[3]));
        let is_fabrics = kind == 4 && pdu.bytes[8] == 0x7f;
        let message = match (kind, is_fabrics.then(|| pdu.bytes[12])) {
            (4, Some(5)) => &pdu.bytes[pdo..],
            (4, Some(6)) => {
                receives.insert((pdu.connection, pdu.bytes[10..12].to_vec()));
                continue;
            }
            (7, _) if receives.remove(&(pdu.connection, pdu.bytes[8..10].to_vec())) => {
                &pdu.bytes[pdo..]
            }
            _ => continue,
        };
        let end = message.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let message = &message[..end.max(16).min(message.len())];
        let session = sessions.entry((pdu.connection, pdu.from_host));
        let t_id = u16::from_le_bytes([message[4], message[5]]);
        let plan = || inputs::auth_plan(inputs::GROUP | inputs::BOTH, 0, t_id).to_vec();
        let receiver = if pdu.from_host { inputs::TARGET } else { 0 };
        session.or_insert_with(plan).extend(inputs::forge(receiver, message));
    }
    for ((connection, from_host), bytes) in &sessions {
        save(corpus, "auth", &format!("{name}-{connection}-{from_host}"), bytes)?;
    }
    Ok(sessions.len())
}

/// Writes the fixed inputs of the fuzz targets with an attacker between two ends; they also run before any other
/// input.
fn write_fixed(corpus: &Path) -> Result<usize> {
    let targets = [("auth", inputs::auth()), ("tls", inputs::tls()), ("sealed", inputs::sealed())];
    let mut written = 0;
    for (target, inputs) in targets {
        for (name, bytes, _) in &inputs {
            save(corpus, target, name, bytes)?;
            written += 1;
        }
    }
    Ok(written)
}

/// Writes requests as SPDK's clients send them: several at once, an indented one, an array, and an invalid one.
/// Further a call of each method with all its parameters, one of the maximum length, and one that is longer.
fn write_rpc(root: &Path, corpus: &Path) -> Result<usize> {
    let calls = concat!(
        r#"{"jsonrpc": "2.0", "method": "bdev_malloc_create", "id": 1, "params": {"num_blocks": 8, "block_size": 512}}"#,
        "\n",
        r#"[{"method": "nvmf_create_subsystem", "params": {"nqn": "nqn.x:y"}, "id": "a"}, {"method": "eat"}, 3]"#,
        "{\n  \"method\": \"rpc_get_methods\",\n  \"id\": null\n}\n{\"a\\\"\": [[[]]]} ]",
    );
    save(corpus, "rpc", "clients", &[b"\x07", calls.as_bytes()].concat())?;
    let page = fs::read_to_string(root.join("docs/reference/rpc.md")).context("the methods")?;
    let mut written = 1;
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').collect();
        let [_, method, params, ..] = cells[..] else { continue };
        let method = method.trim().trim_matches('`');
        let params: BTreeSet<&str> = params.split('`').skip(1).step_by(2).collect();
        let params: Vec<String> = params.iter().map(|name| format!("\"{name}\": 512")).collect();
        let params = params.join(", ");
        let call = format!("~{{\"method\": \"{method}\", \"id\": 1, \"params\": {{{params}}}}}");
        save(corpus, "rpc", method, call.as_bytes())?;
        written += 1;
    }
    for (name, length) in [("longest", REQUEST_BYTES_MAX), ("longer", REQUEST_BYTES_MAX + 1)] {
        let text = "x".repeat(length - 13);
        save(corpus, "rpc", name, format!("0{{\"method\":\"{text}\"}}").as_bytes())?;
        written += 1;
    }
    Ok(written)
}

/// Writes an NBD client's session from its flags to DISC: structured replies, a meta context, GO and a request of
/// each kind.
fn write_nbd(corpus: &Path) -> Result<usize> {
    let option = |code: u32, data: &[u8]| {
        [b"IHAVEOPT", &code.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
    };
    let request = |command: u16, length: u32| {
        let head = [&[0x25, 0x60, 0x95, 0x13, 0, 0], &command.to_be_bytes()[..], &[7; 8], &[0; 8]];
        [&head.concat()[..], &length.to_be_bytes()].concat()
    };
    let context = b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation";
    let go = b"\0\0\0\0\0\x01\0\x03";
    // Byte 0 belongs to the fuzz target: writable, in portions of four bytes.
    let mut bytes = vec![6, 0, 0, 0, 3];
    bytes.extend([option(3, &[]), option(8, &[]), option(10, context), option(7, go)].concat());
    bytes.extend((0..8).filter(|&command| command != 2).flat_map(|c| request(c, 512)));
    bytes.extend([request(3, 0), request(2, 0)].concat());
    save(corpus, "nbd_session", "client", &bytes)?;
    Ok(1)
}

fn save(corpus: &Path, target: &str, name: &str, bytes: &[u8]) -> Result<()> {
    let folder = corpus.join(target);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    fs::write(folder.join(name), bytes).context("writing a seed")
}
