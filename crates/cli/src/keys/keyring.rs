//! Keyrings: derived PSKs for TLS, in the kernel or in a file.

use super::file;
use crate::failure::{CommandFailure, CommandResult};
use roadtrain_proto::security::{Keyring, Secret, TlsPsk};
use roadtrain_system::keyring;
use roadtrain_system::memory;

/// Keyring in which nvme-cli keeps PSKs and the kernel finds them.
pub(crate) const DEFAULT: &str = ".nvme";
/// Prefix of PSK identities.
const PREFIX: &str = "NVMe";

/// Reads the PSKs of a keyring: one of the kernel, by name or number, or a file, whose name has a slash. `option` is
/// the setting's name.
///
/// # Errors
/// The keyring or file does not exist, or has other content.
pub(crate) fn read(option: &str, argument: &str) -> CommandResult<Keyring> {
    if argument.contains('/') {
        let text = file::text(option, argument)?;
        let wrong = |error| CommandFailure::usage(format!("{option}: {argument}: {error}"));
        return Keyring::parse(&text).map_err(wrong);
    }
    let failed = |error: std::io::Error| {
        let hint = "a keyring of the kernel is named as in /proc/keys, or by its number; a file has a / in its name, as ./keys";
        CommandFailure::failed(format!("{option}: {argument}: {error} ({hint})"))
    };
    // Runs before any byte of a key is in memory.
    memory::keep_secret().map_err(|error| CommandFailure::failed(format!("{option}: {error}")))?;
    let mut found = Keyring::default();
    for key in keyring::read(argument, PREFIX).map_err(failed)? {
        let added = found.add(&key.description, Secret::new(&key.payload));
        added.map_err(|error| CommandFailure::usage(format!("{option}: {argument}: {error}")))?;
    }
    Ok(found)
}

/// Returns the PSK for a host and a subsystem: the one with `identity`, else the only one of the best kind.
///
/// # Errors
/// There is no such PSK, or several.
pub(crate) fn psk(
    argument: &str,
    identity: Option<&str>,
    names: (&str, &str),
) -> CommandResult<TlsPsk> {
    let refuse =
        |why| CommandFailure::connect(format!("this host does not connect to {}: {why}", names.1));
    choose(&read("--keyring", argument)?, argument, identity, names).map_err(refuse)
}

fn choose(
    keyring: &Keyring,
    argument: &str,
    identity: Option<&str>,
    (hostnqn, subnqn): (&str, &str),
) -> Result<TlsPsk, String> {
    if let Some(identity) = identity {
        let Some((psk, of)) = keyring.find(identity) else {
            return Err(format!("--tls-key-identity: {argument} has no PSK with this identity"));
        };
        if (&of.hostnqn[..], &of.subnqn[..]) != (hostnqn, subnqn) {
            return Err(format!(
                "--tls-key-identity: this PSK is for host {} at {}, not for {hostnqn} at {subnqn}",
                of.hostnqn, of.subnqn
            ));
        }
        return Ok(psk);
    }
    match &keyring.of(hostnqn, subnqn)[..] {
        [psk] => Ok((*psk).clone()),
        [] => Err(format!(
            "keyring {argument}: it has no PSK for host {hostnqn} at {subnqn}: add one, as with nvme check-tls-key \
             --insert, or give --tls-key FILE"
        )),
        several => {
            let identities: Vec<&str> = several.iter().map(|psk| psk.identity.as_str()).collect();
            Err(format!(
                "keyring {argument}: several PSKs are for this host and subsystem; choose one by --tls-key-identity: {}",
                identities.join(", ")
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_proto::security::{Hash, TlsKey};

    const NAMES: (&str, &str) = ("nqn.host", "nqn.subsystem");

    fn psk(fill: u8, subnqn: &str) -> TlsPsk {
        TlsKey::new(Some(Hash::Sha256), &[fill; 32]).unwrap().tls_psk(NAMES.0, subnqn)
    }

    fn keyring(psks: &[&TlsPsk]) -> Keyring {
        let mut keyring = Keyring::default();
        psks.iter().for_each(|psk| keyring.add(&psk.identity, psk.psk.clone()).unwrap());
        keyring
    }

    #[test]
    fn one_psk_is_taken_and_of_several_the_one_that_is_named() {
        let (one, two, other) = (psk(1, NAMES.1), psk(2, NAMES.1), psk(1, "nqn.other"));
        let of = |psks: &[&TlsPsk], identity| choose(&keyring(psks), "ring", identity, NAMES);
        assert_eq!(of(&[&one, &other], None).unwrap(), one);
        assert_eq!(of(&[&one, &two], Some(&two.identity)).unwrap(), two);
        for (psks, identity, said) in [
            (&[&other][..], None, "no PSK for host nqn.host at nqn.subsystem"),
            (&[&one, &two][..], None, "choose one by --tls-key-identity"),
            (&[&one][..], Some(&two.identity[..]), "no PSK with this identity"),
            (&[&one, &other][..], Some(&other.identity[..]), "not for nqn.host at nqn.subsystem"),
        ] {
            let error = of(psks, identity).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
