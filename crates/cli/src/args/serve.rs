//! `roadtrain serve`

use super::LvStoreArg;
use super::{
    CntlidRange, EtherArgs, ListenerAna, MemberArgs, PlacementName, PolicyArgs, SecurityArgs,
    SlowOverName, TransportName, WaitArgs,
};
use crate::namespace::NamespaceSettings;
use crate::units::{CoreList, parse_cores, parse_seconds, parse_size, parse_size_u32, size_field};
use clap::{Args, Command};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = concat!(
    "\
Namespaces: KIND:ARGUMENT[,OPTION]...
  mem:1GiB                   memory, gone with the process
  ssd:1GiB,service-us=100    memory as slow as an SSD: every command takes 100 us, at most
                             parallel=64 at once, the others queue
  null:1TiB                  nothing: reads give zeroes, writes vanish
  file:disk.img,size=2GiB    a file, created sparse (without size= it must exist)
  block:/dev/loop0           a block device
  rbd:POOL/IMAGE,id=NAME     an image of a Ceph cluster ([NAMESPACE/] before its name,
                             @SNAPSHOT behind it; conf=FILE, keyring=FILE, create=SIZE; of an
                             encrypted one passphrase-file=FILE or passphrase-key=NAME, a user
                             key of the kernel)
  nvme:ADDR[:PORT]/NQN/NSID  a namespace of another target, with its own size and block size
                             (path=ADDR[:PORT] for each further path, and attach's options:
                             tls-key=FILE, dhchap-secret=FILE, ctrl-loss-tmo=SECONDS, ...)
  nbd:unix:PATH, nbd:tcp:HOST:PORT
                             an export of an NBD server such as qemu-nbd (export=NAME,
                             tls-psk=FILE, tls-certificates=DIRECTORY, connections=N, ...)
  options: lba=512|4096 (block size, 512, also on a disk with blocks of 4096), ro (read-only),
           nsid=N (1, 2, ... in order), size=SIZE,
           standby (wait, inaccessible, while another process has it, then serve it; an image
           is taken over from a gateway that has died or hangs),
           class=latency|normal|bulk (of requests that do not say theirs: as bench's --class),
           iops=N, read-iops=N, write-iops=N, bandwidth=SIZE, read-bandwidth=SIZE,
           write-bandwidth=SIZE (the most in a second), burst=TIME (how much of that may be caught
           up on at once after a quiet time, 5ms),
           uuid=UUID, nguid=NGUID (its identity; without them that of the blocks),
           reservations=FILE|none (where those are kept that persist through power loss; of a
           file that may be written FILE.reservations beside it, of others nowhere),
           uncorrectable=FILE|none (where marks of Write Uncorrectable are kept; of a file
           FILE.uncorrectable beside it, of memory in memory, of others nowhere)

Signals: SIGTERM and SIGINT stop it. SIGHUP reads the configuration file again: addresses and
namespaces come, go and change, hosts are allowed and refused. A file with an error changes nothing.
`roadtrain ctl` makes one change without the file.

Examples:
  roadtrain serve -a 127.0.0.1 -s 4420 -n nqn.2025-01.io.example:disk \\
      --namespace mem:1GiB --namespace file:disk.img,size=2GiB,lba=4096 --policy i10 --cores 1
",
    ether!(
        "  roadtrain serve -t ether -a eth1,eth2 -n nqn.2025-01.io.example:disk --namespace mem:1GiB\n"
    ),
    "  roadtrain serve -a 127.0.0.1 -n nqn.2025-01.io.example:disk --namespace mem:1GiB --require-auth \\
      --dhchap-key nqn.2025-01.io.example:host=host.key
  roadtrain serve -a 192.0.2.1 -n nqn.2025-01.io.example:disk --namespace mem:1GiB \\
      --tls required --tls-key nqn.2025-01.io.example:host=host.tls
  roadtrain serve -a 127.0.0.1,127.0.0.2 -n nqn.2025-01.io.example:disk --namespace file:disk.img \\
      --ana 127.0.0.2:4420=non-optimized --cntlid-range 1-1000
  roadtrain serve -a 127.0.0.1 -n nqn.2025-01.io.example:disk --namespace mem:1GiB \\
      --metrics 127.0.0.1:9420
  roadtrain serve -a 192.0.2.7 --group gates --pool disks --ceph-id gate
  roadtrain serve --config serve.toml --check-config
  roadtrain serve --config serve.toml
  roadtrain serve --config serve.toml --takeover     # a new version replaces the running one"
);

/// Options that `serve -h` shows.
const SHORT: [&str; 15] = [
    "config",
    "check_config",
    "transport",
    "traddr",
    "trsvcid",
    "nqn",
    "namespaces",
    "allow_hosts",
    "require_auth",
    "dhchap_key",
    "tls",
    "tls_keys",
    "metrics",
    "rpc",
    "state",
];

const SHORT_HELP: &str = "\
Namespaces: mem:1GiB, file:disk.img,size=2GiB, block:/dev/sdb, null:1TiB, rbd:POOL/IMAGE.

`roadtrain serve --help` has all options (Ethernet, gateway groups, security, limits, batching,
waiting, placement), those of namespaces, and more examples.

Examples:
  roadtrain serve -a 127.0.0.1 -n nqn.2025-01.io.example:disk --namespace file:disk.img,size=2GiB
  roadtrain serve --config serve.toml";

/// Leaves in `serve -h` the most needed options: all of them fill several screens.
pub(super) fn with_short_help(serve: Command) -> Command {
    let all = serve.get_after_help().cloned().unwrap_or_default();
    let serve = serve.after_help(SHORT_HELP).after_long_help(all);
    serve.mut_args(|arg| {
        let is_short = SHORT.contains(&arg.get_id().as_str());
        arg.hide_short_help(!is_short)
    })
}

/// Options of `roadtrain serve`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Configuration file.
    #[arg(long, value_name = "FILE", help = concat!(
        "Configuration file. It takes the place of the options under Export, ",
        ether!("Ethernet, "),
        "Security, Limits, Batching and Waiting, of --slow-over and of --file-root. Options under Management win over its keys. Not with a gateway group"
    ), conflicts_with_all = [
        "transport", "traddr", "EtherArgs", "trsvcid", "nqn", "serial", "model", "namespaces", "policy", "allow_hosts", "mptcp", "mdns", "ana", "drain_timeout", "cntlid_range", "dhchap_key", "dhchap_ctrl_key", "require_auth", "dhchap_hash", "dhchap_dhgroup", "cores", "placement", "max_queues", "max_connections", "max_connections_per_address", "max_connections_per_host",
        "max_controllers", "max_controllers_per_host",
        "queue_size", "tls", "tls_at", "tls_keys", "keyring", "in_capsule_bytes", "max_h2c_data", "buffers", "no_hdgst", "no_ddgst", "caravan_requests",
        "caravan_bytes", "doorbell_delay_us", "cmd_bytes", "cmd_degree", "cmd_delay_us", "data_bytes",
        "data_degree", "data_delay_us", "batch_level", "batch_level_max", "batch_interval_ms",
        "batch_delay_us", "batch_gain_percent", "batch_probe_intervals", "busy_poll", "spin_us", "no_spin", "slow_over"])]
    pub config: Option<PathBuf>,
    /// Check the configuration and end.
    #[arg(long, conflicts_with = "print_config")]
    pub check_config: bool,
    /// Print the configuration as a TOML file and end.
    #[arg(long)]
    pub print_config: bool,
    /// Exported objects and listeners.
    #[command(flatten)]
    pub export: ExportArgs,
    /// The gateway group that has the configuration.
    #[command(flatten)]
    pub member: MemberArgs,
    /// Frame options.
    #[command(flatten)]
    pub ether: EtherArgs,
    /// TLS and authentication of hosts.
    #[command(flatten)]
    pub security: SecurityArgs,
    /// Limits of hosts.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Batching policy.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Waiting: polling or blocking.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// HTTP address of metrics. It answers GET /metrics for Prometheus, / with a page of live charts, and /healthz; read only,
    /// for any client that can connect.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Output")]
    pub metrics: Option<SocketAddr>,
    /// Log level: error, warn, info, debug, trace.
    #[arg(long, value_name = "LEVEL", help_heading = "Output",
          value_parser = ["error", "warn", "info", "debug", "trace"])]
    pub log_level: Option<String>,
    /// Record requests that take longer than this, for `roadtrain slow`: p99 (longer than 99 of 100 recent ones), a
    /// time, or off.
    #[arg(long, value_name = "TIME", default_value = "p99", help_heading = "Output")]
    pub slow_over: SlowOverName,
    /// Name of a target or an attachment on this machine [default: target0, target1, ...].
    #[arg(long, value_name = "ID", help_heading = "Output")]
    pub id: Option<String>,
    /// Continue in the place of a target that runs with one of these listeners, with this configuration file, or with
    /// the name of --id: its sockets are taken over, so hosts see a pause and no refused connection.
    #[arg(long, help_heading = "Output", conflicts_with_all = ["check_config", "print_config", "control_stdin"])]
    pub takeover: bool,
    /// Management interfaces.
    #[command(flatten)]
    pub rpc: RpcServeArgs,
    /// Answer requests on stdin instead of at a control socket; stop at its end.
    #[arg(long, hide = true)]
    pub control_stdin: bool,
}

