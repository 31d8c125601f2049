//! Brings a side up: server, client, the file that the client shows, and the loop device over it.

use super::cpu::SideProcesses;
use super::side::AppSide;
use crate::command::{self, run};
use crate::service::{Service, free_port};
use crate::undo::{LabLoopDevice, LabMount, is_mounted};
use anyhow::{Context, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// QEMU's export (7.2) mixes up the data of concurrent requests of 512 KiB and more.
const QEMU_REQUEST_KIB: usize = 128;
/// Name of tgt's target.
const IQN: &str = "iqn.2026-11.test:apps";
const LIMIT: Duration = Duration::from_secs(20);

/// Where sides are brought up.
pub(super) struct Site<'a> {
    /// The product.
    pub(super) program: &'a Path,
    /// For sockets, logs and mount points.
    pub(super) work: &'a Path,
    /// A tmpfs, for data.
    pub(super) store: &'a Path,
    /// Size of each device.
    pub(super) bytes: u64,
}

/// A side that is up.
pub(super) struct Stack {
    /// The file, as the client shows it.
    pub(super) file: PathBuf,
    /// The loop device over it.
    pub(super) device: PathBuf,
    /// The processes behind it.
    pub(super) parties: SideProcesses,
    /// In the order in which they are to go.
    _parts: Vec<StackPart>,
}

/// Something that ends when it is dropped.
#[expect(dead_code, reason = "kept for their ends")]
enum StackPart {
    LoopDevice(LabLoopDevice),
    Mount(LabMount),
    Service(Service),
}

/// A file that a client shows.
struct ClientFile {
    file: PathBuf,
    /// In the order in which they are to go.
    parts: Vec<StackPart>,
}

impl Stack {
    /// Brings it up.
    pub(super) fn up(side: AppSide, site: &Site) -> anyhow::Result<Self> {
        let folder = site.work.join(side.id());
        fs::create_dir(&folder)?;
        let place = StackSite { site, folder: &folder, id: side.id() };
        match side {
            AppSide::Local => place.local(),
            AppSide::Roadtrain(policy) => place.roadtrain(policy),
            AppSide::Nbdfuse => {
                let (server, port) = place.nbdkit()?;
                let shown = place.nbdfuse(&format!("nbd://127.0.0.1:{port}"))?;
                Self::over(shown, server, None)
            }
            // Its export does nothing for a hole to be punched, and says that it has, unless discards are
            // passed on: then file systems find old data where they expect zeroes.
            AppSide::Qemu => {
                let (server, port) = place.nbdkit()?;
                let node = format!(
                    "driver=nbd,node-name=disk,server.type=inet,server.host=127.0.0.1,\
                     server.port={port},cache.direct=on,discard=unmap"
                );
                Self::over(place.qemu(&node)?, server, Some(QEMU_REQUEST_KIB))
            }
            AppSide::Tgt => {
                let (server, port) = place.tgt()?;
                let node = format!(
                    "driver=iscsi,node-name=disk,transport=tcp,portal=127.0.0.1:{port},\
                     target={IQN},lun=1,cache.direct=on,discard=unmap"
                );
                Self::over(place.qemu(&node)?, server, Some(QEMU_REQUEST_KIB))
            }
        }
    }

    /// With a loop device, whose requests may be limited.
    fn over(
        shown: ClientFile,
        server: Service,
        request_kib: Option<usize>,
    ) -> anyhow::Result<Self> {
        let mut loop_device = LabLoopDevice::new(&shown.file)?;
        if let Some(kib) = request_kib {
            loop_device.limit_requests(kib)?;
        }
        let device = loop_device.path().to_owned();
        let parties = parties(&shown.parts, &server);
        let mut parts = vec![StackPart::LoopDevice(loop_device)];
        parts.extend(shown.parts);
        parts.push(StackPart::Service(server));
        Ok(Self { file: shown.file, device, parties, _parts: parts })
    }
}

/// Where one side is brought up.
struct StackSite<'a> {
    site: &'a Site<'a>,
    folder: &'a Path,
    id: &'a str,
}

