//! Source of a store: the parameters of its connections.

use crate::link::NbdLink;
use crate::{NbdServerAddress, NbdStore, NbdStoreSettings};
use roadtrain_proto::digest::digest;
use roadtrain_store::{OpenError, RemoteContext, RemoteSource, Store};
use roadtrain_system::machine::machine;
use roadtrain_wire::nbd::check_string;
use std::path::absolute;
use std::sync::Arc;

/// Maximum number of connections by default.
const CONNECTIONS: usize = 4;

/// Export of an NBD server: everything that is needed to connect.
#[derive(Clone, Debug)]
pub struct NbdSource {
    address: NbdServerAddress,
    settings: NbdStoreSettings,
    options: Vec<(&'static str, String)>,
}

impl NbdSource {
    /// Creates the source of an export. `options` are those of the command line from which `settings` follow.
    ///
    /// # Errors
    /// Settings that contradict each other, or that the protocol does not allow.
    pub fn new(
        address: NbdServerAddress,
        settings: NbdStoreSettings,
        options: Vec<(&'static str, String)>,
    ) -> Result<NbdSource, String> {
        if check_string(settings.export.as_bytes()).is_err() {
            return Err("export: a name has 4096 bytes at most, and no NUL".into());
        }
        if settings.tls.is_some() && matches!(address, NbdServerAddress::Unix(_)) {
            return Err("a Unix socket has no TLS: leave the options of TLS out".into());
        }
        if settings.connections == Some(0) {
            return Err("connections=0: one at least is needed".into());
        }
        Ok(NbdSource { address, settings, options })
    }

    /// Returns the identity of the export. NBD has none, so it follows from the address and the name.
    fn identity(&self) -> u128 {
        let place = match &self.address {
            NbdServerAddress::Unix(path) => {
                let path = absolute(path).unwrap_or_else(|_| path.clone());
                NbdServerAddress::Unix(path).to_string()
            }
            address => address.to_string(),
        };
        let machine = if self.address.is_local() { machine() } else { 0 };
        let export = self.settings.export.as_bytes();
        digest(&[b"nbd\0", &machine.to_be_bytes(), place.as_bytes(), b"\0", export])
    }

    fn name(&self) -> String {
        format!("{}:{}", self.scheme(), self.location())
    }
}

impl RemoteSource for NbdSource {
    fn scheme(&self) -> &'static str {
        "nbd"
    }

    fn location(&self) -> String {
        self.address.to_string()
    }

    fn product(&self) -> &'static str {
        "NBD disk"
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        self.options.clone()
    }

    fn open(&self, context: &RemoteContext) -> Result<Arc<dyn Store>, OpenError> {
        let NbdStoreSettings { export, tls, connections, connect_timeout, lba_bytes, .. } =
            self.settings.clone();
        let reactors = context.threads.as_ref().map_or(1, |threads| threads.count());
        let connections = connections.unwrap_or(reactors.clamp(1, CONNECTIONS));
        let address = self.address.clone();
        let link = NbdLink { address, export, tls, connections, connect_timeout, lba_bytes };
        let identity = self.identity();
        let opened =
            NbdStore::open(self.name(), link, &self.settings, (identity, context.read_only));
        opened
            .map(|store| Arc::new(store) as Arc<dyn Store>)
            .map_err(|problem| OpenError::Remote { blocks: self.name(), problem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NbdTlsFiles;

    fn source(address: &str, export: &str) -> Result<NbdSource, String> {
        let settings = NbdStoreSettings { export: export.into(), ..NbdStoreSettings::default() };
        NbdSource::new(address.parse().unwrap(), settings, Vec::new())
    }

    #[test]
    fn an_identity_follows_address_and_export() {
        let of = |address, export| source(address, export).unwrap().identity();
        let first = of("unix:/run/x", "");
        assert_eq!(first, of("unix:/run/x", ""));
        assert_ne!(first, of("unix:/run/y", ""));
        assert_ne!(first, of("unix:/run/x", "a"));
        assert_ne!(of("tcp:192.0.2.1:1", "a"), of("tcp:192.0.2.1:2", "a"));
    }

    #[test]
    fn settings_are_checked() {
        assert!(source("unix:/x", "a\0").unwrap_err().contains("export"));
        let tls = Some(NbdTlsFiles::Keys { path: "x".into(), user: None });
        let settings = NbdStoreSettings { tls, ..NbdStoreSettings::default() };
        let error = NbdSource::new("unix:/x".parse().unwrap(), settings, Vec::new()).unwrap_err();
        assert!(error.contains("no TLS"), "{error}");
    }

    #[test]
    fn a_missing_server_is_named() {
        let missing = source("unix:/nowhere/x.sock", "").unwrap();
        let error = missing.open(&RemoteContext::default()).unwrap_err().to_string();
        assert!(error.contains("nbd:unix:/nowhere/x.sock"), "{error}");
    }
}
