//! Handshakes between our two ends, and attacks of hostile peers.

use roadtrain_proto::security::{Secret, Suite, TlsPsk};
use roadtrain_tls::{
    Acceptor, BLOCKS_MAX, FATAL_DECRYPT_ERROR, FATAL_UNKNOWN_PSK_IDENTITY, HANDSHAKE_BYTES_MAX,
    Handshake, TlsError, TlsSessionKeys,
};

const SUITES: [Suite; 2] = [Suite::Aes128GcmSha256, Suite::Aes256GcmSha384];

fn psk(identity: &str, fill: u8, suite: Suite) -> TlsPsk {
    let psk = Secret::new(&vec![fill; suite.hash().bytes()]);
    TlsPsk { identity: identity.to_owned(), psk, suite }
}

fn acceptor(keys: Vec<TlsPsk>) -> Acceptor {
    Acceptor::new(move |identity| keys.iter().find(|k| k.identity == identity).cloned()).unwrap()
}

/// Returns the results of the host's and of the target's handshake; bytes go `step` at a time.
fn shake(host: &mut Handshake, target: &mut Handshake, step: usize) -> [Result<(), TlsError>; 2] {
    for _ in 0..8 {
        let out = std::mem::take(host.outgoing());
        for part in out.chunks(step) {
            if let Err(error) = target.receive(part) {
                let alert = std::mem::take(target.outgoing());
                return [host.receive(&alert), Err(error)];
            }
        }
        let out = std::mem::take(target.outgoing());
        for part in out.chunks(step) {
            if let Err(error) = host.receive(part) {
                return [Err(error), Ok(())];
            }
        }
    }
    [Ok(()), Ok(())]
}

fn keys(psk: &TlsPsk, step: usize) -> [TlsSessionKeys; 2] {
    let acceptor = acceptor(vec![psk.clone()]);
    let mut host = Handshake::connect(psk.clone()).unwrap();
    let mut target = acceptor.accept().unwrap();
    for end in shake(&mut host, &mut target, step) {
        end.unwrap();
    }
    assert!(host.is_done() && target.is_done());
    [host, target].map(|end| end.keys(BLOCKS_MAX).unwrap())
}

/// One end seals, the other opens.
fn pass(from: &mut TlsSessionKeys, to: &mut TlsSessionKeys, data: &[u8]) {
    let mut sealed = vec![0; from.sealer.sealed_bytes(data.len())];
    let length = from.sealer.seal([data].into_iter(), data.len(), &mut sealed).unwrap();
    assert_eq!(length, sealed.len());
    let mut out = vec![0; sealed.len()];
    let opened = to.opener.open(&sealed, &mut [&mut out[..]]).unwrap();
    assert_eq!((opened.used, opened.data), (length, data.len()));
    assert_eq!(&out[..data.len()], data);
}

#[test]
fn both_suites_agree_on_keys() {
    for suite in SUITES {
        for step in [1, 7, usize::MAX] {
            let psk = psk("NVMe1R01 host target digest", 7, suite);
            let [mut host, mut target] = keys(&psk, step);
            assert_eq!((host.suite, target.suite), (suite, suite));
            assert_eq!(target.identity, psk.identity);
            pass(&mut host, &mut target, b"what hosts send");
            pass(&mut target, &mut host, &[9; 40_000]);
            pass(&mut host, &mut target, &[8; 16_384]);
        }
    }
}

/// Data that arrives with the last message of the handshake is not lost.
#[test]
fn data_may_follow_the_handshake_at_once() {
    let psk = psk("someone", 7, SUITES[0]);
    let acceptor = acceptor(vec![psk.clone()]);
    let mut host = Handshake::connect(psk).unwrap();
    let mut target = acceptor.accept().unwrap();
    target.receive(&std::mem::take(host.outgoing())).unwrap();
    host.receive(&std::mem::take(target.outgoing())).unwrap();
    let mut last = std::mem::take(host.outgoing());
    let mut host = host.keys(BLOCKS_MAX).unwrap();
    let mut record = vec![0; host.sealer.sealed_bytes(5)];
    host.sealer.seal([&b"ICReq"[..]].into_iter(), 5, &mut record).unwrap();
    last.extend(&record);
    target.receive(&last).unwrap();
    assert_eq!(target.keys(BLOCKS_MAX).unwrap().rest, record);
}

