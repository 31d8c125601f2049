//! The object of a group: `roadtrain.gateways.GROUP` in its pool.
//!
//! | name | value |
//! |---|---|
//! | `configuration` | what all gateways serve: TOML |
//! | `now/version` | a number that grows with each change of it |
//! | `now/beat/GATEWAY` | another number each time; without it the gateway has left |
//! | `gateway/GATEWAY` | what the gateway says of itself: JSON |
//! | `slot/N` | the gateway that has the slot |

use super::config::GroupConfig;
use crate::args::CephArgs;
use crate::failure::{CommandFailure, CommandResult};
use roadtrain_store::{
    NotifyHandler, NotifyReplies, ObjectError, ObjectMap, ObjectMapChange, ObjectWatch, RadosObject,
};
use roadtrain_target_proto::gateways::SLOTS_MAX;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;
use tracing::warn;

const CONFIGURATION: &str = "configuration";
const NOW: &str = "now/";
const VERSION: &str = "now/version";
const BEAT: &str = "now/beat/";
const GATEWAY: &str = "gateway/";
const SLOT: &str = "slot/";
/// Most bytes of a configuration: some ten thousand images.
const CONFIGURATION_BYTES_MAX: usize = 8 << 20;
/// Notification that requests the gateways' names.
const WHO: &[u8] = b"who";
/// Notification of a change.
const CHANGED: &[u8] = b"changed";
/// Time limit for gateways' replies.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// State that a gateway publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct GatewayStatus {
    /// Its slot.
    pub(crate) slot: u16,
    /// Its listeners.
    pub(crate) listeners: Vec<String>,
    /// The version that it serves.
    pub(crate) version: u64,
    /// The version that it could not apply, with the reason.
    pub(crate) refused: Option<(u64, String)>,
    /// Namespaces that it serves, by subsystem NQN.
    pub(crate) serves: BTreeMap<String, Vec<u32>>,
}

/// State of a group at one time.
#[derive(Clone, Default)]
pub(crate) struct GroupState {
    pub(crate) version: u64,
    pub(crate) config: GroupConfig,
    pub(crate) gateways: BTreeMap<String, GatewayStatus>,
    pub(crate) slots: BTreeMap<u16, String>,
    pub(crate) heartbeats: BTreeMap<String, u64>,
}

/// Version and heartbeats, which change all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupHeartbeats {
    pub(crate) version: u64,
    pub(crate) heartbeats: BTreeMap<String, u64>,
}

/// The map of a group, and its watchers: the object in the pool, or a test's.
pub(super) trait GroupObject: Debug + Send + Sync {
    /// As [`RadosObject::read`].
    fn read(&self, prefix: &str) -> Result<ObjectMap, ObjectError>;

    /// As [`RadosObject::change`].
    fn change(&self, change: &ObjectMapChange) -> Result<bool, ObjectError>;

    /// As [`RadosObject::notify`].
    fn notify(&self, text: &[u8]) -> Result<NotifyReplies, ObjectError>;

    /// As [`RadosObject::watch`].
    fn watch(&self, on_notification: Box<NotifyHandler>) -> Result<ObjectWatch, ObjectError>;
}

impl GroupObject for RadosObject {
    fn read(&self, prefix: &str) -> Result<ObjectMap, ObjectError> {
        RadosObject::read(self, prefix)
    }

    fn change(&self, change: &ObjectMapChange) -> Result<bool, ObjectError> {
        RadosObject::change(self, change)
    }

    fn notify(&self, text: &[u8]) -> Result<NotifyReplies, ObjectError> {
        RadosObject::notify(self, text, ANSWER_WAIT)
    }

    fn watch(&self, on_notification: Box<NotifyHandler>) -> Result<ObjectWatch, ObjectError> {
        RadosObject::watch(self, on_notification)
    }
}

/// A group in its pool.
#[derive(Debug)]
pub(crate) struct GatewayGroup {
    object: Box<dyn GroupObject>,
    /// Name without the pool.
    plain_name: String,
    /// Name with the pool, for messages.
    name: String,
}

impl GatewayGroup {
    /// Connects to the cluster.
    ///
    /// # Errors
    /// The cluster cannot be reached, or has no such pool.
    pub(crate) fn open(pool: &str, group: &str, ceph: &CephArgs) -> CommandResult<GatewayGroup> {
        let object = RadosObject::open(
            &super::config::place(pool, ceph),
            &format!("roadtrain.gateways.{group}"),
        );
        let unreachable = |error: ObjectError| match error.is_connect() {
            true => CommandFailure::connect(error),
            false => CommandFailure::failed(error),
        };
        Ok(GatewayGroup::new(pool, group, Box::new(object.map_err(unreachable)?)))
    }

