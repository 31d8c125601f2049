//! Front of a reactor whose server arrives once its controller is connected.

use super::server::UblkServer;
use crate::disk::IdleFront;
use roadtrain_host_engine::{Front, FrontTurn};
use roadtrain_proto::time::Instant;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

/// Interval of checks for the server.
const POLL: Duration = Duration::from_millis(5);

/// Runs the server once it arrives.
pub(crate) struct PendingServer {
    coming: Option<Receiver<UblkServer>>,
    server: Option<UblkServer>,
    now: Instant,
}

impl PendingServer {
    pub(crate) fn new(coming: Receiver<UblkServer>) -> Self {
        PendingServer { coming: Some(coming), server: None, now: Instant(0) }
    }
}

impl Front for PendingServer {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        if let Some(server) = &mut self.server {
            return server.turn(turn);
        }
        self.now = turn.now();
        match self.coming.as_ref().map(Receiver::try_recv) {
            Some(Ok(server)) => {
                (self.server, self.coming) = (Some(server), None);
                return self.turn(turn);
            }
            Some(Err(TryRecvError::Disconnected)) => self.coming = None,
            Some(Err(TryRecvError::Empty)) | None => {}
        }
        IdleFront.turn(turn);
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.server {
            Some(server) => server.deadline(),
            None => self.coming.as_ref().map(|_| self.now + POLL),
        }
    }
}
