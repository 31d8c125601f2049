//! Methods of the control socket of a running `serve` or `attach`, which speaks JSON-RPC 2.0.
//!
//! These types are their parameters and results; docs/reference/control-socket.md describes them. `socket` carries them.

pub(crate) mod descriptors;
pub(crate) mod socket;

use crate::args::{AnaName, AnaPort};
use crate::config::{SubsystemSettings, default_port};
use crate::failure::CommandFailure;
use crate::namespace::NamespaceSettings;
use crate::rates::RateArgs;
use crate::units::size_field;
use roadtrain_manage::rpc::RpcError;
use roadtrain_target_engine::{AnaListener, ConfigError, ConfigOperation};
use roadtrain_target_proto::{ConfigObject, NamespaceDescription};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A request to a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "method", content = "params", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Call {
    /// Returns the state.
    Status,
    /// Ends an attachment; the reply comes after its end.
    Stop,
    /// Returns all counters, by reactor, namespace, host and lane.
    Snapshot,
    /// Returns recent slow requests, and a sample of others.
    Recorded,
    /// A target reads its configuration file again.
    Reload,
    /// A target makes all of these changes, or none.
    Apply {
        /// Changes in this order.
        operations: Vec<ExportChange>,
    },
    /// A target returns what it serves, as a configuration file.
    Config,
    /// A target returns what a reload would change.
    ConfigDiff,
    /// A target serves a standby namespace: it takes the exclusive lock away from the target that has it. The reply
    /// comes when the namespace is served.
    Claim {
        /// The subsystem.
        nqn: Option<String>,
        /// The namespace.
        nsid: u32,
    },
    /// A target works on snapshots of a namespace.
    Snapshots(SnapshotCall),
    /// An attachment works on its dirty bitmaps.
    Bitmaps(BitmapAction),
    /// A target starts the program anew, which takes over; the reply comes when that serves, or has failed.
    Upgrade,
    /// A target passes its sockets to the caller, which continues on the same stream.
    TakeOver,
    /// After [`Call::TakeOver`]: the target ends its connections and closes its files and devices.
    Proceed,
    /// After [`Call::Proceed`]: the caller serves, and the target ends.
    Serving,
}

/// An operation on the snapshots of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotCall {
    /// The subsystem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nqn: Option<String>,
    /// The namespace.
    pub nsid: u32,
    /// The operation.
    #[serde(flatten)]
    pub action: SnapshotAction,
}

/// Operations on snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub(crate) enum SnapshotAction {
    /// Lists all snapshots.
    List,
    /// Creates a snapshot.
    Create {
        /// Its name.
        name: String,
    },
    /// Removes a snapshot.
    Remove {
        /// Its name.
        name: String,
    },
    /// Protects a snapshot from removal.
    Protect {
        /// Its name.
        name: String,
    },
    /// Permits the removal of a snapshot.
    Unprotect {
        /// Its name.
        name: String,
    },
    /// Makes a separate disk from a snapshot.
    Clone {
        /// Its name.
        name: String,
        /// Destination of the disk, in the store's notation.
        to: String,
    },
    /// Restores the namespace's blocks from a snapshot.
    Rollback {
        /// Its name.
        name: String,
    },
}

/// Operations on the dirty bitmaps of an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum BitmapAction {
    /// Lists all bitmaps.
    List,
    /// Starts a backup.
    Start {
        /// Name of the bitmap.
        name: String,
    },
    /// Finishes a backup.
    Finish {
        /// Name of the bitmap.
        name: String,
        /// Number of the backup, from its start.
        backup: u64,
    },
}

/// A dirty bitmap, as reported by an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BitmapReport {
    /// Its name.
    pub name: String,
    /// File that keeps it.
    pub file: Option<PathBuf>,
    /// Bytes of one bit.
    pub granularity_bytes: u32,
    /// Size of the disk in bytes.
    pub capacity_bytes: u64,
    /// Bytes that are dirty.
    pub dirty_bytes: u64,
    /// True if it knows all changes since the last backup.
    pub valid: bool,
    /// Reason why it does not.
    pub reason: Option<String>,
    /// Number of the backup in progress.
    pub backup: Option<u64>,
}

/// Reply to [`Call::Bitmaps`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BitmapsReply {
    /// All bitmaps after the operation.
    pub bitmaps: Vec<BitmapReport>,
    /// The backup that was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_backup: Option<StartedBackup>,
}

/// A backup that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StartedBackup {
    /// Its number, which its finish names.
    pub backup: u64,
    /// True if everything has to be copied.
    pub full: bool,
}

/// A snapshot, as reported by a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotView {
    /// Its name.
    pub name: String,
    /// Size in bytes.
    #[serde(rename = "capacity_bytes")]
    pub bytes: u64,
    /// Creation time, in seconds since 1970.
    #[serde(rename = "created_unix_seconds")]
    pub created: Option<u64>,
    /// True if it cannot be removed.
    pub protected: bool,
}

