use super::*;
use proptest::prelude::*;
use roadtrain_wire::nbd::{NbdError, OptionHeader, transmission_flag};

const FLAGS: u16 = transmission_flag::HAS_FLAGS | transmission_flag::SEND_FLUSH;

/// Returns a greeting of a fixed newstyle server.
fn greeting() -> Vec<u8> {
    Greeting::new(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).as_bytes().to_vec()
}

fn reply(option: OptionCode, reply: OptionReplyCode, data: &[u8]) -> Vec<u8> {
    let mut bytes = OptionReplyHeader::new(option, reply, data.len() as u32).as_bytes().to_vec();
    bytes.extend(data);
    bytes
}

/// Feeds `bytes` as they are wanted; returns the last step.
fn feed(
    handshake: &mut NbdClientHandshake,
    bytes: &[u8],
) -> Result<NbdHandshakeStep, NbdServerError> {
    let (mut at, mut step) = (0, NbdHandshakeStep::More);
    while handshake.wanted() > 0 && at + handshake.wanted() <= bytes.len() {
        let end = at + handshake.wanted();
        step = handshake.receive(&bytes[at..end])?;
        at = end;
        if step != NbdHandshakeStep::More {
            break;
        }
    }
    assert!(at == bytes.len() || handshake.wanted() > bytes.len() - at, "bytes are left");
    Ok(step)
}

/// Returns the options that the client has sent.
fn options(handshake: &mut NbdClientHandshake) -> Vec<OptionCode> {
    let bytes = handshake.take_outgoing();
    let (mut rest, mut options) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        match OptionHeader::parse(rest) {
            Ok(header) => {
                options.push(header.option());
                rest = &rest[OptionHeader::BYTES + header.length() as usize..];
            }
            Err(NbdError::Magic { .. }) => rest = &rest[4..], // the client's flags
            Err(error) => panic!("{error}"),
        }
    }
    options
}

fn started() -> NbdClientHandshake {
    let mut handshake = NbdClientHandshake::new("disk", false);
    feed(&mut handshake, &greeting()).unwrap();
    assert_eq!(options(&mut handshake), [OptionCode::STRUCTURED_REPLY]);
    handshake
}

/// Continues until GO is sent, without structured replies.
fn at_go() -> NbdClientHandshake {
    let mut handshake = started();
    let refusal = reply(OptionCode::STRUCTURED_REPLY, OptionReplyCode::ERR_UNSUP, b"no");
    feed(&mut handshake, &refusal).unwrap();
    assert_eq!(options(&mut handshake), [OptionCode::GO]);
    handshake
}

fn go(code: OptionReplyCode, data: &[u8]) -> Vec<u8> {
    reply(OptionCode::GO, code, data)
}

#[test]
fn a_server_with_all_features() {
    let mut handshake = started();
    let ack = |option| reply(option, OptionReplyCode::ACK, &[]);
    feed(&mut handshake, &ack(OptionCode::STRUCTURED_REPLY)).unwrap();
    assert_eq!(options(&mut handshake), [OptionCode::SET_META_CONTEXT]);
    let context = [&7u32.to_be_bytes()[..], BASE_ALLOCATION.as_bytes()].concat();
    let code = OptionReplyCode::META_CONTEXT;
    feed(&mut handshake, &reply(OptionCode::SET_META_CONTEXT, code, &context)).unwrap();
    feed(&mut handshake, &ack(OptionCode::SET_META_CONTEXT)).unwrap();
    assert_eq!(options(&mut handshake), [OptionCode::GO]);
    let sizes = InfoBlockSize::new(1, 65536, 1 << 25);
    feed(&mut handshake, &go(OptionReplyCode::INFO, sizes.as_bytes())).unwrap();
    let export = InfoExport::new(1 << 20, FLAGS);
    feed(&mut handshake, &go(OptionReplyCode::INFO, export.as_bytes())).unwrap();
    feed(&mut handshake, &go(OptionReplyCode::INFO, &[0, 1, b'x'])).unwrap();
    let step = feed(&mut handshake, &go(OptionReplyCode::ACK, &[])).unwrap();
    let terms = NbdTerms {
        bytes: 1 << 20,
        flags: FLAGS,
        bytes_min: 1,
        bytes_preferred: 65536,
        bytes_max: 1 << 25,
        is_structured: true,
        allocation: Some(7),
    };
    assert_eq!(step, NbdHandshakeStep::Done(terms));
    assert_eq!((handshake.wanted(), handshake.take_outgoing().len()), (0, 0));
}

