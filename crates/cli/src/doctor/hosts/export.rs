//! Properties of a target that hosts of other makers depend on.

use crate::args::AnaName;
use crate::config::ServeConfig;
use crate::failure::{CommandFailure, CommandResult};
use crate::namespace::{NamespaceKind, NamespaceSettings};
use crate::status::target::{TargetNamespaceReport, TargetReport};

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CheckedNamespace {
    /// `NQN nsid N`.
    pub(super) name: String,
    /// Bytes of a logical block.
    pub(super) block_bytes: u32,
    pub(super) read_only: bool,
    /// True if its identity stays the same when the target starts again.
    pub(super) keeps_identity: bool,
}

/// A target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CheckedExport {
    pub(super) namespaces: Vec<CheckedNamespace>,
    /// True if it listens on TCP.
    pub(super) has_tcp: bool,
    /// True if it listens on Ethernet without TCP.
    pub(super) has_ether: bool,
    /// True if a path is optimized or non-optimized.
    pub(super) has_active_path: bool,
    /// Most I/O queues of a controller; `None` if unknown.
    pub(super) max_queues: Option<u16>,
    /// Most entries of an I/O queue; `None` if unknown.
    pub(super) queue_size: Option<u16>,
    /// True if a connection without TLS is refused.
    pub(super) requires_tls: bool,
    /// True if a host without a key is refused.
    pub(super) requires_auth: bool,
}

/// Limits of `serve` without options: I/O queues, and entries of each.
const DEFAULT_LIMITS: (u16, u16) = (128, 1024);

impl CheckedExport {
    /// Returns the properties of a configuration file.
    pub(super) fn of_config(config: &ServeConfig) -> CheckedExport {
        let subsystems = &config.subsystems;
        let namespaces = subsystems.iter().flat_map(|subsystem| {
            subsystem.namespaces.iter().map(|one| of_settings(&subsystem.nqn, one))
        });
        let has_tcp = !config.address.is_empty() || !config.listeners.is_empty();
        // A listener without a state is optimized.
        let is_active = |ana: &AnaName| matches!(ana, AnaName::Optimized | AnaName::NonOptimized);
        let listeners = config.address.0.len() + config.listeners.len();
        let has_active_path =
            config.ana.len() < listeners.max(1) || config.ana.values().any(is_active);
        let requires_tls = config.tls_mode() == crate::args::TlsMode::Required
            || subsystems.iter().any(|subsystem| subsystem.require_tls);
        let requires_auth = config.authentication.required
            || subsystems.iter().any(|subsystem| subsystem.require_auth);
        CheckedExport {
            namespaces: namespaces.collect(),
            has_tcp,
            has_ether: config.ether.is_some(),
            has_active_path,
            max_queues: Some(config.limits.max_queues.unwrap_or(DEFAULT_LIMITS.0)),
            queue_size: Some(config.limits.queue_size.unwrap_or(DEFAULT_LIMITS.1)),
            requires_tls,
            requires_auth,
        }
    }

    /// Returns the properties of a running target, as far as it reports them.
    ///
    /// # Errors
    /// Its process does not reply.
    pub(super) fn of_target(report: &TargetReport) -> CommandResult<CheckedExport> {
        let Some(inside) = &report.inside else {
            let why = report.error.as_deref().unwrap_or("its process does not reply");
            return Err(CommandFailure::failed(format!("{}: {why}", report.id)));
        };
        let namespaces = inside.subsystems.iter().flat_map(|subsystem| {
            subsystem.namespaces.iter().map(|one| of_report(&subsystem.nqn, one))
        });
        let is_ether = |listener: &&String| listener.starts_with("ether:");
        let has_active_path = report.ana_listeners.is_empty()
            || report.ana_listeners.iter().any(|path| path.ana.ends_with("optimized"));
        Ok(CheckedExport {
            namespaces: namespaces.collect(),
            has_tcp: !report.listeners.iter().all(|listener| is_ether(&listener)),
            has_ether: report.listeners.iter().any(|listener| is_ether(&listener)),
            has_active_path,
            max_queues: None,
            queue_size: None,
            requires_tls: inside.subsystems.iter().any(|subsystem| subsystem.require_tls),
            requires_auth: inside.subsystems.iter().any(|subsystem| subsystem.require_auth),
        })
    }
}

fn of_settings(nqn: &str, settings: &NamespaceSettings) -> CheckedNamespace {
    let is_memory =
        matches!(settings.kind, NamespaceKind::Mem | NamespaceKind::Ssd | NamespaceKind::Null);
    CheckedNamespace {
        name: name(nqn, settings.nsid.unwrap_or(1)),
        block_bytes: settings.lba,
        read_only: settings.read_only,
        keeps_identity: !is_memory || settings.uuid.is_some() || settings.nguid.is_some(),
    }
}

fn of_report(nqn: &str, report: &TargetNamespaceReport) -> CheckedNamespace {
    // A running target does not report whether its identity was configured.
    let is_memory = ["mem", "ssd", "null"].contains(&report.store.as_str());
    CheckedNamespace {
        name: name(nqn, report.nsid),
        block_bytes: report.block_bytes,
        read_only: report.read_only,
        keeps_identity: !is_memory,
    }
}

fn name(nqn: &str, nsid: u32) -> String {
    format!("{nqn} nsid {nsid}")
}
