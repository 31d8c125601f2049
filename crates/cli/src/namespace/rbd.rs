//! Settings of an image of a Ceph cluster.

use super::{NamespaceKind, NamespaceSettings};
use crate::config::SettingForm;
use roadtrain_store::StoreKind;
use std::fmt;

const EXAMPLE: &str = "write rbd:POOL/IMAGE, rbd:POOL/NAMESPACE/IMAGE or rbd:POOL/IMAGE@SNAPSHOT";
const KEY_EXAMPLE: &str =
    "write image = \"POOL/IMAGE\", \"POOL/NAMESPACE/IMAGE\" or \"POOL/IMAGE@SNAPSHOT\"";

/// The parts of an image's name.
#[cfg_attr(not(feature = "rbd"), expect(dead_code, reason = "only checked then"))]
struct RbdImageName<'a> {
    pool: &'a str,
    namespace: Option<&'a str>,
    image: &'a str,
    snapshot: Option<&'a str>,
}

impl<'a> RbdImageName<'a> {
    fn parse(text: &'a str, form: SettingForm) -> Result<Self, String> {
        let (path, snapshot) =
            text.split_once('@').map_or((text, None), |(path, snapshot)| (path, Some(snapshot)));
        let parts: Vec<&str> = path.split('/').collect();
        let is_whole = parts.iter().chain(&snapshot).all(|part| !part.is_empty());
        match (&parts[..], is_whole) {
            (&[pool, image], true) => Ok(RbdImageName { pool, namespace: None, image, snapshot }),
            (&[pool, namespace, image], true) => {
                Ok(RbdImageName { pool, namespace: Some(namespace), image, snapshot })
            }
            _ => {
                let example = if form == SettingForm::Key { KEY_EXAMPLE } else { EXAMPLE };
                Err(format!("'{text}' is no image: {example}"))
            }
        }
    }
}

impl NamespaceSettings {
    pub(super) fn check_image(&self, form: SettingForm) -> Result<(), String> {
        if self.kind != NamespaceKind::Rbd {
            let is_plain = self.conf.is_none() && self.id.is_none() && self.keyring.is_none();
            let is_open = self.passphrase_file.is_none() && self.passphrase_key.is_none();
            return match is_plain && is_open && self.create.is_none() && self.image.is_none() {
                true => Ok(()),
                false => {
                    Err("conf, id, keyring, create, a passphrase and an image are for rbd".into())
                }
            };
        }
        self.check_passphrase(form)?;
        let name = RbdImageName::parse(self.image.as_deref().unwrap_or_default(), form)?;
        if self.standby && name.snapshot.is_some() {
            return Err("standby is for writers: several may read a snapshot".into());
        }
        match self.create {
            Some(_) if name.snapshot.is_some() => {
                Err("a snapshot is there or not: leave create out".into())
            }
            Some(0) => Err(format!("{} is no image", form.value("create", 0))),
            Some(size) if size % u64::from(self.lba) != 0 => {
                let create = form.value("create", size);
                Err(format!("{create} is not a multiple of the block size, {}", self.lba))
            }
            _ => Ok(()),
        }
    }

    fn check_passphrase(&self, form: SettingForm) -> Result<(), String> {
        let (file, key) = (form.name("passphrase_file"), form.name("passphrase_key"));
        let create = form.name("create");
        match (&self.passphrase_file, &self.passphrase_key) {
            (Some(_), Some(_)) => Err(format!("{file} and {key}: leave one of both out")),
            (Some(path), _) if path.as_os_str().is_empty() => {
                Err(format!("{file} needs the name of a file"))
            }
            (_, Some(name)) if name.is_empty() => Err(format!("{key} needs the name of a key")),
            (None, None) => Ok(()),
            _ if self.create.is_some() => Err(format!(
                "{create} makes no encrypted image: leave it out, and use `rbd create` and `rbd encryption format`"
            )),
            _ => Ok(()),
        }
    }

    /// Returns the source of the passphrase of an encrypted image.
    #[cfg(feature = "rbd")]
    fn passphrase(&self) -> Option<Box<roadtrain_store::RbdPassphrase>> {
        use roadtrain_store::RbdPassphrase;
        let file = self.passphrase_file.clone().map(RbdPassphrase::File);
        file.or_else(|| self.passphrase_key.clone().map(RbdPassphrase::Key)).map(Box::new)
    }

    /// Converts the settings for the engine.
    #[cfg(feature = "rbd")]
    pub(super) fn image_store(&self) -> Result<StoreKind, String> {
        let name =
            RbdImageName::parse(self.image.as_deref().unwrap_or_default(), SettingForm::Key)?;
        Ok(StoreKind::Rbd(roadtrain_store::RbdImage {
            pool: name.pool.into(),
            namespace: name.namespace.map(str::to_owned),
            image: name.image.into(),
            snapshot: name.snapshot.map(str::to_owned),
            conf: self.conf.clone(),
            conf_by_rpc: false,
            id: self.id.clone(),
            keyring: self.keyring.clone(),
            passphrase: self.passphrase(),
            create: self.create,
            shared: self.standby,
        }))
    }

    #[cfg(not(feature = "rbd"))]
    pub(super) fn image_store(&self) -> Result<StoreKind, String> {
        Err("this program was built without images of Ceph clusters (feature rbd)".into())
    }

    pub(super) fn write_image(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rbd:{}", self.image.as_deref().unwrap_or_default())?;
        if let Some(conf) = &self.conf {
            write!(f, ",conf={}", conf.display())?;
        }
        if let Some(id) = &self.id {
            write!(f, ",id={id}")?;
        }
        if let Some(keyring) = &self.keyring {
            write!(f, ",keyring={}", keyring.display())?;
        }
        if let Some(file) = &self.passphrase_file {
            write!(f, ",passphrase-file={}", file.display())?;
        }
        if let Some(key) = &self.passphrase_key {
            write!(f, ",passphrase-key={key}")?;
        }
        match self.create {
            Some(size) => write!(f, ",create={size}"),
            None => Ok(()),
        }
    }
}
