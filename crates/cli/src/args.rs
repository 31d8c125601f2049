//! The command line: one source for parsing, `--help`, man pages and completions.

/// Help about Ethernet, where the program is built with it.
#[cfg(feature = "ether")]
macro_rules! ether {
    ($text:literal) => {
        $text
    };
}
#[cfg(not(feature = "ether"))]
macro_rules! ether {
    ($text:literal) => {
        ""
    };
}

mod ana;
mod attach;
mod bench;
mod class;
mod completion;
mod connect;
mod ctl;
mod doctor;
#[cfg(all(test, feature = "ether", feature = "rbd"))]
mod documents_tests;
mod ether;
mod gateway;
mod generate;
#[cfg(test)]
mod grammar;
mod hostnqn;
mod keys;
mod lifecycle;
mod lvstore;
mod paths;
mod placement;
mod policy;
mod query;
mod resv;
mod security;
mod serve;
mod slow;
mod slow_over;
mod stream;
mod tls;
mod top;

pub use ana::{AnaName, AnaPort, CntlidRange, ListenerAna};
pub use attach::{AttachArgs, BitmapArg, FrontArgs};
pub use bench::{BenchArgs, BenchMode, LoadArgs, OwnTargetArgs};
pub use class::ClassName;
pub use connect::{
    ConnectArgs, KeyArgs, LaneArgs, LossTimeout, PathPolicyName, Portal, TransportName,
};
pub use ctl::{
    BitmapCommand, ClusterCommand, ConfigCommand, ConnectionCommand, CtlArgs, CtlCommand,
    CtlTarget, DeviceCommand, GatewayCommand, HostCommand, HostKeyArgs, HostRef, KeyCommand,
    ListenerAddress, ListenerCommand, ManagementArgs, NamespaceCommand, NamespaceRef,
    NewSubsystemArgs, ReferralCommand, RequireArgs, SeeingHosts, SnapshotCommand, SnapshotRef,
    StoreCommand, SubsystemCommand, SubsystemRef, VolumeCommand,
};
pub use doctor::{DoctorArgs, ForeignHost};
pub use ether::{EtherArgs, PortKindName};
pub use gateway::{CephArgs, MemberArgs};
pub use generate::{CompletionsArgs, ManArgs};
pub use hostnqn::HostnqnArgs;
pub use keys::{
    DhchapHash, DhchapKeyArgs, KeysArgs, KeysCommand, ShowKeyArgs, TlsHash, TlsKeyArgs,
};
pub use lifecycle::{DetachArgs, StatusArgs};
pub use lvstore::LvStoreArg;
pub use paths::Portals;
pub use placement::PlacementName;
pub use policy::{PolicyArgs, PolicyName, WaitArgs};
pub use query::{DiscoverArgs, IdentifyArgs, ListArgs};
pub use resv::{
    ReleaseName, ReservationTypeName, ResvAcquireArgs, ResvArgs, ResvCommand, ResvNamespaceArgs,
    ResvRegisterArgs, ResvReleaseArgs, ResvReportArgs,
};
pub use security::{DhGroupName, HashName, SecurityArgs};
pub use serve::{ExportArgs, LimitArgs, RpcServeArgs, ServeArgs};
pub use slow::SlowArgs;
pub use slow_over::SlowOverName;
pub use stream::{LaneChoice, ReadWrite, StepSpec, StreamSpec};
pub use tls::{HostTlsKeyFile, ListenerTls, TlsMode};
pub use top::TopArgs;

use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;

/// Columns of help texts.
const WIDTH_MAX: usize = 100;

/// Heading of a command's own options after a group of others: without it they would be listed in that group.
const NO_HEADING: Option<&str> = None;

const AFTER_HELP: &str = "\
Exit status:
  0  done
  1  failed: an I/O error, wrong data, something that is not there
  2  the command line or the configuration is wrong
  3  no connection: the target's name is not known, no target listens, the host is refused,
     the subsystem does not exist

Examples:
  roadtrain doctor
  roadtrain serve -a 127.0.0.1 -s 4420 -n nqn.2025-01.io.example:disk --namespace mem:1GiB
  roadtrain discover -a 127.0.0.1
  roadtrain attach -a 127.0.0.1 -n nqn.2025-01.io.example:disk --as nbd:unix:/tmp/disk.sock
  roadtrain status
  roadtrain detach --all
  roadtrain bench --rw randread --bs 4k --depth 128 --seconds 5";