impl StackSite<'_> {
    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(name).with_extension("log")
    }

    /// A file of the device's size in the tmpfs.
    fn backing(&self) -> anyhow::Result<PathBuf> {
        let path = self.site.store.join(self.id).with_extension("img");
        File::create(&path)?.set_len(self.site.bytes)?;
        Ok(path)
    }

    fn local(&self) -> anyhow::Result<Stack> {
        let file = self.backing()?;
        let loop_device = LabLoopDevice::new(&file)?;
        let device = loop_device.path().to_owned();
        let parties = SideProcesses::default();
        Ok(Stack { file, device, parties, _parts: vec![StackPart::LoopDevice(loop_device)] })
    }

    fn serve(&self, policy: &str) -> anyhow::Result<(Service, String)> {
        let (port, bytes) = (free_port()?, self.site.bytes);
        let portal = format!("-a 127.0.0.1 -s {port} -n nqn.2026-11.test:apps-{}", self.id);
        let line = format!("serve {portal} --namespace mem:{bytes} --policy {policy}");
        let mut command = Command::new(self.site.program);
        let mut server = Service::start(command.args(line.split(' ')), &self.log("serve"))?;
        server.until_line("ready")?;
        Ok((server, portal))
    }

    fn attach(&self, portal: &str, policy: &str, front: &str) -> anyhow::Result<(Service, String)> {
        let line = format!("attach {portal} --policy {policy} {front}");
        let mut command = Command::new(self.site.program);
        let mut client = Service::start(command.args(line.split(' ')), &self.log("attach"))?;
        let ready = client.until_line("ready")?;
        Ok((client, ready))
    }

    fn roadtrain(&self, policy: &str) -> anyhow::Result<Stack> {
        let (server, portal) = self.serve(policy)?;
        let folder = self.mount_point()?;
        let mount = LabMount::by_others(&folder);
        let front = format!("--as fuse:{} --loop", folder.display());
        let (client, ready) = self.attach(&portal, policy, &front)?;
        let (file, device) = shown(&ready, &folder).with_context(|| format!("it said: {ready}"))?;
        // The client undoes its loop device and its mount itself.
        let mut parts = vec![StackPart::Service(client), StackPart::Mount(mount)];
        let parties = parties(&parts, &server);
        parts.push(StackPart::Service(server));
        Ok(Stack { file, device, parties, _parts: parts })
    }

    fn nbdkit(&self) -> anyhow::Result<(Service, u16)> {
        let (port, bytes) = (free_port()?, self.site.bytes);
        let line = format!("nbdkit -f -i 127.0.0.1 -p {port} memory {bytes} allocator=malloc");
        let mut server = Service::start(&mut command::words(&line), &self.log("nbdkit"))?;
        server.until_listening(port)?;
        Ok((server, port))
    }

    fn mount_point(&self) -> anyhow::Result<PathBuf> {
        let folder = self.folder.join("shown");
        fs::create_dir(&folder)?;
        Ok(folder)
    }

    fn nbdfuse(&self, uri: &str) -> anyhow::Result<ClientFile> {
        let folder = self.mount_point()?;
        let (mount, file) = (LabMount::by_others(&folder), folder.join("disk"));
        let mut command = Command::new("nbdfuse");
        let mut client = Service::start(command.arg(&file).arg(uri), &self.log("nbdfuse"))?;
        client.until(|| (is_mounted(&folder) && file.exists()).then_some(()))?;
        // It ends by itself when it is unmounted, and not well otherwise.
        Ok(ClientFile { file, parts: vec![StackPart::Mount(mount), StackPart::Service(client)] })
    }

    fn qemu(&self, node: &str) -> anyhow::Result<ClientFile> {
        let file = self.folder.join("disk");
        File::create(&file)?;
        let mount = LabMount::by_others(&file);
        let export =
            format!("type=fuse,id=export,node-name=disk,mountpoint={},writable=on", file.display());
        let mut command = Command::new("qemu-storage-daemon");
        command.args(["--blockdev", node, "--export", &export]);
        let mut client = Service::start(&mut command, &self.log("qemu"))?;
        client.until(|| is_mounted(&file).then_some(()))?;
        Ok(ClientFile { file, parts: vec![StackPart::Service(client), StackPart::Mount(mount)] })
    }

    fn tgt(&self) -> anyhow::Result<(Service, u16)> {
        let (port, backing) = (free_port()?, self.backing()?);
        let socket = self.folder.join("tgt.sock");
        let line = format!("tgtd -f --iscsi portal=127.0.0.1:{port}");
        let mut command = command::words(&line);
        command.env("TGT_IPC_SOCKET", &socket);
        // It reacts to no other signal.
        let mut server = Service::start(&mut command, &self.log("tgtd"))?.stopped_by(libc::SIGKILL);
        server.until_listening(port)?;
        let backing = backing.display();
        for line in [
            format!("--op new --mode target --tid 1 -T {IQN}"),
            format!("--op new --mode logicalunit --tid 1 --lun 1 -b {backing}"),
            "--op update --mode logicalunit --tid 1 --lun 1 --params thin_provisioning=1"
                .to_owned(),
            "--op bind --mode target --tid 1 -I ALL".to_owned(),
        ] {
            let mut admin = command::words(&format!("tgtadm --lld iscsi {line}"));
            run(admin.env("TGT_IPC_SOCKET", &socket), LIMIT)?;
        }
        Ok((server, port))
    }
}

/// The services among a client's parts, and a server.
fn parties(client: &[StackPart], server: &Service) -> SideProcesses {
    let service = |part: &StackPart| match part {
        StackPart::Service(service) => Some(service.id()),
        _ => None,
    };
    let client = client.iter().filter_map(service).collect();
    SideProcesses { application: Vec::new(), client, server: vec![server.id()] }
}

/// The file, and the loop device that `attach` reports.
fn shown(ready: &str, folder: &Path) -> Option<(PathBuf, PathBuf)> {
    let words = || ready.split_whitespace().map(PathBuf::from);
    let device = words().find(|word| word.starts_with("/dev"))?;
    let named = words().find(|word| word.starts_with(folder) && word != folder);
    Some((named.unwrap_or_else(|| folder.join("nvme0n1")), device))
}

/// Writes to a file through its client, past the page cache: memory that was never written may be the
/// same page throughout.
pub(super) fn fill(file: &Path, pattern: &Path, bytes: u64) -> anyhow::Result<()> {
    ensure!(bytes.is_multiple_of(1 << 20), "whole MiB");
    let line = format!(
        "dd if={} of={} bs=1M count={} oflag=direct conv=notrunc status=none",
        pattern.display(),
        file.display(),
        bytes >> 20
    );
    run(&mut command::words(&line), Duration::from_secs(60)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_attach_says_is_understood() {
        let folder = Path::new("/tmp/x/shown");
        let (file, device) =
            shown("ready /dev/loop3 /tmp/x/shown/nvme0n1 nqn.x:y nsid 1", folder).expect("both");
        assert_eq!(file, Path::new("/tmp/x/shown/nvme0n1"));
        assert_eq!(device, Path::new("/dev/loop3"));
        let (file, _) = shown("ready /dev/loop0 nqn.x:y nsid 1", folder).expect("a device");
        assert_eq!(file, Path::new("/tmp/x/shown/nvme0n1"));
        assert!(shown("ready /tmp/x/shown/nvme0n1 nqn.x:y nsid 1", folder).is_none());
    }
}
