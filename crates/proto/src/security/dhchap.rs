//! DH-HMAC-CHAP: the host proves that it has its key, and the controller optionally that it has its own.
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
//! With *secure channel concatenation*, both ends have generated a PSK as well. The host then closes the connection,
//! and opens all of its connections over TLS with that PSK.
//!
//! Both ends are state machines: messages and random bytes in, messages out. Exponentiation takes long: a machine
//! returns it as [`DhTask`], and continues once it is computed. Either end may abandon the authentication with a Failure
//! message.

mod controller;
mod group;
mod host;

pub use controller::{AuthController, AuthProgress, AuthState};
pub use group::{DhGroup, DhResult, DhTask};
pub use host::{AuthHost, AuthHostError, Challenged};

use super::{DhchapKey, GeneratedPsk, Hash, Secret, Suite};
use roadtrain_wire::auth::secure_channel;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::zerocopy::IntoBytes;

/// Hashes and groups that may be negotiated, the best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthOffer {
    pub hashes: Vec<Hash>,
    pub groups: Vec<DhGroup>,
}

impl Default for AuthOffer {
    /// All hashes and groups; the null group comes last.
    fn default() -> Self {
        let mut groups = DhGroup::ALL.to_vec();
        groups.rotate_left(1);
        AuthOffer { hashes: Hash::ALL.to_vec(), groups }
    }
}

/// Policy for PSKs of TLS (secure channel concatenation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Concatenation {
    /// No PSK: a host that requests one is refused.
    #[default]
    Refused,
    /// A PSK if the host requests one.
    Offered,
    /// Always a PSK: a host that does not request one is refused.
    Required,
}

impl AuthOffer {
    /// Returns the part of the offer that can generate a PSK: a session key and a cipher suite with the hash are
    /// needed.
    #[must_use]
    fn for_psk(&self) -> Self {
        let hashes = self.hashes.iter().filter(|hash| Suite::of_hash(**hash).is_some());
        let groups = self.groups.iter().filter(|group| **group != DhGroup::Null);
        AuthOffer { hashes: hashes.copied().collect(), groups: groups.copied().collect() }
    }
}

/// NQNs of both ends, and the transformed keys that this end has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthParties {
    pub hostnqn: String,
    pub subnqn: String,
    /// The host's key. A controller without it refuses the host.
    pub host_key: Option<Secret>,
    /// The controller's key. A host that has it accepts no controller without it.
    pub controller_key: Option<Secret>,
}

/// Keys of both ends, as far as this end has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DhchapKeys {
    pub host: Option<DhchapKey>,
    pub controller: Option<DhchapKey>,
}

impl DhchapKeys {
    /// Returns the two ends with their transformed keys.
    #[must_use]
    pub fn parties(&self, hostnqn: &str, subnqn: &str) -> AuthParties {
        AuthParties {
            hostnqn: hostnqn.to_owned(),
            subnqn: subnqn.to_owned(),
            host_key: self.host.as_ref().map(|key| key.transform(hostnqn)),
            controller_key: self.controller.as_ref().map(|key| key.transform(subnqn)),
        }
    }
}

/// Fills a buffer with random bytes.
pub type RandomSource<'a> = &'a mut dyn FnMut(&mut [u8]);

/// Parameters of a transaction that both ends know.
#[derive(Clone, Debug)]
struct Transaction {
    t_id: u16,
    hash: Hash,
    group: DhGroup,
    /// SC_C.
    secures: u8,
}

/// A challenge, with its sequence number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ChallengeValue {
    bytes: Vec<u8>,
    seqnum: u32,
}

impl ChallengeValue {
    fn new(hash: Hash, random: RandomSource<'_>) -> Self {
        let mut bytes = vec![0; hash.bytes()];
        random(&mut bytes);
        let mut seqnum = [0; 4];
        random(&mut seqnum);
        // 0 would mean that the controller is not challenged.
        ChallengeValue { bytes, seqnum: u32::from_le_bytes(seqnum).max(1) }
    }
}

/// Sender of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseRole {
    Host,
    Controller,
}

impl Transaction {
    /// True if the transaction generates a PSK.
    fn concatenates(&self) -> bool {
        self.secures == secure_channel::NEW_TLS_PSK
    }

    /// Returns the PSK of the session key and both challenges.
    fn psk(&self, session_key: Option<&Secret>, c1: &[u8], c2: &[u8]) -> Option<GeneratedPsk> {
        GeneratedPsk::new(self.hash, session_key.filter(|_| self.concatenates())?, c1, c2)
    }

    /// Returns the response to a challenge.
    fn response(
        &self,
        role: ResponseRole,
        parties: &AuthParties,
        session_key: Option<&Secret>,
        challenge: &ChallengeValue,
    ) -> Option<Secret> {
        let (own, other, key, name) = match role {
            ResponseRole::Host => {
                (&parties.hostnqn, &parties.subnqn, &parties.host_key, &b"HostHost"[..])
            }
            ResponseRole::Controller => {
                (&parties.subnqn, &parties.hostnqn, &parties.controller_key, &b"Controller"[..])
            }
        };
        let bytes = &challenge.bytes[..];
        let augmented = match session_key {
            Some(key) => self.hash.hmac(key.reveal(), &[bytes]),
            None => Secret::new(bytes),
        };
        let parts = [
            augmented.reveal(),
            &challenge.seqnum.to_le_bytes(),
            &self.t_id.to_le_bytes(),
            &[self.secures],
            name,
            own.as_bytes(),
            &[0],
            other.as_bytes(),
        ];
        Some(self.hash.hmac(key.as_ref()?.reveal(), &parts))
    }
}

/// All messages until both ends know the keys of the lane's frames; `None` if frames are not sealed.
#[derive(Clone, Debug, Default)]
struct Transcript(Option<Vec<u8>>);

impl Transcript {
    /// Begins with the context: the queue's Connect.
    fn new(context: &[u8]) -> Self {
        Transcript(Some(context.to_vec()))
    }

    fn append(&mut self, message: &[u8]) {
        self.0.iter_mut().for_each(|messages| messages.extend_from_slice(message));
    }
}

/// Returns the digest of what the ends of a lane over Ethernet exchange before they authenticate: Connect's command,
/// data and result. The frame keys depend on it.
#[must_use]
pub fn context_of(sqe: &Sqe, data: &[u8], result: u32) -> [u8; 32] {
    let fields = &sqe.as_bytes()[CONNECT_FIELDS];
    let digest = Hash::Sha256.digest(&[fields, data, &result.to_le_bytes()]);
    let mut context = [0; 32];
    context.copy_from_slice(digest.reveal());
    context
}

/// Bytes of RECFMT, QID, SQSIZE, CATTR and KATO in a Connect command.
const CONNECT_FIELDS: core::ops::Range<usize> = 40..52;

/// Splits `count` bytes off.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}