/// Reply to [`Call::Snapshots`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotReply {
    /// All snapshots after the operation, oldest first.
    pub snapshots: Vec<SnapshotView>,
}

/// Reply to [`Call::TakeOver`], along with the sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TakeOverReply {
    /// Number of sockets that come with this reply.
    pub sockets: usize,
    /// Time limit for finishing the requests of hosts, in seconds.
    pub drain_seconds: u64,
    /// File with the objects made by JSON-RPC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<PathBuf>,
}

/// Reply to [`Call::Proceed`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProceedReply {
    /// Reservations of its namespaces.
    pub reservations: Vec<KnownReservations>,
    /// Writes of hosts that may be lost, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// Reservations of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KnownReservations {
    /// The subsystem.
    pub nqn: String,
    /// The namespace.
    pub nsid: u32,
    /// State in the format of the file for persistent reservations.
    pub image: String,
}

/// A change to what a target exports. Where `nqn` may be left out, it means the target's only subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ExportChange {
    /// Adds a subsystem.
    AddSubsystem {
        /// As in the configuration file.
        subsystem: SubsystemSettings,
    },
    /// Removes a subsystem; its hosts are disconnected.
    RemoveSubsystem {
        /// The subsystem.
        nqn: String,
    },
    /// Changes the numbers of a subsystem; omitted ones stay.
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
        namespace: NamespaceSettings,
    },
    /// Replaces the blocks of an NSID, or their options.
    ReplaceNamespace {
        /// The subsystem.
        nqn: Option<String>,
        /// As in the configuration file.
        namespace: NamespaceSettings,
    },
    /// Removes a namespace.
    RemoveNamespace {
        /// The subsystem.
        nqn: Option<String>,
        /// The namespace.
        nsid: u32,
    },
    /// Resizes a namespace; without a size it gets the present one of its file or device.
    ResizeNamespace {
        /// The subsystem.
        nqn: Option<String>,
        /// The namespace.
        nsid: u32,
        /// Size in bytes.
        #[serde(default, with = "size_field", skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    },
    /// Allows a host to use a subsystem.
    AllowHost {
        /// The subsystem.
        nqn: Option<String>,
        /// The host's NQN.
        host: String,
    },
    /// Disallows a host to use a subsystem; it is disconnected.
    DisallowHost {
        /// The subsystem.
        nqn: Option<String>,
        /// The host's NQN.
        host: String,
    },
    /// Allows any host to use a subsystem, or only named ones.
    AllowAnyHost {
        /// The subsystem.
        nqn: Option<String>,
        /// True to allow any host.
        allow: bool,
    },
    /// Limits the rates of a namespace.
    LimitNamespace {
        /// The subsystem.
        nqn: Option<String>,
        /// The namespace.
        nsid: u32,
        /// Limits; omitted ones are unlimited.
        rates: RateArgs,
    },
    /// Limits the rates of a host.
    LimitHost {
        /// The subsystem.
        nqn: Option<String>,
        /// The host's NQN.
        host: String,
        /// Limits; omitted ones are unlimited.
        rates: RateArgs,
    },
    /// Accepts connections at an address.
    Listen {
        /// Address or name.
        address: String,
        /// TCP port; 0 lets the system choose.
        #[serde(default = "default_port")]
        port: u16,
    },
    /// Accepts no more connections at an address; existing ones stay.
    Unlisten {
        /// Address or name.
        address: String,
        /// TCP port.
        #[serde(default = "default_port")]
        port: u16,
    },
    /// Sets the ANA state of the paths through a listener.
    SetAna {
        /// The listener.
        listener: AnaPort,
        /// The ANA state.
        state: AnaName,
    },
}

impl ExportChange {
    /// Returns the subsystem, if it is named.
    pub(crate) fn nqn(&self) -> Option<&str> {
        match self {
            ExportChange::RemoveSubsystem { nqn } => Some(nqn),
            ExportChange::AddSubsystem { subsystem } => Some(&subsystem.nqn),
            ExportChange::SetSubsystem { nqn, .. }
            | ExportChange::AddNamespace { nqn, .. }
            | ExportChange::ReplaceNamespace { nqn, .. }
            | ExportChange::RemoveNamespace { nqn, .. }
            | ExportChange::ResizeNamespace { nqn, .. }
            | ExportChange::AllowHost { nqn, .. }
            | ExportChange::DisallowHost { nqn, .. }
            | ExportChange::AllowAnyHost { nqn, .. }
            | ExportChange::LimitNamespace { nqn, .. }
            | ExportChange::LimitHost { nqn, .. } => nqn.as_deref(),
            ExportChange::Listen { .. }
            | ExportChange::Unlisten { .. }
            | ExportChange::SetAna { .. } => None,
        }
    }

