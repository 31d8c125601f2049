//! Sessions of Linux's host with Linux's target over TLS (`tests/traces/tls`). Our target accepts their ClientHellos,
//! and the logged secrets open their records. Another program, written first, has made the listings.

use roadtrain_proto::security::{Secret, Suite, TlsKey, TlsKeys, TlsPsk};
use roadtrain_tls::{Acceptor, BLOCKS_MAX, Opener, TlsError, TrafficSecret};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Sessions, and the bytes of their configured PSK's line.
const CONFIGURED: [(&str, &str); 7] = [
    ("tls-256", KEY_256),
    ("tls-384", KEY_384),
    ("tls-00", KEY_00),
    ("tls-256-v0", KEY_256),
    ("tls-384-v0", KEY_384),
    ("tls-256-compat", KEY_256),
    ("trixie-tls-256-discovery", KEY_256),
];
const KEY_256: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const KEY_384: &str =
    "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";
const KEY_00: &str = "NVMeTLSkey-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const HOSTNQN: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000015";
/// Sessions with secure channel concatenation: an authentication has generated the PSK.
const GENERATED: [&str; 2] = ["concat-256", "concat-384"];

const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

fn file(name: &str, kind: &str) -> PathBuf {
    let ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut folders = ancestors.map(|folder| folder.join("tests/traces/tls"));
    let folder = folders.find(|folder| folder.is_dir()).expect("it is part of the sources");
    folder.join(format!("{name}.{kind}"))
}

fn text(name: &str, kind: &str) -> String {
    std::fs::read_to_string(file(name, kind)).expect("a readable file")
}

/// Bytes sent over one connection: by the host, by the target.
type RecordedConnection = [Vec<u8>; 2];

/// Payloads of one direction by sequence number.
type Payloads<'a> = BTreeMap<u32, &'a [u8]>;

