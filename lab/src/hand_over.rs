//! A target whose commands and completions pass through further threads, as those of storage servers used to: what
//! that costs is what Tyche measured.
//!
//! `roadtrain-lab hand-over rec|base serve ..` takes the options of `roadtrain serve` that runs need. Each of its
//! namespaces is the product's store, with a [`HandOverStore`] on top.
//!
//! | | a command | its completion |
//! |---|---|---|
//! | the product itself (Tyche's NoWQ) | is executed by the reactor that received it | is sent from where it appears |
//! | `rec` | as above | goes to a work queue's thread, which hands it back to the reactor |
//! | `base` | is handed to a block thread, which executes it on a ring of its own | as `rec`, from the block thread |

mod block;
mod store;
#[cfg(test)]
mod tests;

use anyhow::{Context, bail};
use clap::{Args as Arguments, Parser, ValueEnum};
use roadtrain_cli::args::{CommandLine, RoadtrainCommand, ServeArgs, TransportName};
use roadtrain_cli::namespace::{NamespaceKind, NamespaceSettings};
use roadtrain_store::{SsdStore, Store, StoreKind, StoreSpec};
use roadtrain_target_engine::{EtherConfig, Export, Server, ServerConfig, Subsystem};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use store::HandOverStore;

/// Memory for data in flight by default, as the product's.
const POOL_BYTES: u64 = 128 << 20;

/// Kinds of hand-overs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HandOverMode {
    /// Completions.
    Rec,
    /// Commands and completions.
    Base,
}

/// Runs a target that hands commands to other threads.
#[derive(Debug, Arguments)]
pub(crate) struct HandOverArgs {
    /// Work that is handed over: rec completions, base commands, too
    mode: HandOverMode,
    /// Arguments of `roadtrain`: serve with addresses or interfaces, namespaces in memory, cores, policy, sharing
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn main(args: &HandOverArgs) -> anyhow::Result<()> {
    let words = [OsString::from("roadtrain")].into_iter().chain(args.arguments.iter().cloned());
    let RoadtrainCommand::Serve(serve) = CommandLine::try_parse_from(words)?.command else {
        bail!("serve only")
    };
    let _server = Server::start(config(args.mode, &serve)?)?;
    println!("ready");
    loop {
        std::thread::park(); // until a signal ends the process
    }
}

/// The same target as the product's but for its stores.
fn config(mode: HandOverMode, serve: &ServeArgs) -> anyhow::Result<ServerConfig> {
    let export = |(nsid, spec): (u32, &NamespaceSettings)| {
        anyhow::Ok(Export::with_store(nsid, store(mode, spec)?))
    };
    let namespaces =
        (1..).zip(&serve.export.namespaces).map(export).collect::<anyhow::Result<_>>()?;
    let nqn = serve.export.nqn.clone().context("no NQN")?;
    let subsystems = vec![Subsystem { namespaces, ..Subsystem::new(nqn) }];
    let (at, port) = (&serve.export.traddr, serve.export.trsvcid);
    let (mut listen, mut ether) = (Vec::new(), None);
    match serve.export.transport {
        TransportName::Ether => {
            let (port, packing) = (serve.ether.port(), serve.ether.packing());
            ether = Some(EtherConfig { port, packing, ..EtherConfig::new(at.clone()) });
        }
        TransportName::Tcp => {
            let address = |ip: &String| anyhow::Ok(SocketAddr::new(ip.parse::<IpAddr>()?, port));
            listen = at.iter().map(address).collect::<anyhow::Result<_>>()?;
        }
    }
    Ok(ServerConfig {
        ether,
        policy: serve.policy.config(),
        waiting: serve.wait.waiting(),
        pool_bytes: serve.limits.buffers.unwrap_or(POOL_BYTES) as usize,
        cores: serve.export.cores.clone().unwrap_or_default().0,
        ..ServerConfig::new(listen, subsystems)
    })
}

/// A namespace's store. An emulated SSD keeps its pace on the reactor, and hands over what it then does.
fn store(mode: HandOverMode, spec: &NamespaceSettings) -> anyhow::Result<Arc<dyn Store>> {
    let (path, size) = (spec.path.clone().unwrap_or_default(), spec.size.unwrap_or(0));
    let kind = match spec.kind {
        NamespaceKind::Mem | NamespaceKind::Ssd => StoreKind::Memory { size },
        NamespaceKind::Null => StoreKind::Null { size },
        NamespaceKind::File => {
            StoreKind::File { path, size: spec.size, create: spec.size.is_some() }
        }
        NamespaceKind::Block => StoreKind::Block { path },
        NamespaceKind::Rbd | NamespaceKind::Nvme | NamespaceKind::Nbd | NamespaceKind::Device => {
            anyhow::bail!("images, remote namespaces and devices of a target are not handed over")
        }
    };
    let below = StoreSpec { kind, lba_bytes: spec.lba, read_only: spec.read_only };
    let handed = Arc::new(HandOverStore::new(mode, roadtrain_store::open(&below)?)?);
    let pace = spec.pace();
    let (service, parallel) = (Duration::from_micros(pace.service_us.into()), pace.parallel);
    Ok(match spec.kind {
        NamespaceKind::Ssd => Arc::new(SsdStore::new(handed, service, parallel)),
        _ => handed,
    })
}