    /// Makes paths absolute, for a process with another working directory.
    pub(crate) fn with_absolute_paths(mut self) -> ExportChange {
        let namespaces = match &mut self {
            ExportChange::AddNamespace { namespace, .. }
            | ExportChange::ReplaceNamespace { namespace, .. } => std::slice::from_mut(namespace),
            ExportChange::AddSubsystem { subsystem } => &mut subsystem.namespaces[..],
            _ => &mut [],
        };
        namespaces.iter_mut().for_each(NamespaceSettings::make_paths_absolute);
        self
    }
}

/// Result of a request.
pub(crate) type ControlReply = Result<Value, ControlRefusal>;

/// Reason for the refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RefusalReason {
    /// The request does not match the schema, or is not for this process.
    Request,
    /// A value is invalid.
    Invalid,
    /// The object exists already.
    Exists,
    /// The object does not exist.
    Unknown,
    /// Two namespaces would have one identity.
    Conflict,
    /// A file or device cannot be opened, or cannot have that size.
    Store,
    /// An address cannot be listened on.
    Listen,
    /// The operation failed.
    Failed,
}

/// A refused request, with the object and the field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ControlRefusal {
    /// Reason, for programs.
    pub why: RefusalReason,
    /// Message, for people.
    pub message: Box<str>,
    /// The object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Box<str>>,
    /// The invalid field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<Box<str>>,
    /// The given value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Box<str>>,
    /// Advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<Box<str>>,
}

/// Result of a reload or a list of changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChangesReply {
    /// Changes for hosts.
    pub changes: Vec<HostVisibleChange>,
    /// Advice.
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
    pub changes: Vec<HostVisibleChange>,
    /// Keys of the file that only a restart or a takeover changes.
    pub restart: Vec<String>,
    /// Subsystems that are in the file, which is served, and in the state, where they are kept.
    pub both: Vec<String>,
}

/// A change for hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostVisibleChange {
    /// Description, for people.
    pub what: String,
    /// The subsystem.
    pub nqn: Option<String>,
    /// The namespace.
    pub nsid: Option<u32>,
    /// The listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
}

impl<N: NamespaceDescription> From<&ConfigOperation<N>> for HostVisibleChange {
    fn from(operation: &ConfigOperation<N>) -> HostVisibleChange {
        let (nqn, nsid, address) = match operation.place() {
            ConfigObject::Namespace(nqn, nsid) => (Some(nqn), Some(nsid), None),
            ConfigObject::Subsystem(nqn) | ConfigObject::Host(nqn, _) => (Some(nqn), None, None),
            ConfigObject::Listener(address)
            | ConfigObject::Referral(address)
            | ConfigObject::Ana(AnaListener::Tcp(address)) => (None, None, Some(address)),
            ConfigObject::Ana(AnaListener::Ether)
            | ConfigObject::Limits
            | ConfigObject::Authentication => (None, None, None),
        };
        HostVisibleChange { what: operation.to_string(), nqn, nsid, address }
    }
}

impl ControlRefusal {
    pub(crate) fn new(why: RefusalReason, message: impl fmt::Display) -> ControlRefusal {
        let message = message.to_string().into();
        ControlRefusal { why, message, place: None, field: None, value: None, hint: None }
    }
}

impl From<ConfigError> for ControlRefusal {
    fn from(error: ConfigError) -> ControlRefusal {
        let why = match &error {
            ConfigError::Invalid { .. } => RefusalReason::Invalid,
            ConfigError::Exists(_) => RefusalReason::Exists,
            ConfigError::Unknown(_) => RefusalReason::Unknown,
            ConfigError::SameIdentity { .. } => RefusalReason::Conflict,
            ConfigError::Store { .. } => RefusalReason::Store,
            ConfigError::Listen { .. } => RefusalReason::Listen,
        };
        let place = Some(error.place().to_string().into());
        let refusal = ControlRefusal { place, ..ControlRefusal::new(why, &error) };
        match error {
            ConfigError::Invalid { field, value, hint, .. } => ControlRefusal {
                field: Some(field.into()),
                value: Some(value.into()),
                hint: Some(hint.into()),
                ..refusal
            },
            _ => refusal,
        }
    }
}

impl From<CommandFailure> for ControlRefusal {
    fn from(failure: CommandFailure) -> ControlRefusal {
        let why = if failure.kind == crate::FailureKind::Usage {
            RefusalReason::Invalid
        } else {
            RefusalReason::Failed
        };
        ControlRefusal::new(why, failure.message)
    }
}

impl From<RpcError> for CommandFailure {
    fn from(error: RpcError) -> CommandFailure {
        ControlRefusal::from(error).into()
    }
}