const LONG_ABOUT: &str = concat!(
    "Remote block storage over NVMe/TCP, in user space.\n\n\
     Exports files, block devices and memory to any NVMe/TCP host, and connects to any NVMe/TCP target",
    ether!("; among its own kind also straight on Ethernet (-t ether)"),
    ". Needs no huge pages; to export, connect and serve NBD or virtual machines over TCP no root and no kernel module."
);

/// Remote block storage over NVMe/TCP, in user space.
#[derive(Debug, Parser)]
#[command(name = "roadtrain", version, long_about = LONG_ABOUT, after_help = AFTER_HELP, max_term_width = WIDTH_MAX)]
pub struct CommandLine {
    /// Command to run.
    #[command(subcommand)]
    pub command: RoadtrainCommand,
    /// Options of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
}

/// Options of every command.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct GlobalArgs {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// Log more to stderr: -v debug, -vv trace (RUST_LOG overrides it).
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub verbose: u8,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum RoadtrainCommand {
    /// Export memory, files and block devices.
    #[command(about = concat!("Export memory, files and block devices, over NVMe/TCP", ether!(" or straight on Ethernet")))]
    Serve(Box<ServeArgs>),
    /// Query targets for their subsystems.
    Discover(DiscoverArgs),
    /// Show a controller and its namespaces.
    Identify(IdentifyArgs),
    /// List what is attached and served here, or the namespaces that can be reached at an address.
    List(ListArgs),
    /// Show a remote namespace as a local block device.
    Attach(Box<AttachArgs>),
    /// End attachments, and remove what dead ones have left.
    Detach(DetachArgs),
    /// Show the state of what is attached and served here.
    Status(StatusArgs),
    /// Show recent slow requests, and their time in each stage.
    Slow(SlowArgs),
    /// Watch what targets and attachments do.
    Top(TopArgs),
    /// Reserve a namespace that several hosts share, release it, and show its reservations.
    Resv(ResvArgs),
    /// Change a running target, or a group of gateways: subsystems, namespaces, listeners, hosts, volumes, configuration.
    Ctl(Box<CtlArgs>),
    /// Generate load and measure it.
    Bench(Box<BenchArgs>),
    /// Check this machine and give advice, with nothing changed.
    Doctor(DoctorArgs),
    /// Show the NQN by which targets know this host.
    Hostnqn(HostnqnArgs),
    /// Make keys for TLS and authentication, check them, and show what is derived of them.
    Keys(KeysArgs),
    /// Print or write shell completions.
    Completions(CompletionsArgs),
    /// Write man pages.
    #[command(hide = true)]
    Man(ManArgs),
}

/// A value's name on the command line.
pub(crate) fn word<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map_or_else(String::new, |word| word.get_name().to_owned())
}

/// Parses a value by its name; an error lists the names for `key`.
pub(crate) fn named<T: ValueEnum>(key: &str, value: &str) -> Result<T, String> {
    T::from_str(value, false).map_err(|_| {
        let names: Vec<String> = T::value_variants().iter().map(word).collect();
        format!("{key}={value}: use {}", names.join(", "))
    })
}

impl CommandLine {
    /// Parses a command line whose first word is the program's name.
    ///
    /// # Errors
    /// The line is wrong, or requests help, which is the error's text then.
    pub(crate) fn read(arguments: Vec<OsString>) -> Result<CommandLine, clap::Error> {
        let mut command = CommandLine::command().mut_subcommand("serve", serve::with_short_help);
        let matches = command.try_get_matches_from_mut(arguments)?;
        CommandLine::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_help_of_serve_fits_on_two_screens() {
        let help = |option: &str| {
            let words = ["roadtrain", "serve", option].map(OsString::from);
            CommandLine::read(words.into()).unwrap_err().to_string()
        };
        let (short, long) = (help("-h"), help("--help"));
        assert!(short.lines().count() < 70, "{short}");
        for option in ["--config", "-a, --traddr", "--namespace", "--tls-key", "--rpc ", "--state"]
        {
            assert!(short.contains(option), "{option}: {short}");
        }
        assert!(!short.contains("--max-queues") && long.contains("--max-queues"), "{short}");
        assert!(long.contains("--ana 127.0.0.2:4420=non-optimized"), "{long}");
    }

    #[test]
    fn definition_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        let mut command = CommandLine::command();
        command.build();
        for sub in command.get_subcommands_mut().filter(|s| !s.is_hide_set()) {
            if sub.get_name() == "help" {
                continue;
            }
            let help = sub.render_long_help().to_string();
            assert!(help.contains("Example"), "{} --help shows no example", sub.get_name());
        }
    }