/// Exported objects and listeners.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Export")]
pub struct ExportArgs {
    /// Transport. That of addresses that do not name theirs.
    #[arg(short = 't', long, default_value = "tcp")]
    pub transport: TransportName,
    /// Transport address to listen on.
    #[arg(
        short = 'a',
        long,
        value_name = "ADDRESS",
        help = concat!(
            "Transport address. IP address or name to listen on; :: is every IPv6 address and no IPv4 one, 0.0.0.0 every IPv4 one",
            ether!("; with -t ether interfaces. Repeatable; tcp: and ether: before it name the transport")
        ),
        value_delimiter = ',',
        required_unless_present_any = ["config", "rpc", "rpc_http", "lvstores", "state"]
    )]
    pub traddr: Vec<String>,
    /// TCP port. 0 lets the system choose one for each address.
    #[arg(short = 's', long, value_name = "PORT", default_value_t = 4420)]
    pub trsvcid: u16,
    /// NQN of the subsystem.
    #[arg(
        short = 'n',
        long,
        value_name = "NQN",
        alias = "subnqn",
        required_unless_present_any = ["config", "rpc", "rpc_http", "lvstores", "state", "gateway_group"]
    )]
    pub nqn: Option<String>,
    /// Serial number of the subsystem, at most 20 characters. The same for all targets that serve it
    /// [default: made of NQN and machine].
    #[arg(long, value_name = "TEXT")]
    pub serial: Option<String>,
    /// Model number of the subsystem, at most 40 characters. Likewise [default: Roadtrain].
    #[arg(long, value_name = "TEXT")]
    pub model: Option<String>,
    /// Namespace, such as mem:1GiB or file:disk.img,size=2GiB (repeatable). See below.
    #[arg(long = "namespace", value_name = "SPEC", required_unless_present_any = ["config", "rpc", "rpc_http", "lvstores", "state", "gateway_group"])]
    pub namespaces: Vec<NamespaceSettings>,
    /// NQN of a host that may connect (repeatable) [default: any host].
    #[arg(long = "allow-host", value_name = "NQN")]
    pub allow_hosts: Vec<String>,
    /// Multipath TCP. Listeners take it beside TCP: one connection uses all links for which the kernel has endpoints
    /// (`ip mptcp`). TCP alone where the kernel does not offer it.
    #[arg(long)]
    pub mptcp: bool,
    /// Multicast DNS on the local network. The discovery service is announced there.
    #[arg(long)]
    pub mdns: bool,
    /// ANA state of the paths through a listener. Written ADDRESS:PORT=STATE (repeatable), STATE optimized, non-optimized or
    /// inaccessible; ether=STATE stands for all interfaces [default: optimized].
    #[arg(long, value_name = "STATE")]
    pub ana: Vec<ListenerAna>,
    /// Time limit of a shutdown, while hosts change to other paths and their requests are finished [default: 10].
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub drain_timeout: Option<Duration>,
    /// Cores to pin to, such as 0 or 0-3 or 0,2. Each has a reactor [default: one reactor, not pinned].
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    pub cores: Option<CoreList>,
    /// Placement on one NUMA node. It is for buffers, memory namespaces and reactors.
    #[arg(long, value_name = "WHAT", default_value = "full")]
    pub placement: PlacementName,
}

