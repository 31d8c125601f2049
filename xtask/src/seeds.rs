//! First inputs of the fuzz targets, cut from the recordings.

use crate::capture::{self, Recorded};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// PDU octets that are worth a seed: longer ones only repeat data.
const SEED_BYTES_MAX: usize = 8192;

/// Writes `fuzz/corpus/TARGET/NAME` files.
pub(crate) fn write(root: &Path) -> Result<()> {
    let corpus = root.join("fuzz/corpus");
    let mut written = 0;
    for name in capture::names() {
        let pdus = capture::pdus(&name);
        written += write_pdus(&corpus, &name, &pdus)?;
        written += write_streams(&corpus, &name, &pdus)?;
    }
    println!("seeds: {written} files in {}", corpus.display());
    Ok(())
}

/// One PDU a file for the parsers; one payload a file for the formats inside them.
fn write_pdus(corpus: &Path, name: &str, pdus: &[Recorded]) -> Result<usize> {
    let mut written = 0;
    for (number, pdu) in pdus.iter().enumerate().filter(|(_, p)| p.octets.len() <= SEED_BYTES_MAX) {
        let file = format!("{name}-{number}");
        save(corpus, "pdu", &file, &pdu.octets)?;
        let pdo = usize::from(pdu.octets[3]);
        written += 1;
        let targets: &[&str] = match pdu.octets[0] {
            4 => {
                save(corpus, "command", &file, &pdu.octets[8..72])?;
                &["connect"]
            }
            7 => &["identify", "log", "discovery"],
            _ => &[],
        };
        for target in targets.iter().filter(|_| pdo > 0) {
            save(corpus, target, &file, &pdu.octets[pdo..])?;
            written += 1;
        }
    }
    Ok(written)
}

/// What one end received on one connection, in one file: for the queue pairs' state machines.
fn write_streams(corpus: &Path, name: &str, pdus: &[Recorded]) -> Result<usize> {
    let mut streams: BTreeMap<(usize, bool), Vec<u8>> = BTreeMap::new();
    for pdu in pdus {
        let key = (pdu.connection, pdu.from_host);
        // The targets' own first octets: digests and policy, size of the pieces less one. ICReq and ICResp
        // come first, with the digests in octet 11.
        let stream = streams.entry(key).or_insert_with(|| vec![pdu.octets[11] & 3, u8::MAX]);
        if stream.len() + pdu.octets.len() <= SEED_BYTES_MAX {
            stream.extend_from_slice(&pdu.octets);
        }
    }
    for ((connection, from_host), octets) in &streams {
        let target = if *from_host { "target_qpair" } else { "host_qpair" };
        save(corpus, target, &format!("{name}-{connection}"), octets)?;
    }
    Ok(streams.len())
}

fn save(corpus: &Path, target: &str, name: &str, octets: &[u8]) -> Result<()> {
    let folder = corpus.join(target);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    fs::write(folder.join(name), octets).context("writing a seed")
}
