//! The control socket: how a running `serve` or `attach` is asked and told.
//!
//! One line of JSON is a request, one line is its answer; docs/reference/control-socket.md has them all. These types
//! are the schema; `socket` carries them.

pub(crate) mod descriptors;
pub(crate) mod socket;

use crate::args::{AnaName, AnaPort};
use crate::config::{SubsystemSpec, default_port};
use crate::failure::Failure;
use crate::namespace::NamespaceSpec;
use crate::rates::RateArgs;
use crate::units::size_field;
use roadtrain_target_engine::{AnaListener, ConfigError, Operation};
use roadtrain_target_proto::{Description, Place};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Of the schema. Another one is another number.
pub(crate) const VERSION: u32 = 1;

/// A request as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    version: u32,
    method: String,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    params: Value,
}

/// What a process can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "method", content = "params", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Call {
    /// How it stands.
    Status,
    /// An attachment ends; the answer comes when it has.
    Stop,
    /// All counters, by reactor, namespace, host and lane.
    Snapshot,
    /// Requests that were slow of late, and some others.
    Recorded,
    /// A target reads its configuration file again.
    Reload,
    /// A target does all of this, or nothing.
    Apply {
        /// In this order.
        operations: Vec<Change>,
    },
    /// A target serves a namespace that stands by: its blocks are taken away from the target that has them. The answer
    /// comes when it is served.
    Claim {
        /// The subsystem.
        nqn: Option<String>,
        /// The namespace.
        nsid: u32,
    },
    /// A target does something with snapshots of a namespace.
    Snapshots(SnapshotCall),
    /// A target starts the program anew, which takes over; the answer comes when it serves, or has failed.
    Upgrade,
    /// A target gives its sockets to the asker, which goes on over the same stream.
    TakeOver,
    /// After that: the target ends its connections and gives its files and devices up.
    Proceed,
    /// After that: the asker serves, and the target ends.
    Serving,
}

/// A namespace, and what is to be done with its snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotCall {
    /// The subsystem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nqn: Option<String>,
    /// The namespace.
    pub nsid: u32,
    /// What to do.
    #[serde(flatten)]
    pub action: SnapshotAction,
}

/// What can be done with snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub(crate) enum SnapshotAction {
    /// Tells all that there are.
    List,
    /// Makes one.
    Create {
        /// Its name.
        name: String,
    },
    /// Removes one.
    Remove {
        /// Its name.
        name: String,
    },
    /// Has one stay.
    Protect {
        /// Its name.
        name: String,
    },
    /// Lets one be removed.
    Unprotect {
        /// Its name.
        name: String,
    },
    /// Makes a disk of its own of one.
    Clone {
        /// Its name.
        name: String,
        /// Where the disk is to be, in the words of what keeps the blocks.
        to: String,
    },
    /// Makes the namespace's blocks what they were.
    Rollback {
        /// Its name.
        name: String,
    },
}

/// A snapshot, as a target tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotView {
    /// Its name.
    pub name: String,
    /// Octets.
    pub bytes: u64,
    /// When it was made, in seconds since 1970.
    pub created: Option<u64>,
    /// Whether it cannot be removed.
    pub protected: bool,
}

/// What a target answers to [`Call::Snapshots`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotReply {
    /// All that there are now, oldest first.
    pub snapshots: Vec<SnapshotView>,
}

/// What a target answers to [`Call::TakeOver`], along with its sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shared {
    /// Sockets that come with this.
    pub sockets: usize,
    /// How long it takes at most to end what hosts have asked for, in seconds.
    pub drain_seconds: u64,
    /// Where it keeps what JSON-RPC requests have made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
}

/// What a target answers to [`Call::Proceed`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Released {
    /// What its namespaces know of reservations.
    pub reservations: Vec<Known>,
    /// What hosts have written and may be lost, if anything is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// What a namespace knows of reservations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    /// The subsystem.
    pub nqn: String,
    /// The namespace.
    pub nsid: u32,
    /// As in the file for reservations that persist.
    pub image: String,
}

