//! Kinds of controller.

use roadtrain_wire::identify::oaes;
use roadtrain_wire::sqe::opcode;

/// Kinds of controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerKind {
    /// Serves a subsystem's namespaces.
    Io,
    /// Serves the discovery log.
    Discovery,
}

/// Returns the admin opcodes of a kind of controller. `manages` is true for the host of an administrator.
pub(super) fn supported_opcodes(kind: ControllerKind, manages: bool) -> &'static [u8] {
    const ALL: [u8; 11] = [
        opcode::GET_LOG_PAGE,
        opcode::IDENTIFY,
        opcode::SET_FEATURES,
        opcode::GET_FEATURES,
        opcode::ASYNC_EVENT_REQUEST,
        opcode::KEEP_ALIVE,
        opcode::ABORT,
        opcode::CROSS_CONTROLLER_RESET,
        opcode::GET_LBA_STATUS,
        opcode::NAMESPACE_MANAGEMENT,
        opcode::NAMESPACE_ATTACHMENT,
    ];
    match kind {
        ControllerKind::Io if manages => &ALL,
        ControllerKind::Io => ALL.split_at(9).0,
        ControllerKind::Discovery => ALL.split_at(6).0,
    }
}

/// Returns the asynchronous events of a kind of controller (OAES).
pub(super) fn optional_events(kind: ControllerKind) -> u32 {
    match kind {
        ControllerKind::Io => {
            oaes::NAMESPACE_ATTRIBUTE | oaes::ANA_CHANGE | oaes::CROSS_CONTROLLER_RESET
        }
        ControllerKind::Discovery => oaes::DISCOVERY_LOG,
    }
}
