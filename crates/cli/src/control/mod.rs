//! Methods of the control socket of a running `serve` or `attach`, which speaks JSON-RPC 2.0.
//!
//! These types are their parameters and results; docs/reference/control-socket.md describes them. `socket` carries them.

pub(crate) mod descriptors;
pub(crate) mod socket;

use crate::args::{AnaName, AnaPort};
use crate::config::{SubsystemSpec, default_port};
use crate::failure::Failure;
use crate::namespace::NamespaceSpec;
use crate::rates::RateArgs;
use crate::units::size_field;
use roadtrain_manage::rpc::RpcError;
use roadtrain_target_engine::{AnaListener, ConfigError, Operation};
use roadtrain_target_proto::{Description, Place};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

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
    /// A target returns what it serves, as a configuration file.
    Config,
    /// A target returns what a reload would change.
    ConfigDiff,
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
    /// Size in bytes.
    #[serde(rename = "capacity_bytes")]
    pub bytes: u64,
    /// When it was made, in seconds since 1970.
    #[serde(rename = "created_unix_seconds")]
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
    /// The subsystem, if it is named.
    pub(crate) fn nqn(&self) -> Option<&str> {
        match self {
            Change::RemoveSubsystem { nqn } => Some(nqn),
            Change::AddSubsystem { subsystem } => Some(&subsystem.nqn),
            Change::SetSubsystem { nqn, .. }
            | Change::AddNamespace { nqn, .. }
            | Change::ReplaceNamespace { nqn, .. }
            | Change::RemoveNamespace { nqn, .. }
            | Change::ResizeNamespace { nqn, .. }
            | Change::AllowHost { nqn, .. }
            | Change::DisallowHost { nqn, .. }
            | Change::AllowAnyHost { nqn, .. }
            | Change::LimitNamespace { nqn, .. }
            | Change::LimitHost { nqn, .. } => nqn.as_deref(),
            Change::Listen { .. } | Change::Unlisten { .. } | Change::SetAna { .. } => None,
        }
    }

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

/// Reply to [`Call::Config`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfigText {
    /// A configuration file of `serve`.
    pub toml: String,
}