/// Returns the connections of a recording, in the order of their SYNs. A stream ends where packets are missing.
fn connections(name: &str) -> Vec<RecordedConnection> {
    const SYN: u8 = 2;
    let pcap = std::fs::read(file(name, "pcap")).expect("a readable recording");
    let u16_at = |at: usize| u16::from_be_bytes([pcap[at], pcap[at + 1]]);
    // Ports of host and target, and the bytes that each has sent.
    let mut found: Vec<([u16; 2], [Payloads<'_>; 2])> = Vec::new();
    let mut at = 24;
    while at < pcap.len() {
        let stored = u32::from_le_bytes(pcap[at + 8..at + 12].try_into().expect("4 bytes"));
        let ip = at + 16 + 14;
        let end = ip + usize::from(u16_at(ip + 2));
        let tcp = ip + usize::from(pcap[ip] & 15) * 4;
        at += 16 + stored as usize;
        let ports = [u16_at(tcp), u16_at(tcp + 2)];
        let sequence = u32::from_be_bytes(pcap[tcp + 4..tcp + 8].try_into().expect("4 bytes"));
        let is_syn = pcap[tcp + 13] & SYN != 0;
        if is_syn && ports[1] / 10 == 442 {
            found.push((ports, Default::default()));
        }
        let from_host = ports[1] / 10 == 442;
        let ports = if from_host { ports } else { [ports[1], ports[0]] };
        let (_, streams) = found.iter_mut().rfind(|(p, _)| *p == ports).expect("a SYN came first");
        let payload = &pcap[tcp + usize::from(pcap[tcp + 12] >> 4) * 4..end];
        // A SYN takes a number, so the data behind it begins with an empty payload.
        let sequence = sequence.wrapping_add(is_syn.into());
        if is_syn || !payload.is_empty() {
            let known = streams[usize::from(!from_host)].entry(sequence).or_default();
            *known = if payload.len() > known.len() { payload } else { *known };
        }
    }
    found.into_iter().map(|(_, streams)| streams.map(|stream| joined(&stream))).collect()
}

fn joined(payloads: &Payloads<'_>) -> Vec<u8> {
    let mut stream = Vec::new();
    let Some((&first, _)) = payloads.first_key_value() else { return stream };
    while let Some(payload) = payloads.get(&first.wrapping_add(stream.len() as u32))
        && !payload.is_empty()
    {
        stream.extend_from_slice(payload);
    }
    stream
}

/// Returns the records at the start of a stream, headers included.
fn records(mut stream: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while let Some(&[_, _, _, length_1, length_0]) = stream.first_chunk() {
        let length = 5 + usize::from(u16::from_be_bytes([length_1, length_0]));
        let Some((record, rest)) = stream.split_at_checked(length) else { break };
        records.push(record);
        stream = rest;
    }
    records
}

/// Returns the connections that begin with TLS.
fn secured(name: &str) -> Vec<RecordedConnection> {
    let mut connections = connections(name);
    connections.retain(|[host, _]| host.first() == Some(&HANDSHAKE));
    assert!(!connections.is_empty(), "{name}");
    connections
}

fn hello(connection: &RecordedConnection) -> &[u8] {
    records(&connection[0])[0]
}

/// Checks that a target with `resolve` accepts the ClientHello: its identity is known, and the binder is right.
fn taken(
    hello: &[u8],
    resolve: impl Fn(&str) -> Option<TlsPsk> + Send + Sync + 'static,
) -> Result<(), TlsError> {
    let mut target = Acceptor::new(resolve).unwrap().accept().unwrap();
    target.receive(hello)?;
    assert_eq!(target.outgoing()[0], HANDSHAKE, "a ServerHello");
    Ok(())
}

#[test]
fn recorded_hosts_are_taken_with_their_keys() {
    for (name, line) in CONFIGURED {
        let key = TlsKey::parse(line).unwrap();
        let keys = TlsKeys::from([(HOSTNQN.to_owned(), vec![key])]);
        for connection in secured(name) {
            let hello = hello(&connection);
            let known = keys.clone();
            if name.contains("v0") {
                // The digest would show which derivation the host has.
                assert!(hello.windows(6).any(|bytes| bytes.starts_with(b"NVMe0R")), "{name}");
            }
            taken(hello, move |identity| Some(known.find(identity)?.0))
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            let known = keys.clone();
            let wrong = taken(hello, move |identity| {
                let (psk, _) = known.find(identity)?;
                let mut bytes = psk.psk.reveal().to_vec();
                bytes[31] ^= 1;
                Some(TlsPsk { psk: Secret::new(&bytes), ..psk })
            });
            assert!(matches!(wrong, Err(TlsError::WrongKey(_))), "{name}: {wrong:?}");
            let unknown = taken(hello, |_| None);
            assert!(matches!(unknown, Err(TlsError::UnknownIdentity(_))), "{name}: {unknown:?}");
        }
    }
}

/// Returns both secrets of a connection: the host's and the target's.
fn secrets(name: &str, connection: &RecordedConnection) -> [TrafficSecret; 2] {
    let hex = |bytes: &[u8]| bytes.iter().map(|o| format!("{o:02x}")).collect::<String>();
    // Headers of record and message, version.
    let random = hex(&hello(connection)[5 + 4 + 2..][..32]);
    ["CLIENT", "SERVER"].map(|who| {
        let log = text(name, "keylog");
        let begin = format!("{who}_TRAFFIC_SECRET_0 {random} ");
        let secret = log.lines().find_map(|line| line.strip_prefix(&begin)).expect("a secret");
        let bytes: Vec<u8> = (0..secret.len() / 2)
            .map(|at| u8::from_str_radix(&secret[at * 2..][..2], 16).expect("a number"))
            .collect();
        let suite = match bytes.len() {
            32 => Suite::Aes128GcmSha256,
            _ => Suite::Aes256GcmSha384,
        };
        TrafficSecret::new(suite, &bytes).unwrap()
    })
}

/// Lengths of records with data: of the record, and of the data.
type RecordLengths = Vec<(usize, usize)>;
/// Names and lengths of PDUs.
type PduLengths = Vec<(String, usize)>;

/// Returns the data in the records of one direction.
fn open(secret: &TrafficSecret, stream: &[u8], is_host: bool) -> (Vec<u8>, RecordLengths) {
    let fresh = || Opener::new(secret.clone(), BLOCKS_MAX, is_host).unwrap();
    let (mut data, mut lengths, mut opener) = (Vec::new(), Vec::new(), None);
    for record in records(stream).into_iter().filter(|record| record[0] == DATA) {
        let mut place = vec![0; record.len()];
        let places = &mut [&mut place[..]];
        let opened = match &mut opener {
            // The end of the handshake is sealed with other keys.
            None => {
                let mut first = fresh();
                let Ok(opened) = first.open(record, places) else { continue };
                opener = Some(first);
                opened
            }
            Some(opener) => opener.open(record, places).expect("the next record"),
        };
        assert_eq!(opened.used, record.len());
        if opened.data > 0 {
            lengths.push((record.len(), opened.data));
            data.extend_from_slice(&place[..opened.data]);
        }
    }
    (data, lengths)
}

/// Returns names and lengths of the PDUs in a stream.
fn pdus(mut stream: &[u8]) -> PduLengths {
    let mut pdus = Vec::new();
    while let Some(&[kind, _, _, _, length @ ..]) = stream.first_chunk::<8>() {
        let length = u32::from_le_bytes(length) as usize;
        let Some((_, rest)) = stream.split_at_checked(length) else { break };
        let name = match kind {
            0 => "ICReq",
            1 => "ICResp",
            4 => "CapsuleCmd",
            5 => "CapsuleResp",
            6 => "H2CData",
            7 => "C2HData",
            9 => "R2T",
            _ => panic!("a PDU of type {kind}"),
        };
        pdus.push((name.to_owned(), length));
        stream = rest;
    }
    pdus
}

/// Returns the records with data and the PDUs that the listing has for one direction of a connection.
fn listed(name: &str, connection: usize, from_host: bool) -> (RecordLengths, PduLengths) {
    let begin = format!("{connection} {} ", if from_host { "H>C" } else { "C>H" });
    let bracketed = |word: &str| word.trim_matches(['[', ']']).parse::<usize>().expect("a number");
    let (mut records, mut pdus) = (Vec::new(), Vec::new());
    for line in text(name, "txt").lines().filter_map(|line| line.strip_prefix(&begin)) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["protected", "record", all, "of", "application", "data", data] => {
                records.push((bracketed(all), bracketed(data)));
            }
            ["protected" | "plain", ..] => {}
            [pdu, ..] => {
                let length = words.iter().find_map(|word| word.strip_prefix("plen="));
                pdus.extend(length.map(|length| (pdu.to_owned(), length.parse().unwrap())));
            }
            [] => {}
        }
    }
    (records, pdus)
}

#[test]
fn recorded_records_hold_what_the_listing_says() {
    let names = CONFIGURED.iter().map(|(name, _)| *name).chain(GENERATED);
    for name in names {
        let mut secured = 0;
        for (number, connection) in (1..).zip(connections(name)) {
            if connection[0].first() != Some(&HANDSHAKE) {
                continue; // before the authentication generated a PSK
            }
            secured += 1;
            let secrets = secrets(name, &connection);
            for from_host in [true, false] {
                let at = usize::from(!from_host);
                let (data, lengths) = open(&secrets[at], &connection[at], !from_host);
                let (records, listed) = listed(name, number, from_host);
                assert!(!records.is_empty(), "{name} {number}");
                assert_eq!(lengths, records, "{name} {number}");
                assert_eq!(pdus(&data), listed, "{name} {number}");
            }
        }
        assert!(secured > 0, "{name}");
    }
}