/// A change to what a target exports. Where `nqn` may be left out, it means the target's only subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Change {
    /// Adds a subsystem.
    AddSubsystem {
        /// As in the configuration file.
        subsystem: SubsystemSpec,
    },
    /// Removes a subsystem; its hosts are disconnected.
    RemoveSubsystem {
        /// The subsystem.
        nqn: String,
    },
    /// Gives a subsystem other numbers; what is left out stays.
    SetSubsystem {
        /// The subsystem.
        nqn: Option<String>,
        /// Serial number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        serial: Option<String>,
        /// Model number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
    /// Adds a namespace; without an `nsid` it gets the first free one.
    AddNamespace {
        /// The subsystem.
        nqn: Option<String>,
        /// As in the configuration file.
        namespace: NamespaceSpec,
    },
    /// Puts other blocks under an NSID, or the same in another way.
    ReplaceNamespace {
        /// The subsystem.
        nqn: Option<String>,
        /// As in the configuration file.
        namespace: NamespaceSpec,
    },
    /// Removes a namespace.
    RemoveNamespace {
        /// The subsystem.
        nqn: Option<String>,
        /// The namespace.
        nsid: u32,
    },
    /// Gives a namespace another size; without one it gets that of its file or device now.
    ResizeNamespace {
        /// The subsystem.
        nqn: Option<String>,
        /// The namespace.
        nsid: u32,
        /// Octets.
        #[serde(default, with = "size_field", skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    },
    /// Lets a host use a subsystem.
    AllowHost {
        /// The subsystem.
        nqn: Option<String>,
        /// The host's NQN.
        host: String,
    },
    /// Lets a host use a subsystem no more; it is disconnected.
    DisallowHost {
        /// The subsystem.
        nqn: Option<String>,
        /// The host's NQN.
        host: String,
    },
    /// Lets any host use a subsystem, or only those that are named.
    AllowAnyHost {
        /// The subsystem.
        nqn: Option<String>,
        /// Whether any host may.
        allow: bool,
    },
    /// Lets a namespace do so much in a second.
    LimitNamespace {
        /// The subsystem.
        nqn: Option<String>,
        /// The namespace.
        nsid: u32,
        /// So much; what is left out is not limited.
        rates: RateArgs,
    },
    /// Lets a host do so much in a second.
    LimitHost {
        /// The subsystem.
        nqn: Option<String>,
        /// The host's NQN.
        host: String,
        /// So much; what is left out is not limited.
        rates: RateArgs,
    },
    /// Takes connections at an address.
    Listen {
        /// Address or name.
        address: String,
        /// TCP port; 0 lets the system choose.
        #[serde(default = "default_port")]
        port: u16,
    },
    /// Takes no more connections there; those that there are live on.
    Unlisten {
        /// Address or name.
        address: String,
        /// TCP port.
        #[serde(default = "default_port")]
        port: u16,
    },
    /// Says how good the path is that a listener gives.
    SetAna {
        /// Where hosts come in.
        listener: AnaPort,
        /// Its state.
        state: AnaName,
    },
}

impl Change {
    /// The same for a process that runs in another folder.
    pub(crate) fn with_absolute_paths(mut self) -> Change {
        let namespaces = match &mut self {
            Change::AddNamespace { namespace, .. } | Change::ReplaceNamespace { namespace, .. } => {
                std::slice::from_mut(namespace)
            }
            Change::AddSubsystem { subsystem } => &mut subsystem.namespaces[..],
            _ => &mut [],
        };
        namespaces.iter_mut().for_each(NamespaceSpec::make_paths_absolute);
        self
    }
}

/// An answer as it is written: a result, or why there is none.
#[derive(Serialize, Deserialize)]
struct Answer {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Refusal>,
}

/// What comes of a request.
pub(crate) type Reply = Result<Value, Refusal>;

/// Why a request was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Why {
    /// It is no request of this schema, or not one for this process.
    Request,
    /// A value that cannot be.
    Invalid,
    /// It is there already.
    Exists,
    /// There is none.
    Unknown,
    /// Two namespaces would have one identity.
    Conflict,
    /// A file or device cannot be had, or cannot have that size.
    Store,
    /// An address cannot be listened on.
    Listen,
    /// The work failed.
    Failed,
}

