//! Command line.

use clap::{Parser, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Without --rpc and --targets there is no controller service, without --node-id no node service.

Examples:
  roadtrain-csi --endpoint unix:///csi/csi.sock --node-id worker-1 --target 192.0.2.7:4420 \\
      --rpc /run/roadtrain-serve/rpc.sock --store vols
  roadtrain-csi --endpoint unix:///csi/csi.sock --target 192.0.2.7:4420 --rpc http://192.0.2.7:8000 \\
      --rpc-credentials /etc/roadtrain/credentials --store fast --store large     # the controller
  roadtrain-csi --endpoint unix:///csi/csi.sock --node-id worker-1 --attach ublk  # a node
";

/// CSI driver: volumes of a Roadtrain target for Kubernetes.
#[derive(Parser, Clone, Debug)]
#[command(name = "roadtrain-csi", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Unix socket of the driver: unix:///PATH.
    #[arg(long, value_name = "URL", env = "CSI_ENDPOINT")]
    pub(crate) endpoint: String,
    /// Name of the driver, as CSIDriver and StorageClass have it.
    #[arg(long, value_name = "NAME", default_value = "csi.roadtrain.io")]
    pub(crate) driver_name: String,
    /// Log messages of this level and above: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: tracing::Level,
    /// HTTP address of metrics: GET /metrics for Prometheus.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics: Option<SocketAddr>,

    /// Address of the target for NVMe/TCP; repeated: several paths to it.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Targets")]
    pub(crate) target: Vec<String>,
    /// JSON-RPC of the target: path of its Unix socket, or http://HOST:PORT.
    #[arg(long, value_name = "PATH|URL", requires = "target", help_heading = "Targets")]
    pub(crate) rpc: Option<String>,
    /// Credentials for HTTP: a file with USER:PASSWORD.
    #[arg(long, value_name = "FILE", requires = "rpc", help_heading = "Targets")]
    pub(crate) rpc_credentials: Option<PathBuf>,
    /// Store of volumes at the target, as `roadtrain serve --lvstore` names it; repeated: several pools.
    #[arg(long, value_name = "NAME", requires = "rpc", help_heading = "Targets")]
    pub(crate) store: Vec<String>,
    /// Name of the target in IDs of volumes and in the topology.
    #[arg(long, value_name = "NAME", default_value = "target", help_heading = "Targets")]
    pub(crate) target_name: String,
    /// The addresses of the target take connections with TLS only.
    #[arg(long, help_heading = "Targets")]
    pub(crate) target_tls: bool,
    /// Folder in which keys of Secrets are given to the target: below one of its --file-root, and at the same path
    /// there. Without it Secrets name keys that the target has.
    #[arg(long, value_name = "DIRECTORY", help_heading = "Targets")]
    pub(crate) key_dir: Option<PathBuf>,
    /// Several targets: a TOML file with a table [[target]] for each.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "rpc", "store"], help_heading = "Targets")]
    pub(crate) targets: Option<PathBuf>,

    /// Name of this node, or its host NQN.
    #[arg(long, value_name = "ID", help_heading = "Node")]
    pub(crate) node_id: Option<String>,
    /// Attachment of volumes: ublk, kernel (nvme-tcp) or fuse with a loop device [default: the first one that this
    /// node has].
    #[arg(long, value_name = "HOW", help_heading = "Node")]
    pub(crate) attach: Option<AttachMode>,
    /// Names of the targets that this node reaches [default: all that are given, or --target-name].
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Node")]
    pub(crate) reaches: Vec<String>,
    /// Most volumes on this node; 0: no limit.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..),
          help_heading = "Node")]
    pub(crate) max_volumes: i64,
    /// Command that runs roadtrain. Words before it may bring it elsewhere, such as into a scope of systemd, so that
    /// it outlives the driver's container.
    #[arg(long, value_name = "COMMAND", default_value = "roadtrain", help_heading = "Node")]
    pub(crate) roadtrain: String,
    /// Folder for mountpoints of FUSE and for keys of attached volumes; on a file system of memory.
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = "/run/roadtrain-csi",
        help_heading = "Node"
    )]
    pub(crate) run_dir: PathBuf,
    /// Further options of `roadtrain attach`, such as --attach-options '--lanes 4 --cores 0-3'.
    #[arg(
        long,
        value_name = "OPTIONS",
        default_value = "",
        allow_hyphen_values = true,
        help_heading = "Node"
    )]
    pub(crate) attach_options: String,
}

/// Way in which a volume becomes a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttachMode {
    /// `roadtrain attach --as ublk`.
    Ublk,
    /// The kernel's host, nvme-tcp.
    Kernel,
    /// `roadtrain attach --as fuse:.. --loop`.
    Fuse,
}

impl AttachMode {
    /// Returns the best way of this node.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn best() -> Result<AttachMode, String> {
        let has = |path: &str| std::path::Path::new(path).exists();
        if has("/dev/ublk-control") {
            Ok(AttachMode::Ublk)
        } else if has("/dev/nvme-fabrics") && has("/sys/module/nvme_tcp") {
            Ok(AttachMode::Kernel)
        } else if has("/dev/fuse") && has("/dev/loop-control") {
            Ok(AttachMode::Fuse)
        } else {
            Err("this node cannot attach volumes: load ublk_drv, nvme-tcp, or fuse and loop".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contract_of_scripts() {
        let line = "roadtrain-csi --endpoint unix:///csi.sock --node-id a --target 127.0.0.1:4420 \
            --rpc /rpc.sock --store vols --attach fuse";
        let args = Args::try_parse_from(line.split_whitespace()).unwrap();
        assert_eq!((args.store, args.attach), (vec!["vols".to_owned()], Some(AttachMode::Fuse)));
        for wrong in ["--rpc /a", "--store a", "--targets f --target a:1", "--attach nbd"] {
            let line = format!("roadtrain-csi --endpoint unix:///a {wrong}");
            assert!(Args::try_parse_from(line.split_whitespace()).is_err(), "{wrong}");
        }
    }
}
