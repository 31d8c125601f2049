//! Costs of the product at rest: CPU of a target and of a connected host, and memory
//! of a thousand connections.

use super::handshake::IdleAssociation;
use crate::judge::Judged;
use crate::loopback::{Loopback, NQN};
use crate::procfs;
use crate::service::Service;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const TARGET: &str = "--namespace mem:64MiB --cores 1";
const IDLE_PERCENT_MAX: f64 = 0.5;
const CONNECTION_KIB_MAX: f64 = 64.0;
const CONNECTIONS: usize = 1000;
/// I/O queues of one association; with its admin queue it makes 125 connections, eight of them 1,000.
const IO_QUEUES: u16 = 124;
/// Time for threads to settle after a connection is made.
const SETTLE: Duration = Duration::from_millis(500);

/// Runs all checks; one that cannot run reports why.
pub(super) fn checks(program: &Path, seconds: f64) -> Vec<Judged> {
    let mut checks = cpu(program, seconds)
        .unwrap_or_else(|e| vec![Judged::failed("idle-cpu", "CPU of an idle target and host", &e)]);
    checks.push(connections(program).unwrap_or_else(|e| {
        Judged::failed("connection-memory", "memory of 1,000 idle connections", &e)
    }));
    checks
}

/// CPU of an idle target without and with a host, and of the host: attached over NBD, without a client.
fn cpu(program: &Path, seconds: f64) -> anyhow::Result<Vec<Judged>> {
    let loopback = Loopback::new(program)?;
    let target = loopback.serve(TARGET)?;
    let alone = idle_percent(target.id(), seconds)?;
    let line = format!(
        "attach -t tcp -a 127.0.0.1 -s {} -n {NQN} --cores 0 --as nbd:unix:{}",
        loopback.port(),
        loopback.path("nbd.sock").display()
    );
    let mut host = Service::start(&mut loopback.host(&line), &loopback.path("host"))?;
    host.until_line("ready")?;
    let connected = idle_percent(target.id(), seconds)?;
    let of_host = idle_percent(host.id(), seconds)?;
    let percent = |id: &str, title: &str, value| {
        Judged::new(id, title, "% of a core", value).at_most(IDLE_PERCENT_MAX)
    };
    Ok(vec![
        percent("idle-target", "CPU of an idle target", alone),
        percent("idle-target-connected", "CPU of an idle target with a host", connected),
        percent("idle-host", "CPU of an idle connected host", of_host),
    ])
}

fn idle_percent(pid: u32, seconds: f64) -> anyhow::Result<f64> {
    thread::sleep(SETTLE);
    let (began, before) = (Instant::now(), procfs::cpu_seconds(pid)?);
    thread::sleep(Duration::from_secs_f64(seconds));
    let used = procfs::cpu_seconds(pid)? - before;
    Ok(used / began.elapsed().as_secs_f64() * 100.0)
}

/// Resident memory that each of 1,000 connected queues adds to the target.
fn connections(program: &Path) -> anyhow::Result<Judged> {
    let loopback = Loopback::new(program)?;
    let target = loopback.serve(TARGET)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, loopback.port()));
    let mut associations = vec![IdleAssociation::open(address, NQN, IO_QUEUES, 0)?];
    thread::sleep(SETTLE);
    // The first association also grows what all share: pools, code.
    let before = procfs::resident_bytes(target.id())?;
    let per_association = usize::from(IO_QUEUES) + 1;
    for index in 1..=CONNECTIONS / per_association {
        associations.push(IdleAssociation::open(address, NQN, IO_QUEUES, index as u8)?);
    }
    thread::sleep(SETTLE);
    let grown = procfs::resident_bytes(target.id())?.saturating_sub(before);
    let kib = grown as f64 / 1024.0 / CONNECTIONS as f64;
    let title = "memory of each of 1,000 idle connections in the target";
    Ok(Judged::new("connection-memory", title, "KiB", kib).at_most(CONNECTION_KIB_MAX))
}
