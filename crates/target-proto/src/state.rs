//! The states of a connection, and the tables of what may come in each.

use roadtrain_wire::pdu::PduType;
use roadtrain_wire::status::Status;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The stream makes its handshake: nothing of NVMe/TCP comes.
    Securing,
    /// ICReq is expected.
    Initializing,
    /// Connect is expected.
    Connecting,
    /// The queue is connected; its host has to prove who it is.
    Authenticating,
    /// Its host has not proved who it is, and cannot any more: nothing is executed.
    Refused,
    /// Commands are executed.
    Live,
    /// The controller shuts down, or the host has disconnected: nothing new is executed.
    Draining,
    /// The connection is over. It stays until no command of it is in a store.
    Ended,
}

/// What a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Connect,
    /// Authentication Send and Receive.
    Authentication,
    /// Property Get and Set.
    Property,
    Disconnect,
    /// Another fabrics command.
    Fabrics,
    /// A command of the admin queue.
    Admin,
    /// A command of an I/O queue.
    Io,
}

impl State {
    /// Whether a PDU of that type may come.
    #[inline]
    #[must_use]
    pub const fn takes(self, pdu: PduType) -> bool {
        match self {
            State::Securing | State::Ended => false,
            State::Initializing => matches!(pdu, PduType::IcReq | PduType::H2cTermReq),
            State::Connecting
            | State::Authenticating
            | State::Refused
            | State::Live
            | State::Draining => {
                matches!(pdu, PduType::CapsuleCmd | PduType::H2cData | PduType::H2cTermReq)
            }
        }
    }

    /// Whether a command may be executed.
    ///
    /// # Errors
    /// The status to answer with.
    pub const fn admits(self, request: Request) -> Result<(), Status> {
        use Request::{Admin, Authentication, Connect, Disconnect, Fabrics, Io, Property};
        match (self, request) {
            (State::Connecting, Connect) | (State::Authenticating, Authentication) => Ok(()),
            (
                State::Authenticating | State::Refused,
                Disconnect | Property | Fabrics | Admin | Io,
            ) => Err(Status::AUTHENTICATION_REQUIRED.dnr()),
            // The control plane says what it knows of them, and of a second Connect.
            (State::Live, _) => Ok(()),
            (State::Draining, Disconnect | Property | Fabrics | Admin) => Ok(()),
            _ => Err(Status::COMMAND_SEQUENCE_ERROR.dnr()),
        }
    }
}
