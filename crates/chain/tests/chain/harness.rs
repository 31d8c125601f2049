//! Targets whose namespaces are those of other targets.

use roadtrain_chain::NvmeSource;
use roadtrain_host_engine::{HostClient, HostConfig};
use roadtrain_store::{RemoteBlocks, StoreKind, StoreSpec};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Export, Server, ServerConfig, Subsystem};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub(crate) const BACK: &str = "nqn.2024-01.test:back";
pub(crate) const FRONT: &str = "nqn.2024-01.test:front";
pub(crate) const MIB: u64 = 1 << 20;
/// Longer than any test should take.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Configures a target with `exports` at `address`.
pub(crate) fn config(nqn: &str, address: SocketAddr, exports: Vec<Export>) -> ServerConfig {
    let subsystem = Subsystem { namespaces: exports, ..Subsystem::new(nqn) };
    ServerConfig::new(vec![address], vec![subsystem])
}

pub(crate) fn any_address() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

pub(crate) fn serve(nqn: &str, exports: Vec<Export>) -> Server {
    Server::start(config(nqn, any_address(), exports)).unwrap()
}

pub(crate) fn address(server: &Server) -> SocketAddr {
    server.addresses()[0]
}

pub(crate) fn export(kind: StoreKind, lba_bytes: u32) -> Export {
    Export::new(1, StoreSpec { kind, lba_bytes, read_only: false })
}

pub(crate) fn memory(size: u64, lba_bytes: u32) -> Export {
    export(StoreKind::Memory { size }, lba_bytes)
}

/// Configures the connection to the back target's subsystem.
pub(crate) fn back_config(address: SocketAddr) -> HostConfig {
    let mut config = HostConfig::new(address, BACK, "nqn.2024-01.test:chain", [9; 16]);
    config.reconnect_delay = Duration::from_millis(20);
    config
}

/// Returns the kind of the store of namespace 1 at `address`.
pub(crate) fn remote(config: HostConfig) -> StoreKind {
    StoreKind::Remote(RemoteBlocks::new(NvmeSource::new(config, 1, Vec::new())))
}

pub(crate) fn chained(address: SocketAddr) -> Export {
    export(remote(back_config(address)), 512)
}

/// Connects a host to the front target.
pub(crate) fn connect(server: &Server) -> HostClient {
    connect_as(server, 7)
}

/// Connects a host of that number to the front target.
pub(crate) fn connect_as(server: &Server, number: u8) -> HostClient {
    let nqn = format!("nqn.2024-01.test:host-{number}");
    let mut config = HostConfig::new(address(server), FRONT, &nqn, [number; 16]);
    config.reconnect_delay = Duration::from_millis(20);
    HostClient::connect(config).unwrap()
}

/// Returns data that differs between seeds.
pub(crate) fn pattern(len: usize, seed: u64) -> Buffer {
    let mut buffer = Buffer::alloc(len);
    for (index, word) in buffer.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(seed << 32 | index as u64).to_le_bytes());
    }
    buffer
}

/// Waits until `done` returns true.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
