//! `roadtrain resv`

use super::{ConnectArgs, NO_HEADING, Portal};
use clap::{Args, Subcommand, ValueEnum};
use roadtrain_host_engine::{
    AcquireAction, ChangePersistence, RegisterAction, ReleaseAction, ReservationType,
};

const EXAMPLES: &str = "\
A reservation decides which hosts may read and write a namespace that several hosts share. A host
registers a key, then acquires the reservation with it. The options have nvme-cli's names; values
are its numbers or these words. The commands act for the host that -q and -I name: an attachment
with the same host identifier has the same rights.

Exit status: 0 when it is done, 1 when it failed (Reservation Conflict, too), 2 when the command
line is wrong, 3 when there is no connection.

Examples:
  roadtrain resv register -a 192.0.2.7 -n nqn.2025-01.io.example:disk --nsid 1 --nrkey 0x1
  roadtrain resv acquire -a 192.0.2.7 -n nqn.2025-01.io.example:disk --nsid 1 \\
      --crkey 0x1 --rtype write-exclusive
  roadtrain resv acquire -a 192.0.2.7 -n nqn.2025-01.io.example:disk --nsid 1 \\
      --crkey 0x2 --prkey 0x1 --racqa preempt-and-abort --rtype write-exclusive
  roadtrain resv release -a 192.0.2.7 -n nqn.2025-01.io.example:disk --nsid 1 \\
      --crkey 0x1 --rtype write-exclusive
  roadtrain resv report -a 192.0.2.7 -n nqn.2025-01.io.example:disk --nsid 1 --json";

/// `roadtrain resv`
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ResvArgs {
    /// Action.
    #[command(subcommand)]
    pub command: ResvCommand,
}

/// Operations on reservations.
#[derive(Clone, Debug, Subcommand)]
pub enum ResvCommand {
    /// Register a key of this host, replace it, or unregister.
    Register(Box<ResvRegisterArgs>),
    /// Acquire the reservation, or take it and registrations away from others.
    Acquire(Box<ResvAcquireArgs>),
    /// Release the reservation, or clear it with all registrations.
    Release(Box<ResvReleaseArgs>),
    /// Show the reservation and its registrants.
    Report(Box<ResvReportArgs>),
}

/// The namespace, and the host's identity.
#[derive(Args, Clone, Debug)]
pub struct ResvNamespaceArgs {
    /// Where to connect.
    #[command(flatten)]
    pub portal: Portal,
    /// NQN of the subsystem.
    #[arg(short = 'n', long, value_name = "NQN", alias = "subnqn", help_heading = NO_HEADING)]
    pub nqn: String,
    /// Namespace ID.
    #[arg(long, value_name = "N", alias = "namespace-id", value_parser = clap::value_parser!(u32).range(1..),
          help_heading = NO_HEADING)]
    pub nsid: u32,
    /// The host's identity, keys and timeouts.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Parses a reservation key, in decimal or as 0x and hexadecimal.
fn parse_key(text: &str) -> Result<u64, String> {
    let key = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    key.map_err(|_| format!("'{text}' is no key of 64 bits: write 4711 or 0x1267"))
}

/// `roadtrain resv register`
#[derive(Args, Clone, Debug)]
pub struct ResvRegisterArgs {
    /// The namespace.
    #[command(flatten)]
    pub namespace: ResvNamespaceArgs,
    /// Current reservation key of the host. To unregister or to replace it.
    #[arg(long, value_name = "KEY", default_value = "0", value_parser = parse_key, help_heading = NO_HEADING)]
    pub crkey: u64,
    /// New reservation key of the host.
    #[arg(long, value_name = "KEY", default_value = "0", value_parser = parse_key, help_heading = NO_HEADING)]
    pub nrkey: u64,
    /// Action.
    #[arg(long, value_name = "ACTION", default_value = "register", help_heading = NO_HEADING)]
    pub rrega: RegisterName,
    /// Persistence of registrations and the reservation through power loss.
    #[arg(long, value_name = "CHANGE", default_value = "keep", help_heading = NO_HEADING)]
    pub cptpl: PersistenceName,
    /// Ignore the host's existing key.
    #[arg(long, help_heading = NO_HEADING)]
    pub iekey: bool,
}

