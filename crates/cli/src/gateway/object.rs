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
use crate::failure::{Failure, Outcome};
use roadtrain_store::{Heard, Map, MapChange, Notified, ObjectError, RadosObject, Watch};
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
/// Longest configuration: some ten thousand images.
const CONFIGURATION_BYTES_MAX: usize = 8 << 20;
/// What a gateway is asked to answer.
const WHO: &[u8] = b"who";
/// What a gateway is told when something has changed.
const CHANGED: &[u8] = b"changed";
/// How long gateways have to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// What a gateway says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Said {
    /// Its slot.
    pub(crate) slot: u16,
    /// Where it listens.
    pub(crate) listeners: Vec<String>,
    /// The version that it serves.
    pub(crate) version: u64,
    /// The version that it could not apply, and why.
    pub(crate) refused: Option<(u64, String)>,
    /// What it serves: subsystem NQN and NSIDs.
    pub(crate) serves: BTreeMap<String, Vec<u32>>,
}

/// All of a group at one time.
#[derive(Clone, Default)]
pub(crate) struct GroupState {
    pub(crate) version: u64,
    pub(crate) config: GroupConfig,
    pub(crate) gateways: BTreeMap<String, Said>,
    pub(crate) slots: BTreeMap<u16, String>,
    pub(crate) beats: BTreeMap<String, u64>,
}

/// What changes all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Now {
    pub(crate) version: u64,
    pub(crate) beats: BTreeMap<String, u64>,
}

/// The map of a group, and its watchers: the object in the pool, or that of a test.
pub(super) trait GroupObject: Debug + Send + Sync {
    /// As [`RadosObject::read`].
    fn read(&self, prefix: &str) -> Result<Map, ObjectError>;

    /// As [`RadosObject::change`].
    fn change(&self, change: &MapChange) -> Result<bool, ObjectError>;

    /// As [`RadosObject::notify`].
    fn notify(&self, text: &[u8]) -> Result<Notified, ObjectError>;

    /// As [`RadosObject::watch`].
    fn watch(&self, heard: Box<Heard>) -> Result<Watch, ObjectError>;
}

impl GroupObject for RadosObject {
    fn read(&self, prefix: &str) -> Result<Map, ObjectError> {
        RadosObject::read(self, prefix)
    }

    fn change(&self, change: &MapChange) -> Result<bool, ObjectError> {
        RadosObject::change(self, change)
    }

    fn notify(&self, text: &[u8]) -> Result<Notified, ObjectError> {
        RadosObject::notify(self, text, ANSWER_WAIT)
    }

    fn watch(&self, heard: Box<Heard>) -> Result<Watch, ObjectError> {
        RadosObject::watch(self, heard)
    }
}

/// A group in its pool.
#[derive(Debug)]
pub(crate) struct Group {
    object: Box<dyn GroupObject>,
    /// As its members call it.
    plain_name: String,
    /// As people write it.
    name: String,
}

impl Group {
    /// Connects.
    ///
    /// # Errors
    /// The cluster cannot be reached, or has no such pool.
    pub(crate) fn open(pool: &str, group: &str, ceph: &CephArgs) -> Outcome<Group> {
        let object = RadosObject::open(
            &super::config::place(pool, ceph),
            &format!("roadtrain.gateways.{group}"),
        );
        let unreachable = |error: ObjectError| match error.is_connect() {
            true => Failure::connect(error),
            false => Failure::failed(error),
        };
        Ok(Group::new(pool, group, Box::new(object.map_err(unreachable)?)))
    }

    /// A group whose object is there.
    pub(super) fn new(pool: &str, group: &str, object: Box<dyn GroupObject>) -> Group {
        Group { object, plain_name: group.to_owned(), name: format!("{group} in pool {pool}") }
    }

    /// Without its pool.
    pub(crate) fn plain_name(&self) -> &str {
        &self.plain_name
    }

