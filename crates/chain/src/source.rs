//! Source of a store: the parameters of its connection.

use crate::controller::ChainController;
use crate::store::NvmeStore;
use roadtrain_host_engine::block_operation::BackendRules;
use roadtrain_host_engine::{HostConfig, HostControllerView, TargetAddress};
use roadtrain_store::{OpenError, RemoteContext, RemoteSource, Store};
use std::fmt;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for the addresses of a name, when they are compared with this target's own.
const NAME_WAIT: Duration = Duration::from_secs(2);
/// Maximum NSIDs that a message lists.
const NSIDS_LISTED: usize = 8;

/// Namespace of another target: everything that is needed to connect.
#[derive(Clone)]
pub struct NvmeSource {
    config: HostConfig,
    nsid: u32,
    options: Vec<(&'static str, String)>,
}

impl NvmeSource {
    /// Creates the source of namespace `nsid` in the subsystem of `config`. The number of lanes follows from the target
    /// that uses it. `options` are those of the command line from which the rest of `config` follows; with files instead
    /// of secrets.
    #[must_use]
    pub fn new(config: HostConfig, nsid: u32, options: Vec<(&'static str, String)>) -> NvmeSource {
        NvmeSource { config, nsid, options }
    }

    fn failed(&self, problem: impl fmt::Display) -> OpenError {
        let blocks = format!("{}:{}", self.scheme(), self.location());
        OpenError::Remote { blocks, problem: problem.to_string() }
    }

    /// Checks that no path leads back to the target that uses the store: it would wait for itself.
    fn check_addresses(&self, own: &[SocketAddr]) -> Result<(), OpenError> {
        for path in std::iter::once(&self.config.address).chain(&self.config.more_addresses) {
            let resolved = match path {
                TargetAddress::Tcp(address) => vec![*address],
                TargetAddress::Name(name) => name.known_addresses(NAME_WAIT),
                TargetAddress::Ether(_) => Vec::new(),
            };
            if let Some(address) = resolved.into_iter().find(|address| is_own(*address, own)) {
                return Err(self.failed(format!(
                    "{address} is an address of this target itself: name the blocks of that namespace instead"
                )));
            }
        }
        Ok(())
    }

    /// Returns the advice for a namespace that is not there.
    fn missing(&self, view: &HostControllerView) -> String {
        let namespaces = view.info().namespaces;
        let mut nsids: Vec<String> =
            namespaces.iter().take(NSIDS_LISTED).map(|one| one.nsid.to_string()).collect();
        if namespaces.len() > NSIDS_LISTED {
            nsids.push("..".into());
        }
        let there = match nsids.is_empty() {
            true => "none that this host may use".into(),
            false => nsids.join(", "),
        };
        format!("the subsystem has no namespace {}: it has {there}", self.nsid)
    }
}

impl RemoteSource for NvmeSource {
    fn scheme(&self) -> &'static str {
        "nvme"
    }

    fn location(&self) -> String {
        let HostConfig { address, subsystem_nqn, .. } = &self.config;
        format!("{address}/{subsystem_nqn}/{}", self.nsid)
    }

    fn product(&self) -> &'static str {
        "NVMe disk"
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        self.options.clone()
    }

    fn open(&self, context: &RemoteContext) -> Result<Arc<dyn Store>, OpenError> {
        self.check_addresses(&context.own_addresses)?;
        let HostConfig { address, subsystem_nqn, host_nqn, host_id, .. } = &self.config;
        let key = format!("{address}/{subsystem_nqn} {host_nqn} {host_id:?} {:?}", self.options);
        let controller = ChainController::shared(&key, &self.config, context.threads.as_ref())
            .map_err(|error| self.failed(error))?;
        let usable = self.usable(controller.view());
        let (namespace, rules) = usable.inspect_err(|_| controller.leave_later())?;
        let name = format!("{}:{}", self.scheme(), self.location());
        let parts = (namespace, rules);
        Ok(Arc::new(NvmeStore::new(controller, name, parts, context.read_only)))
    }
}

impl NvmeSource {
    /// Returns the namespace and the rules of its requests.
    ///
    /// # Errors
    /// The namespace is not there, or cannot be served.
    fn usable(
        &self,
        view: &HostControllerView,
    ) -> Result<(roadtrain_host_engine::NamespaceInfo, BackendRules), OpenError> {
        let namespace = view.namespace(self.nsid).ok_or_else(|| self.failed(self.missing(view)))?;
        let rules = BackendRules::of(&view.info(), &namespace);
        let rules = rules.filter(|rules| matches!(rules.lba_shift, 9 | 12)).ok_or_else(|| {
            self.failed(format!(
                "has blocks of {} bytes, and only blocks of 512 or 4096 bytes can be served: format it with one of these",
                namespace.block_bytes
            ))
        })?;
        if namespace.blocks == 0 {
            return Err(self.failed("has no blocks"));
        }
        Ok((namespace, rules))
    }
}

/// True if a listener of `own` accepts connections to `address`.
fn is_own(address: SocketAddr, own: &[SocketAddr]) -> bool {
    let accepts = |listener: &SocketAddr| {
        listener.port() == address.port()
            && (listener.ip() == address.ip()
                || listener.ip().is_unspecified() && is_local(address.ip()))
    };
    own.iter().any(accepts)
}

/// True if this machine has the address.
fn is_local(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Writes no secrets.
impl fmt::Debug for NvmeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NvmeSource({}, {:?})", self.location(), self.options)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_address_of_the_target_itself_is_found() {
        let own = ["127.0.0.1:4420", "[::]:4421"].map(|text| text.parse().unwrap());
        let is_own = |text: &str| super::is_own(text.parse().unwrap(), &own);
        assert!(is_own("127.0.0.1:4420") && is_own("[::1]:4421"));
        assert!(!is_own("127.0.0.1:4422") && !is_own("127.0.0.2:4420"));
        assert!(!is_own("[2001:db8::1]:4421"), "an address of another machine");
    }
}
