//! Connection options: the target, the host's identity, and the lanes.

use super::{EtherArgs, PlacementName};
use crate::units::{CoreList, parse_cores, parse_seconds};
use clap::{ArgAction, Args, ValueEnum};
use roadtrain_host_engine::PathPolicy;
use std::net::IpAddr;
use std::time::Duration;

/// NVMe-oF transports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TransportName {
    /// NVMe over TCP.
    #[default]
    Tcp,
    /// NVMe capsules in Ethernet frames, without IP.
    #[value(hide = !cfg!(feature = "ether"))]
    Ether,
}

impl TransportName {
    /// True if its lanes send Ethernet frames.
    #[must_use]
    pub fn has_frames(self) -> bool {
        self != TransportName::Tcp
    }
}

/// A target's address.
#[derive(Args, Clone, Debug)]
pub struct Portal {
    /// Transport.
    #[arg(short = 't', long, default_value = "tcp")]
    pub transport: TransportName,
    /// Transport address of the target.
    #[arg(short = 'a', long, value_name = "ADDRESS", help = concat!(
        "Transport address. IP address or name of the target, with :PORT or without; a name is resolved for each \
         connection, so it may move",
        ether!("; with -t ether this machine's interfaces that lead to it: IF[,IF..]")
    ))]
    pub traddr: String,
    /// TCP port.
    #[arg(short = 's', long, value_name = "PORT", default_value_t = 4420)]
    pub trsvcid: u16,
    /// Frame options.
    #[command(flatten)]
    pub ether: EtherArgs,
}

/// The host's identity, keys and timeouts.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub struct ConnectArgs {
    /// NQN of the host [default: /etc/nvme/hostnqn, or derived from the machine's id].
    #[arg(short = 'q', long, value_name = "NQN", alias = "host-nqn")]
    pub hostnqn: Option<String>,
    /// This host's identifier, a UUID [default: the one in the host NQN].
    #[arg(short = 'I', long, value_name = "UUID", alias = "host-id")]
    pub hostid: Option<String>,
    /// Address of this machine from which connections over TCP begin [default: the kernel's choice].
    #[arg(short = 'w', long, value_name = "ADDRESS")]
    pub host_traddr: Option<IpAddr>,
    /// Interface by which connections over TCP leave [default: the kernel's choice].
    #[arg(short = 'f', long, value_name = "INTERFACE")]
    pub host_iface: Option<String>,
    /// Multipath TCP. One connection uses all links for which the kernel has endpoints (`ip mptcp`). TCP alone where this
    /// kernel or the target does not offer it.
    #[arg(long)]
    pub mptcp: bool,
    /// Keys that prove the host's identity.
    #[command(flatten)]
    pub keys: KeyArgs,
    /// Protect PDU headers with CRC32C.
    #[arg(short = 'g', long, visible_alias = "hdr-digest", help = concat!(
        "Protect PDU headers with CRC32C",
        ether!(" (frames of -t ether always do)")
    ))]
    pub hdgst: bool,
    /// Protect data with CRC32C.
    #[arg(short = 'G', long, visible_alias = "data-digest")]
    pub ddgst: bool,
    /// TLS 1.3 for connections over TCP: off, allowed (targets only), or required, which is meant without a value.
    /// A target that does not do so is refused.
    #[arg(long, value_name = "WHEN", action = ArgAction::Set, num_args = 0..=1, default_value = "off",
          default_missing_value = "required", value_parser = parse_required)]
    pub tls: bool,
    /// Secure connections by TLS with a key that authentication makes (secure channel concatenation), over TCP; needs
    /// --dhchap-secret. A target that does not do so is refused.
    #[arg(long, conflicts_with = "tls")]
    pub concat: bool,
    /// Key of the host for TLS. A file [default: the one in the keyring].
    #[arg(long, value_name = "KEY", requires = "tls")]
    pub tls_key: Option<String>,
    /// Keyring with keys for TLS: one of the kernel, by name or number, or a file with a slash in its name as
    /// `nvme tls-key --export` writes it [default: .nvme].
    #[arg(long, value_name = "KEYRING", requires = "tls", conflicts_with = "tls_key")]
    pub keyring: Option<String>,
    /// The key of the keyring, if several are for this host and subsystem. With --tls-key the version of its identity,
    /// 0 or 1 [default: 1, and 0 for targets that refuse that].
    #[arg(long, value_name = "IDENTITY", requires = "tls")]
    pub tls_key_identity: Option<String>,
    /// Keep-alive timeout; 0 turns it off.
    #[arg(short = 'k', long, value_name = "SECONDS", default_value = "5", value_parser = parse_seconds)]
    pub keep_alive_tmo: Duration,
    /// How long the first connection is tried again while the controller is busy, perhaps with this host's
    /// earlier requests.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_seconds)]
    pub connect_timeout: Duration,
    /// Pause before the first attempt to reconnect; it doubles up to 10 seconds.
    #[arg(short = 'c', long, value_name = "SECONDS", default_value = "250ms",
          value_parser = parse_seconds)]
    pub reconnect_delay: Duration,
    /// A request without answer for so long is aborted; if that does not help, the host reconnects. 0: no limit.
    /// Time without a connection does not count.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds)]
    pub io_timeout: Duration,
    /// Time after which requests fail when the target stays away; -1: they wait for ever.
    #[arg(short = 'l', long, value_name = "SECONDS", default_value = "600",
          allow_hyphen_values = true, value_parser = parse_loss_timeout)]
    pub ctrl_loss_tmo: LossTimeout,
    /// The same before that, while the host goes on trying to connect. With several paths requests fail when none works;
    /// -1: they wait for --ctrl-loss-tmo.
    #[arg(long, value_name = "SECONDS", default_value = "-1", allow_hyphen_values = true,
          value_parser = parse_loss_timeout)]
    pub fast_io_fail_tmo: LossTimeout,
}

