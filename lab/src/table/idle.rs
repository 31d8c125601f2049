//! What the product costs when nothing happens: CPU of a target and of a connected host, and memory
//! of a thousand connections.

use super::handshake::Association;
use super::result::Check;
use super::serve::target;
use super::serve::{self, NQN, Process};
use crate::procfs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const IDLE_PERCENT_MAX: f64 = 0.5;
const CONNECTION_KIB_MAX: f64 = 64.0;
const CONNECTIONS: usize = 1000;
/// I/O queues of one association; with its admin queue it makes 125 connections, eight of them 1,000.
const IO_QUEUES: u16 = 124;
/// Time for threads to settle after a connection is made.
const SETTLE: Duration = Duration::from_millis(500);

/// Runs all checks; one that cannot run says why.
pub(super) fn checks(program: &Path, seconds: f64) -> Vec<Check> {
    let mut checks = cpu(program, seconds)
        .unwrap_or_else(|e| vec![Check::failed("idle-cpu", "CPU of an idle target and host", &e)]);
    checks.push(connections(program).unwrap_or_else(|e| {
        Check::failed("connection-memory", "memory of 1,000 idle connections", &e)
    }));
    checks
}

/// CPU of an idle target without and with a host, and of the host: attached over NBD, nobody using it.
fn cpu(program: &Path, seconds: f64) -> anyhow::Result<Vec<Check>> {
    let port = serve::free_port()?;
    let target = target(program, port)?;
    let alone = idle_percent(target.pid(), seconds)?;
    let socket = std::env::temp_dir().join(format!("roadtrain-lab-{port}.sock"));
    let line = format!(
        "attach -t tcp -a 127.0.0.1 -s {port} -n {NQN} --cores 0 --as nbd:unix:{}",
        socket.display()
    );
    let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let host = Process::start(program, &arguments)?;
    let connected = idle_percent(target.pid(), seconds)?;
    let of_host = idle_percent(host.pid(), seconds)?;
    drop(host);
    let _ = std::fs::remove_file(socket);
    let percent = |id: &str, title: &str, value| {
        Check::at_most(id, title, value, IDLE_PERCENT_MAX, "% of a core")
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
fn connections(program: &Path) -> anyhow::Result<Check> {
    let port = serve::free_port()?;
    let target = target(program, port)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut associations = vec![Association::open(address, NQN, IO_QUEUES, 0)?];
    thread::sleep(SETTLE);
    // The first association also grows what all share: pools, code.
    let before = procfs::resident_bytes(target.pid())?;
    let per_association = usize::from(IO_QUEUES) + 1;
    for index in 1..=CONNECTIONS / per_association {
        associations.push(Association::open(address, NQN, IO_QUEUES, index as u8)?);
    }
    thread::sleep(SETTLE);
    let grown = procfs::resident_bytes(target.pid())?.saturating_sub(before);
    let kib = grown as f64 / 1024.0 / CONNECTIONS as f64;
    Ok(Check::at_most(
        "connection-memory",
        "memory of each of 1,000 idle connections in the target",
        kib,
        CONNECTION_KIB_MAX,
        "KiB",
    ))
}
