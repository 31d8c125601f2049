//! Where frames are moved: a veth pair in a network namespace of this thread, which ends with it.

use anyhow::{Context, ensure};
use std::process::Command;

/// Two interfaces that reach each other.
pub(super) struct FloorEtherLinks {
    pub(super) host: String,
    pub(super) target: String,
    /// They are ours to change.
    ours: bool,
}

impl FloorEtherLinks {
    /// Uses the given interfaces, else makes a pair.
    pub(super) fn new(interfaces: Option<&[String]>) -> anyhow::Result<FloorEtherLinks> {
        if let Some([host, target]) = interfaces {
            return Ok(FloorEtherLinks { host: host.clone(), target: target.clone(), ours: false });
        }
        // SAFETY: takes a number; moves the calling thread alone.
        let moved = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        ensure!(moved == 0, "a network namespace: {}", std::io::Error::last_os_error());
        let links =
            FloorEtherLinks { host: "floor-h".into(), target: "floor-t".into(), ours: true };
        ip(&["link", "add", &links.host, "type", "veth", "peer", "name", &links.target])?;
        Ok(links)
    }

    /// Sets the MTU of both, if they are ours.
    pub(super) fn set_mtu(&self, mtu: usize) -> anyhow::Result<()> {
        for interface in [&self.host, &self.target].into_iter().filter(|_| self.ours) {
            ip(&["link", "set", interface, "mtu", &mtu.to_string(), "up"])?;
        }
        Ok(())
    }
}

fn ip(words: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("ip").args(words).status().context("run ip (iproute2)")?;
    ensure!(status.success(), "ip {}: {status}", words.join(" "));
    Ok(())
}
