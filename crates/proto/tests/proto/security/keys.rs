//! The written forms of keys, and PSKs.

use super::{HOST, SUBSYSTEM, counting, hex, unhex};
use proptest::prelude::*;
use roadtrain_proto::security::{
    Derivation, DhchapKey, GeneratedPsk, Hash, IdentityVersion, KeyError, Secret, Suite, TlsKey,
};

const TLS_256: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const TLS_384: &str =
    "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";
const TLS_00: &str = "NVMeTLSkey-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

/// Configured PSK, its derivation, the identity with H and S for the names, and the PSK.
const PSKS: &[(&str, IdentityVersion, bool, &str, &str)] = {
    use IdentityVersion::{V0, V1};
    &[
        (
            TLS_256,
            V1,
            false,
            "NVMe1R01 H S r3uMt6BpUSLZmCefmufxvHKVZpflWL0wYt7ev8loyDg=",
            "79d3d42c9053aa50c4372369e0ded12e03c114eec6c7d2e6ba82cf6e85145bbf",
        ),
        (
            TLS_256,
            V0,
            false,
            "NVMe0R01 H S",
            "5b37b74443339bb3b5a9bff6f54240dfe22bf913194cecf48a60c828d0cad2ae",
        ),
        (
            TLS_256,
            V1,
            true,
            "NVMe1R01 H S nJw7exZY1dGLZVVe7OVDQI9CCaGW1vlNpK04KfkW4oc=",
            "0cf5c29516abd4a7cb0038cb6518117c5dd7b0f6ad8f9c5301083f136e29a3a1",
        ),
        (
            TLS_256,
            V0,
            true,
            "NVMe0R01 H S",
            "554a49bed2fbb421a403caabc280de5e68d31c5517d6e7938f21ef694a2b3f8a",
        ),
        (
            TLS_384,
            V1,
            false,
            "NVMe1R02 H S qy9jLCzU2K7El1pNyO3FfXcuKvzvAAmWE0sttfYx7oN08KxoQjjESY/vwI03nxwx",
            "9a8e5b2e63884541b9b7780e0ca020041b4348dae1302e5e\
             0d10abfb6aeee07c55a18f1657ab981dc57507bc097e1c39",
        ),
        (
            TLS_384,
            V0,
            false,
            "NVMe0R02 H S",
            "96486ec9a91bd1f27828d555ff3f3cb3a2c5875cd293b876\
             418b9687db00d7526b369e6be382b4817a32622f596bf3db",
        ),
        (
            TLS_384,
            V1,
            true,
            "NVMe1R02 H S qH+a3OufE4eyYP4E/oOOBgYLjAW5cp2V8xLIvj8EXdhcKZvgU15Abr31dqG7zKYU",
            "2987019c1ac8fe0ad436156179d512ab19e86fb5bee6e654\
             1aed8619dde6b2b191c27222eaacc41c31a35711b802c891",
        ),
        (
            TLS_00,
            V1,
            false,
            "NVMe1R01 H S 1J8EDBZfWne9bCk+99tflJsC5rVzmuV8+mDel1cwwOg=",
            "1f5bdc6878ac61a0c9857a94ea5c321106db77e1f7f31adabf312e1030bcd49c",
        ),
        (
            TLS_00,
            V0,
            true,
            "NVMe0R01 H S",
            "141d808b8d7018429dfe136feeb074fa6d6099cdbe52223c38e2c5b1683eb009",
        ),
    ]
};

#[test]
fn psks_and_identities_are_those_of_the_vectors() {
    for &(line, version, compat, identity, psk) in PSKS {
        let key = TlsKey::parse(line).unwrap();
        let derived = key.tls_psk_by(HOST, SUBSYSTEM, Derivation { version, compat });
        let identity = identity.replace(" H S", &format!(" {HOST} {SUBSYSTEM}"));
        assert_eq!(derived.identity, identity);
        assert_eq!(hex(derived.psk.reveal()), psk, "{identity}");
        assert_eq!(derived.suite, key.suite());
    }
    let retained = TlsKey::parse(TLS_256).unwrap().retained(HOST, false);
    assert_eq!(
        hex(retained.secret().reveal()),
        "2c51d55dec3cb2242e5191f12d9a64841dee78e6fbeba8b8165275b54e192e88"
    );
    let key = TlsKey::parse(TLS_384).unwrap();
    assert_eq!(key.suite(), Suite::Aes256GcmSha384);
    assert_eq!(
        key.tls_psk(HOST, SUBSYSTEM),
        key.tls_psk_by(HOST, SUBSYSTEM, Derivation::default())
    );
}

#[test]
fn an_authentication_makes_the_psk_of_the_vectors() {
    let session_key = unhex("2397307efd4a255c9a03e38a792c03e0f3708fe82567b6a51a61a237a8a85467");
    let c1 = unhex("f61bd1dcf650bcaa8ae0705d4d5b53ddd44e3c165243f127f6e39672ea5bff33");
    let c2 = unhex("e7e38176fa72fc8ca129cc861a54aff5313ef54c409590a91c6f0bd915bc6c12");
    let session_key = Secret::new(&session_key);
    let generated = GeneratedPsk::new(Hash::Sha256, &session_key, &c1, &c2).unwrap();
    assert_eq!(
        hex(generated.secret().reveal()),
        "030d0b05cc8d144b763290523498f21e378b5d641c52ff6122cdc084e0f84508"
    );
    let psk = generated.tls_psk(HOST, SUBSYSTEM);
    assert!(psk.identity.starts_with(&format!("NVMe1G01 {HOST} {SUBSYSTEM} ")), "{}", psk.identity);
    assert_eq!(
        hex(psk.psk.reveal()),
        "161460134194af98304a52451800e86431857331840ff0147475a6fc2017f9ea"
    );
    assert_eq!(GeneratedPsk::new(Hash::Sha512, &session_key, &c1, &c2), None);
}

