//! What is recorded of commands whose answers have left.

use super::data::Execution;
use super::meter::Meter;
use crate::meters::LaneCells;
use roadtrain_proto::recorder::Recorder;
use roadtrain_proto::time::Instant;
use std::sync::Arc;

/// A command whose answer has left.
pub(super) struct Left {
    pub(super) slot: u16,
    pub(super) cid: u16,
    pub(super) answered: Instant,
    /// When the answer was put into a caravan.
    pub(super) caravan: Instant,
    /// When the socket, or over Ethernet the host, had it.
    pub(super) sent: Instant,
}

impl Left {
    /// Records it, before what it holds goes back: because it is its turn, or because it was slow. One that is both is
    /// told twice.
    #[cold]
    pub(super) fn record(
        &self,
        (execution, meter): (&Execution, &Meter),
        recorder: &mut Recorder<Arc<LaneCells>>,
        is_sample: bool,
    ) {
        let Left { slot, cid, answered, caravan, sent } = *self;
        let (buffered, started) = execution.moments(slot);
        let moments = [buffered, started.unwrap_or(answered), answered, caravan, sent];
        match meter.record(slot, cid, moments) {
            Some(record) if is_sample => recorder.sample(sent, record),
            Some(record) => recorder.slow(sent, record),
            None if is_sample => recorder.pass(sent),
            None => {}
        }
    }
}