    /// As people write it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// All of it; `None`: there is no such group.
    ///
    /// # Errors
    /// The cluster does not say, or what it says makes no sense.
    pub(crate) fn read(&self) -> Outcome<Option<GroupState>> {
        let map = self.object.read("")?;
        if map.is_empty() {
            return Ok(None);
        }
        let wrong = |what: &str, why: &str| {
            Failure::failed(format!("gateway group {}: {what}: {why}", self.name))
        };
        let Now { version, beats } = now(&map);
        let mut state = GroupState { version, beats, ..GroupState::default() };
        if let Some(text) = map.get(CONFIGURATION) {
            let config = GroupConfig::parse(&String::from_utf8_lossy(text));
            state.config = config.map_err(|why| wrong("its configuration", &why))?;
        }
        for (name, value) in &map {
            if let Some(gateway) = name.strip_prefix(GATEWAY) {
                // One of another version may say more, or less.
                let said = serde_json::from_slice(value).unwrap_or_default();
                state.gateways.insert(gateway.to_owned(), said);
            }
            if let Some(slot) = name.strip_prefix(SLOT).and_then(|slot| slot.parse().ok()) {
                state.slots.insert(slot, String::from_utf8_lossy(value).into_owned());
            }
        }
        Ok(Some(state))
    }

    /// What changes all the time.
    ///
    /// # Errors
    /// The cluster does not say.
    pub(crate) fn now(&self) -> Result<Now, ObjectError> {
        self.object.read(NOW).map(|map| now(&map))
    }

    /// Writes another configuration in the place of that of `version`, if it is still that one.
    ///
    /// # Errors
    /// The cluster does not, or it is too long.
    pub(crate) fn write(&self, version: u64, config: &GroupConfig) -> Outcome<bool> {
        let text = config.to_toml().into_bytes();
        if text.len() > CONFIGURATION_BYTES_MAX {
            return Err(Failure::usage(format!(
                "gateway group {}: {} octets of configuration are more than {CONFIGURATION_BYTES_MAX}: make two groups",
                self.name,
                text.len()
            )));
        }
        let before = if version == 0 { String::new() } else { version.to_string() };
        let next = (version + 1).to_string().into_bytes();
        let change = MapChange {
            expected: [(VERSION.into(), before.into_bytes())].into(),
            set: [(CONFIGURATION.into(), text), (VERSION.into(), next)].into(),
            removed: Vec::new(),
        };
        let is_written = self.object.change(&change)?;
        if is_written {
            self.tell();
        }
        Ok(is_written)
    }

    /// Takes a slot for a gateway: that which it has had, or a free one.
    ///
    /// # Errors
    /// All are taken, or the cluster does not give one.
    pub(crate) fn take_slot(&self, gateway: &str) -> Outcome<u16> {
        for _ in 0..=SLOTS_MAX {
            let slots = self.read()?.unwrap_or_default().slots;
            if let Some((slot, _)) = slots.iter().find(|(_, owner)| *owner == gateway) {
                return Ok(*slot);
            }
            let Some(free) = (0..SLOTS_MAX).find(|slot| !slots.contains_key(slot)) else { break };
            let name = format!("{SLOT}{free}");
            let change = MapChange {
                expected: [(name.clone(), Vec::new())].into(),
                set: [(name, gateway.as_bytes().to_vec())].into(),
                removed: Vec::new(),
            };
            if self.object.change(&change)? {
                return Ok(free);
            }
        }
        Err(Failure::failed(format!(
            "gateway group {}: all {SLOTS_MAX} slots are taken: `roadtrain ctl --group` with `gateway list` has the gateways; \
             `gateway remove NAME` forgets one that does not come back",
            self.name
        )))
    }

