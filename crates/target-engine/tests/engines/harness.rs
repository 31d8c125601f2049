//! Targets to test, and hosts for them.

use roadtrain_host_engine::{Class, HostClient, HostConfig, IoOp, IoRequest};
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Export, ExportBlocks, Server, ServerConfig, Subsystem, TargetUsage};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

pub const NQN: &str = "nqn.2024-01.test:disk";
pub const HOST_NQN: &str = "nqn.2024-01.test:host";
/// Longer than any test should take.
pub const LONG: Duration = Duration::from_secs(120);
pub const MIB: u64 = 1 << 20;

/// Returns the amount of work of a test: `usual`, or `thorough` if the environment has `THOROUGH=1`.
pub fn effort(usual: u64, thorough: u64) -> u64 {
    let is_thorough = std::env::var_os("THOROUGH").is_some_and(|value| value == "1");
    if is_thorough { thorough } else { usual }
}

pub fn memory(nsid: u32, size: u64, lba_bytes: u32) -> Export {
    export(nsid, StoreKind::Memory { size }, lba_bytes)
}

pub fn ssd(nsid: u32, size: u64, lba_bytes: u32, service: Duration, parallel: u16) -> Export {
    export(nsid, StoreKind::Ssd { size, service, parallel }, lba_bytes)
}

pub fn file(nsid: u32, directory: &tempfile::TempDir, size: u64, lba_bytes: u32) -> Export {
    let path = directory.path().join(format!("{nsid}.img"));
    export(nsid, StoreKind::File { path, size: Some(size), create: true }, lba_bytes)
}

fn export(nsid: u32, kind: StoreKind, lba_bytes: u32) -> Export {
    let store = StoreSpec { kind, lba_bytes, read_only: false };
    Export::new(nsid, store)
}

pub fn read_only(export: Export) -> Export {
    let ExportBlocks::Spec(spec) = export.blocks else { return export };
    Export { blocks: ExportBlocks::Spec(StoreSpec { read_only: true, ..spec }), ..export }
}

pub fn subsystem(exports: Vec<Export>) -> Subsystem {
    Subsystem { namespaces: exports, ..Subsystem::new(NQN) }
}

pub fn server_config(exports: Vec<Export>) -> ServerConfig {
    let any = "127.0.0.1:0".parse().unwrap();
    ServerConfig::new(vec![any], vec![subsystem(exports)])
}

pub fn serve(exports: Vec<Export>) -> Server {
    Server::start(server_config(exports)).unwrap()
}

pub fn address(server: &Server) -> SocketAddr {
    server.addresses()[0]
}

/// Returns an address that accepts connections and never sends anything, until the listener is dropped.
pub fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Configures a host that would wait for a silent target longer than a test takes.
pub fn patient(config: HostConfig) -> HostConfig {
    HostConfig { timeout: 10 * LONG, keep_alive: 20 * LONG, ..config }
}

pub fn host_config(address: SocketAddr) -> HostConfig {
    let mut config = HostConfig::new(address, NQN, HOST_NQN, [7; 16]);
    config.reconnect_delay = Duration::from_millis(20);
    config
}

pub fn connect(server: &Server) -> HostClient {
    HostClient::connect(host_config(address(server))).unwrap()
}

/// Returns core 0 `count` times: reactors without a particular core.
pub fn reactors(count: usize) -> Vec<usize> {
    vec![0; count]
}

/// Returns data that differs between blocks and seeds.
pub fn pattern(len: usize, seed: u64) -> Buffer {
    let mut buffer = Buffer::alloc(len);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in buffer.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    buffer
}

pub fn request(op: IoOp, slba: u64, blocks: u32, buffer: Option<Buffer>, token: u64) -> IoRequest {
    IoRequest {
        op,
        nsid: 1,
        slba,
        blocks,
        fua: false,
        urgent: false,
        class: Class::Normal,
        buffer,
        token,
    }
}

/// Returns the number of reconnects of a client's lanes.
pub fn reconnects(client: &HostClient) -> u64 {
    client.view().lanes().iter().map(|lane| lane.reconnects).sum()
}

/// Waits until `done` returns true.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Checks that connections have left nothing behind.
pub fn assert_nothing_left(server: &Server) {
    let in_use = || TargetUsage { kept_bytes: 0, ..server.usage() };
    eventually("everything is given back", || in_use() == TargetUsage::default());
}
