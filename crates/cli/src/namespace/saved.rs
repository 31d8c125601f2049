//! Converts running namespaces to tables of a configuration.

use super::{Kind, NOWHERE, NamespaceSpec};
use crate::args::ClassName;
use crate::rates::RateArgs;
use roadtrain_host_engine::Class;
use roadtrain_manage::model::{Device, DeviceKind, Model, RbdAccess, show_uuid};
use roadtrain_store::StoreKind;
use roadtrain_target_engine::{Blocks, Export, KeptPlace};
use std::path::PathBuf;

impl NamespaceSpec {
    /// Returns the table or word for `export`; `None` for blocks that another part of the program has opened.
    pub(crate) fn of_export(export: &Export) -> Option<NamespaceSpec> {
        let Blocks::Spec(store) = &export.blocks else { return None };
        let mut spec = NamespaceSpec::of_store(&store.kind);
        (spec.lba, spec.read_only) = (store.lba_bytes, store.read_only);
        spec.standby = export.standby;
        Some(spec.shown_as(export))
    }

    /// Returns the table for a device of the state; `None` for a volume, which only its store has.
    pub(crate) fn of_device(
        (model, device): (&Model, &Device),
        export: &Export,
    ) -> Option<NamespaceSpec> {
        let geometry = device.store.geometry();
        let mut spec = match &device.kind {
            DeviceKind::Malloc => NamespaceSpec::new(Kind::Mem),
            DeviceKind::Null => NamespaceSpec::new(Kind::Null),
            DeviceKind::Aio(path) | DeviceKind::Uring(path) => {
                let kind = if device.file.is_some() { Kind::File } else { Kind::Block };
                NamespaceSpec { path: Some(path.clone()), ..NamespaceSpec::new(kind) }
            }
            DeviceKind::Rbd(of) => {
                let cluster = of.cluster.as_deref().and_then(|name| model.rbd_cluster(name));
                let access = cluster.map_or(&of.access, |cluster| &cluster.access).clone();
                let RbdAccess { id, conf, keyring } = access;
                let image = Some(format!("{}/{}", of.pool, of.image));
                NamespaceSpec { image, id, conf, keyring, ..NamespaceSpec::new(Kind::Rbd) }
            }
            DeviceKind::Volume(_) => return None,
        };
        if matches!(spec.kind, Kind::Mem | Kind::Null) {
            spec.size = Some(geometry.bytes());
        }
        (spec.lba, spec.read_only) = (geometry.lba_bytes(), geometry.read_only);
        let kept = KeptPlace::Beside; // the device's default
        Some(spec.shown_as(&Export { uncorrectable: kept, ..export.clone() }))
    }

    /// True for blocks that outlive the process, in a file or on a device.
    pub(crate) fn is_stored(&self) -> bool {
        matches!(self.kind, Kind::File | Kind::Block)
    }

    fn of_store(kind: &StoreKind) -> NamespaceSpec {
        let new = NamespaceSpec::new;
        match kind.clone() {
            StoreKind::Memory { size } => NamespaceSpec { size: Some(size), ..new(Kind::Mem) },
            StoreKind::Null { size } => NamespaceSpec { size: Some(size), ..new(Kind::Null) },
            StoreKind::Ssd { size, service, parallel } => NamespaceSpec {
                size: Some(size),
                service_us: u32::try_from(service.as_micros()).ok(),
                parallel: Some(parallel),
                ..new(Kind::Ssd)
            },
            StoreKind::File { path, size, .. } => {
                NamespaceSpec { path: Some(path), size, ..new(Kind::File) }
            }
            StoreKind::Block { path } => NamespaceSpec { path: Some(path), ..new(Kind::Block) },
            #[cfg(feature = "rbd")]
            StoreKind::Rbd(image) => NamespaceSpec {
                image: Some(image.to_string()),
                conf: image.conf,
                id: image.id,
                keyring: image.keyring,
                create: image.create,
                ..new(Kind::Rbd)
            },
        }
    }

    fn shown_as(mut self, export: &Export) -> NamespaceSpec {
        self.nsid = Some(export.nsid);
        self.uuid = export.uuid.as_ref().map(show_uuid);
        let hex = |id: &[u8; 16]| format!("{:032x}", u128::from_be_bytes(*id));
        self.nguid = export.nguid.as_ref().map(hex);
        self.class = export.class.map(ClassName::from);
        self.rates = RateArgs::from(&export.rates);
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
        KeptPlace::Beside | KeptPlace::BesideFile(_) => None,
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
        ] {
            let export = text.parse::<NamespaceSpec>().unwrap().export().unwrap();
            let written = NamespaceSpec::of_export(&export).unwrap();
            assert_eq!(written.export().unwrap(), export, "{text}");
            assert_eq!(written.to_string().parse::<NamespaceSpec>().unwrap(), written, "{text}");
        }
    }
}
