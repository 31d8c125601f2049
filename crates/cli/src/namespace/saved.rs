//! Converts running namespaces to tables of a configuration.

use super::{NOWHERE, NamespaceKind, NamespaceSettings};
use crate::args::ClassName;
use crate::rates::RateArgs;
use roadtrain_host_engine::Class;
use roadtrain_manage::model::{
    DeviceKind, ManagedDevice, ManagedModel, RbdAccess, SsdPace, remote_word, show_uuid,
};
#[cfg(feature = "rbd")]
use roadtrain_store::RbdPassphrase;
use roadtrain_store::{RemoteBlocks, StoreKind};
use roadtrain_target_engine::{Export, ExportBlocks, KeptPlace};
use roadtrain_target_proto::NamespaceView;
use std::path::PathBuf;

impl NamespaceSettings {
    /// Returns the table or word for `export`; `None` for blocks that another part of the program has opened.
    pub(crate) fn of_export(export: &Export) -> Option<NamespaceSettings> {
        let ExportBlocks::Spec(store) = &export.blocks else { return None };
        let mut spec = NamespaceSettings::of_store(&store.kind)?;
        (spec.lba, spec.read_only) = (store.lba_bytes, store.read_only);
        spec.standby = export.standby;
        Some(spec.shown_as(export))
    }

    /// Returns the table for a device of the state; `None` for a volume, which only its store has.
    pub(crate) fn of_device(
        (model, device): (&ManagedModel, &ManagedDevice),
        export: &Export,
    ) -> Option<NamespaceSettings> {
        let geometry = device.store.geometry();
        let mut spec = match &device.kind {
            DeviceKind::Malloc => NamespaceSettings::new(NamespaceKind::Mem),
            DeviceKind::Ssd(SsdPace { service_us, parallel }) => NamespaceSettings {
                service_us: Some(*service_us),
                parallel: Some(*parallel),
                ..NamespaceSettings::new(NamespaceKind::Ssd)
            },
            DeviceKind::Null => NamespaceSettings::new(NamespaceKind::Null),
            DeviceKind::Aio(path) | DeviceKind::Uring(path) => {
                let kind =
                    if device.file.is_some() { NamespaceKind::File } else { NamespaceKind::Block };
                NamespaceSettings { path: Some(path.clone()), ..NamespaceSettings::new(kind) }
            }
            DeviceKind::Rbd(of) => {
                let cluster = of.cluster.as_deref().and_then(|name| model.rbd_cluster(name));
                let access = cluster.map_or(&of.access, |cluster| &cluster.access).clone();
                let RbdAccess { id, conf, keyring } = access;
                let image = Some(format!("{}/{}", of.pool, of.image));
                NamespaceSettings {
                    image,
                    id,
                    conf,
                    keyring,
                    passphrase_file: of.passphrase_file.clone(),
                    passphrase_key: of.passphrase_key.clone(),
                    ..NamespaceSettings::new(NamespaceKind::Rbd)
                }
            }
            DeviceKind::Remote(blocks) => NamespaceSettings::of_remote(blocks)?,
            DeviceKind::Volume(_) => return None,
        };
        if device.kind.is_memory() {
            spec.size = Some(geometry.bytes());
        }
        spec.read_only = geometry.read_only;
        if spec.kind != NamespaceKind::Nvme {
            spec.lba = geometry.lba_bytes();
        }
        let mut export = export.clone();
        if matches!(spec.kind, NamespaceKind::Block | NamespaceKind::Rbd | NamespaceKind::Nvme)
            && export.uncorrectable == KeptPlace::Nowhere
        {
            export.uncorrectable = KeptPlace::NextToStore; // the same, as there is no file
        }
        Some(spec.shown_as(&export))
    }

    /// True for blocks that outlive the process, in a file or on a device.
    pub(crate) fn is_stored(&self) -> bool {
        matches!(self.kind, NamespaceKind::File | NamespaceKind::Block)
    }