/// Why a request was not done, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// For programs.
    pub why: Why,
    /// For people.
    pub message: Box<str>,
    /// What it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Box<str>>,
    /// What is wrong there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<Box<str>>,
    /// As it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Box<str>>,
    /// What to give instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Box<str>>,
}

/// What a reload or a list of changes has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    /// What has changed for hosts.
    pub changes: Vec<Changed>,
    /// What to know about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Something has changed for hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Changed {
    /// For people.
    pub what: String,
    /// The subsystem.
    pub nqn: Option<String>,
    /// The namespace.
    pub nsid: Option<u32>,
    /// The listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
}

impl<N: Description> From<&Operation<N>> for Changed {
    fn from(operation: &Operation<N>) -> Changed {
        let (nqn, nsid, address) = match operation.place() {
            Place::Namespace(nqn, nsid) => (Some(nqn), Some(nsid), None),
            Place::Subsystem(nqn) | Place::Host(nqn, _) => (Some(nqn), None, None),
            Place::Listener(address)
            | Place::Referral(address)
            | Place::Ana(AnaListener::Tcp(address)) => (None, None, Some(address)),
            Place::Ana(AnaListener::Ether) | Place::Limits | Place::Authentication => {
                (None, None, None)
            }
        };
        Changed { what: operation.to_string(), nqn, nsid, address }
    }
}

impl Refusal {
    pub(crate) fn new(why: Why, message: impl fmt::Display) -> Refusal {
        let message = message.to_string().into();
        Refusal { why, message, place: None, field: None, value: None, hint: None }
    }

    /// For a request that this process does not know.
    pub(crate) fn not_for(what: &str) -> Refusal {
        Refusal::new(Why::Request, format!("{what} does not do that"))
    }
}