#[test]
fn a_server_without_features() {
    let mut handshake = at_go();
    let export = InfoExport::new(512, FLAGS);
    feed(&mut handshake, &go(OptionReplyCode::INFO, export.as_bytes())).unwrap();
    let step = feed(&mut handshake, &go(OptionReplyCode::ACK, &[])).unwrap();
    let terms = NbdTerms { bytes: 512, flags: FLAGS, ..NbdTerms::default() };
    assert_eq!(step, NbdHandshakeStep::Done(terms));
}

#[test]
fn tls_comes_before_the_export_is_named() {
    let mut handshake = NbdClientHandshake::new("disk", true);
    feed(&mut handshake, &greeting()).unwrap();
    assert_eq!(options(&mut handshake), [OptionCode::STARTTLS]);
    let ack = reply(OptionCode::STARTTLS, OptionReplyCode::ACK, &[]);
    assert_eq!(feed(&mut handshake, &ack), Ok(NbdHandshakeStep::StartTls));
    assert_eq!(options(&mut handshake), [OptionCode::STRUCTURED_REPLY]);
    let mut handshake = NbdClientHandshake::new("disk", true);
    feed(&mut handshake, &greeting()).unwrap();
    let refusal = reply(OptionCode::STARTTLS, OptionReplyCode::ERR_UNSUP, b"no TLS\n");
    let error = feed(&mut handshake, &refusal).unwrap_err().to_string();
    assert!(error.contains("refuses STARTTLS: ERR_UNSUP (no TLS\\n)"), "{error}");
}

#[test]
fn a_refusal_has_its_reason_and_advice() {
    for (code, why) in [
        (OptionReplyCode::ERR_UNKNOWN, "export=NAME"),
        (OptionReplyCode::ERR_TLS_REQD, "tls-psk=FILE"),
        (OptionReplyCode::ERR_POLICY, "configuration"),
        (OptionReplyCode::ERR_SHUTDOWN, "ERR_SHUTDOWN"),
    ] {
        let error = feed(&mut at_go(), &go(code, &[])).unwrap_err().to_string();
        assert!(error.contains("refuses GO") && error.contains(why), "{error}");
    }
}

#[test]
fn what_breaks_the_protocol_is_named() {
    let export = InfoExport::new(512, FLAGS);
    let sizes = |min, preferred, max| {
        go(OptionReplyCode::INFO, InfoBlockSize::new(min, preferred, max).as_bytes())
    };
    for (bytes, why) in [
        (reply(OptionCode::INFO, OptionReplyCode::ACK, &[]), "option INFO"),
        (go(OptionReplyCode::META_CONTEXT, &[]), "type META_CONTEXT"),
        (go(OptionReplyCode::ACK, &[]), "type ACK: the size of the export is missing"),
        (go(OptionReplyCode::INFO, &export.as_bytes()[..11]), "length 11"),
        (go(OptionReplyCode::INFO, &[]), "length 0"),
        (sizes(3, 4096, 4096), "minimum 3"),
        (sizes(0, 4096, 4096), "minimum 0"),
        (sizes(512, 256, 4096), "preferred 256"),
        (sizes(512, 512, 0), "maximum 0"),
        (vec![0; 20], "magic 0x0"),
    ] {
        let error = feed(&mut at_go(), &bytes).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
    let long = OptionReplyHeader::new(OptionCode::GO, OptionReplyCode::INFO, u32::MAX);
    let error = feed(&mut at_go(), long.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("length 4294967295"), "{error}");
    let endless = go(OptionReplyCode::INFO, &[0, 1]).repeat(REPLIES_MAX + 1);
    let error = feed(&mut at_go(), &endless).unwrap_err().to_string();
    assert!(error.contains("64 replies at most"), "{error}");
}

#[test]
fn old_servers_are_refused_with_advice() {
    for (greeting, why) in [
        (Greeting::new(0).as_bytes().to_vec(), "fixed newstyle"),
        (b"NBDMAGIC\x00\x00\x42\x02\x81\x86\x12\x53\0\0".to_vec(), "oldstyle"),
        (b"SSH-2.0-OpenSSH_9".iter().chain(b"x").copied().collect(), "magic"),
    ] {
        let mut handshake = NbdClientHandshake::new("", false);
        let error = feed(&mut handshake, &greeting).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}

proptest! {
    #[test]
    fn any_replies_end_in_an_error_or_wait(bytes: Vec<u8>, step in 0usize..3) {
        let mut handshake = match step {
            0 => NbdClientHandshake::new("x", false),
            1 => started(),
            _ => at_go(),
        };
        prop_assert!(handshake.wanted() <= REPLY_BYTES_MAX);
        let done = feed(&mut handshake, &bytes);
        prop_assert!(!matches!(done, Ok(NbdHandshakeStep::Done(_))));
    }
}
