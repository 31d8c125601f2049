//! Gives the memory of slots to the kernel.
#![allow(unsafe_code, reason = "the kernel writes where a command says")]

use roadtrain_host_engine::{FrontTurn, UringCommand};

/// Sends a slot's command. Its completion carries the slot's number.
///
/// The memory that it names must be that of a [`FuseSlots`](super::slots::FuseSlots) that the front on this reactor
/// keeps for life, header and payload. Both are left alone until the completion.
pub(super) fn send(turn: &mut dyn FrontTurn, command: &UringCommand, slot: usize) {
    // SAFETY: the front that owns the slots is not dropped before its commands have completed, and their headers are
    // never moved. A payload is given to the lane only between a completion and the next command. A slot whose payload
    // the lane has makes no command (`FuseSlots::commit`).
    unsafe { turn.command(command, slot as u64) };
}
