//! `roadtrain attach`

use super::{
    ClassName, ConnectArgs, LaneArgs, NO_HEADING, PolicyArgs, Portals, SlowOverName, WaitArgs,
};
use crate::units::{parse_size, parse_size_u32};
use clap::Args;
use roadtrain_front::fuse::FuseUring;
use std::net::SocketAddr;
use std::path::PathBuf;

const EXAMPLES: &str = concat!(
    "\
Prints one line beginning `ready` with the names of the devices (for nbd a URI that nbdinfo,
nbdcopy, qemu-img and fio take), the NQN, the namespaces and the attachment's ID; runs until
SIGTERM, SIGINT or `roadtrain detach`.

Examples:
  roadtrain attach -a 127.0.0.1 -n nqn.2025-01.io.example:disk --as fuse:/mnt/rt --loop
  roadtrain attach -a 127.0.0.1 -n nqn.2025-01.io.example:disk --as nbd:unix:/tmp/disk.sock
  qemu-img info 'nbd+unix:///?socket=/tmp/disk.sock'
  roadtrain attach -a 127.0.0.1 -n nqn.2025-01.io.example:disk --as nbd:unix:/tmp/disk.sock \\
      --background
  roadtrain attach -a 192.0.2.7:4420 -a 198.51.100.7:4420 -n nqn.2025-01.io.example:disk \\
      --as ublk --path-policy latency
  roadtrain attach -a 192.0.2.7:8009 -n nqn.2025-01.io.example:disk --discover --as ublk
  roadtrain attach -a 192.0.2.7 -n nqn.2025-01.io.example:disk --nsid 2 \\
      --as nbd:tcp:127.0.0.1:10809 --lanes 2 --cores 0-1 --policy i10
  roadtrain attach -a 192.0.2.7 -n nqn.2025-01.io.example:disk --as nbd:tcp:0.0.0.0:10809 \\
      --nbd-tls-psk /etc/roadtrain/keys.psk
",
    ether!("  roadtrain attach -t ether -a eth1,eth2 -n nqn.2025-01.io.example:disk --as ublk\n"),
    "  roadtrain attach -a 192.0.2.7 -n nqn.2025-01.io.example:disk --as vhost-user:/run/disk.sock
  qemu-system-x86_64 -m 1G -object memory-backend-memfd,id=mem,size=1G,share=on \\
      -machine memory-backend=mem -chardev socket,id=disk,path=/run/disk.sock,reconnect=1 \\
      -device vhost-user-blk-pci,chardev=disk ..."
);

/// A dirty bitmap that an attachment keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapArg {
    /// Its name.
    pub name: String,
    /// File that keeps it.
    pub file: Option<PathBuf>,
}

fn bitmap(text: &str) -> Result<BitmapArg, String> {
    let (name, file) = match text.split_once('=') {
        Some((_, "")) => return Err("write NAME=FILE, or NAME alone".into()),
        Some((name, file)) => (name, Some(PathBuf::from(file))),
        None => (text, None),
    };
    Ok(BitmapArg { name: name.into(), file })
}

