//! Use of io_uring between the kernel and the server, and the kernel's switch for it.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::str::FromStr;
use tracing::{info, warn};

/// Switch of the kernel module: `Y` or `N`.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Use of io_uring for the kernel's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FuseUring {
    /// Used if the kernel supports it.
    #[default]
    Auto,
    /// Required: without it there is no mount.
    On,
    /// Not used.
    Off,
}

impl FromStr for FuseUring {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(FuseUring::Auto),
            "on" => Ok(FuseUring::On),
            "off" => Ok(FuseUring::Off),
            _ => Err(format!("`{text}` is not auto, on or off")),
        }
    }
}

/// The kernel's switch, turned on if wanted and possible, and locked against other processes. Dropping it turns the
/// switch back; a mount keeps its features.
pub(super) struct UringSwitch {
    was_off: bool,
    /// Lock on the switch, held until the drop.
    _turn: Option<File>,
}

impl UringSwitch {
    /// Turns the switch on if wanted and needed.
    pub(super) fn set(wanted: FuseUring) -> io::Result<Self> {
        let set = match wanted {
            FuseUring::Off => Ok(UringSwitch { was_off: false, _turn: None }),
            FuseUring::Auto | FuseUring::On => Self::turn_on(),
        };
        match set {
            Err(error) if wanted == FuseUring::Auto => {
                info!("{error}: requests come over /dev/fuse");
                Ok(UringSwitch { was_off: false, _turn: None })
            }
            set => set,
        }
    }

    fn turn_on() -> io::Result<Self> {
        let turn = File::open(SWITCH).map_err(|error| wrap("needs Linux 6.14", &error))?;
        turn.lock()?;
        let was_off = std::fs::read_to_string(SWITCH)?.trim() != "Y";
        if was_off {
            std::fs::write(SWITCH, "Y").map_err(|error| wrap("cannot turn on", &error))?;
        }
        Ok(UringSwitch { was_off, _turn: Some(turn) })
    }
}

impl Drop for UringSwitch {
    fn drop(&mut self) {
        if self.was_off
            && let Err(error) = std::fs::write(SWITCH, "N")
        {
            warn!("cannot turn FUSE over io_uring off again: {error}");
        }
    }
}

fn wrap(what: &str, error: &io::Error) -> io::Error {
    let kind =
        if error.kind() == ErrorKind::NotFound { ErrorKind::Unsupported } else { error.kind() };
    io::Error::new(kind, format!("FUSE over io_uring: {what}: {SWITCH}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_known() {
        assert_eq!("auto".parse(), Ok(FuseUring::Auto));
        assert_eq!("on".parse(), Ok(FuseUring::On));
        assert_eq!("off".parse(), Ok(FuseUring::Off));
        assert!("yes".parse::<FuseUring>().is_err());
    }
}