impl From<ConfigError> for Refusal {
    fn from(error: ConfigError) -> Refusal {
        let why = match &error {
            ConfigError::Invalid { .. } => Why::Invalid,
            ConfigError::Exists(_) => Why::Exists,
            ConfigError::Unknown(_) => Why::Unknown,
            ConfigError::SameIdentity { .. } => Why::Conflict,
            ConfigError::Store { .. } => Why::Store,
            ConfigError::Listen { .. } => Why::Listen,
        };
        let place = Some(error.place().to_string().into());
        let refusal = Refusal { place, ..Refusal::new(why, &error) };
        match error {
            ConfigError::Invalid { field, value, hint, .. } => Refusal {
                field: Some(field.into()),
                value: Some(value.into()),
                hint: Some(hint.into()),
                ..refusal
            },
            _ => refusal,
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        let why = if failure.kind == crate::Kind::Usage { Why::Invalid } else { Why::Failed };
        Refusal::new(why, failure.message)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        match refusal.why {
            Why::Store | Why::Listen | Why::Failed => Failure::failed(refusal.message),
            _ => Failure::usage(refusal.message),
        }
    }
}

/// A request in one line.
fn write_call(call: &Call) -> Vec<u8> {
    let mut line = json!(call);
    line["version"] = VERSION.into();
    format!("{line}\n").into_bytes()
}

/// The request of a line.
fn read_call(line: &[u8]) -> Result<Call, Refusal> {
    let refuse = |message: String| Refusal::new(Why::Request, message);
    let request: Request = serde_json::from_slice(line).map_err(|e| refuse(e.to_string()))?;
    let Request { version, method, params } = request;
    if version != VERSION {
        return Err(refuse(format!("version {version}: this program speaks version {VERSION}")));
    }
    let mut call = json!({ "method": method });
    let is_empty = params.as_object().is_some_and(serde_json::Map::is_empty);
    if !params.is_null() && !is_empty {
        call["params"] = params;
    }
    serde_json::from_value(call).map_err(|e| refuse(format!("{method}: {e}")))
}

/// An answer in one line.
fn write_reply(reply: Reply) -> Vec<u8> {
    let (result, error) = match reply {
        Ok(result) => (Some(result), None),
        Err(error) => (None, Some(error)),
    };
    format!("{}\n", json!(Answer { version: VERSION, result, error })).into_bytes()
}

/// The answer of a line.
fn read_reply(line: &[u8]) -> Result<Reply, serde_json::Error> {
    let answer: Answer = serde_json::from_slice(line)?;
    Ok(match answer.error {
        Some(error) => Err(error),
        None => Ok(answer.result.unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        let host = || "nqn.x:h".to_owned();
        let namespace: NamespaceSpec = "file:a.img,size=2GiB,lba=4096,nsid=3".parse().unwrap();
        let operations = vec![
            Change::AddNamespace { nqn: None, namespace },
            Change::ResizeNamespace { nqn: Some(host()), nsid: 3, size: Some(1 << 30) },
            Change::ResizeNamespace { nqn: None, nsid: 3, size: None },
            Change::AllowAnyHost { nqn: None, allow: false },
            Change::AllowHost { nqn: None, host: host() },
        ];
        let taking = [Call::Upgrade, Call::TakeOver, Call::Proceed, Call::Serving];
        let asking = [Call::Status, Call::Stop, Call::Snapshot, Call::Recorded, Call::Reload];
        let (name, to) = ("s".to_owned(), "rbd/c".to_owned());
        let snapshot = |action| Call::Snapshots(SnapshotCall { nqn: None, nsid: 2, action });
        let others = [
            Call::Claim { nqn: Some(host()), nsid: 1 },
            snapshot(SnapshotAction::List),
            snapshot(SnapshotAction::Clone { name, to }),
            Call::Apply { operations },
        ];
        for call in asking.into_iter().chain(taking).chain(others) {
            assert_eq!(read_call(&write_call(&call)), Ok(call));
        }
        let plain = br#"{"version":1,"method":"status","params":{}}"#;
        assert_eq!(read_call(plain), Ok(Call::Status));
    }

    #[test]
    fn what_is_no_request_is_refused_with_a_reason() {
        let deep = format!("{{\"version\":1,\"method\":\"x\",\"params\":{}", "[".repeat(100_000));
        for (line, why) in [
            ("", "EOF"),
            ("status", "expected"),
            (deep.as_str(), "recursion"),
            ("{}", "version"),
            (r#"{"version":2,"method":"status"}"#, "speaks version 1"),
            (r#"{"version":1,"method":"eat"}"#, "eat"),
            (r#"{"version":1,"method":"status","id":3}"#, "id"),
            (r#"{"version":1,"method":"status","method":"stop"}"#, "duplicate"),
            (r#"{"version":1,"method":"apply"}"#, "params"),
            (
                r#"{"version":1,"method":"apply","params":{"operations":[{"operation":"add_namespace"}]}}"#,
                "namespace",
            ),
            (
                r#"{"version":1,"method":"apply","params":{"operations":[{"operation":"remove_namespace","nsid":-1}]}}"#,
                "apply",
            ),
        ] {
            let refusal = read_call(line.as_bytes()).unwrap_err();
            assert_eq!(refusal.why, Why::Request, "{line:.99}");
            assert!(refusal.message.contains(why), "{line:.99}: {}", refusal.message);
        }
    }

    #[test]
    fn errors_say_what_is_wrong_and_where() {
        let place = Place::Namespace("nqn.x:y".into(), 7);
        let error = ConfigError::invalid(place, "nsid", 7000, "choose a number from 1 to 1024");
        let refusal = Refusal::from(error);
        let back = read_reply(&write_reply(Err(refusal.clone()))).unwrap();
        assert_eq!(back, Err(refusal.clone()));
        let json = json!(refusal);
        assert_eq!((&json["why"], &json["field"]), (&json!("invalid"), &json!("nsid")));
        assert_eq!(
            (&json["place"], &json["value"]),
            (&json!("namespace 7 of nqn.x:y"), &json!("7000"))
        );
        assert_eq!(Failure::from(refusal).kind, crate::Kind::Usage);
        assert_eq!(read_reply(&write_reply(Ok(json!([1])))).unwrap(), Ok(json!([1])));
    }
}