/// Management interfaces of a running target.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Management")]
pub struct RpcServeArgs {
    /// Unix socket for JSON-RPC requests. Only this user can use it, with `roadtrain ctl` and the clients of SPDK (theirs is
    /// /var/tmp/spdk.sock).
    #[arg(long = "rpc", value_name = "FILE")]
    pub rpc: Option<PathBuf>,
    /// Answer JSON-RPC requests by HTTP POST, too. Without TLS, so only at a loopback address.
    #[arg(long = "rpc-http", value_name = "ADDRESS:PORT")]
    pub rpc_http: Option<SocketAddr>,
    /// File with lines user:password for --rpc-http, readable by its owner only.
    #[arg(long = "rpc-credentials", value_name = "FILE")]
    pub rpc_credentials: Option<PathBuf>,
    /// Take --rpc-http at any address: passwords and data can be read on the network.
    #[arg(long = "rpc-http-anywhere")]
    pub rpc_http_anywhere: bool,
    /// Keep what JSON-RPC requests make in a file, and make it again at the next start.
    #[arg(long = "state", value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Folder below which JSON-RPC requests may open files and devices (repeatable); file_roots in a configuration file
    /// [default: none].
    #[arg(long = "file-root", value_name = "DIRECTORY", conflicts_with = "config")]
    pub file_roots: Vec<PathBuf>,
    /// Store of volumes in a folder, which is made if it is not there: NAME=DIRECTORY,size=SIZE[,lba=512|4096]
    /// (repeatable). SIZE is its quota [default: what the file system has free when it is made].
    #[arg(long = "lvstore", value_name = "NAME=DIRECTORY[,..]")]
    pub lvstores: Vec<LvStoreArg>,
}