/// Timeout after which requests fail; `None`: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossTimeout(pub Option<Duration>);

fn parse_loss_timeout(text: &str) -> Result<LossTimeout, String> {
    match text {
        "-1" => Ok(LossTimeout(None)),
        _ if text.starts_with('-') => Err("write -1 to wait for ever, or a time".into()),
        _ => parse_seconds(text).map(|limit| LossTimeout(Some(limit))),
    }
}

/// Parses WHEN where a target may not leave the choice to the host: true if connections are secured.
pub(super) fn parse_required(text: &str) -> Result<bool, String> {
    match text {
        "off" => Ok(false),
        "required" => Ok(true),
        _ => Err("write off or required".into()),
    }
}

/// Lanes: one I/O queue each, with a TCP connection of its own or a part of every link.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Lanes")]
pub struct LaneArgs {
    /// Lanes; more than 128 only where the target grants them [default: one for each of --cores].
    #[arg(short = 'i', long, value_name = "N", visible_alias = "nr-io-queues",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub lanes: Option<u32>,
    /// Cores to pin to, such as 0 or 0-3 or 0,2. Those of the lanes [default: not pinned].
    #[arg(long, value_name = "LIST", value_parser = parse_cores)]
    pub cores: Option<CoreList>,
    /// Placement on one NUMA node.
    #[arg(long, value_name = "WHAT", default_value = "full")]
    pub placement: PlacementName,
    /// Entries of an I/O queue.
    #[arg(short = 'Q', long, value_name = "N", default_value = "256",
          value_parser = clap::value_parser!(u16).range(2..=1024))]
    pub queue_size: u16,
    /// Path policy: which path a request takes, where -a is repeated; better ANA states come first in any case.
    #[arg(long, value_name = "POLICY", default_value = "latency")]
    pub path_policy: PathPolicyName,
    /// Open no express connection, by which latency-critical requests pass bulk.
    #[arg(long)]
    pub no_express: bool,
}

impl LaneArgs {
    /// Returns the number of lanes: `--lanes`, else one for each named core, else one.
    #[must_use]
    pub fn count(&self) -> u32 {
        let cores = self.cores.as_ref().map_or(1, |list| list.0.len() as u32);
        self.lanes.unwrap_or(cores)
    }
}

/// Keys for authentication.
#[derive(Args, Clone, Debug, Default)]
pub struct KeyArgs {
    /// This host's key for authentication (DH-HMAC-CHAP), used when the target requests it: a file with one line, or
    /// the key itself, which others can then see.
    #[arg(short = 'S', long, value_name = "FILE|KEY", help_heading = "Security")]
    pub dhchap_secret: Option<String>,
    /// The target's key: the target has to prove that it has it, too.
    #[arg(
        short = 'C',
        long,
        value_name = "FILE|KEY",
        requires = "dhchap_secret",
        help_heading = "Security"
    )]
    pub dhchap_ctrl_secret: Option<String>,
}

/// Rule that chooses one of several paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PathPolicyName {
    /// The least expected latency: requests in flight times the path's latency per request.
    #[default]
    Latency,
    /// The fewest requests in flight.
    QueueDepth,
    /// Each in turn.
    RoundRobin,
}

impl From<PathPolicyName> for PathPolicy {
    fn from(name: PathPolicyName) -> PathPolicy {
        match name {
            PathPolicyName::Latency => PathPolicy::Latency,
            PathPolicyName::QueueDepth => PathPolicy::QueueDepth,
            PathPolicyName::RoundRobin => PathPolicy::RoundRobin,
        }
    }
}