    #[test]
    fn options_are_listed_where_they_belong() {
        let mut command = CommandLine::command();
        command.build();
        let ethernet = "Ethernet (-t ether)";
        for sub in command.get_subcommands() {
            for arg in sub.get_arguments().filter(|arg| arg.get_help_heading() == Some(ethernet)) {
                let id = arg.get_id().as_str();
                let is_ether = EtherArgs::augment_args(clap::Command::new("ether"))
                    .get_arguments()
                    .any(|ether| ether.get_id() == id);
                assert!(is_ether, "{} lists --{id} under Ethernet", sub.get_name());
            }
        }
        let attach = command.find_subcommand("attach").unwrap();
        let heading = |id: &str| {
            attach.get_arguments().find(|arg| arg.get_id() == id).unwrap().get_help_heading()
        };
        for id in ["nqn", "nsid", "front", "id", "background", "log", "class"] {
            assert_eq!(heading(id), None, "{id}");
        }
    }

    #[test]
    fn examples_are_not_wrapped() {
        let mut command = CommandLine::command();
        command.build();
        for sub in command.get_subcommands() {
            let text = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH_MAX, "{}: {line}", sub.get_name());
            }
        }
    }

    #[test]
    fn contract_lines_parse() {
        for line in [
            "serve -a 127.0.0.1 -s 4420 -n nqn.x:y --namespace mem:1GiB \
             --namespace file:disk.img,size=2GiB,lba=4096 --policy i10 --cores 1",
            "serve -t ether -a eth0,eth1 -a tcp:127.0.0.1 --vlan 7 --ethertype 0x88b6 --port-kind packet -n nqn.x:y \
             --namespace mem:1GiB",
            "bench -t tcp -a 127.0.0.1 -s 4420 -n nqn.x:y --rw randread --bs 4k --depth 128 --lanes 1 \
             --cores 0 --seconds 5 --policy i10 --json",
            "bench --namespace mem:1GiB --target-cores 1 --target-policy none --rate 1000 --verify",
            "bench --mode queue --threads 64 --cores 0 --placement buffers --verify",
            "attach -t tcp -a h -s 4420 -n nqn.x:y --as nbd:unix:/path.sock -Q 128 -i 2 --hdgst --ddgst \
             --keep-alive-tmo 5 --ctrl-loss-tmo 60 --fast-io-fail-tmo 5 --reconnect-delay 1",
            "ctl --group gates --pool disks subsystem add -n nqn.x:y --namespace rbd:disks/a --require-auth",
            "ctl --group gates --pool disks host allow -n nqn.x:y -q nqn.x:h --dhchap-key f --tls-key g",
            "ctl namespace remove -n nqn.x:y --nsid 2 --group gates --pool disks",
            "ctl --group gates --pool disks --ceph-conf ceph.conf --ceph-id gate gateway list --json",
            "serve -a ::1 -s 0 --group gates --pool disks --gateway one --conf ceph.conf --tls allowed",
            "resv register -t tcp -a h -s 4420 -n nqn.x:y -q nqn.x:host --namespace-id 1 --crkey 1 --nrkey 0x2 --rrega 2 \
             --cptpl 3 --iekey",
            "resv acquire -a h -n nqn.x:y --namespace-id 1 --crkey 1 --prkey 2 --racqa 2 --rtype 6",
            "resv release -a h -n nqn.x:y --namespace-id 1 --crkey 1 --rtype 1 --rrela 0",
            "resv release -a h -n nqn.x:y --namespace-id 1 --crkey 1 --rrela clear",
            "resv report -a h -n nqn.x:y --nsid 1 --eds --numd 1024 --json",
            "attach -t tcp -a 127.0.0.1:4420 -a [::1]:4421 -n nqn.x:y --as nbd:unix:/p --path-policy queue-depth",
            "bench -t tcp -a 127.0.0.1:4420 -a 127.0.0.1:4421 -n nqn.x:y --path-policy round-robin",
            "attach -t tcp -a 127.0.0.1:8009 --nqn nqn.x:y --discover --as nbd:unix:/p",
            "bench -t tcp -a 127.0.0.1:8009 -n nqn.x:y --discover",
            "attach -n nqn.x:y --mdns --as nbd:unix:/p",
            "discover --mdns --json",
            "serve -a 192.0.2.7 -n nqn.x:y --namespace mem:1GiB --mdns --mptcp",
            "attach -a 192.0.2.7 -n nqn.x:y --mptcp --as nbd:unix:/p",
            "bench --mptcp",
            "list -a h --mptcp",
            "list -a 127.0.0.1:4420 -a 127.0.0.1:4421",
            "status -a 127.0.0.1:4420 -a 127.0.0.1:4421 --json",
            "serve -a 127.0.0.1 -s 4420 -n nqn.x:y --namespace file:d,uuid=5a1c5b0e-3f0f-4d0b-9d2c-0123456789ab \
             --cntlid-range 1-1000 --ana 127.0.0.1:4420=non-optimized --drain-timeout 5",
            "ctl listener set -a 127.0.0.1:4420 --ana inaccessible",
            "ctl listener set -n nqn.x:y -a 127.0.0.1 -s 4420 --ana non-optimized --id target0",
            "ctl listener add -n nqn.x:y -a 127.0.0.1 --tls --ana non-optimized",
            "ctl namespace limit -n nqn.x:y --nsid 1 --read-iops 1000 --write-bandwidth 10MiB --burst 1s",
            "ctl host limit -n nqn.x:y -q nqn.x:host --iops 1000",
            "ctl host allow -n nqn.x:y -q nqn.x:host --dhchap-key a --dhchap-ctrl-key b --tls-key c",
            "ctl host keys -q nqn.x:host",
            "ctl namespace add device:disk --nsid 3",
            "ctl namespace snapshot create --nsid 1 before -n nqn.x:y",
            "ctl config save -o file --spdk",
            "ctl --rpc /run/x.sock rpc nvmf_get_subsystems {}",
            "top --once --json",
            "top target0 --metrics 192.0.2.7:4430 --interval 0.5",
            "ctl trace -o slow.json --id target0",
            "slow target0 -a 127.0.0.1:4420 --count 5 --sampled --json",
            "serve -a 127.0.0.1 -n nqn.x:y --namespace mem:1GiB --slow-over 500us",
            "discover -t tcp -a 127.0.0.1 -s 8009 --host-nqn nqn.x:host --json",
        ] {
            let words = std::iter::once("roadtrain").chain(line.split_whitespace());
            CommandLine::try_parse_from(words).unwrap_or_else(|e| panic!("{line}: {e}"));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "",
            "serve",
            "serve -a 127.0.0.1 -n nqn.x:y",
            "serve --config x.toml --namespace mem:1GiB",
            "serve --config x.toml --policy i10",
            "serve -a h -n nqn.x:y --namespace mem",
            "serve -a h --group gates",
            "serve -a h --group gates --pool disks -n nqn.x:y",
            "serve --group gates --pool disks",
            "serve -a h --group a/b --pool disks",
            "ctl --id a --rpc b config show",
            "target reload",
            "gateway show",
            "rpc rpc_get_methods",
            "bench -a 127.0.0.1",
            "bench --discover",
            "discover",
            "discover -a h --mdns",
            "attach -a h -n nqn.x:y --mdns --as nbd:unix:/p",
            "serve --config x.toml --mdns",
            "serve --config x.toml --mptcp",
            "bench --bs 0",
            "bench --rwmixread 101",
            "bench --depth 0",
            "bench -a h -n nqn.x:y --namespace mem:1GiB",
            "bench --busy-poll --spin-us 20",
            "bench --no-spin --spin-us 20",
            "bench --busy-poll --no-spin",
            "bench --mode queue",
            "bench --threads 0",
            "bench --threads 4 --depth 2",
            "bench --threads 4 --stream bs=4k",
            "bench --placement some",
            "attach -a h -n nqn.x:y",
            "attach -n nqn.x:y --as ublk",
            "attach -a h -n nqn.x:y --as ublk --path-policy fastest",
            "serve -a h -n nqn.x:y --namespace mem:1GiB --cntlid-range 5",
            "serve -a h -n nqn.x:y --namespace mem:1GiB --ana h:4420",
            "serve --config x.toml --ana h:4420=optimized",
            "ctl listener set -a 127.0.0.1",
            "ctl listener set -a h:4420 --ana good",
            "ctl listener add -a h:4420 --tls",
            "ctl host allow -n nqn.x:y --any --tls-key k",
            "ctl host keys -n nqn.x:y -q nqn.x:host --dhchap-ctrl-key b",
            "ctl namespace remove",
            "ctl subsystem remove",
            "completions",
            "top --interval 0",
            "resv report -a h -n nqn.x:y",
            "resv acquire -a h -n nqn.x:y --namespace-id 1",
            "resv acquire -a h -n nqn.x:y --namespace-id 1 --rtype 7",
            "resv register -a h -n nqn.x:y --namespace-id 1 --nrkey x",
        ] {
            let words = std::iter::once("roadtrain").chain(line.split_whitespace());
            assert!(CommandLine::try_parse_from(words).is_err(), "{line}");
        }
    }
}