impl From<ControlRefusal> for CommandFailure {
    fn from(refusal: ControlRefusal) -> CommandFailure {
        match refusal.why {
            RefusalReason::Store | RefusalReason::Listen | RefusalReason::Failed => {
                CommandFailure::failed(refusal.message)
            }
            _ => CommandFailure::usage(refusal.message),
        }
    }
}

/// Prefix of this program's methods, to distinguish them from SPDK's.
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
    change("roadtrain_bitmaps"),
    keep("roadtrain_stop"),
];

/// Methods of a target, in addition to SPDK's.
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
    /// Returns the method and the parameters of the request.
    pub(crate) fn request(&self) -> (String, Value) {
        let mut call = json!(self);
        let method = call["method"].as_str().unwrap_or_default().to_owned();
        (PREFIX.to_owned() + &method, call["params"].take())
    }

    /// Parses a request.
    ///
    /// # Errors
    /// An unknown method, or parameters of another form.
    pub(crate) fn read(method: &str, params: Value) -> Result<Call, ControlRefusal> {
        let refuse =
            |why: String| ControlRefusal::new(RefusalReason::Request, format!("{method}: {why}"));
        let word = method.strip_prefix(PREFIX).unwrap_or_default();
        let mut call = json!({ "method": word });
        let is_empty = params.as_object().is_some_and(serde_json::Map::is_empty);
        if !params.is_null() && !is_empty {
            call["params"] = params;
        }
        serde_json::from_value(call).map_err(|e| refuse(e.to_string()))
    }
}

impl From<ControlRefusal> for RpcError {
    fn from(refusal: ControlRefusal) -> RpcError {
        let (code, words) = match refusal.why {
            RefusalReason::Request => (-32602, "Invalid parameters"),
            RefusalReason::Invalid => (-22, "Invalid argument"),
            RefusalReason::Exists | RefusalReason::Conflict => (-17, "File exists"),
            RefusalReason::Unknown => (-19, "No such device"),
            RefusalReason::Store => (-5, "Input/output error"),
            RefusalReason::Listen => (-98, "Address already in use"),
            RefusalReason::Failed => (-32603, "Internal error"),
        };
        let error = RpcError::new(code, words, &refusal.message);
        RpcError { data: Some(Box::new(json!(refusal))), ..error }
    }
}

impl From<RpcError> for ControlRefusal {
    fn from(error: RpcError) -> ControlRefusal {
        let data = error.data.and_then(|data| serde_json::from_value(*data).ok());
        let why = if error.code == -32602 { RefusalReason::Request } else { RefusalReason::Failed };
        data.unwrap_or_else(|| ControlRefusal::new(why, error.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        let host = || "nqn.x:h".to_owned();
        let namespace: NamespaceSettings = "file:a.img,size=2GiB,lba=4096,nsid=3".parse().unwrap();
        let operations = vec![
            ExportChange::AddNamespace { nqn: None, namespace },
            ExportChange::ResizeNamespace { nqn: Some(host()), nsid: 3, size: Some(1 << 30) },
            ExportChange::ResizeNamespace { nqn: None, nsid: 3, size: None },
            ExportChange::AllowAnyHost { nqn: None, allow: false },
            ExportChange::AllowHost { nqn: None, host: host() },
        ];
        let taking = [Call::Upgrade, Call::TakeOver, Call::Proceed, Call::Serving];
        let queries = [Call::Status, Call::Stop, Call::Snapshot, Call::Recorded, Call::Reload];
        let (name, to) = ("s".to_owned(), "rbd/c".to_owned());
        let snapshot = |action| Call::Snapshots(SnapshotCall { nqn: None, nsid: 2, action });
        let others = [
            Call::Claim { nqn: Some(host()), nsid: 1 },
            snapshot(SnapshotAction::List),
            snapshot(SnapshotAction::Clone { name, to }),
            Call::Apply { operations },
        ];
        for call in queries.into_iter().chain(taking).chain(others) {
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
            assert_eq!(refusal.why, RefusalReason::Request, "{method}");
            assert!(refusal.message.contains(why), "{method}: {}", refusal.message);
        }
    }

    #[test]
    fn errors_say_what_is_wrong_and_where() {
        let place = ConfigObject::Namespace("nqn.x:y".into(), 7);
        let error = ConfigError::invalid(place, "nsid", 7000, "choose a number from 1 to 1024");
        let refusal = ControlRefusal::from(error);
        assert_eq!(ControlRefusal::from(RpcError::from(refusal.clone())), refusal);
        let json = json!(refusal);
        assert_eq!((&json["why"], &json["field"]), (&json!("invalid"), &json!("nsid")));
        assert_eq!(
            (&json["place"], &json["value"]),
            (&json!("namespace 7 of nqn.x:y"), &json!("7000"))
        );
        assert_eq!(CommandFailure::from(refusal).kind, crate::FailureKind::Usage);
    }
}
