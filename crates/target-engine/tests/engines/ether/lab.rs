//! Interfaces between host and target.

use crate::skipped::{skipped_test, this_test};
use roadtrain_host_engine::{EtherAddress, HostClient, HostConfig, HostControlError, LinkError};
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_target_engine::{EtherConfig, Export, Server, ServerConfig, Subsystem};
use roadtrain_target_proto::HostAuthentication;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const NQN: &str = "nqn.2024-01.test:disk";
pub(crate) const HOST_NQN: &str = "nqn.2024-01.test:host";
/// Longer than any test should take.
const LONG: Duration = Duration::from_secs(60);

pub(crate) struct EtherLab {
    links: usize,
}

/// Runs `test` with `links` pairs of interfaces, `host0` and `target0` and so on; prints SKIPPED where it cannot create
/// them.
pub(crate) fn in_lab(links: usize, test: impl FnOnce(&EtherLab) + Send) {
    let name = this_test();
    let in_namespace = || {
        // SAFETY: takes a number; affects only this thread and those that it starts.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            let error = std::io::Error::last_os_error();
            return skipped_test(&name, format!("no network namespace of our own: {error}"));
        }
        let lab = EtherLab { links };
        for link in 0..links {
            let (host, target) = (format!("host{link}"), format!("target{link}"));
            let pair = ["link", "add", &host, "type", "veth", "peer", "name", &target];
            if !ip(&pair) {
                return skipped_test(&name, "no veth pairs here");
            }
            assert!(ip(&["link", "set", &host, "mtu", "9000", "up"]));
            assert!(ip(&["link", "set", &target, "mtu", "9000", "up"]));
        }
        test(&lab);
    };
    thread::scope(|scope| {
        if let Err(panic) = scope.spawn(in_namespace).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn ip(words: &[&str]) -> bool {
    Command::new("ip").args(words).status().is_ok_and(|status| status.success())
}

impl EtherLab {
    fn interfaces(&self, side: &str) -> Vec<String> {
        (0..self.links).map(|link| format!("{side}{link}")).collect()
    }

    /// Starts a target with 16 MiB of memory, and the same identity at every start.
    pub(crate) fn serve(&self) -> Server {
        self.serve_from(StoreKind::Memory { size: 16 << 20 })
    }

    /// Starts a target with a namespace of this kind.
    pub(crate) fn serve_from(&self, kind: StoreKind) -> Server {
        self.serve_to(kind, HostAuthentication::default())
    }

    /// Starts such a target with authentication.
    pub(crate) fn serve_to(&self, kind: StoreKind, authentication: HostAuthentication) -> Server {
        let store = StoreSpec { kind, lba_bytes: 4096, read_only: false };
        let exports = vec![Export { uuid: Some([1; 16]), ..Export::new(1, store) }];
        let subsystem = Subsystem { namespaces: exports, ..Subsystem::new(NQN) };
        let interfaces = self.interfaces("target");
        let ether = Some(EtherConfig::new(interfaces));
        let config = ServerConfig {
            ether,
            authentication,
            ..ServerConfig::new(Vec::new(), vec![subsystem])
        };
        Server::start(config).expect("a target")
    }

    /// Returns the address for hosts.
    pub(crate) fn address(&self) -> EtherAddress {
        EtherAddress::new(self.interfaces("host"))
    }

    pub(crate) fn host(&self) -> HostConfig {
        let mut config = HostConfig::new(self.address(), NQN, HOST_NQN, [7; 16]);
        config.reconnect_delay = Duration::from_millis(20);
        config
    }

    /// Connects, and retries while the target's reply is late on a busy machine.
    pub(crate) fn connect(&self, config: HostConfig) -> HostClient {
        let deadline = Instant::now() + LONG;
        loop {
            match HostClient::connect(config.clone()) {
                Ok(client) => return client,
                Err(HostControlError::Unreachable { source: LinkError::NoTarget, .. })
                    if Instant::now() < deadline => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Sets a link up or down at the target.
    pub(crate) fn set_up(&self, link: usize, up: bool) {
        let state = if up { "up" } else { "down" };
        assert!(ip(&["link", "set", &format!("target{link}"), state]));
    }

    /// Waits until `done` returns true.
    pub(crate) fn eventually(&self, what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + LONG;
        while !done() {
            assert!(Instant::now() < deadline, "{what}: not within {LONG:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
