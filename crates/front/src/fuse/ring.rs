//! Gives the memory of slots to the kernel.
#![allow(unsafe_code, reason = "the kernel writes where a command says")]

use roadtrain_host_engine::{RingCommand, Turn};

/// Sends a slot's command. Its completion carries the slot's number.
///
/// The memory that it names must be that of a [`Slots`](super::slots::Slots) that the front on this reactor keeps for
/// life, header and payload. Both are left alone until the completion.
pub(super) fn send(turn: &mut dyn Turn, command: &RingCommand, slot: usize) {
    // SAFETY: the front that owns the slots is not dropped before its commands have come back, their
    // headers are never moved, and a payload is given to the lane only between an answer and the next
    // command; a slot whose payload the lane has not given back makes no command (`Slots::commit`).
    unsafe { turn.command(command, slot as u64) };
}
