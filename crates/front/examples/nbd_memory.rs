//! Serves memory over NVMe/TCP on loopback and shows it as an NBD export, all in one process:
//!
//! ```text
//! cargo run --release -p roadtrain-front --example nbd_memory -- nbd:unix:/tmp/memory.sock
//! nbdinfo 'nbd+unix:///?socket=/tmp/memory.sock'
//! ```
//!
//! It ends when its standard input does.

use roadtrain_front::nbd::{NbdAddress, NbdAttachment, NbdConfig};
use roadtrain_host_engine::HostConfig;
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_target_engine::{Export, Server, ServerConfig, Subsystem};
use std::error::Error;

const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:5a7e0000-0000-4000-8000-000000000001";

fn main() -> Result<(), Box<dyn Error>> {
    let address: NbdAddress =
        std::env::args().nth(1).unwrap_or("nbd:tcp:127.0.0.1:0".into()).parse()?;
    let target =
        Server::start(ServerConfig::new(vec!["127.0.0.1:0".parse()?], vec![memory(1 << 30)]))?;
    let config = HostConfig::new(target.addresses()[0], NQN, NQN, [1; 16]);
    let attachment = NbdAttachment::start(config, &NbdConfig::new(1, address))?;
    println!("ready: {}", attachment.address().uri());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    attachment.stop();
    target.stop();
    Ok(())
}

fn memory(size: u64) -> Subsystem {
    let kind = StoreKind::Memory { size };
    let store = StoreSpec { kind, lba_bytes: 512, read_only: false };
    let exports = vec![Export::new(1, store)];
    Subsystem { namespaces: exports, ..Subsystem::new(NQN) }
}
