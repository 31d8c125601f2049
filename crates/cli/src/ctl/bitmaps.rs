//! Dirty bitmaps of attachments.

use super::target::ControlledTarget;
use crate::args::BitmapCommand;
use crate::control::{BitmapAction, BitmapsReply, Call};
use crate::failure::CommandResult;
use crate::output;
use serde_json::json;

impl ControlledTarget {
    pub(super) fn bitmap(&self, command: &BitmapCommand) -> CommandResult {
        let action = match command.clone() {
            BitmapCommand::List => BitmapAction::List,
            BitmapCommand::Start { name } => BitmapAction::Start { name },
            BitmapCommand::Finish { name, backup } => BitmapAction::Finish { name, backup },
        };
        let reply: BitmapsReply = self.call_as(&Call::Bitmaps(action))?;
        if self.json {
            return output::json(&reply);
        }
        match (command, reply.started_backup) {
            (BitmapCommand::Start { .. }, Some(started)) => {
                let kind = if started.full { "full" } else { "increment" };
                output::line(&format!("{} {kind}", started.backup))
            }
            (BitmapCommand::Finish { name, .. }, _) => {
                output::line(&format!("bitmap {name}: the backup has finished"))
            }
            _ => {
                let rows = reply.bitmaps.iter().map(|bitmap| {
                    let state = if bitmap.valid { "valid" } else { "invalid" };
                    json!({
                        "name": bitmap.name, "state": state, "dirty_bytes": bitmap.dirty_bytes,
                        "capacity_bytes": bitmap.capacity_bytes,
                        "granularity_bytes": bitmap.granularity_bytes,
                        "backup": bitmap.backup, "reason": bitmap.reason,
                    })
                });
                let names = [
                    "name",
                    "state",
                    "dirty_bytes",
                    "capacity_bytes",
                    "granularity_bytes",
                    "backup",
                    "reason",
                ];
                self.table(&names, rows.collect())
            }
        }
    }
}
