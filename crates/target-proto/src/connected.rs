//! Queues as Connect commands name them, what is claimed for them, and the reasons for which they are refused.

use super::authentication::Asked;
use super::carrier::Carrier;
use super::controller::ControllerShared;
use super::kind::ControllerKind;
use super::stability::User;
use core::mem::offset_of;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::time::Duration;
use roadtrain_proto::policy::Class;
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, ConnectData, NQN_BYTES_MAX, parse_nqn};
use roadtrain_wire::status::Status;
use std::sync::Arc;
use thiserror::Error;

/// A queue as its Connect has named it. It exists from `Target::grant` on.
#[derive(Clone, Debug)]
pub struct Connected {
    pub cntlid: u16,
    /// The queue: 0 is the admin queue.
    pub qid: u16,
    /// Entries of the submission queue.
    pub entries: u16,
    /// Completions carry SQHD; when not, it is FFFFh in the answer to Connect.
    pub sq_flow_control: bool,
    /// Class of the queue's commands, unless they or their namespace say otherwise.
    pub class: Class,
    pub kind: ControllerKind,
    /// The controller's keep-alive timeout; zero when it has none.
    pub keep_alive: Duration,
    /// NQN of the subsystem.
    pub subnqn: Arc<str>,
    /// NQN of the host.
    pub hostnqn: Arc<str>,
    pub hostid: [u8; 16],
    /// The HOSTID that the Connect of an I/O queue has named, where that is not the controller's; only the first time.
    pub other_hostid: Option<[u8; 16]>,
    /// State that lanes and control plane share.
    pub shared: Arc<ControllerShared>,
    /// Proof that the host owes before the queue executes commands.
    pub asked: Option<Box<Asked>>,
    /// Digest of all that was said so far: part of what the keys of sealed frames are derived of.
    pub context: [u8; 32],
    /// DW0 of the completion.
    pub result: u32,
    /// Claim to what it is granted after the proof.
    pub(super) claim: Claim,
}

impl Connected {
    /// The controller as stores know it.
    #[must_use]
    pub fn user(&self) -> User {
        User { cntlid: self.cntlid, hostid: self.hostid, hostnqn: self.hostnqn.clone() }
    }

    /// The reason for which its host is not let in, whatever it proves: for the log.
    #[must_use]
    pub fn refusal(&self) -> Option<&ConnectRefused> {
        self.claim.refusal.as_ref()
    }

    pub(super) fn names(&self) -> Names<'_> {
        let cntlid = if self.qid == 0 { CNTLID_DYNAMIC } else { self.cntlid };
        Names { subnqn: &self.subnqn, hostnqn: &self.hostnqn, hostid: self.hostid, cntlid }
    }
}

/// A queue that its host has named in a Connect, and that nobody has been granted.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    /// Number of the claim among those to the same controller identifier.
    pub(super) number: u64,
    pub(super) carrier: Carrier,
    /// Our address as the host has reached it.
    pub(super) local: SocketAddr,
    /// A number that nobody can guess, for the controller.
    pub(super) random: u64,
    /// Keep-alive timeout of the controller, in milliseconds.
    pub(super) kato_ms: u32,
    /// Reason for which it is never granted, whatever is proved. The host does not learn it.
    pub(super) refusal: Option<ConnectRefused>,
}

impl Default for Claim {
    fn default() -> Self {
        let local = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let (number, random, kato_ms) = (0, 0, 0);
        Claim { number, carrier: Carrier::default(), local, random, kato_ms, refusal: None }
    }
}

/// Reason for which a queue was not connected: what to answer, and what to tell whoever looks after the target.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} {value}: {status}")]
pub struct ConnectRefused {
    /// Status of the completion, Do Not Retry included.
    pub status: Status,
    /// DW0 of the completion: which parameter is wrong (IPO, IATTR).
    pub result: u32,
    /// Name of the field that is to blame.
    pub field: &'static str,
    /// Its value, fit for a log whatever the host has sent.
    pub value: String,
}

impl ConnectRefused {
    /// `status`, blaming a field that the completion does not name.
    pub(super) fn new(status: Status, field: &'static str, value: impl ToString) -> Self {
        ConnectRefused { status: status.dnr(), result: 0, field, value: value.to_string() }
    }