    /// Creates a group with an existing object.
    pub(super) fn new(pool: &str, group: &str, object: Box<dyn GroupObject>) -> GatewayGroup {
        GatewayGroup {
            object,
            plain_name: group.to_owned(),
            name: format!("{group} in pool {pool}"),
        }
    }

    /// Returns the name without the pool.
    pub(crate) fn plain_name(&self) -> &str {
        &self.plain_name
    }

    /// Returns the name with the pool, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the group's state; `None` if there is no such group.
    ///
    /// # Errors
    /// The cluster does not reply, or its reply is invalid.
    pub(crate) fn read(&self) -> CommandResult<Option<GroupState>> {
        let map = self.object.read("")?;
        if map.is_empty() {
            return Ok(None);
        }
        let wrong = |what: &str, why: &str| {
            CommandFailure::failed(format!("gateway group {}: {what}: {why}", self.name))
        };
        let GroupHeartbeats { version, heartbeats } = parse_heartbeats(&map);
        let mut state = GroupState { version, heartbeats, ..GroupState::default() };
        if let Some(text) = map.get(CONFIGURATION) {
            let config = GroupConfig::parse(&String::from_utf8_lossy(text));
            state.config = config.map_err(|why| wrong("its configuration", &why))?;
        }
        for (name, value) in &map {
            if let Some(gateway) = name.strip_prefix(GATEWAY) {
                // A gateway of another program version may have more fields, or fewer.
                let status = serde_json::from_slice(value).unwrap_or_default();
                state.gateways.insert(gateway.to_owned(), status);
            }
            if let Some(slot) = name.strip_prefix(SLOT).and_then(|slot| slot.parse().ok()) {
                state.slots.insert(slot, String::from_utf8_lossy(value).into_owned());
            }
        }
        Ok(Some(state))
    }

    /// Reads the version and the heartbeats.
    ///
    /// # Errors
    /// The cluster does not reply.
    pub(crate) fn read_heartbeats(&self) -> Result<GroupHeartbeats, ObjectError> {
        self.object.read(NOW).map(|map| parse_heartbeats(&map))
    }

    /// Replaces the configuration of `version`; false if it is not the current one any more.
    ///
    /// # Errors
    /// The cluster refuses, or the configuration is too long.
    pub(crate) fn write(&self, version: u64, config: &GroupConfig) -> CommandResult<bool> {
        let text = config.to_toml().into_bytes();
        if text.len() > CONFIGURATION_BYTES_MAX {
            return Err(CommandFailure::usage(format!(
                "gateway group {}: {} bytes of configuration are more than {CONFIGURATION_BYTES_MAX}: make two groups",
                self.name,
                text.len()
            )));
        }
        let before = if version == 0 { String::new() } else { version.to_string() };
        let next = (version + 1).to_string().into_bytes();
        let change = ObjectMapChange {
            expected: [(VERSION.into(), before.into_bytes())].into(),
            set: [(CONFIGURATION.into(), text), (VERSION.into(), next)].into(),
            removed: Vec::new(),
        };
        let is_written = self.object.change(&change)?;
        if is_written {
            self.notify_gateways();
        }
        Ok(is_written)
    }

    /// Takes a slot for a gateway: the one that it had before, or a free one.
    ///
    /// # Errors
    /// All slots are taken, or the cluster refuses.
    pub(crate) fn take_slot(&self, gateway: &str) -> CommandResult<u16> {
        for _ in 0..=SLOTS_MAX {
            let slots = self.read()?.unwrap_or_default().slots;
            if let Some((slot, _)) = slots.iter().find(|(_, owner)| *owner == gateway) {
                return Ok(*slot);
            }
            let Some(free) = (0..SLOTS_MAX).find(|slot| !slots.contains_key(slot)) else { break };
            let name = format!("{SLOT}{free}");
            let change = ObjectMapChange {
                expected: [(name.clone(), Vec::new())].into(),
                set: [(name, gateway.as_bytes().to_vec())].into(),
                removed: Vec::new(),
            };
            if self.object.change(&change)? {
                return Ok(free);
            }
        }
        Err(CommandFailure::failed(format!(
            "gateway group {}: all {SLOTS_MAX} slots are taken: `roadtrain ctl --group` with `gateway list` has the gateways; \
             `gateway remove NAME` forgets one that does not come back",
            self.name
        )))
    }

