//! Configuration of a group of gateways: the same tables as in the configuration file of `serve`.

use crate::args::{CephArgs, TlsMode};
use crate::config::{HostSpec, ServeConfig, SubsystemSettings};
use crate::failure::CommandResult;
use crate::keys::authentication::AuthenticationSpec;
use crate::namespace::{NamespaceKind, NamespaceSettings};
use crate::tls::TlsSpec;
use roadtrain_store::RbdImage;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Address that completes a group's tables to a configuration of `serve`.
const SOMEWHERE: &str = "address = \"127.0.0.1\"\n";

/// A group's tables. They have the keys themselves, not file names, so they are never printed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GroupConfig {
    /// Authentication of hosts.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) authentication: AuthenticationSpec,
    /// Keys of hosts for TLS; each gateway has its own listeners with TLS.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) tls: TlsSpec,
    /// Keys of hosts for authentication.
    #[serde(rename = "host", skip_serializing_if = "Vec::is_empty")]
    pub(crate) hosts: Vec<HostSpec>,
    /// Subsystems to serve.
    #[serde(rename = "subsystem", skip_serializing_if = "Vec::is_empty")]
    pub(crate) subsystems: Vec<SubsystemSettings>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl GroupConfig {
    /// Parses the text in the group's object.
    ///
    /// # Errors
    /// The text has another form.
    pub(crate) fn parse(text: &str) -> Result<GroupConfig, String> {
        // TOML's full error shows the line, which may contain a key.
        toml::from_str(text).map_err(|error: toml::de::Error| error.message().to_owned())
    }

    /// Formats the tables as TOML.
    #[must_use]
    pub(crate) fn to_toml(&self) -> String {
        // Cannot fail: strings, numbers, bools, lists and tables, tables last.
        toml::to_string(self).unwrap_or_default()
    }

    /// Checks that a gateway could serve the configuration, without access to the cluster.
    ///
    /// # Errors
    /// The first error.
    pub(crate) fn check(&self) -> CommandResult {
        self.check_images().map_err(crate::CommandFailure::usage)?;
        let mut text = self.clone();
        text.tls.mode = if self.tls.keys.is_empty() { TlsMode::Off } else { TlsMode::Allowed };
        let config = ServeConfig::parse_group(&format!("{SOMEWHERE}{}", text.to_toml()));
        config.map_err(crate::CommandFailure::usage)?.server().map(drop)
    }

    /// Checks that namespaces are images, and that no two have the same image.
    fn check_images(&self) -> Result<(), String> {
        let mut images = BTreeSet::new();
        for (nqn, namespace) in self.namespaces() {
            let has_own_access =
                namespace.conf.is_some() || namespace.id.is_some() || namespace.keyring.is_some();
            let image = image_of(namespace);
            let wrong = match namespace {
                _ if namespace.kind != NamespaceKind::Rbd => {
                    "a group serves images that all its gateways reach: write rbd:POOL/IMAGE"
                }
                _ if has_own_access => {
                    "each gateway has conf, id and keyring of its own: give it --ceph-conf, --ceph-id and --ceph-keyring"
                }
                _ if namespace.standby => {
                    "gateways stand by for one another anyway: leave standby out"
                }
                _ if namespace.passphrase_file.as_ref().is_some_and(|path| path.is_relative()) => {
                    "the file of passphrase-file is at each gateway: write its whole path"
                }
                _ if namespace.kept_files().next().is_some() => {
                    "a file for reservations or marks is at one gateway only: leave reservations and uncorrectable out"
                }
                _ if !namespace.read_only && !images.insert(image) => "this image exists already",
                _ => continue,
            };
            return Err(format!("subsystem {nqn}: {namespace}: {wrong}"));
        }
        Ok(())
    }

    /// Returns all namespaces with their subsystems' NQNs.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = (&str, &NamespaceSettings)> {
        self.subsystems
            .iter()
            .flat_map(|subsystem| subsystem.namespaces.iter().map(|one| (&*subsystem.nqn, one)))
    }

    /// Returns the configuration of a gateway with the options of `own`.
    ///
    /// # Errors
    /// This gateway cannot serve it: it listens without TLS, for example.
    pub(crate) fn served_by(
        &self,
        own: &ServeConfig,
        ceph: &CephArgs,
    ) -> Result<ServeConfig, String> {
        let mut subsystems = self.subsystems.clone();
        for namespace in subsystems.iter_mut().flat_map(|subsystem| &mut subsystem.namespaces) {
            namespace.conf.clone_from(&ceph.ceph_conf);
            namespace.id.clone_from(&ceph.ceph_id);
            namespace.keyring.clone_from(&ceph.ceph_keyring);
            // The command that added the image has created it.
            namespace.create = None;
            // All gateways can access the image; one has the exclusive lock.
            namespace.standby = !namespace.read_only && !image_of(namespace).contains('@');
        }
        let tls = own.tls.clone().map(|tls| TlsSpec { keys: self.tls.keys.clone(), ..tls });
        let config = ServeConfig {
            subsystems,
            tls,
            hosts: self.hosts.clone(),
            authentication: self.authentication.clone(),
            ..own.clone()
        };
        config.check_of_group()?;
        Ok(config)
    }
}

