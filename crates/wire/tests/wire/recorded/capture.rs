//! Recorded sessions in `tests/traces`: a pcap reader, TCP reassembly and splitting into PDUs.
//!
//! Only the features that those files need: classic little-endian pcap, Ethernet, IPv4, no truncated packets. Sequence
//! numbers wrap; segments are repeated, overlap and arrive out of order.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Port of the target in every recording.
const TARGET_PORT: u16 = 4420;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// One PDU of the byte stream.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// Connection, counted from 1 in the order of their SYNs.
    pub(crate) connection: usize,
    /// True if the host sent it.
    pub(crate) from_host: bool,
    /// All bytes, digests included.
    pub(crate) bytes: Vec<u8>,
}

/// The folder of the recordings.
pub(crate) fn folder() -> PathBuf {
    let ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut folders = ancestors.map(|folder| folder.join("tests/traces"));
    folders.find(|folder| folder.is_dir()).expect("tests/traces is part of the sources")
}

/// Every recording, by name.
pub(crate) fn names() -> Vec<String> {
    let entries = fs::read_dir(folder()).expect("a folder");
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".pcap")?.into()))
        .collect();
    names.sort();
    assert!(names.len() >= 20, "recordings are missing: {names:?}");
    names
}

/// Returns the PDUs of a recording, in the order in which their last bytes arrived.
pub(crate) fn pdus(name: &str) -> Vec<Recorded> {
    pdus_of(name, usize::MAX)
}

/// Returns the PDUs of the first `count` connections: later ones may be TLS.
pub(crate) fn pdus_of(name: &str, count: usize) -> Vec<Recorded> {
    let pcap = fs::read(folder().join(format!("{name}.pcap"))).expect("a readable recording");
    let mut connections: Vec<CapturedConnection> = Vec::new();
    let mut found = Vec::new();
    for segment in segments(&pcap) {
        let from_host = segment.destination % 10_000 == TARGET_PORT;
        let peer = if from_host { segment.source } else { segment.destination };
        if segment.flags & (SYN | ACK) == SYN {
            connections.push(CapturedConnection { peer, streams: Default::default() });
        }
        let index = connections.iter().rposition(|c| c.peer == peer).expect("a SYN came first");
        if index >= count {
            continue;
        }
        let stream = &mut connections[index].streams[usize::from(from_host)];
        stream.add(&segment);
        while let Some(bytes) = stream.next_pdu() {
            found.push(Recorded { connection: index + 1, from_host, bytes });
        }
    }
    for stream in connections.iter().flat_map(|c| &c.streams) {
        assert!(stream.ready.is_empty() && stream.later.is_empty(), "{name}: bytes left over");
    }
    found
}

struct CapturedConnection {
    peer: u16,
    /// Streams from the target and from the host.
    streams: [CapturedStream; 2],
}

struct CapturedSegment<'a> {
    source: u16,
    destination: u16,
    sequence: u32,
    flags: u8,
    payload: &'a [u8],
}

fn u32_le(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u16_be(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

fn segments(pcap: &[u8]) -> Vec<CapturedSegment<'_>> {
    assert_eq!((u32_le(pcap, 0), u32_le(pcap, 20)), (0xa1b2_c3d4, 1), "classic pcap, Ethernet");
    let mut segments = Vec::new();
    let mut at = 24;
    while at < pcap.len() {
        let stored = u32_le(pcap, at + 8) as usize;
        assert_eq!(stored, u32_le(pcap, at + 12) as usize, "a packet was cut");
        let ip = &pcap[at + 16 + 14..at + 16 + stored];
        let tcp = &ip[usize::from(ip[0] & 15) * 4..usize::from(u16_be(ip, 2))];
        segments.push(CapturedSegment {
            source: u16_be(tcp, 0),
            destination: u16_be(tcp, 2),
            sequence: u32::from_be_bytes(tcp[4..8].try_into().expect("4 bytes")),
            flags: tcp[13],
            payload: &tcp[usize::from(tcp[12] >> 4) * 4..],
        });
        at += 16 + stored;
    }
    segments
}

/// One direction of one connection.
#[derive(Default)]
struct CapturedStream {
    /// Sequence number of the byte behind `ready`.
    next: u32,
    /// Bytes in order, not yet split.
    ready: Vec<u8>,
    /// Payloads by sequence number that may lie ahead of `next`.
    later: BTreeMap<u32, Vec<u8>>,
}

impl CapturedStream {
    fn add(&mut self, segment: &CapturedSegment<'_>) {
        if segment.flags & SYN != 0 {
            self.next = segment.sequence.wrapping_add(1);
        }
        if !segment.payload.is_empty() {
            let held = self.later.entry(segment.sequence).or_default();
            if segment.payload.len() > held.len() {
                *held = segment.payload.to_vec();
            }
        }
        // Takes the segments that follow directly; a repeated segment may begin before `next`.
        while let Some((&sequence, _)) =
            self.later.iter().find(|&(&s, _)| s.wrapping_sub(self.next) as i32 <= 0)
        {
            let payload = self.later.remove(&sequence).expect("just found");
            let known = self.next.wrapping_sub(sequence) as usize;
            let new = payload.get(known..).unwrap_or_default();
            self.ready.extend_from_slice(new);
            self.next = self.next.wrapping_add(new.len() as u32);
        }
    }

    fn next_pdu(&mut self) -> Option<Vec<u8>> {
        let plen = u32_le(self.ready.get(..8)?, 4) as usize;
        assert!(plen >= 8, "PLEN below the common header");
        (self.ready.len() >= plen).then(|| self.ready.drain(..plen).collect())
    }
}
