//! Records of commands whose completions have left.

use super::data::LaneExecution;
use super::meter::LaneMeter;
use crate::meters::LaneCells;
use roadtrain_proto::recorder::FlightRecorder;
use roadtrain_proto::time::Instant;
use std::sync::Arc;

/// Command whose completion has left.
pub(super) struct DepartedCommand {
    pub(super) slot: u16,
    pub(super) cid: u16,
    pub(super) answered: Instant,
    /// Time at which the completion was put into a caravan.
    pub(super) caravan: Instant,
    /// Time at which the socket accepted the completion; over Ethernet, at which the host acknowledged it.
    pub(super) sent: Instant,
}

impl DepartedCommand {
    /// Records the command, as a sample or because it was slow, before its resources are released. A slow sample is
    /// recorded twice.
    #[cold]
    pub(super) fn record(
        &self,
        (execution, meter): (&LaneExecution, &LaneMeter),
        recorder: &mut FlightRecorder<Arc<LaneCells>>,
        is_sample: bool,
    ) {
        let DepartedCommand { slot, cid, answered, caravan, sent } = *self;
        let (buffered, started) = execution.timestamps(slot);
        let timestamps = [buffered, started.unwrap_or(answered), answered, caravan, sent];
        match meter.record(slot, cid, timestamps) {
            Some(record) if is_sample => recorder.sample(sent, record),
            Some(record) => recorder.slow(sent, record),
            None if is_sample => recorder.pass(sent),
            None => {}
        }
    }
}