/// Reply to [`Call::ConfigDiff`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfigDiff {
    /// The configuration file.
    #[serde(rename = "config")]
    pub file: PathBuf,
    /// Changes for hosts that a reload would make.
    pub changes: Vec<Changed>,
    /// Keys of the file that only a restart or a takeover changes.
    pub restart: Vec<String>,
    /// Subsystems that are in the file, which is served, and in the state, where they are kept.
    pub both: Vec<String>,
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

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Failure {
        Refusal::from(error).into()
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

/// Prefix of our own methods beside SPDK's.
const PREFIX: &str = "roadtrain_";

/// A method of the control socket.
pub(crate) struct ControlMethod {
    /// Its name.
    pub(crate) name: &'static str,
    /// True for a method that changes something.
    pub(crate) changes: bool,
    /// True for one whose reply comes later, over the caller's stream.
    pub(crate) keeps_stream: bool,
}

const fn get(name: &'static str) -> ControlMethod {
    ControlMethod { name, changes: false, keeps_stream: false }
}

const fn change(name: &'static str) -> ControlMethod {
    ControlMethod { name, changes: true, keeps_stream: false }
}

const fn keep(name: &'static str) -> ControlMethod {
    ControlMethod { name, changes: true, keeps_stream: true }
}

/// Methods of an attachment.
pub(crate) const ATTACHMENT_METHODS: &[ControlMethod] = &[
    get("roadtrain_status"),
    get("roadtrain_snapshot"),
    get("roadtrain_recorded"),
    keep("roadtrain_stop"),
];

/// Methods of a target, beside SPDK's.
pub(crate) const TARGET_METHODS: &[ControlMethod] = &[
    get("roadtrain_status"),
    get("roadtrain_snapshot"),
    get("roadtrain_recorded"),
    get("roadtrain_config"),
    get("roadtrain_config_diff"),
    change("roadtrain_reload"),
    change("roadtrain_apply"),
    change("roadtrain_claim"),
    change("roadtrain_snapshots"),
    keep("roadtrain_upgrade"),
    keep("roadtrain_take_over"),
];

impl Call {
    /// Method and parameters of the request.
    pub(crate) fn request(&self) -> (String, Value) {
        let mut call = json!(self);
        let method = call["method"].as_str().unwrap_or_default().to_owned();
        (PREFIX.to_owned() + &method, call["params"].take())
    }

    /// The call that a request makes.
    ///
    /// # Errors
    /// An unknown method, or parameters of another form.
    pub(crate) fn read(method: &str, params: Value) -> Result<Call, Refusal> {
        let refuse = |why: String| Refusal::new(Why::Request, format!("{method}: {why}"));
        let word = method.strip_prefix(PREFIX).unwrap_or_default();
        let mut call = json!({ "method": word });
        let is_empty = params.as_object().is_some_and(serde_json::Map::is_empty);
        if !params.is_null() && !is_empty {
            call["params"] = params;
        }
        serde_json::from_value(call).map_err(|e| refuse(e.to_string()))
    }
}

impl From<Refusal> for RpcError {
    fn from(refusal: Refusal) -> RpcError {
        let (code, words) = match refusal.why {
            Why::Request => (-32602, "Invalid parameters"),
            Why::Invalid => (-22, "Invalid argument"),
            Why::Exists | Why::Conflict => (-17, "File exists"),
            Why::Unknown => (-19, "No such device"),
            Why::Store => (-5, "Input/output error"),
            Why::Listen => (-98, "Address already in use"),
            Why::Failed => (-32603, "Internal error"),
        };
        let error = RpcError::new(code, words, &refusal.message);
        RpcError { data: Some(Box::new(json!(refusal))), ..error }
    }
}

impl From<RpcError> for Refusal {
    fn from(error: RpcError) -> Refusal {
        let data = error.data.and_then(|data| serde_json::from_value(*data).ok());
        let why = if error.code == -32602 { Why::Request } else { Why::Failed };
        data.unwrap_or_else(|| Refusal::new(why, error.message))
    }
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
            let (method, params) = call.request();
            assert_eq!(Call::read(&method, params), Ok(call), "{method}");
        }
        assert_eq!(Call::read("roadtrain_status", json!({})), Ok(Call::Status));
    }

    #[test]
    fn every_method_is_a_call() {
        for method in ATTACHMENT_METHODS.iter().chain(TARGET_METHODS) {
            let read = Call::read(method.name, Value::Null);
            let is_unknown = read.is_err_and(|error| error.message.contains("unknown variant"));
            assert!(!is_unknown, "{}", method.name);
        }
    }

    #[test]
    fn an_invalid_request_is_refused_with_a_reason() {
        for (method, params, why) in [
            ("roadtrain_eat", Value::Null, "eat"),
            ("status", Value::Null, "unknown variant"),
            ("roadtrain_apply", Value::Null, "params"),
            (
                "roadtrain_apply",
                json!({"operations": [{"operation": "add_namespace"}]}),
                "namespace",
            ),
            (
                "roadtrain_apply",
                json!({"operations": [{"operation": "remove_namespace", "nsid": -1}]}),
                "apply",
            ),
        ] {
            let refusal = Call::read(method, params).unwrap_err();
            assert_eq!(refusal.why, Why::Request, "{method}");
            assert!(refusal.message.contains(why), "{method}: {}", refusal.message);
        }
    }

    #[test]
    fn errors_say_what_is_wrong_and_where() {
        let place = Place::Namespace("nqn.x:y".into(), 7);
        let error = ConfigError::invalid(place, "nsid", 7000, "choose a number from 1 to 1024");
        let refusal = Refusal::from(error);
        assert_eq!(Refusal::from(RpcError::from(refusal.clone())), refusal);
        let json = json!(refusal);
        assert_eq!((&json["why"], &json["field"]), (&json!("invalid"), &json!("nsid")));
        assert_eq!(
            (&json["place"], &json["value"]),
            (&json!("namespace 7 of nqn.x:y"), &json!("7000"))
        );
        assert_eq!(Failure::from(refusal).kind, crate::Kind::Usage);
    }
}
