//! Queues as Connect commands name them, claims for them, and reasons for refusals.

use super::authentication::AuthenticationRequirement;
use super::carrier::Carrier;
use super::controller::ControllerShared;
use super::kind::ControllerKind;
use super::stability::StoreUser;
use core::mem::offset_of;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::time::Duration;
use roadtrain_proto::policy::Class;
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, ConnectData, NQN_BYTES_MAX, parse_nqn};
use roadtrain_wire::status::Status;
use std::sync::Arc;
use thiserror::Error;

/// A queue as its Connect names it. It exists from `Target::grant` on.
#[derive(Clone, Debug)]
pub struct ConnectedQueue {
    pub cntlid: u16,
    /// Queue identifier; 0 is the admin queue.
    pub qid: u16,
    /// Entries of the submission queue.
    pub entries: u16,
    /// Completions carry SQHD; otherwise it is FFFFh in the completion of Connect.
    pub sq_flow_control: bool,
    /// Class of the queue's commands, unless they or their namespace have one.
    pub class: Class,
    pub kind: ControllerKind,
    /// Keep-alive timeout of the controller; zero: none.
    pub keep_alive: Duration,
    /// NQN of the subsystem.
    pub subnqn: Arc<str>,
    /// NQN of the host.
    pub hostnqn: Arc<str>,
    pub hostid: [u8; 16],
    /// HOSTID in an I/O queue's Connect if it differs from the controller's; only the first time.
    pub other_hostid: Option<[u8; 16]>,
    /// State shared by lanes and control plane.
    pub shared: Arc<ControllerShared>,
    /// Authentication required before the queue executes commands.
    pub requirement: Option<Box<AuthenticationRequirement>>,
    /// Digest of the handshake so far, from which the keys of sealed frames are derived.
    pub context: [u8; 32],
    /// DW0 of the completion.
    pub result: u32,
    /// Claim to the queue or controller, which is granted after authentication.
    pub(super) claim: QueueClaim,
}

impl ConnectedQueue {
    /// Returns the controller's identity for stores.
    #[must_use]
    pub fn user(&self) -> StoreUser {
        StoreUser { cntlid: self.cntlid, hostid: self.hostid, hostnqn: self.hostnqn.clone() }
    }

    /// Returns why the host is refused even after authentication, for the log.
    #[must_use]
    pub fn refusal(&self) -> Option<&ConnectRefused> {
        self.claim.refusal.as_ref()
    }

    pub(super) fn names(&self) -> ConnectNames<'_> {
        let cntlid = if self.qid == 0 { CNTLID_DYNAMIC } else { self.cntlid };
        ConnectNames { subnqn: &self.subnqn, hostnqn: &self.hostnqn, hostid: self.hostid, cntlid }
    }
}

/// A queue that a Connect names and that is not yet granted.
#[derive(Clone, Debug)]
pub(super) struct QueueClaim {
    /// Number of the claim among those to the same controller identifier.
    pub(super) number: u64,
    pub(super) carrier: Carrier,
    /// Local address of the connection.
    pub(super) local: SocketAddr,
    /// Unpredictable number, for the controller's instance.
    pub(super) random: u64,
    /// Keep-alive timeout of the controller, in milliseconds.
    pub(super) kato_ms: u32,
    /// Reason why the queue is refused even after authentication. It is not revealed to the host.
    pub(super) refusal: Option<ConnectRefused>,
}

impl Default for QueueClaim {
    fn default() -> Self {
        let local = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
        let (number, random, kato_ms) = (0, 0, 0);
        QueueClaim { number, carrier: Carrier::default(), local, random, kato_ms, refusal: None }
    }
}

/// Reason why a queue was not connected: status for the host, and field and value for the log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} {value}: {status}")]
pub struct ConnectRefused {
    /// Status of the completion, Do Not Retry included.
    pub status: Status,
    /// DW0 of the completion: the wrong parameter (IPO, IATTR).
    pub result: u32,
    /// Name of the wrong field.
    pub field: &'static str,
    /// Value of the field, escaped for the log.
    pub value: String,
}

impl ConnectRefused {
    /// Returns a refusal with `status`, for a field that the completion does not name.
    pub(super) fn new(status: Status, field: &'static str, value: impl ToString) -> Self {
        ConnectRefused { status: status.dnr(), result: 0, field, value: value.to_string() }
    }

    /// Returns Connect Invalid Parameters for the command's byte `byte`.
    pub(super) fn command(byte: u8, field: &'static str, value: impl ToString) -> Self {
        let status = Status::CONNECT_INVALID_PARAMETERS;
        ConnectRefused { result: byte.into(), ..ConnectRefused::new(status, field, value) }
    }

    /// Returns Connect Invalid Parameters for byte `byte` of the data (IATTR set).
    pub(super) fn data(byte: usize, field: &'static str, value: impl ToString) -> Self {
        let status = Status::CONNECT_INVALID_PARAMETERS;
        ConnectRefused {
            result: byte as u32 | 1 << 16,
            ..ConnectRefused::new(status, field, value)
        }
    }
}

/// Formats a name from the host: printable, and no longer than an NQN.
pub(super) fn show_name(field: &[u8; 256]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(NQN_BYTES_MAX);
    format!("\"{}\"", field[..end.min(NQN_BYTES_MAX)].escape_ascii())
}

/// Formats an NQN in quotation marks.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.as_bytes().escape_ascii())
}

/// Returns the name of a host for logs.
#[must_use]
pub fn host_name(hostnqn: &str) -> &str {
    if hostnqn.is_empty() { "anonymous" } else { hostnqn }
}

/// Names in Connect data, well formed.
pub(super) struct ConnectNames<'a> {
    pub(super) subnqn: &'a str,
    /// NQN of the host; empty for an anonymous host.
    pub(super) hostnqn: &'a str,
    pub(super) hostid: [u8; 16],
    pub(super) cntlid: u16,
}

impl<'a> ConnectNames<'a> {
    pub(super) fn parse(data: &'a ConnectData) -> Result<Self, ConnectRefused> {
        let subnqn = parse_nqn(&data.subnqn).ok_or_else(|| bad_subnqn(data))?;
        let hostnqn = match data.hostnqn[0] {
            0 => "",
            _ => parse_nqn(&data.hostnqn).ok_or_else(|| bad_hostnqn(data))?,
        };
        if data.hostid == [0; 16] {
            return Err(ConnectRefused::data(offset_of!(ConnectData, hostid), "HOSTID", 0));
        }
        Ok(ConnectNames { subnqn, hostnqn, hostid: data.hostid, cntlid: data.cntlid.get() })
    }

    /// Returns a queue with these names.
    pub(super) fn queue(&self, cntlid: u16, qid: u16) -> ConnectedQueue {
        ConnectedQueue {
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
            requirement: None,
            context: [0; 32],
            result: 0,
            claim: QueueClaim::default(),
        }
    }

    pub(super) fn bad_subnqn(&self) -> ConnectRefused {
        ConnectRefused::data(offset_of!(ConnectData, subnqn), "SUBNQN", quoted(self.subnqn))
    }

    pub(super) fn bad_hostnqn(&self) -> ConnectRefused {
        ConnectRefused::data(offset_of!(ConnectData, hostnqn), "HOSTNQN", quoted(self.hostnqn))
    }
}

/// Returns the refusal when all controller identifiers are in use.
pub(super) fn no_controller_left(count: usize) -> ConnectRefused {
    // A retry may succeed: no Do Not Retry.
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