/// Options that only some front-ends have.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Front-ends")]
pub struct FrontArgs {
    /// fuse: put a loop device over each file, so that there is a kernel block device.
    #[arg(long = "loop")]
    pub loop_device: bool,
    /// fuse: requests over io_uring: auto (if the kernel can), on (or fail), off (over /dev/fuse)
    /// [default: auto].
    #[arg(long, value_name = "WHEN", value_parser = str::parse::<FuseUring>)]
    pub fuse_uring: Option<FuseUring>,
    /// Most memory for data in flight. Of nbd, at least 36MiB for each reactor; when it is used up clients wait
    /// [default: 128MiB for each reactor].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub buffers: Option<u64>,
    /// nbd over TCP: clients have to use TLS with a key of this file, which has lines USER:HEXKEY as psktool writes
    /// them. It is read for each client. Clients from other machines may connect.
    #[arg(long, value_name = "FILE", conflicts_with = "nbd_insecure")]
    pub nbd_tls_psk: Option<PathBuf>,
    /// nbd over TCP: clients have to use TLS and see the certificate server-cert.pem of this directory, which has
    /// server-key.pem, too. Clients from other machines may connect: without --nbd-tls-verify-peer any that can.
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["nbd_tls_psk", "nbd_insecure"])]
    pub nbd_tls_certificates: Option<PathBuf>,
    /// nbd over TCP: clients have to have a certificate, too, that ca-cert.pem of the directory has signed.
    #[arg(long, requires = "nbd_tls_certificates")]
    pub nbd_tls_verify_peer: bool,
    /// nbd: listen for clients from other machines, too, over TCP: without TLS and authentication, so any client that
    /// can connect has the disk. Without this and without TLS only the loopback is listened on.
    #[arg(long)]
    pub nbd_insecure: bool,
    /// nbd: keep a bitmap of what is changed through this attachment, for increments of a backup; clients see it as
    /// qemu:dirty-bitmap:NAME. With a file it lasts; without, it ends with the attachment. Changes by other hosts are
    /// not in it.
    #[arg(long, value_name = "NAME[=FILE]", value_parser = bitmap)]
    pub dirty_bitmap: Vec<BitmapArg>,
    /// nbd: bytes of one bit of the bitmaps, a power of two from 4KiB to 64MiB [default: 64KiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_size_u32, requires = "dirty_bitmap")]
    pub dirty_bitmap_granularity: Option<u32>,
    /// ublk: take over a device that another process has left in use; fail when there is none.
    #[arg(long)]
    pub recover: bool,
}

/// Options of `roadtrain attach`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct AttachArgs {
    /// Where to connect.
    #[command(flatten)]
    pub portals: Portals,
    /// NQN of the subsystem.
    #[arg(short = 'n', long, value_name = "NQN", alias = "subnqn", help_heading = NO_HEADING)]
    pub nqn: String,
    /// Namespace ID [default: 1; fuse and directories of vhost-user: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..),
          help_heading = NO_HEADING)]
    pub nsid: Option<u32>,
    /// Front-end: nbd:unix:/PATH, nbd:tcp:HOST:PORT, fuse:/MOUNTPOINT, ublk, ublk:ID or vhost-user:/PATH (with a slash
    /// at the end a directory: a socket for each namespace).
    #[arg(long = "as", value_name = "FRONT-END", help_heading = NO_HEADING)]
    pub front: String,
    /// Options that only some front-ends have.
    #[command(flatten)]
    pub options: FrontArgs,
    /// Name of a target or an attachment on this machine [default: the front-end's name with a number].
    #[arg(long, value_name = "ID", help_heading = NO_HEADING)]
    pub id: Option<String>,
    /// Stay in the foreground, as without --background.
    #[arg(long, conflicts_with = "background", help_heading = NO_HEADING)]
    pub foreground: bool,
    /// Return when it is ready; a process of its own keeps it until it is detached.
    #[arg(long, help_heading = NO_HEADING)]
    pub background: bool,
    /// The process that --background starts.
    #[arg(long, hide = true)]
    pub daemon: bool,
    /// Log to this file [default: stderr; in the background a file beside the attachment's entry].
    #[arg(long, value_name = "FILE", help_heading = NO_HEADING)]
    pub log: Option<PathBuf>,
    /// HTTP address of metrics. It answers GET /metrics for Prometheus, / with a page of live charts, and /healthz; read only,
    /// for any client that can connect.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = NO_HEADING)]
    pub metrics: Option<SocketAddr>,
    /// Record requests that take longer than this, for `roadtrain slow`: p99 (longer than 99 of 100 recent ones), a
    /// time, or off.
    #[arg(long, value_name = "TIME", default_value = "p99", help_heading = NO_HEADING)]
    pub slow_over: SlowOverName,
    /// Importance of requests. Beside those of others on the same target.
    #[arg(long, value_name = "CLASS", default_value = "normal", help_heading = NO_HEADING)]
    pub class: ClassName,
    /// The host's identity, keys and timeouts.
    #[command(flatten)]
    pub connect: ConnectArgs,
    /// Lanes and cores.
    #[command(flatten)]
    pub lanes: LaneArgs,
    /// Batching policy.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Waiting: polling or blocking.
    #[command(flatten)]
    pub wait: WaitArgs,
}