/// A host with another key receives the same from the target as one without a key.
#[test]
fn refusals_reveal_nothing() {
    for suite in SUITES {
        let ours = psk("someone", 7, suite);
        for (offered, unknown) in
            [(psk("someone", 8, suite), false), (psk("other", 7, suite), true)]
        {
            let acceptor = acceptor(vec![ours.clone()]);
            let mut host = Handshake::connect(offered).unwrap();
            let mut target = acceptor.accept().unwrap();
            let out = std::mem::take(host.outgoing());
            let error = target.receive(&out).unwrap_err();
            match unknown {
                true => {
                    assert!(
                        matches!(&error, TlsError::UnknownIdentity(i) if i == "other"),
                        "{error}"
                    )
                }
                false => {
                    assert!(matches!(&error, TlsError::WrongKey(i) if i == "someone"), "{error}")
                }
            }
            assert!(error.is_refusal());
            let answer = std::mem::take(target.outgoing());
            assert_eq!(answer, FATAL_DECRYPT_ERROR);
            let error = host.receive(&answer).unwrap_err();
            assert!(matches!(error, TlsError::Alert(51)), "{error}");
            assert!(error.is_refusal());
        }
    }
}

/// A host whose PSK was generated by an authentication, and is expired, has to authenticate again.
#[test]
fn a_generated_key_that_is_not_known_is_refused_as_such() {
    let acceptor = acceptor(vec![psk("NVMe1G01 host target digest", 7, SUITES[0])]);
    for (identity, fill, alert) in [
        ("NVMe1G01 host target other", 7, FATAL_UNKNOWN_PSK_IDENTITY),
        ("NVMe0G01 host target", 7, FATAL_UNKNOWN_PSK_IDENTITY),
        ("NVMe1G01 host target digest", 8, FATAL_DECRYPT_ERROR),
        ("NVMe1R01 host target other", 7, FATAL_DECRYPT_ERROR),
    ] {
        let mut host = Handshake::connect(psk(identity, fill, SUITES[0])).unwrap();
        let mut target = acceptor.accept().unwrap();
        target.receive(&std::mem::take(host.outgoing())).unwrap_err();
        assert_eq!(target.outgoing()[..], alert, "{identity}");
        let error = host.receive(&alert).unwrap_err();
        assert!(matches!(error, TlsError::Alert(code) if code == alert[6]), "{error}");
    }
}

/// A key is for one suite: a host that has it for the other is refused.
#[test]
fn a_key_is_for_its_suite() {
    let acceptor = acceptor(vec![psk("someone", 7, SUITES[0])]);
    let mut host = Handshake::connect(psk("someone", 7, SUITES[1])).unwrap();
    let mut target = acceptor.accept().unwrap();
    let [host, target] = shake(&mut host, &mut target, usize::MAX);
    assert!(host.is_err() && target.is_err());
}

#[test]
fn nonsense_ends_the_handshake() {
    let acceptor = acceptor(vec![psk("someone", 7, SUITES[0])]);
    for nonsense in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0x16, 3, 1, 0, 4, 0xff, 0, 0, 0],
        &[0; 128],
        &[0x15, 3, 3, 0, 2, 2, 40],
    ] {
        let mut target = acceptor.accept().unwrap();
        assert!(target.receive(nonsense).is_err(), "{nonsense:?}");
    }
}

/// A peer that only continues to send is refused, whatever length it announces.
#[test]
fn a_handshake_has_a_size() {
    let acceptor = acceptor(vec![psk("someone", 7, SUITES[0])]);
    let mut target = acceptor.accept().unwrap();
    // A handshake message of 64 KiB, in records of 4 KiB.
    let mut message = vec![1, 1, 0, 0];
    message.resize(64 << 10, 0);
    let mut failed = None;
    for part in message.chunks(4096) {
        let mut record = vec![0x16, 3, 1, 0x10, 0];
        record.extend(part);
        if let Err(error) = target.receive(&record) {
            failed = Some(error);
            break;
        }
    }
    assert!(failed.is_some(), "more than {HANDSHAKE_BYTES_MAX} bytes");
}

/// A ClientHello with any byte changed never makes keys.
#[test]
fn an_altered_hello_is_refused() {
    let key = psk("someone", 7, SUITES[0]);
    let acceptor = acceptor(vec![key.clone()]);
    let whole = std::mem::take(Handshake::connect(key).unwrap().outgoing());
    for at in (0..whole.len()).step_by(3) {
        let mut hello = whole.clone();
        hello[at] ^= 0x10;
        let mut target = acceptor.accept().unwrap();
        let result = target.receive(&hello);
        // A longer length waits for more; the version in the record's header is not authenticated.
        assert!(result.is_err() || !target.is_done(), "byte {at}");
        assert!(
            result.is_err() || target.outgoing().is_empty() || (1..3).contains(&at),
            "byte {at}"
        );
    }
}
