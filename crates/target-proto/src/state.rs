//! States of a connection, and the PDUs and commands allowed in each.

use roadtrain_wire::pdu::PduType;
use roadtrain_wire::status::Status;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// TLS handshake: no NVMe/TCP PDU is received.
    Securing,
    /// ICReq is expected.
    Initializing,
    /// Connect is expected.
    Connecting,
    /// The queue is connected; its host has to authenticate.
    Authenticating,
    /// The host has failed to authenticate, for good: nothing is executed.
    Refused,
    /// Commands are executed.
    Live,
    /// The controller shuts down, or the host has disconnected: no new command is executed.
    Draining,
    /// The connection has ended. It stays until no command of it is in a store.
    Ended,
}

/// Kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionRequest {
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

impl ConnectionState {
    /// True if a PDU of that type may be received.
    #[inline]
    #[must_use]
    pub const fn takes(self, pdu: PduType) -> bool {
        match self {
            ConnectionState::Securing | ConnectionState::Ended => false,
            ConnectionState::Initializing => matches!(pdu, PduType::IcReq | PduType::H2cTermReq),
            ConnectionState::Connecting
            | ConnectionState::Authenticating
            | ConnectionState::Refused
            | ConnectionState::Live
            | ConnectionState::Draining => {
                matches!(pdu, PduType::CapsuleCmd | PduType::H2cData | PduType::H2cTermReq)
            }
        }
    }

    /// Checks that a command may be executed.
    ///
    /// # Errors
    /// The status of the completion.
    pub const fn admits(self, request: SessionRequest) -> Result<(), Status> {
        use SessionRequest::{Admin, Authentication, Connect, Disconnect, Fabrics, Io, Property};
        match (self, request) {
            (ConnectionState::Connecting, Connect)
            | (ConnectionState::Authenticating, Authentication) => Ok(()),
            (
                ConnectionState::Authenticating | ConnectionState::Refused,
                Disconnect | Property | Fabrics | Admin | Io,
            ) => Err(Status::AUTHENTICATION_REQUIRED.dnr()),
            // The control plane decides on these, and on a second Connect.
            (ConnectionState::Live, _) => Ok(()),
            (ConnectionState::Draining, Disconnect | Property | Fabrics | Admin) => Ok(()),
            _ => Err(Status::COMMAND_SEQUENCE_ERROR.dnr()),
        }
    }
}
