//! Measures a scrape of many namespaces: `cargo run --release -p roadtrain-manage --example scrape [NAMESPACES]`. Reads
//! and writes each namespace first, so that each has all of its metrics. Prints the CPU time of the thread that
//! scrapes.

use roadtrain_host_engine::{HostClient, HostConfig};
use roadtrain_manage::metrics::{Format, text};
use roadtrain_reactor::tuning::thread_cpu_ns;
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Export, Server, ServerConfig, Subsystem};

const NQN: &str = "nqn.2025-01.io.example:many";
const SCRAPES: u32 = 50;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u32 = std::env::args().nth(1).map_or(Ok(1000), |count| count.parse())?;
    let kind = StoreKind::Memory { size: 1 << 20 };
    let store = StoreSpec { kind, lba_bytes: 4096, read_only: false };
    let namespaces = (1..=count).map(|nsid| Export::new(nsid, store.clone())).collect();
    let subsystem = Subsystem { namespaces, ..Subsystem::new(NQN) };
    let server = Server::start(ServerConfig::new(vec!["127.0.0.1:0".parse()?], vec![subsystem]))?;
    let host = "nqn.2025-01.io.example:host";
    let client = HostClient::connect(HostConfig::new(server.addresses()[0], NQN, host, [7; 16]))?;
    for nsid in 1..=count {
        client.write(nsid, 0, Buffer::alloc(4096), false)?;
        client.read(nsid, 0, Buffer::alloc(4096))?;
    }
    for format in [Format::Plain, Format::OpenMetrics] {
        let mut bytes = 0;
        let before = thread_cpu_ns();
        for _ in 0..SCRAPES {
            bytes = text(&server.snapshot(), None, format).len();
        }
        let ms = (thread_cpu_ns() - before) as f64 / 1e6 / f64::from(SCRAPES);
        println!("{format:?}: {count} namespaces, {bytes} bytes, {ms:.2} ms of a core");
    }
    drop(client);
    server.stop();
    Ok(())
}