    /// Connect Invalid Parameters, blaming `octet` of the command.
    pub(super) fn command(octet: u8, field: &'static str, value: impl ToString) -> Self {
        let status = Status::CONNECT_INVALID_PARAMETERS;
        ConnectRefused { result: octet.into(), ..ConnectRefused::new(status, field, value) }
    }

    /// Connect Invalid Parameters, blaming `octet` of the data (IATTR set).
    pub(super) fn data(octet: usize, field: &'static str, value: impl ToString) -> Self {
        let status = Status::CONNECT_INVALID_PARAMETERS;
        ConnectRefused {
            result: octet as u32 | 1 << 16,
            ..ConnectRefused::new(status, field, value)
        }
    }
}

/// A name as the host has sent it: printable, and no longer than an NQN may be.
pub(super) fn show_name(field: &[u8; 256]) -> String {
    let end = field.iter().position(|&octet| octet == 0).unwrap_or(NQN_BYTES_MAX);
    format!("\"{}\"", field[..end.min(NQN_BYTES_MAX)].escape_ascii())
}

/// A name that is an NQN, in quotation marks.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.as_bytes().escape_ascii())
}

/// Name of a host in logs.
#[must_use]
pub fn host_name(hostnqn: &str) -> &str {
    if hostnqn.is_empty() { "anonymous" } else { hostnqn }
}

/// Connect data whose names are well formed.
pub(super) struct Names<'a> {
    pub(super) subnqn: &'a str,
    /// Empty for an anonymous host: some hosts have no name unless they are given one.
    pub(super) hostnqn: &'a str,
    pub(super) hostid: [u8; 16],
    pub(super) cntlid: u16,
}

impl<'a> Names<'a> {
    pub(super) fn parse(data: &'a ConnectData) -> Result<Self, ConnectRefused> {
        let subnqn = parse_nqn(&data.subnqn).ok_or_else(|| bad_subnqn(data))?;
        let hostnqn = match data.hostnqn[0] {
            0 => "",
            _ => parse_nqn(&data.hostnqn).ok_or_else(|| bad_hostnqn(data))?,
        };
        if data.hostid == [0; 16] {
            return Err(ConnectRefused::data(offset_of!(ConnectData, hostid), "HOSTID", 0));
        }
        Ok(Names { subnqn, hostnqn, hostid: data.hostid, cntlid: data.cntlid.get() })
    }

    /// A queue with these names.
    pub(super) fn queue(&self, cntlid: u16, qid: u16) -> Connected {
        Connected {
            cntlid,
            qid,
            entries: 0,
            sq_flow_control: false,
            class: Class::Normal,
            kind: ControllerKind::Io,
            keep_alive: Duration::ZERO,
            subnqn: self.subnqn.into(),
            hostnqn: self.hostnqn.into(),
            hostid: self.hostid,
            other_hostid: None,
            shared: Arc::default(),
            asked: None,
            context: [0; 32],
            result: 0,
            claim: Claim::default(),
        }
    }

    pub(super) fn bad_subnqn(&self) -> ConnectRefused {
        ConnectRefused::data(offset_of!(ConnectData, subnqn), "SUBNQN", quoted(self.subnqn))
    }

    pub(super) fn bad_hostnqn(&self) -> ConnectRefused {
        ConnectRefused::data(offset_of!(ConnectData, hostnqn), "HOSTNQN", quoted(self.hostnqn))
    }
}

/// Every controller that there may be is there.
pub(super) fn no_controller_left(count: usize) -> ConnectRefused {
    // Another try may find one free: no Do Not Retry.
    let status = Status::CONNECT_CONTROLLER_BUSY;
    let value = format!("{count}, --max-controllers and --cntlid-range say how many may be");
    ConnectRefused { status, ..ConnectRefused::new(status, "controllers in use", value) }
}

fn bad_subnqn(data: &ConnectData) -> ConnectRefused {
    ConnectRefused::data(offset_of!(ConnectData, subnqn), "SUBNQN", show_name(&data.subnqn))
}

fn bad_hostnqn(data: &ConnectData) -> ConnectRefused {
    ConnectRefused::data(offset_of!(ConnectData, hostnqn), "HOSTNQN", show_name(&data.hostnqn))
}

pub(super) fn bad_cntlid(cntlid: u16) -> ConnectRefused {
    ConnectRefused::data(offset_of!(ConnectData, cntlid), "CNTLID", cntlid)
}