    fn of_store(kind: &StoreKind) -> Option<NamespaceSettings> {
        let new = NamespaceSettings::new;
        Some(match kind.clone() {
            StoreKind::Memory { size } => {
                NamespaceSettings { size: Some(size), ..new(NamespaceKind::Mem) }
            }
            StoreKind::Null { size } => {
                NamespaceSettings { size: Some(size), ..new(NamespaceKind::Null) }
            }
            StoreKind::Ssd { size, service, parallel } => NamespaceSettings {
                size: Some(size),
                service_us: u32::try_from(service.as_micros()).ok(),
                parallel: Some(parallel),
                ..new(NamespaceKind::Ssd)
            },
            StoreKind::File { path, size, .. } => {
                NamespaceSettings { path: Some(path), size, ..new(NamespaceKind::File) }
            }
            StoreKind::Block { path } => {
                NamespaceSettings { path: Some(path), ..new(NamespaceKind::Block) }
            }
            StoreKind::Remote(blocks) => return NamespaceSettings::of_remote(&blocks),
            #[cfg(feature = "rbd")]
            StoreKind::Rbd(image) => {
                let (passphrase_file, passphrase_key) = match image.passphrase.as_deref() {
                    Some(RbdPassphrase::File(path)) => (Some(path.clone()), None),
                    Some(RbdPassphrase::Key(name)) => (None, Some(name.clone())),
                    None => (None, None),
                };
                NamespaceSettings {
                    image: Some(image.to_string()),
                    conf: image.conf,
                    id: image.id,
                    keyring: image.keyring,
                    passphrase_file,
                    passphrase_key,
                    create: image.create,
                    ..new(NamespaceKind::Rbd)
                }
            }
        })
    }

    /// Returns the settings of blocks over the network, as the command line has them.
    fn of_remote(blocks: &RemoteBlocks) -> Option<NamespaceSettings> {
        remote_word(blocks).parse().ok()
    }

    fn shown_as(mut self, export: &Export) -> NamespaceSettings {
        self.nsid = Some(export.nsid);
        self.uuid = export.uuid.as_ref().map(show_uuid);
        let hex = |id: &[u8; 16]| format!("{:032x}", u128::from_be_bytes(*id));
        self.nguid = export.nguid.as_ref().map(hex);
        self.class = export.class.map(ClassName::from);
        self.rates = RateArgs::from(&export.rates);
        let NamespaceView { hosts, ana_group } = export.view.clone();
        self.hosts = hosts;
        self.ana_group = Some(ana_group).filter(|group| *group != NamespaceView::ALL.ana_group);
        self.reservations = kept_file(&export.reservations);
        self.uncorrectable = kept_file(&export.uncorrectable);
        self.make_paths_absolute();
        self
    }
}

impl From<Class> for ClassName {
    fn from(class: Class) -> ClassName {
        match class {
            Class::Latency => ClassName::Latency,
            Class::Normal => ClassName::Normal,
            Class::Bulk => ClassName::Bulk,
        }
    }
}

fn kept_file(place: &KeptPlace) -> Option<PathBuf> {
    match place {
        KeptPlace::NextToStore | KeptPlace::NextToFile(_) | KeptPlace::InMemory => None,
        KeptPlace::File(path) => Some(path.clone()),
        KeptPlace::Nowhere => Some(NOWHERE.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_written_as_it_is_read() {
        for text in [
            "mem:1MiB,nsid=1,class=latency",
            "null:1TiB,lba=4096,nsid=3,ro,uuid=6b1a5e1c-4c52-4a0e-9d0e-3a4f5b6c7d8e",
            "ssd:1MiB,service-us=20,parallel=8,nsid=4",
            "file:/srv/a,size=1GiB,nsid=2,standby,reservations=/srv/kept,uncorrectable=none",
            "block:/dev/sdb,nsid=7,iops=1000,write-bandwidth=1MiB,burst=1s",
            "mem:1MiB,nsid=9,nguid=00112233445566778899aabbccddeeff",
            "mem:1MiB,nsid=5,hidden,ana-group=7",
            "mem:1MiB,nsid=6,host=nqn.2026-11.test:a,host=nqn.2026-11.test:b",
        ] {
            let export = text.parse::<NamespaceSettings>().unwrap().export().unwrap();
            let written = NamespaceSettings::of_export(&export).unwrap();
            assert_eq!(written.export().unwrap(), export, "{text}");
            assert_eq!(
                written.to_string().parse::<NamespaceSettings>().unwrap(),
                written,
                "{text}"
            );
        }
    }

    #[test]
    #[cfg(feature = "rbd")]
    fn an_image_is_written_with_the_name_of_its_passphrase() {
        for text in [
            "rbd:pool/a,id=gate,passphrase-file=/srv/key,nsid=1,standby",
            "rbd:pool/a,conf=/etc/c,keyring=/etc/k,passphrase-key=disks-a,nsid=1,ro",
        ] {
            let export = text.parse::<NamespaceSettings>().unwrap().export().unwrap();
            let written = NamespaceSettings::of_export(&export).unwrap();
            assert_eq!(written.to_string(), text);
            assert_eq!(written.export().unwrap(), export, "{text}");
        }
    }
}
