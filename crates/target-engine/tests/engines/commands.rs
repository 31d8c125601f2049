//! Commands that a front sends to drivers through the reactor's ring.

use crate::harness::*;
use crate::skipped::skipped;
use roadtrain_host_engine::{Front, FrontTurn, HostController, IoOp, LaneId, UringCommand};
use roadtrain_target_engine::Server;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Actions of a front, in order.
#[derive(Debug, PartialEq)]
enum FrontAction {
    Answer(u64, i32),
    Flushed,
    Dropped,
}

/// Front that sends a command to each file, besides a request to its lane, until it must stop.
struct DriverFront {
    files: Vec<File>,
    has_sent: bool,
    /// True to send one more command at the end, whose result is not read.
    sends_at_end: bool,
    did: Sender<FrontAction>,
}

impl DriverFront {
    fn send_command(&self, turn: &mut dyn FrontTurn, number: usize) {
        let fd = self.files[number].as_raw_fd();
        let command = UringCommand { fd, op: 1, address: 0, length: 0, payload: [0; 80] };
        // SAFETY: the command has no pointers.
        unsafe { turn.command(&command, (1 << 55) + number as u64) };
    }
}

impl Front for DriverFront {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        if !std::mem::replace(&mut self.has_sent, true) {
            (0..self.files.len()).for_each(|number| self.send_command(turn, number));
            turn.submit(LaneId(0), request(IoOp::Flush, 0, 0, None, 0)).unwrap();
        }
        while let Some((key, result)) = turn.next_command() {
            self.did.send(FrontAction::Answer(key - (1 << 55), result)).unwrap();
        }
        while turn.next_completion().is_some() {
            self.did.send(FrontAction::Flushed).unwrap();
        }
        if turn.stopping() {
            if self.sends_at_end {
                self.send_command(turn, 0);
            }
            turn.stop();
        }
    }
}

impl Drop for DriverFront {
    fn drop(&mut self) {
        let _ = self.did.send(FrontAction::Dropped);
    }
}

fn start(files: Vec<File>, sends_at_end: bool) -> (HostController, Receiver<FrontAction>, Server) {
    let server = serve(vec![memory(1, MIB, 512)]);
    let (did, actions) = channel();
    let front = DriverFront { files, has_sent: false, sends_at_end, did };
    let mut front = Some(Box::new(front) as Box<dyn Front + Send>);
    let config = host_config(address(&server));
    let controller = HostController::connect(config, |_, _| front.take().unwrap()).unwrap();
    (controller, actions, server)
}

#[test]
fn drivers_complete_commands_next_to_the_lanes() {
    // /dev/null accepts every command, a regular file none.
    let files = vec![File::open("/dev/null").unwrap(), tempfile::tempfile().unwrap()];
    let (controller, actions, _server) = start(files, false);
    let mut first: Vec<_> = (0..3).map(|_| actions.recv_timeout(LONG).unwrap()).collect();
    first.sort_by_key(|did| format!("{did:?}"));
    if first[0] == FrontAction::Answer(0, -libc::EOPNOTSUPP) {
        skipped("no entries of 128 bytes before Linux 5.19");
    } else {
        let answers = [
            FrontAction::Answer(0, 0),
            FrontAction::Answer(1, -libc::EOPNOTSUPP),
            FrontAction::Flushed,
        ];
        assert_eq!(first, answers);
    }
    controller.stop();
    controller.join();
    assert_eq!(actions.recv_timeout(LONG), Ok(FrontAction::Dropped));
}

#[test]
fn a_front_may_stop_with_commands_in_flight() {
    let (controller, actions, _server) = start(vec![File::open("/dev/null").unwrap()], true);
    (0..2).for_each(|_| assert_ne!(actions.recv_timeout(LONG), Ok(FrontAction::Dropped)));
    controller.stop();
    controller.join();
    assert_eq!(actions.recv_timeout(LONG), Ok(FrontAction::Dropped));
}
