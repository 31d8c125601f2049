//! Commands that change registrations and reservations, checked as far as possible without a namespace.

use roadtrain_wire::reservation::{
    AcquireAction, ChangePersistence, ONE_KEY_BYTES, RegisterAction, ReleaseAction,
    ReservationAcquire, ReservationRegister, ReservationRelease, ReservationType, TWO_KEYS_BYTES,
    TwoKeys,
};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::FromBytes;

/// A command, with its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationCommand {
    /// Reservation Register.
    Register {
        /// Action (RREGA).
        action: RegisterAction,
        /// True if the host's current key is ignored (IEKEY).
        ignores_key: bool,
        /// Change of Persist Through Power Loss (CPTPL).
        persistence: ChangePersistence,
        /// CRKEY.
        current: u64,
        /// NRKEY.
        new: u64,
    },
    /// Reservation Acquire.
    Acquire {
        /// Action (RACQA).
        action: AcquireAction,
        /// Type of the requested reservation.
        kind: ReservationType,
        /// CRKEY.
        current: u64,
        /// PRKEY.
        preempted: u64,
    },
    /// Reservation Release that releases a reservation.
    Release {
        /// Type of the held reservation.
        kind: Option<ReservationType>,
        /// CRKEY.
        current: u64,
    },
    /// Reservation Release that clears everything.
    Clear {
        /// CRKEY.
        current: u64,
    },
    /// Set Features with Reservation Persistence.
    Persist(bool),
}

impl ReservationCommand {
    /// True if an I/O command of that opcode is a reservation command.
    #[must_use]
    pub fn is_reservation_opcode(opcode: u8) -> bool {
        data_out_bytes(opcode).is_some()
    }

    /// Parses the command `sqe` with its `data`.
    ///
    /// # Errors
    /// The status of the completion.
    pub fn parse(sqe: &Sqe, data: &[u8]) -> Result<Self, Status> {
        let field = || Status::INVALID_FIELD.dnr();
        let two_keys = || {
            let keys = TwoKeys::read_from_bytes(data).ok();
            let keys = keys.ok_or(Status::DATA_SGL_LENGTH_INVALID.dnr())?;
            Ok::<_, Status>((keys.current.get(), keys.other.get()))
        };
        match sqe.opcode {
            opcode::RESERVATION_REGISTER => {
                let ReservationRegister { action, ignores_key, persistence } =
                    ReservationRegister::parse(sqe);
                let (action, (current, new)) = (action.ok_or_else(field)?, two_keys()?);
                let persistence = persistence.ok_or_else(field)?;
                Ok(ReservationCommand::Register { action, ignores_key, persistence, current, new })
            }
            opcode::RESERVATION_ACQUIRE => {
                let ReservationAcquire { action, ignores_key, kind } =
                    ReservationAcquire::parse(sqe);
                let (action, (current, preempted)) = (action.ok_or_else(field)?, two_keys()?);
                let kind = kind.filter(|_| !ignores_key).ok_or_else(field)?;
                Ok(ReservationCommand::Acquire { action, kind, current, preempted })
            }
            opcode::RESERVATION_RELEASE => {
                let ReservationRelease { action, ignores_key, kind } =
                    ReservationRelease::parse(sqe);
                let action = action.filter(|_| !ignores_key).ok_or_else(field)?;
                let key = data.try_into().map_err(|_| Status::DATA_SGL_LENGTH_INVALID.dnr())?;
                let current = u64::from_le_bytes(key);
                Ok(match action {
                    ReleaseAction::Release => ReservationCommand::Release { kind, current },
                    ReleaseAction::Clear => ReservationCommand::Clear { current },
                })
            }
            _ => Err(Status::INVALID_OPCODE.dnr()),
        }
    }
}

/// Returns the bytes of data from the host; `None`: it is not a reservation command.
pub(crate) fn data_out_bytes(opcode: u8) -> Option<u32> {
    match opcode {
        opcode::RESERVATION_REGISTER | opcode::RESERVATION_ACQUIRE => Some(TWO_KEYS_BYTES as u32),
        opcode::RESERVATION_RELEASE => Some(ONE_KEY_BYTES as u32),
        opcode::RESERVATION_REPORT => Some(0),
        _ => None,
    }
}