/// `roadtrain resv acquire`
#[derive(Args, Clone, Debug)]
pub struct ResvAcquireArgs {
    /// The namespace.
    #[command(flatten)]
    pub namespace: ResvNamespaceArgs,
    /// Current reservation key of the host.
    #[arg(long, value_name = "KEY", default_value = "0", value_parser = parse_key, help_heading = NO_HEADING)]
    pub crkey: u64,
    /// Reservation key of the hosts that lose their registration, to preempt.
    #[arg(long, value_name = "KEY", default_value = "0", value_parser = parse_key, help_heading = NO_HEADING)]
    pub prkey: u64,
    /// Action.
    #[arg(long, value_name = "ACTION", default_value = "acquire", help_heading = NO_HEADING)]
    pub racqa: AcquireName,
    /// Type of the reservation.
    #[arg(long, value_name = "TYPE", help_heading = NO_HEADING)]
    pub rtype: ReservationTypeName,
}

/// `roadtrain resv release`
#[derive(Args, Clone, Debug)]
pub struct ResvReleaseArgs {
    /// The namespace.
    #[command(flatten)]
    pub namespace: ResvNamespaceArgs,
    /// Current reservation key of the host.
    #[arg(long, value_name = "KEY", default_value = "0", value_parser = parse_key, help_heading = NO_HEADING)]
    pub crkey: u64,
    /// Action.
    #[arg(long, value_name = "ACTION", default_value = "release", help_heading = NO_HEADING)]
    pub rrela: ReleaseName,
    /// Type of the reservation. The one that is held; not needed to clear.
    #[arg(long, value_name = "TYPE", help_heading = NO_HEADING)]
    pub rtype: Option<ReservationTypeName>,
}

/// `roadtrain resv report`
#[derive(Args, Clone, Debug)]
pub struct ResvReportArgs {
    /// The namespace.
    #[command(flatten)]
    pub namespace: ResvNamespaceArgs,
    /// Dwords of the report to request [default: all of it].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(6..=262_144),
          help_heading = NO_HEADING)]
    pub numd: Option<u32>,
    /// With host identifiers of 128 bits [default: as the controller has them].
    #[arg(long, help_heading = NO_HEADING)]
    pub eds: bool,
}

/// RREGA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RegisterName {
    /// Register --nrkey.
    #[value(alias = "0")]
    Register,
    /// Unregister --crkey.
    #[value(alias = "1")]
    Unregister,
    /// Replace --crkey by --nrkey.
    #[value(alias = "2")]
    Replace,
}

impl From<RegisterName> for RegisterAction {
    fn from(name: RegisterName) -> Self {
        match name {
            RegisterName::Register => RegisterAction::Register,
            RegisterName::Unregister => RegisterAction::Unregister,
            RegisterName::Replace => RegisterAction::Replace,
        }
    }
}

/// CPTPL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PersistenceName {
    /// Unchanged.
    #[value(alias = "0")]
    Keep,
    /// Not persistent.
    #[value(alias = "2")]
    Clear,
    /// Persistent.
    #[value(alias = "3")]
    Set,
}

impl From<PersistenceName> for ChangePersistence {
    fn from(name: PersistenceName) -> Self {
        match name {
            PersistenceName::Keep => ChangePersistence::Keep,
            PersistenceName::Clear => ChangePersistence::Clear,
            PersistenceName::Set => ChangePersistence::Set,
        }
    }
}

/// RACQA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AcquireName {
    /// Acquire it, if no other host has it.
    #[value(alias = "0")]
    Acquire,
    /// Take registrations with --prkey away, and the reservation if that is its holder's key.
    #[value(alias = "1")]
    Preempt,
    /// The same, and abort the commands of those hosts.
    #[value(alias = "2")]
    PreemptAndAbort,
}

