//! The PSKs that a target's hosts have made by authenticating (secure channel concatenation), until they use them.

use super::channel::SecuredAs;
use super::tls_key::{GeneratedPsk, TlsPsk};
use crate::time::Instant;
use core::time::Duration;
use std::collections::BTreeMap;

/// How long a PSK may be used for new connections.
const LIFETIME: Duration = Duration::from_secs(3600);
/// Most PSKs of one host: it makes one each time that it begins anew.
const OF_HOST_MAX: usize = 64;
/// Most of all hosts.
const ALL_MAX: usize = 8192;

/// PSKs by their identity. When there is no room for another one the oldest goes, of its host or of all.
#[derive(Debug, Default)]
pub struct GeneratedPsks {
    by_identity: BTreeMap<String, Kept>,
    /// Which is the next one.
    next: u64,
    /// No one's time is over before.
    due: Option<Instant>,
}

#[derive(Debug)]
struct Kept {
    number: u64,
    until: Instant,
    psk: TlsPsk,
    whose: SecuredAs,
}

impl GeneratedPsks {
    /// A host has authenticated, and made one.
    pub fn keep(&mut self, now: Instant, (hostnqn, subnqn): (&str, &str), made: &GeneratedPsk) {
        self.expire(now);
        let of_host = self.by_identity.values().filter(|kept| kept.whose.hostnqn == hostnqn);
        if of_host.count() >= OF_HOST_MAX {
            self.drop_oldest(|kept| kept.whose.hostnqn == hostnqn);
        } else if self.by_identity.len() >= ALL_MAX {
            self.drop_oldest(|_| true);
        }
        let whose =
            SecuredAs { hostnqn: hostnqn.into(), subnqn: subnqn.into(), by_generated: true };
        let (psk, number) = (made.tls_psk(hostnqn, subnqn), self.next);
        self.next += 1;
        let until = now + LIFETIME;
        self.due = Some(self.due.map_or(until, |due| due.min(until)));
        let kept = Kept { number, until, psk: psk.clone(), whose };
        self.by_identity.insert(psk.identity, kept);
    }

    fn drop_oldest(&mut self, is_of: impl Fn(&Kept) -> bool) {
        let oldest = self.by_identity.iter().filter(|(_, kept)| is_of(kept));
        let oldest = oldest.min_by_key(|(_, kept)| kept.number).map(|(name, _)| name.clone());
        oldest.map(|identity| self.by_identity.remove(&identity));
    }

    /// The PSK that an identity names, and whose it is.
    #[must_use]
    pub fn look_up(&self, now: Instant, identity: &str) -> Option<(TlsPsk, SecuredAs)> {
        let kept = self.by_identity.get(identity).filter(|kept| kept.until > now)?;
        Some((kept.psk.clone(), kept.whose.clone()))
    }

    /// Those of hosts that are not `good` any more go.
    pub fn retain(&mut self, is_good: impl Fn(&str) -> bool) {
        self.by_identity.retain(|_, kept| is_good(&kept.whose.hostnqn));
    }

    /// When [`GeneratedPsks::expire`] is to be called.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// Those whose time is over go, and their octets with them.
    pub fn expire(&mut self, now: Instant) {
        if self.due.is_some_and(|due| due <= now) {
            self.by_identity.retain(|_, kept| kept.until > now);
            self.due = self.by_identity.values().map(|kept| kept.until).min();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::{Hash, Secret};

    const SUBSYSTEM: &str = "nqn.subsystem";

    fn made(number: u16) -> GeneratedPsk {
        let key = Secret::new(&[7; 32]);
        GeneratedPsk::new(Hash::Sha256, &key, &number.to_le_bytes(), &[1; 32]).unwrap()
    }

    fn identity(host: &str, number: u16) -> String {
        made(number).tls_psk(host, SUBSYSTEM).identity
    }

    #[test]
    fn a_psk_is_found_by_its_identity_for_an_hour() {
        let mut psks = GeneratedPsks::default();
        let now = Instant(5);
        psks.keep(now, ("nqn.host", SUBSYSTEM), &made(1));
        let name = identity("nqn.host", 1);
        assert!(name.starts_with("NVMe1G01 nqn.host nqn.subsystem "));
        let (psk, whose) = psks.look_up(now, &name).unwrap();
        assert_eq!(psk, made(1).tls_psk("nqn.host", SUBSYSTEM));
        let (hostnqn, subnqn) = ("nqn.host".into(), SUBSYSTEM.into());
        assert_eq!(whose, SecuredAs { hostnqn, subnqn, by_generated: true });
        for other in [identity("nqn.host", 2), identity("nqn.other", 1), name.replace("1G", "1R")] {
            assert_eq!(psks.look_up(now, &other), None, "{other}");
        }
        assert!(psks.look_up(Instant(4) + LIFETIME, &name).is_some());
        assert_eq!(psks.look_up(now + LIFETIME, &name), None);
        assert_eq!(psks.by_identity.len(), 1);
        psks.keep(Instant(7), ("nqn.host", SUBSYSTEM), &made(2));
        assert_eq!(psks.deadline(), Some(now + LIFETIME));
        psks.expire(Instant(4) + LIFETIME);
        assert_eq!(psks.by_identity.len(), 2);
        psks.expire(now + LIFETIME);
        assert_eq!(psks.by_identity.len(), 1);
        assert_eq!(psks.deadline(), Some(Instant(7) + LIFETIME));
        psks.expire(Instant(7) + LIFETIME);
        assert!(psks.by_identity.is_empty());
        assert_eq!(psks.deadline(), None);
    }

    #[test]
    fn a_host_has_room_for_some_and_takes_none_of_others() {
        let mut psks = GeneratedPsks::default();
        psks.keep(Instant(0), ("nqn.quiet", SUBSYSTEM), &made(0));
        for number in 0..200 {
            psks.keep(Instant(1), ("nqn.loud", SUBSYSTEM), &made(number));
        }
        assert_eq!(psks.by_identity.len(), 1 + OF_HOST_MAX);
        let is_there = |host, number| psks.look_up(Instant(1), &identity(host, number)).is_some();
        assert!(is_there("nqn.quiet", 0));
        assert!(is_there("nqn.loud", 199) && is_there("nqn.loud", 136));
        assert!(!is_there("nqn.loud", 135));
    }

    #[test]
    fn all_hosts_together_have_a_limit() {
        let mut psks = GeneratedPsks::default();
        let host = |number: usize| format!("nqn.host{number}");
        for number in 0..=ALL_MAX {
            psks.keep(Instant(0), (&host(number), SUBSYSTEM), &made(0));
        }
        assert_eq!(psks.by_identity.len(), ALL_MAX);
        assert_eq!(psks.look_up(Instant(0), &identity(&host(0), 0)), None);
        assert!(psks.look_up(Instant(0), &identity(&host(1), 0)).is_some());
        psks.retain(|hostnqn| hostnqn == host(1));
        assert_eq!(psks.by_identity.len(), 1);
    }
}
