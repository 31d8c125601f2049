//! A remote namespace as an NBD export: connects a controller and serves on each of its reactors.

use super::address::NbdAddress;
use super::endpoint::NbdEndpoint;
use super::export::{ExportInfo, NbdExport};
use super::listener::NbdClients;
use super::server::{BUFFER_BYTES_MAX, NbdServer};
use super::tls::NbdTls;
use crate::attachment::{AttachError, AttachedBitmaps, AttachedDevice, Attachment};
use crate::bitmaps::{BitmapSpec, DirtyBitmaps};
use crate::disk::{DiskInfo, IdleFront};
use crate::system_resource::SystemResource;
use roadtrain_host_engine::{HostConfig, HostController, HostControllerView, LaneId};
use std::sync::Arc;

/// Configuration of an NBD attachment.
#[derive(Clone, Debug)]
pub struct NbdConfig {
    /// NSID.
    pub nsid: u32,
    /// Address on which the server listens.
    pub address: NbdAddress,
    /// Allowed clients, over TCP.
    pub clients: NbdClients,
    /// TLS; `None` without it. Over TCP only.
    pub tls: Option<NbdTls>,
    /// Bytes of buffers over all reactors; a reactor has [`BUFFER_BYTES_MIN`](super::BUFFER_BYTES_MIN) at least.
    /// `None`: [`BUFFER_BYTES_MAX`] for each.
    pub buffer_bytes_max: Option<usize>,
    /// Dirty bitmaps: parts of the namespace that this attachment changes.
    pub bitmaps: Vec<BitmapSpec>,
}

impl NbdConfig {
    /// Serves namespace `nsid` at `address`, with defaults for the rest.
    #[must_use]
    pub fn new(nsid: u32, address: NbdAddress) -> Self {
        let (clients, tls, buffer_bytes_max) = (NbdClients::Local, None, None);
        NbdConfig { nsid, address, clients, tls, buffer_bytes_max, bitmaps: Vec::new() }
    }
}

/// A namespace that is served. Dropping it stops the server.
pub struct NbdAttachment {
    controller: HostController,
    endpoint: NbdEndpoint,
}

impl NbdAttachment {
    /// Connects to `host` and serves the namespace of `config`. Clients can connect when this returns. The servers
    /// follow changes of the namespace.
    ///
    /// # Errors
    /// Fails if the controller, the namespace or the address is not available; nothing keeps running.
    ///
    /// # Panics
    /// Never: a controller that connects has made a front.
    pub fn start(host: HostConfig, config: &NbdConfig) -> Result<Self, AttachError> {
        let mut endpoint: Option<Result<NbdEndpoint, AttachError>> = None;
        let controller = HostController::connect(host, |reactor, view| {
            let listening = endpoint.get_or_insert_with(|| listen(config, view));
            let Ok(at) = listening else { return Box::new(IdleFront) };
            match NbdServer::new(at.clone(), LaneId(0)) {
                Ok(server) => {
                    let share = config.buffer_bytes_max.map(|bytes| bytes / reactor.count);
                    let server = server.with_lanes(reactor.lanes);
                    let server = server.with_buffer_bytes_max(share.unwrap_or(BUFFER_BYTES_MAX));
                    Box::new(server.following(view.clone()))
                }
                Err(error) => {
                    *listening = Err(cannot_serve(error));
                    Box::new(IdleFront)
                }
            }
        })?;
        let endpoint = endpoint.expect("a controller has at least one reactor")?;
        Ok(NbdAttachment { controller, endpoint })
    }

    /// Returns the address on which the server listens.
    #[must_use]
    pub fn address(&self) -> &NbdAddress {
        self.endpoint.address()
    }

    /// Returns the export.
    #[must_use]
    pub fn export(&self) -> &NbdExport {
        self.endpoint.export()
    }

    /// Answers the requests in flight, closes all clients' connections, and shuts the controller down.
    pub fn stop(self) {
        self.controller.stop();
        self.controller.join();
        if let Some(bitmaps) = self.endpoint.export().disk().bitmaps() {
            bitmaps.save();
        }
    }
}

impl Attachment for NbdAttachment {
    fn devices(&self) -> Vec<AttachedDevice> {
        let nsid = self.export().disk().info().nsid;
        vec![AttachedDevice { nsid, names: vec![self.endpoint.uri().to_owned()] }]
    }

    fn controller(&self) -> &HostController {
        &self.controller
    }

    fn resources(&self) -> Vec<SystemResource> {
        match self.address() {
            NbdAddress::Unix(path) => vec![SystemResource::Socket(path.clone())],
            NbdAddress::Tcp { .. } => Vec::new(),
        }
    }

    fn bitmaps(&self) -> Option<AttachedBitmaps> {
        let disk = self.export().disk().clone();
        disk.bitmaps().cloned().map(|bitmaps| AttachedBitmaps { bitmaps, disk })
    }

    fn stop(self: Box<Self>) {
        NbdAttachment::stop(*self);
    }
}

fn listen(config: &NbdConfig, view: &HostControllerView) -> Result<NbdEndpoint, AttachError> {
    let info = ExportInfo::from(DiskInfo::of(&view.info(), config.nsid)?);
    let endpoint = NbdEndpoint::bind(&config.address, config.clients, config.tls.as_ref(), info);
    let endpoint = endpoint.map_err(cannot_serve)?;
    if !config.bitmaps.is_empty() {
        let disk = endpoint.export().disk();
        let bitmaps =
            DirtyBitmaps::open(&config.bitmaps, disk.info().bitmap_identity(), disk.bytes());
        disk.keep_bitmaps(Arc::new(bitmaps.map_err(cannot_serve)?));
    }
    Ok(endpoint)
}

