//! Commands about reservations that wait for the control plane, and access that was taken away while the disk had
//! commands.

use crate::network::ConnId;
use roadtrain_target_proto::TurnOf;
use std::collections::BTreeMap;

/// A command: its connection and slot.
type Owner = (ConnId, u16);

/// What waits.
#[derive(Default)]
pub struct Reserving {
    last: u64,
    asked: BTreeMap<u64, Owner>,
    fences: Vec<(TurnOf, Vec<Owner>)>,
}

impl Reserving {
    /// A command waits: its token.
    pub fn ask(&mut self, conn: ConnId, slot: u16) -> u64 {
        self.last += 1;
        self.asked.insert(self.last, (conn, slot));
        self.last
    }

    /// It is to be answered.
    pub fn answer(&mut self, token: u64) -> Option<Owner> {
        self.asked.remove(&token)
    }

    /// Commands that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.asked.len()
    }

    /// A turn waits for commands on the disk.
    pub fn begin(&mut self, turn: TurnOf, left: Vec<Owner>) {
        self.fences.push((turn, left));
    }

    /// The disk has ended a command.
    pub fn ended(&mut self, owner: Owner) {
        self.fences.iter_mut().for_each(|(_, left)| left.retain(|other| *other != owner));
    }

    /// Turns that wait for nothing any more.
    pub fn fenced(&mut self) -> Vec<TurnOf> {
        let over = self.fences.extract_if(.., |(_, left)| left.is_empty());
        over.map(|(turn, _)| turn).collect()
    }
}
