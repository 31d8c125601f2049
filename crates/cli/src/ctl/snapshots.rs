//! Snapshots and their differences.

use super::subsystems::place;
use super::target::ControlledTarget;
use crate::args::{SnapshotCommand, SnapshotRef};
use crate::control::{Call, SnapshotAction, SnapshotCall, SnapshotReply, SnapshotView};
use crate::failure::CommandResult;
use crate::output;
use serde_json::{Value, json};

/// Ranges of one reply of a target.
const RANGES_MAX: u32 = 1 << 16;

impl ControlledTarget {
    pub(super) fn snapshot(&self, command: SnapshotCommand) -> CommandResult {
        let of = |SnapshotRef { namespace, name }: SnapshotRef| (namespace, name);
        let (namespace, action) = match command {
            SnapshotCommand::List { namespace } => (namespace, SnapshotAction::List),
            SnapshotCommand::Create(one) => {
                let (namespace, name) = of(one);
                (namespace, SnapshotAction::Create { name })
            }
            SnapshotCommand::Remove(one) => {
                let (namespace, name) = of(one);
                (namespace, SnapshotAction::Remove { name })
            }
            SnapshotCommand::Protect(one) => {
                let (namespace, name) = of(one);
                (namespace, SnapshotAction::Protect { name })
            }
            SnapshotCommand::Unprotect(one) => {
                let (namespace, name) = of(one);
                (namespace, SnapshotAction::Unprotect { name })
            }
            SnapshotCommand::Clone { from, to } => {
                let (namespace, name) = of(from);
                (namespace, SnapshotAction::Clone { name, to })
            }
            SnapshotCommand::Rollback(one) => {
                let (namespace, name) = of(one);
                (namespace, SnapshotAction::Rollback { name })
            }
            SnapshotCommand::Diff { from, to } => return self.differences(&from, to.as_deref()),
        };
        let is_list = action == SnapshotAction::List;
        let (nqn, nsid) = place(namespace);
        let reply: SnapshotReply =
            self.call_as(&Call::Snapshots(SnapshotCall { nqn, nsid, action }))?;
        if self.json {
            return output::json(&reply);
        }
        if !is_list {
            return Ok(());
        }
        let row = |one: &SnapshotView| {
            let protected = if one.protected { " protected" } else { "" };
            format!("{} {} bytes{protected}", one.name, one.bytes)
        };
        let rows: Vec<String> = reply.snapshots.iter().map(row).collect();
        output::line(&if rows.is_empty() { "no snapshots".into() } else { rows.join("\n") })
    }

    /// Shows the differences between two snapshots, or between one and the present blocks.
    fn differences(&self, from: &SnapshotRef, to: Option<&str>) -> CommandResult {
        let (nqn, nsid) = self.namespace_of(&from.namespace)?;
        let mut ranges: Vec<Value> = Vec::new();
        let mut offset = json!(0);
        let mut all = loop {
            let mut params = json!({
                "nqn": nqn, "nsid": nsid, "from": from.name, "offset": offset,
                "ranges_max": RANGES_MAX,
            });
            if let Some(to) = to {
                params["to"] = to.into();
            }
            let object = format!("namespace {nsid} of {nqn}");
            let mut part = self.call_for(&object, "roadtrain_diff_snapshots", &params)?;
            if let Value::Array(more) = part["ranges"].take() {
                ranges.extend(more);
            }
            offset = part["next_offset"].take();
            if offset.is_null() {
                break part;
            }
        };
        if !self.json {
            return self.table(&["offset", "bytes", "kind"], ranges);
        }
        if let Some(members) = all.as_object_mut() {
            members.remove("next_offset");
        }
        all["ranges"] = ranges.into();
        output::json(&all)
    }
}
