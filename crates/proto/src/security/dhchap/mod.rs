//! DH-HMAC-CHAP: a host proves that it has its key, and perhaps the controller that it has its own.
//!
//! ```text
//!     host                          controller
//!   Host::negotiate ---Negotiate--->  Controller::send        hashes and groups
//!   Host::challenge <--Challenge----  Controller::receive     C1, g^x
//!   Host::reply -------Reply------->  Controller::send        response; perhaps C2; g^y
//!   Host::success1 <---Success1-----  Controller::receive     perhaps its response
//!   Host::success2 ----Success2---->  Controller::send
//! ```
//!
//! Both are machines: messages and random octets in, messages out. Powers in the group take long: a machine gives
//! them away as [`Work`], and goes on when they were computed. Either end may give up with a Failure message.

mod controller;
mod group;
mod host;

pub use controller::{Controller, Progress, State};
pub use group::{Group, Powers, Work};
pub use host::{Challenged, Host, HostError};

use super::{DhchapKey, Hash, Secret};

/// Hashes and groups that may be negotiated, the best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Hashes.
    pub hashes: Vec<Hash>,
    /// Groups.
    pub groups: Vec<Group>,
}

impl Default for Offer {
    /// All; null comes last.
    fn default() -> Self {
        let mut groups = Group::ALL.to_vec();
        groups.rotate_left(1);
        Offer { hashes: Hash::ALL.to_vec(), groups }
    }
}

/// Who authenticates, and the transformed keys that this end has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parties {
    pub hostnqn: String,
    pub subnqn: String,
    /// The host's. A controller without it refuses the host.
    pub host_key: Option<Secret>,
    /// The controller's. A host that has it accepts no controller without it.
    pub controller_key: Option<Secret>,
}

/// The keys of both sides, as far as this end has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// The host's.
    pub host: Option<DhchapKey>,
    /// The controller's.
    pub controller: Option<DhchapKey>,
}

impl Keys {
    /// The two that authenticate, with the secrets that the keys are for them.
    #[must_use]
    pub fn parties(&self, hostnqn: &str, subnqn: &str) -> Parties {
        Parties {
            hostnqn: hostnqn.to_owned(),
            subnqn: subnqn.to_owned(),
            host_key: self.host.as_ref().map(|key| key.transform(hostnqn)),
            controller_key: self.controller.as_ref().map(|key| key.transform(subnqn)),
        }
    }
}

/// Fills a place with random octets.
pub type Random<'a> = &'a mut dyn FnMut(&mut [u8]);

/// What both ends know of a transaction.
#[derive(Clone, Debug)]
struct Transaction {
    t_id: u16,
    hash: Hash,
    group: Group,
}

/// A challenge, with the number that belongs to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Challenge {
    octets: Vec<u8>,
    seqnum: u32,
}

impl Challenge {
    fn new(hash: Hash, random: Random<'_>) -> Self {
        let mut octets = vec![0; hash.bytes()];
        random(&mut octets);
        let mut seqnum = [0; 4];
        random(&mut seqnum);
        // 0 would mean that nobody is challenged.
        Challenge { octets, seqnum: u32::from_le_bytes(seqnum).max(1) }
    }
}

/// Whose response it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Host,
    Controller,
}

impl Transaction {
    /// Ks: the hash of the secret that both ends have computed; without a group there is none.
    fn session_key(&self, shared: Option<&Secret>) -> Option<Secret> {
        shared.map(|shared| self.hash.digest(&[shared.reveal()]))
    }

    /// The response to a challenge.
    fn response(
        &self,
        role: Role,
        parties: &Parties,
        session_key: Option<&Secret>,
        challenge: &Challenge,
    ) -> Option<Secret> {
        let (own, other, key, name) = match role {
            Role::Host => (&parties.hostnqn, &parties.subnqn, &parties.host_key, &b"HostHost"[..]),
            Role::Controller => {
                (&parties.subnqn, &parties.hostnqn, &parties.controller_key, &b"Controller"[..])
            }
        };
        let octets = &challenge.octets[..];
        let augmented = match session_key {
            Some(key) => self.hash.hmac(key.reveal(), &[octets]),
            None => Secret::new(octets),
        };
        let parts = [
            augmented.reveal(),
            &challenge.seqnum.to_le_bytes(),
            &self.t_id.to_le_bytes(),
            &[0], // SC_C: no secure channel
            name,
            own.as_bytes(),
            &[0],
            other.as_bytes(),
        ];
        Some(self.hash.hmac(key.as_ref()?.reveal(), &parts))
    }
}

/// Splits `count` octets off.
fn take<'a>(octets: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = octets.split_at_checked(count)?;
    *octets = rest;
    Some(taken)
}