fn image_of(namespace: &NamespaceSettings) -> &str {
    namespace.image.as_deref().unwrap_or_default()
}

/// Returns the cluster access for images of a group.
pub(crate) fn place(pool: &str, ceph: &CephArgs) -> RbdImage {
    RbdImage {
        pool: pool.to_owned(),
        conf: ceph.ceph_conf.clone(),
        id: ceph.ceph_id.clone(),
        keyring: ceph.ceph_keyring.clone(),
        ..RbdImage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(namespace: &str) -> GroupConfig {
        let text = format!(
            "[[subsystem]]\nnqn = \"nqn.x:y\"\n[[subsystem.namespace]]\nnsid = 1\n{namespace}\n"
        );
        GroupConfig::parse(&text).unwrap()
    }

    #[test]
    fn a_group_has_images_only() {
        group("kind = \"rbd\"\nimage = \"disks/a\"").check().unwrap();
        group("kind = \"rbd\"\nimage = \"disks/a\"\npassphrase_file = \"/etc/k\"").check().unwrap();
        GroupConfig::default().check().unwrap();
        for (namespace, why) in [
            ("kind = \"mem\"\nsize = 4096", "write rbd:POOL/IMAGE"),
            ("kind = \"file\"\npath = \"/x\"", "write rbd:POOL/IMAGE"),
            ("kind = \"rbd\"\nimage = \"disks/a\"\nid = \"me\"", "--ceph-id"),
            (
                "kind = \"rbd\"\nimage = \"disks/a\"\npassphrase_file = \"k\"",
                "write its whole path",
            ),
            ("kind = \"rbd\"\nimage = \"disks/a\"\nstandby = true", "leave standby out"),
            (
                "kind = \"rbd\"\nimage = \"disks/a\"\nreservations = \"/x\"",
                "leave reservations and uncorrectable out",
            ),
            ("kind = \"rbd\"\nimage = \"disks\"", "POOL/IMAGE"),
            (
                "kind = \"rbd\"\nimage = \"disks/a\"\n[[subsystem.namespace]]\nnsid = 2\nkind = \"rbd\"\nimage = \"disks/a\"",
                "exists already",
            ),
        ] {
            let error = group(namespace).check().unwrap_err();
            assert!(error.message.contains(why), "{namespace}: {}", error.message);
        }
    }

    #[test]
    fn it_is_written_as_it_is_read() {
        let text = "[tls.keys]\n\"nqn.x:h\" = \"NVMeTLSkey-1:\"\n[[host]]\nnqn = \"nqn.x:h\"\ndhchap_key = \"DHHC-1:\"\n\
            [[subsystem]]\nnqn = \"nqn.x:y\"\nserial = \"7\"\nallow_hosts = [\"nqn.x:h\"]\n\
            [[subsystem.namespace]]\nnsid = 1\nkind = \"rbd\"\nimage = \"disks/a\"\nlba = 4096\n";
        let config = GroupConfig::parse(text).unwrap();
        assert!(GroupConfig::parse(&config.to_toml()).unwrap() == config);
    }

    /// Errors of a group's object do not show the rest of the line.
    #[test]
    fn errors_do_not_show_keys() {
        let error =
            GroupConfig::parse("[[host]]\nnqn = \"nqn.x:h\"\ndhchap_kye = \"DHHC-1:secret\"\n")
                .err()
                .unwrap();
        assert!(error.contains("dhchap_kye") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn each_gateway_reaches_images_in_its_own_way() {
        let own =
            ServeConfig::parse("address = \"::1\"\n[[subsystem]]\nnqn = \"nqn.x:none\"\n").unwrap();
        let ceph = CephArgs { ceph_id: Some("gate".into()), ..CephArgs::default() };
        let served = |namespace| group(namespace).served_by(&own, &ceph).unwrap();
        let config = served("kind = \"rbd\"\nimage = \"disks/a\"\npassphrase_key = \"a\"");
        let namespace = &config.subsystems[0].namespaces[0];
        assert_eq!(namespace.passphrase_key.as_deref(), Some("a"));
        let config = served("kind = \"rbd\"\nimage = \"disks/a\"\ncreate = 4096");
        let namespace = &config.subsystems[0].namespaces[0];
        assert_eq!((namespace.id.as_deref(), namespace.create), (Some("gate"), None));
        assert_eq!(config.address, own.address);
    }
}