    /// Writes a gateway's heartbeat, if no other process has written one under its name since `last` (`None`: there was
    /// none).
    ///
    /// # Errors
    /// The cluster refuses.
    pub(crate) fn write_heartbeat(
        &self,
        gateway: &str,
        last: Option<u64>,
        heartbeat: u64,
    ) -> Result<bool, ObjectError> {
        let name = format!("{BEAT}{gateway}");
        let last = last.map_or_else(Vec::new, |last| last.to_string().into_bytes());
        let change = ObjectMapChange {
            expected: [(name.clone(), last)].into(),
            set: [(name, heartbeat.to_string().into_bytes())].into(),
            removed: Vec::new(),
        };
        self.object.change(&change)
    }

    /// Writes the state that a gateway publishes.
    ///
    /// # Errors
    /// The cluster refuses.
    pub(crate) fn publish(&self, gateway: &str, status: &GatewayStatus) -> Result<(), ObjectError> {
        let value = serde_json::to_vec(status).unwrap_or_default();
        let set = [(format!("{GATEWAY}{gateway}"), value)].into();
        self.object.change(&ObjectMapChange { set, ..ObjectMapChange::default() }).map(drop)
    }

    /// Removes a gateway's heartbeat; the others are notified at once.
    ///
    /// # Errors
    /// The cluster refuses.
    pub(crate) fn remove_heartbeat(
        &self,
        gateway: &str,
        heartbeat: u64,
    ) -> Result<(), ObjectError> {
        let name = format!("{BEAT}{gateway}");
        let expected = [(name.clone(), heartbeat.to_string().into_bytes())].into();
        let change =
            ObjectMapChange { expected, removed: vec![name], ..ObjectMapChange::default() };
        if self.object.change(&change)? {
            self.notify_gateways();
        }
        Ok(())
    }

    /// Removes a gateway that has stopped, with its slot.
    ///
    /// # Errors
    /// The cluster refuses.
    pub(crate) fn remove_gateway(&self, state: &GroupState, gateway: &str) -> CommandResult {
        let slots = state.slots.iter().filter(|(_, owner)| *owner == gateway);
        let mut removed: Vec<String> = slots.map(|(slot, _)| format!("{SLOT}{slot}")).collect();
        removed.extend([format!("{GATEWAY}{gateway}"), format!("{BEAT}{gateway}")]);
        self.object.change(&ObjectMapChange { removed, ..ObjectMapChange::default() })?;
        Ok(())
    }

    /// Returns the names of the gateways that reply.
    ///
    /// # Errors
    /// The cluster does not notify them.
    pub(crate) fn live_gateways(&self) -> Result<Vec<String>, ObjectError> {
        let NotifyReplies { replies, .. } = self.object.notify(WHO)?;
        let names = replies.into_iter().map(|name| String::from_utf8_lossy(&name).into_owned());
        let mut names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Notifies all gateways to read the object at once. A change is valid without a notification: gateways read the
    /// object periodically.
    fn notify_gateways(&self) {
        let gap = match self.object.notify(CHANGED) {
            Ok(NotifyReplies { is_complete: true, .. }) => return,
            Ok(_) => format!("no reply within {} s", ANSWER_WAIT.as_secs()),
            Err(error) => error.to_string(),
        };
        let group = &self.name;
        warn!(%group, "changed, but not every gateway was notified; those follow later: {gap}");
    }

    /// Replies to notifications with the gateway's name, and calls `changed` at each change.
    ///
    /// # Errors
    /// The cluster refuses.
    pub(crate) fn watch(
        &self,
        gateway: &str,
        changed: impl Fn() + Send + Sync + 'static,
    ) -> Result<ObjectWatch, ObjectError> {
        let name = gateway.as_bytes().to_vec();
        let on_notification: Box<NotifyHandler> = Box::new(move |what| {
            if what == CHANGED {
                changed();
            }
            name.clone()
        });
        self.object.watch(on_notification)
    }
}

fn parse_heartbeats(map: &ObjectMap) -> GroupHeartbeats {
    let number = |value: &[u8]| String::from_utf8_lossy(value).parse().unwrap_or(0);
    let heartbeat = |(name, value): (&String, &Vec<u8>)| {
        Some((name.strip_prefix(BEAT)?.to_owned(), number(value)))
    };
    let version = map.get(VERSION).map_or(0, |value| number(value));
    GroupHeartbeats { version, heartbeats: map.iter().filter_map(heartbeat).collect() }
}

impl From<ObjectError> for CommandFailure {
    fn from(error: ObjectError) -> CommandFailure {
        CommandFailure::failed(error)
    }
}