fn cannot_serve(source: std::io::Error) -> AttachError {
    AttachError::Show { what: "cannot serve NBD".to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::super::server::harness::NbdTestClient;
    use super::*;
    use roadtrain_store::{StoreKind, StoreSpec};
    use roadtrain_target_engine::{Export, Server, ServerConfig, Subsystem};
    use roadtrain_wire::nbd::{Command, Errno, command_flag};
    use std::path::Path;
    use std::time::{Duration, Instant};

    const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:5a7e0000-0000-4000-8000-000000000001";

    fn memory(size: u64) -> Vec<Subsystem> {
        let kind = StoreKind::Memory { size };
        let store = StoreSpec { kind, lba_bytes: 4096, read_only: false };
        let exports = vec![Export::new(7, store)];
        vec![Subsystem { namespaces: exports, ..Subsystem::new(NQN) }]
    }

    fn target() -> Server {
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        Server::start(ServerConfig::new(listen, memory(8 << 20))).unwrap()
    }

    fn attach(target: &Server, nsid: u32, path: &Path) -> Result<NbdAttachment, AttachError> {
        let mut config = HostConfig::new(target.addresses()[0], NQN, NQN, [1; 16]);
        config.lanes = 2;
        NbdAttachment::start(config, &NbdConfig::new(nsid, NbdAddress::Unix(path.into())))
    }

    #[test]
    fn a_namespace_is_served_over_its_lanes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nbd.sock");
        let target = target();
        let attachment = attach(&target, 7, &path).unwrap();
        assert_eq!(attachment.export().disk().bytes(), 8 << 20);
        let mut clients = [true, false].map(|structured| NbdTestClient::connect(&path, structured));
        let data: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
        assert_eq!(clients[0].write(command_flag::FUA, 1000, &data), Errno::OK);
        assert_eq!(clients[1].call(Command::FLUSH, 0, 0, &[], 0).0, Errno::OK);
        assert!(clients[1].read(1000, 3 << 20) == data);
        assert_eq!(clients[1].read(0, 1000), [0; 1000]);
        assert_eq!(clients[1].call(Command::WRITE_ZEROES, 0, 5000, &[], 10_000).0, Errno::OK);
        assert_eq!(clients[0].read(5000, 10_000), [0; 10_000]);
        assert_eq!(clients[0].read(15_000, 100), data[14_000..14_100]);
        assert_eq!(clients[0].call(Command::TRIM, 0, 0, &[], 8 << 20).0, Errno::OK);
        attachment.stop();
        assert!(!path.exists());
        target.stop();
    }

    #[test]
    fn a_failed_attach_is_explained_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nbd.sock");
        let target = target();
        let error = attach(&target, 1, &path).map(drop).unwrap_err().to_string();
        assert_eq!(error, "the subsystem has no namespace 1; it has 7");
        assert!(!path.exists());
        let attachment = attach(&target, 7, &path).unwrap();
        let error = attach(&target, 7, &path).map(drop).unwrap_err();
        assert!(matches!(error, AttachError::Show { .. }), "{error}");
        assert_eq!(
            NbdTestClient::connect(&path, true).read(0, 1),
            [0],
            "the first one still serves"
        );
        attachment.stop();
        target.stop();
    }

    #[test]
    fn changes_of_the_namespace_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nbd.sock");
        let target = target();
        let attachment = attach(&target, 7, &path).unwrap();
        target.reload(&memory(16 << 20)).unwrap();
        let last = Instant::now() + Duration::from_secs(20);
        while NbdTestClient::connect(&path, true).bytes() != 16 << 20 {
            assert!(Instant::now() < last, "the new size is not seen");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(NbdTestClient::connect(&path, true).read((16 << 20) - 1, 1), [0]);
        attachment.stop();
        target.stop();
    }

    /// A file system that continues with empty blocks loses data, and overwrites existing data.
    #[test]
    fn another_namespace_under_the_number_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nbd.sock");
        let target = target();
        let listen = target.addresses().to_vec();
        let attachment = attach(&target, 7, &path).unwrap();
        let mut client = NbdTestClient::connect(&path, true);
        assert_eq!(client.write(command_flag::FUA, 0, &[5; 4096]), Errno::OK);
        target.stop();
        let target = Server::start(ServerConfig::new(listen, memory(8 << 20))).unwrap();
        // A client that connected while there was no connection to the target waits for it, and is refused then.
        for _ in 0..3 {
            assert_ne!(client.write(command_flag::FUA, 0, &[6; 4096]), Errno::OK);
            assert_ne!(client.call(Command::READ, 0, 0, &[], 4096).0, Errno::OK);
        }
        let last = Instant::now() + Duration::from_secs(20);
        while !attachment.export().disk().is_removed() {
            assert!(Instant::now() < last, "the front does not notice");
            std::thread::sleep(Duration::from_millis(20));
        }
        attachment.stop();
        let other = attach(&target, 7, &path).unwrap();
        assert_eq!(
            NbdTestClient::connect(&path, true).read(0, 4096),
            [0; 4096],
            "nothing was written"
        );
        other.stop();
        target.stop();
    }
}