/// Limits of hosts.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Most I/O queues of a controller [default: 128].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub max_queues: Option<u16>,
    /// Entries of an I/O queue. The most that a host may have [default: 1024].
    #[arg(short = 'Q', long, value_name = "N", value_parser = clap::value_parser!(u16).range(32..=4096))]
    pub queue_size: Option<u16>,
    /// Most connections over TCP, as far as there are descriptors [default: 16384].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1048576))]
    pub max_connections: Option<u32>,
    /// Most of them from one address, or from one IPv6 network of 64 bits [default: 4096].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1048576))]
    pub max_connections_per_address: Option<u32>,
    /// Most connected queues with one host NQN [default: 4096].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1048576))]
    pub max_connections_per_host: Option<u32>,
    /// Most controllers [default: 8192].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=65519))]
    pub max_controllers: Option<u16>,
    /// Most of them with one host NQN [default: 1024].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=65519))]
    pub max_controllers_per_host: Option<u16>,
    /// Identifiers of controllers: another range for each process that serves the same subsystem [default: 1-65519].
    #[arg(long, value_name = "MIN-MAX")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cntlid_range: Option<CntlidRange>,
    /// Most data in a command capsule; a configuration file can say 0, for none [default: 16KiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_size_u32)]
    #[serde(with = "size_field")]
    pub in_capsule_bytes: Option<u32>,
    /// Most data in one H2CData PDU [default: 1MiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_size_u32)]
    #[serde(with = "size_field")]
    pub max_h2c_data: Option<u32>,
    /// Most memory for data in flight. When it is used up hosts wait [default: 128MiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    #[serde(with = "size_field")]
    pub buffers: Option<u64>,
    /// Refuse header digests.
    #[arg(long)]
    pub no_hdgst: bool,
    /// Refuse data digests.
    #[arg(long)]
    pub no_ddgst: bool,
}
