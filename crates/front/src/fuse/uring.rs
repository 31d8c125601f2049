//! Whether the kernel is to send requests over io_uring, and its switch for that.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::str::FromStr;
use tracing::{info, warn};

/// The kernel's switch: `Y` or `N`.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether requests are to come over io_uring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Uring {
    /// If the kernel can.
    #[default]
    Auto,
    /// Yes, or there is no mount.
    On,
    /// No.
    Off,
}

impl FromStr for Uring {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Uring::Auto),
            "on" => Ok(Uring::On),
            "off" => Ok(Uring::Off),
            _ => Err(format!("`{text}` is not auto, on or off")),
        }
    }
}

/// The kernel's switch, on where that is wanted and can be, and nobody else's meanwhile. Dropping this turns
/// it back: a mount keeps what it has agreed on.
pub(super) struct UringSwitch {
    was_off: bool,
    /// Locked.
    _turn: Option<File>,
}

impl UringSwitch {
    /// Turns it on if that is wanted and needed.
    pub(super) fn set(wanted: Uring) -> io::Result<Self> {
        let set = match wanted {
            Uring::Off => Ok(UringSwitch { was_off: false, _turn: None }),
            Uring::Auto | Uring::On => Self::turn_on(),
        };
        match set {
            Err(error) if wanted == Uring::Auto => {
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
        assert_eq!("auto".parse(), Ok(Uring::Auto));
        assert_eq!("on".parse(), Ok(Uring::On));
        assert_eq!("off".parse(), Ok(Uring::Off));
        assert!("yes".parse::<Uring>().is_err());
    }
}