/// A key of counting bytes, and its transformation for the host.
const DHCHAP: &[(&str, &str)] = &[
    (
        "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
    ),
    (
        "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
        "8be1980f3325328db2cd31c6c2e01d140854ceaf5ddda6752a78cfd321be5f22",
    ),
    (
        "DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:",
        "30cec8fac3566772e1148bfbbf5a81b2b92f3d994c07263b1351f2a8faa65242c39d8faae85ad607a0b26a61b96e8e28",
    ),
    (
        "DHHC-1:03:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P4zODhA=:",
        "51075fca62ac831e086f8ff9cbd1e4b28bfd3e8851d7179ebe028893a750b3e3\
         cdb3f5b1a0227a84cd601d7087699e96ab12f59eab845a1aca323766b223d3a5",
    ),
];

#[test]
fn secrets_of_authentication_are_transformed_as_the_vectors() {
    for (id, &(line, transformed)) in (0..).zip(DHCHAP) {
        let key = DhchapKey::parse(line).unwrap();
        assert_eq!(key.hash().map_or(0, Hash::id), id);
        assert_eq!(hex(key.transform(HOST).reveal()), transformed);
        assert_eq!(*key.print(), line);
        let bytes = counting(0, [32, 32, 48, 64][id as usize]);
        assert_eq!(key, DhchapKey::new(Hash::from_id(id), &bytes).unwrap());
    }
}

#[test]
fn a_line_that_is_no_key_says_what_is_wrong() {
    let form = KeyError::Form("NVMeTLSkey-1");
    let crc = "NVMeTLSkey-1:01:BAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    for (line, wrong) in [
        ("", form),
        ("NVMeTLSkey-1", form),
        ("NVMeTLSkey-2:01:AAEC:", form),
        ("NVMeTLSkey-1:1:AAEC:", form),
        ("NVMeTLSkey-1:+1:AAEC:", form),
        (TLS_256.trim_end_matches(':'), form),
        (DHCHAP[1].0, form),
        ("NVMeTLSkey-1:01:AA*C:", KeyError::Base64),
        ("NVMeTLSkey-1:01:AAEC:AAEC:", KeyError::Base64),
        (crc, KeyError::Crc),
    ] {
        assert_eq!(TlsKey::parse(line), Err(wrong), "{line}");
    }
    let hash = |line: &str| TlsKey::parse(&line.replace(":01:", ":03:"));
    assert!(matches!(hash(TLS_256), Err(KeyError::Hash { hash: 3, .. })));
    assert!(matches!(TlsKey::parse("NVMeTLSkey-1:01::"), Err(KeyError::Length { found: 0, .. })));
    let other_length = TLS_256.replace(":01:", ":02:");
    assert!(matches!(TlsKey::parse(&other_length), Err(KeyError::Length { found: 32, .. })));
    let key = DhchapKey::parse(&DHCHAP[0].0.replace(":00:", ":04:"));
    assert!(matches!(key, Err(KeyError::Hash { hash: 4, .. })));
    assert!(TlsKey::new(Some(Hash::Sha512), &[0; 64]).is_err());
    assert!(DhchapKey::new(None, &[0; 33]).is_err());
}

#[test]
fn debug_shows_no_byte_of_a_key() {
    let key = TlsKey::parse(TLS_256).unwrap();
    let shown = format!("{key:?} {:?}", key.tls_psk(HOST, SUBSYSTEM));
    assert!(shown.contains("Secret(32 bytes)"), "{shown}");
    for telltale in ["79, d3", "0x79", "121, 211", "[0, 1", "AAEC", "79d3"] {
        assert!(!shown.contains(telltale), "{shown}");
    }
}

proptest! {
    /// A printed key is read again, and a changed character is detected.
    #[test]
    fn keys_survive_their_written_form(bytes: [u8; 48], at in 19usize..80, other in "[A-Za-z0-9+/]") {
        for hash in [None, Some(Hash::Sha384)] {
            let key = TlsKey::new(hash, &bytes).unwrap();
            let line = key.print();
            prop_assert_eq!(&TlsKey::parse(&format!(" {}\n", *line)).unwrap(), &key);
            let mut changed = line.to_string();
            changed.replace_range(at..=at, &other);
            prop_assert!(changed == *line || TlsKey::parse(&changed).is_err());
            let key = DhchapKey::new(hash, &bytes).unwrap();
            prop_assert_eq!(&DhchapKey::parse(&key.print()).unwrap(), &key);
        }
    }

    /// No line makes the parser panic.
    #[test]
    fn arbitrary_lines_are_refused_or_read(line in "(NVMeTLSkey-1|DHHC-1)?:0?[0-9]{0,3}:[A-Za-z0-9+/=]{0,90}:?") {
        let _ = (TlsKey::parse(&line), DhchapKey::parse(&line));
    }
}
