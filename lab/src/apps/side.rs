//! Sides: the devices below the applications' file system.

use crate::command;
use std::fmt;
use std::path::Path;

/// Without it there are no file systems in user space.
const FUSE: &str = "/dev/fuse";

/// A device, and all that is behind it. The data is in memory at the far end of every one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum AppSide {
    /// No network: what the others can be at best.
    Local,
    /// Ours, with this policy at both ends.
    Roadtrain(&'static str),
    Nbdfuse,
    Qemu,
    /// iSCSI.
    Tgt,
}

/// Ours with its defaults: what is judged.
pub(super) const OURS: AppSide = AppSide::Roadtrain("auto");
/// The sides that it is judged against.
pub(super) const ALTERNATIVES: [AppSide; 3] = [AppSide::Nbdfuse, AppSide::Qemu, AppSide::Tgt];

impl AppSide {
    /// In the order of the tables.
    pub(super) const ALL: [Self; 8] = [
        Self::Local,
        Self::Roadtrain("none"),
        Self::Roadtrain("i10"),
        Self::Roadtrain("pinof"),
        OURS,
        Self::Nbdfuse,
        Self::Qemu,
        Self::Tgt,
    ];

    /// As `--sides` names it, and its folder.
    pub(super) fn id(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Roadtrain(policy) => policy,
            Self::Nbdfuse => "nbdfuse",
            Self::Qemu => "qemu",
            Self::Tgt => "tgt",
        }
    }

    /// Its parts, from the loop device down.
    pub(super) fn how(self) -> String {
        match self {
            Self::Local => "a loop device with direct I/O over a file in tmpfs".into(),
            Self::Roadtrain(policy) => format!(
                "`roadtrain attach --as fuse: --loop` and `roadtrain serve --namespace mem:` over \
                 TCP, both with `--policy {policy}`"
            ),
            Self::Nbdfuse => {
                "a loop device with direct I/O over nbdfuse (4 connections) over TCP to nbdkit's \
                 memory plugin (one allocation)"
                    .into()
            }
            Self::Qemu => {
                "a loop device with direct I/O (requests of 128 KiB at most: with those of 512 KiB \
                 and more the export of QEMU 7.2 mixes up data) over qemu-storage-daemon's FUSE \
                 export of its NBD client over TCP to nbdkit's memory plugin (one allocation)"
                    .into()
            }
            Self::Tgt => {
                "the same loop device over qemu-storage-daemon's FUSE export of its iSCSI \
                 client (libiscsi) over TCP to tgtd with a file in tmpfs; no file systems, because this \
                 export loses the data of concurrent iSCSI writes"
                    .into()
            }
        }
    }

    /// Programs that it needs in addition to ours.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Local | Self::Roadtrain(_) => &[],
            Self::Nbdfuse => &["nbdkit", "nbdfuse"],
            Self::Qemu => &["nbdkit", "qemu-storage-daemon"],
            Self::Tgt => &["tgtd", "tgtadm", "qemu-storage-daemon"],
        }
    }

    /// True if a file system on it keeps its data. QEMU's export (7.2) takes the next request into the
    /// buffer of a write that waits, and its iSCSI client lets all writes wait. Its NBD client passes
    /// those on at once that fit into the socket.
    pub(super) fn keeps_concurrent_writes(self) -> bool {
        self != Self::Tgt
    }

    /// Why it cannot be here.
    pub(super) fn unavailable(self) -> Option<String> {
        if self != Self::Local && !Path::new(FUSE).exists() {
            return Some(format!("this machine has no {FUSE}"));
        }
        let missing = |program: &&&str| command::find(program).is_none();
        let program = self.programs().iter().find(missing)?;
        Some(format!("{program} is not installed"))
    }
}

impl fmt::Display for AppSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local file"),
            Self::Roadtrain(policy) => write!(f, "roadtrain {policy}"),
            Self::Nbdfuse => f.write_str("nbdfuse + nbdkit"),
            Self::Qemu => f.write_str("qemu FUSE export + nbdkit"),
            Self::Tgt => f.write_str("qemu FUSE export + tgt"),
        }
    }
}
