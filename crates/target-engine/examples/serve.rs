//! Embedding the target: exports memory.
//!
//!     cargo run --release --example serve -- 127.0.0.1:4420 nqn.2024-01.example:disk [GIB] [CORE] [none|i10]

use roadtrain_proto::policy::PolicyConfig;
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_target_engine::{Export, Server, ServerConfig, Subsystem};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, nqn, rest @ ..] = &arguments[..] else {
        return Err("usage: serve ADDRESS:PORT NQN [GIB] [CORE] [none|i10]".into());
    };
    let gib: u64 = rest.first().map_or(Ok(1), |gib| gib.parse())?;
    let store =
        StoreSpec { kind: StoreKind::Memory { size: gib << 30 }, lba_bytes: 512, read_only: false };
    let subsystem =
        Subsystem { namespaces: vec![Export::new(1, store)], ..Subsystem::new(nqn.clone()) };
    let mut config = ServerConfig::new(vec![address.parse()?], vec![subsystem]);
    config.cores = rest.get(1).map(|core| core.parse()).transpose()?.into_iter().collect();
    if rest.get(2).is_some_and(|policy| policy == "i10") {
        config.policy = PolicyConfig::i10();
    }
    let server = Server::start(config)?;
    println!("ready {}", server.addresses()[0]);
    loop {
        std::thread::park();
    }
}
