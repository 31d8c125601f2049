//! Query that is repeated until it is answered.

use super::ports::{HostFrame, Ports};
use roadtrain_ether_proto::query_timer::{QueryIntervals, QueryTimer};
use roadtrain_system::clock;
use std::io;

/// Maximum frames handled between two reads of the clock.
const FRAMES: usize = 64;

/// Query with its replies.
pub(super) trait EtherQuery {
    /// Builds the frames of the query.
    fn put(&mut self, ports: &mut Ports);
    /// Handles a received frame.
    fn receive(&mut self, received: &HostFrame<'_>);
    /// True if no more replies are awaited; called after frames were received, and at the end of a wait.
    fn is_answered(&self) -> bool;
}

/// Runs a query. False if there was no reply in time.
pub(super) fn run_query(
    ports: &mut Ports,
    pace: QueryIntervals,
    query: &mut impl EtherQuery,
) -> io::Result<bool> {
    let mut attempts = QueryTimer::new(clock::now(), pace);
    loop {
        if attempts.is_due(clock::now()) {
            query.put(ports);
            ports.flush();
        }
        ports.wait(None, attempts.deadline().since(clock::now()))?;
        for port in 0..ports.len() {
            ports.receive(port, FRAMES, |received| query.receive(received));
        }
        if query.is_answered() || attempts.is_over(clock::now()) {
            return Ok(query.is_answered());
        }
    }
}