impl From<AcquireName> for AcquireAction {
    fn from(name: AcquireName) -> Self {
        match name {
            AcquireName::Acquire => AcquireAction::Acquire,
            AcquireName::Preempt => AcquireAction::Preempt,
            AcquireName::PreemptAndAbort => AcquireAction::PreemptAndAbort,
        }
    }
}

/// RRELA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReleaseName {
    /// Release what this host holds.
    #[value(alias = "0")]
    Release,
    /// Release it from any holder, and unregister all hosts.
    #[value(alias = "1")]
    Clear,
}

impl From<ReleaseName> for ReleaseAction {
    fn from(name: ReleaseName) -> Self {
        match name {
            ReleaseName::Release => ReleaseAction::Release,
            ReleaseName::Clear => ReleaseAction::Clear,
        }
    }
}

/// RTYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReservationTypeName {
    /// Only the holder writes.
    #[value(alias = "1")]
    WriteExclusive,
    /// Only the holder reads and writes.
    #[value(alias = "2")]
    ExclusiveAccess,
    /// Only registrants write.
    #[value(alias = "3")]
    WriteExclusiveRegOnly,
    /// Only registrants read and write.
    #[value(alias = "4")]
    ExclusiveAccessRegOnly,
    /// Only registrants write, and all of them hold it.
    #[value(alias = "5")]
    WriteExclusiveAllRegs,
    /// Only registrants read and write, and all of them hold it.
    #[value(alias = "6")]
    ExclusiveAccessAllRegs,
}

impl From<ReservationTypeName> for ReservationType {
    fn from(name: ReservationTypeName) -> Self {
        match name {
            ReservationTypeName::WriteExclusive => ReservationType::WriteExclusive,
            ReservationTypeName::ExclusiveAccess => ReservationType::ExclusiveAccess,
            ReservationTypeName::WriteExclusiveRegOnly => {
                ReservationType::WriteExclusiveRegistrantsOnly
            }
            ReservationTypeName::ExclusiveAccessRegOnly => {
                ReservationType::ExclusiveAccessRegistrantsOnly
            }
            ReservationTypeName::WriteExclusiveAllRegs => {
                ReservationType::WriteExclusiveAllRegistrants
            }
            ReservationTypeName::ExclusiveAccessAllRegs => {
                ReservationType::ExclusiveAccessAllRegistrants
            }
        }
    }
}

impl From<ReservationType> for ReservationTypeName {
    fn from(kind: ReservationType) -> Self {
        match kind {
            ReservationType::WriteExclusive => ReservationTypeName::WriteExclusive,
            ReservationType::ExclusiveAccess => ReservationTypeName::ExclusiveAccess,
            ReservationType::WriteExclusiveRegistrantsOnly => {
                ReservationTypeName::WriteExclusiveRegOnly
            }
            ReservationType::ExclusiveAccessRegistrantsOnly => {
                ReservationTypeName::ExclusiveAccessRegOnly
            }
            ReservationType::WriteExclusiveAllRegistrants => {
                ReservationTypeName::WriteExclusiveAllRegs
            }
            ReservationType::ExclusiveAccessAllRegistrants => {
                ReservationTypeName::ExclusiveAccessAllRegs
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decimal_or_hexadecimal() {
        assert_eq!(
            (parse_key("10"), parse_key("0x10"), parse_key("0XfF")),
            (Ok(10), Ok(16), Ok(255))
        );
        for bad in ["", "0x", "-1", "ff", "0x10000000000000000"] {
            assert!(parse_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn types_have_the_numbers_of_the_specification() {
        for kind in ReservationType::ALL {
            let number = kind.emit().to_string();
            assert_eq!(
                ReservationTypeName::from_str(&number, false),
                Ok(ReservationTypeName::from(kind))
            );
            assert_eq!(ReservationType::from(ReservationTypeName::from(kind)), kind);
        }
    }
}