    /// Writes that a gateway is there, if nobody else has in its name since `last`; `None`: nobody was there.
    ///
    /// # Errors
    /// The cluster does not.
    pub(crate) fn beat(
        &self,
        gateway: &str,
        last: Option<u64>,
        beat: u64,
    ) -> Result<bool, ObjectError> {
        let name = format!("{BEAT}{gateway}");
        let last = last.map_or_else(Vec::new, |last| last.to_string().into_bytes());
        let change = MapChange {
            expected: [(name.clone(), last)].into(),
            set: [(name, beat.to_string().into_bytes())].into(),
            removed: Vec::new(),
        };
        self.object.change(&change)
    }

    /// Writes what a gateway says of itself.
    ///
    /// # Errors
    /// The cluster does not.
    pub(crate) fn say(&self, gateway: &str, said: &Said) -> Result<(), ObjectError> {
        let value = serde_json::to_vec(said).unwrap_or_default();
        let set = [(format!("{GATEWAY}{gateway}"), value)].into();
        self.object.change(&MapChange { set, ..MapChange::default() }).map(drop)
    }

    /// A gateway leaves: the others hear it at once.
    ///
    /// # Errors
    /// The cluster does not pass it on.
    pub(crate) fn leave(&self, gateway: &str, beat: u64) -> Result<(), ObjectError> {
        let name = format!("{BEAT}{gateway}");
        let expected = [(name.clone(), beat.to_string().into_bytes())].into();
        let change = MapChange { expected, removed: vec![name], ..MapChange::default() };
        if self.object.change(&change)? {
            self.tell();
        }
        Ok(())
    }

    /// Removes a gateway that has left: its slot, too.
    ///
    /// # Errors
    /// The cluster does not.
    pub(crate) fn forget(&self, state: &GroupState, gateway: &str) -> Outcome {
        let slots = state.slots.iter().filter(|(_, owner)| *owner == gateway);
        let mut removed: Vec<String> = slots.map(|(slot, _)| format!("{SLOT}{slot}")).collect();
        removed.extend([format!("{GATEWAY}{gateway}"), format!("{BEAT}{gateway}")]);
        self.object.change(&MapChange { removed, ..MapChange::default() })?;
        Ok(())
    }

    /// Those gateways that answer now.
    ///
    /// # Errors
    /// The cluster does not ask them.
    pub(crate) fn who(&self) -> Result<Vec<String>, ObjectError> {
        let Notified { replies, .. } = self.object.notify(WHO)?;
        let names = replies.into_iter().map(|name| String::from_utf8_lossy(&name).into_owned());
        let mut names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Has all gateways read the object at once. A change is made, whether they are notified or not: they read it from
    /// time to time.
    fn tell(&self) {
        let gap = match self.object.notify(CHANGED) {
            Ok(Notified { is_complete: true, .. }) => return,
            Ok(_) => format!("no reply within {} s", ANSWER_WAIT.as_secs()),
            Err(error) => error.to_string(),
        };
        let group = &self.name;
        warn!(%group, "changed, but not every gateway was notified; those follow later: {gap}");
    }

    /// Answers in a gateway's name from now on, and has `changed` called when something has.
    ///
    /// # Errors
    /// The cluster does not let us.
    pub(crate) fn watch(
        &self,
        gateway: &str,
        changed: impl Fn() + Send + Sync + 'static,
    ) -> Result<Watch, ObjectError> {
        let name = gateway.as_bytes().to_vec();
        let heard: Box<Heard> = Box::new(move |what| {
            if what == CHANGED {
                changed();
            }
            name.clone()
        });
        self.object.watch(heard)
    }
}

fn now(map: &Map) -> Now {
    let number = |value: &[u8]| String::from_utf8_lossy(value).parse().unwrap_or(0);
    let beat = |(name, value): (&String, &Vec<u8>)| {
        Some((name.strip_prefix(BEAT)?.to_owned(), number(value)))
    };
    let version = map.get(VERSION).map_or(0, |value| number(value));
    Now { version, beats: map.iter().filter_map(beat).collect() }
}

impl From<ObjectError> for Failure {
    fn from(error: ObjectError) -> Failure {
        Failure::failed(error)
    }
}
