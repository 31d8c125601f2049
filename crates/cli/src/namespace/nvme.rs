//! Settings of a namespace of another target.

use super::{NamespaceKind, NamespaceSettings, default_lba, nbd};
use crate::args::{ConnectArgs, KeyArgs};
use crate::config::SettingForm;
use crate::connect;
use crate::usage::closest;
use clap::Parser;
use roadtrain_chain::NvmeSource;
use roadtrain_host_engine::HostConfig;
use roadtrain_store::{RemoteBlocks, StoreKind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

const EXAMPLE: &str = "write nvme:ADDR[:PORT]/NQN/NSID";
const KEY_EXAMPLE: &str = "write remote = \"ADDR[:PORT]/NQN/NSID\"";
/// Default port of targets.
const PORT: u16 = 4420;
/// Option for one more address of the target.
const PATH: &str = "path";
/// Options of the connection, as `attach` has them.
pub(super) const OPTIONS: [&str; 17] = [
    "tls",
    "tls-key",
    "concat",
    "dhchap-secret",
    "dhchap-ctrl-secret",
    "hostnqn",
    "hostid",
    "host-traddr",
    "host-iface",
    "hdgst",
    "ddgst",
    "keep-alive-tmo",
    "connect-timeout",
    "reconnect-delay",
    "io-timeout",
    "ctrl-loss-tmo",
    "fast-io-fail-tmo",
];
/// Options without a value.
const FLAGS: [&str; 4] = ["tls", "concat", "hdgst", "ddgst"];
/// Options whose values are files with secrets.
const SECRETS: [&str; 3] = ["tls-key", "dhchap-secret", "dhchap-ctrl-secret"];

/// Options of the connection to another target, by their names on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConnectSettings(BTreeMap<String, ConnectValue>);

/// Value of an option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum ConnectValue {
    Flag(bool),
    Number(i64),
    Text(String),
}

impl fmt::Display for ConnectValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectValue::Flag(flag) => flag.fmt(f),
            ConnectValue::Number(number) => number.fmt(f),
            ConnectValue::Text(text) => f.write_str(text),
        }
    }
}

/// Options as `attach` reads them.
#[derive(Parser)]
#[command(name = "nvme", no_binary_name = true, disable_help_flag = true)]
struct ConnectWords {
    #[command(flatten)]
    connect: ConnectArgs,
}

impl ConnectSettings {
    /// True if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the options with their values, by the names on the command line, `all`; a flag has an empty value.
    pub(super) fn options(
        &self,
        all: &[&'static str],
    ) -> Result<Vec<(&'static str, String)>, String> {
        let mut options = Vec::new();
        for (key, value) in &self.0 {
            let name = key.replace('_', "-");
            let Some(known) = all.iter().copied().find(|known| *known == name) else {
                return Err(match closest(&name, all.iter().copied()) {
                    Some(close) => format!("connect.{key}: unknown: did you mean {close}?"),
                    None => format!("connect.{key}: unknown: it takes {}", all.join(", ")),
                });
            };
            match value {
                ConnectValue::Flag(false) if FLAGS.contains(&known) => {}
                ConnectValue::Flag(true) if FLAGS.contains(&known) => {
                    options.push((known, String::new()));
                }
                value => options.push((known, value.to_string())),
            }
        }
        Ok(options)
    }

    /// Parses the options as `attach` does.
    fn args(&self) -> Result<ConnectArgs, String> {
        let mut words = Vec::new();
        for (name, value) in self.options(&OPTIONS)? {
            if SECRETS.contains(&name) && crate::keys::file::is_key(&value) {
                return Err(format!("{name}: name a file with the key, not the key"));
            }
            words.push(if value.is_empty() {
                format!("--{name}")
            } else {
                format!("--{name}={value}")
            });
        }
        let has =
            |name: &str| words.iter().any(|word| word.trim_start_matches("--").starts_with(name));
        if has("tls-key=") && !words.iter().any(|word| word == "--tls") {
            words.push("--tls".into());
        }
        let parsed = ConnectWords::try_parse_from(words).map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            first.trim_start_matches("error: ").to_owned()
        })?;
        Ok(parsed.connect)
    }

    /// Returns the values that name files.
    fn files_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let is_file = |name: &str| SECRETS.contains(&name) || nbd::FILES.contains(&name);
        let files = self.0.iter_mut().filter(move |(key, _)| is_file(&key.replace('_', "-")));
        files.filter_map(|(_, value)| match value {
            ConnectValue::Text(text) => Some(text),
            _ => None,
        })
    }
}

/// Parts of `ADDR[:PORT]/NQN/NSID`. An NQN may have slashes.
struct RemoteName<'a> {
    address: &'a str,
    nqn: &'a str,
    nsid: u32,
}

impl<'a> RemoteName<'a> {
    fn parse(text: &'a str, form: SettingForm) -> Result<RemoteName<'a>, String> {
        let example = if form == SettingForm::Key { KEY_EXAMPLE } else { EXAMPLE };
        let wrong = || format!("'{text}' is no namespace of a target: {example}");
        let (address, rest) = text.split_once('/').ok_or_else(wrong)?;
        let (nqn, nsid) = rest.rsplit_once('/').ok_or_else(wrong)?;
        let nsid =
            nsid.parse().ok().filter(|nsid| (1..u32::MAX).contains(nsid)).ok_or_else(wrong)?;
        if address.is_empty() || nqn.is_empty() {
            return Err(wrong());
        }
        Ok(RemoteName { address, nqn, nsid })
    }
}

impl NamespaceSettings {
    /// Returns the settings of a namespace of another target, as on the command line.
    pub(super) fn nvme(location: &str) -> Self {
        let remote = Some(location.to_owned());
        NamespaceSettings { remote, ..NamespaceSettings::new(NamespaceKind::Nvme) }
    }

    pub(super) fn check_remote(&self, form: SettingForm) -> Result<(), String> {
        if self.kind == NamespaceKind::Nbd {
            return self.check_nbd();
        }
        if self.kind != NamespaceKind::Nvme {
            let is_plain =
                self.remote.is_none() && self.paths.is_empty() && self.connect.is_empty();
            return match is_plain {
                true => Ok(()),
                false => Err("remote, paths and connect are for nvme and nbd".into()),
            };
        }
        RemoteName::parse(self.remote.as_deref().unwrap_or_default(), form)?;
        if self.lba != default_lba() {
            return Err(
                "a namespace of another target has its own block size: leave lba out".into()
            );
        }
        if self.reservations.is_some() || self.uncorrectable.is_some() {
            return Err(
                "reservations and marks of another target's namespace are there: leave reservations and uncorrectable out"
                    .into(),
            );
        }
        let args = self.connect.args()?;
        self.config(&args).map(drop)
    }

    /// Returns the options of the connection.
    pub(super) fn connect_options(&self) -> &'static [&'static str] {
        if self.kind == NamespaceKind::Nbd { &nbd::OPTIONS } else { &OPTIONS }
    }

    /// Sets an option of the connection. Returns false for another option.
    pub(super) fn set_connect(&mut self, key: &str, value: Option<&str>) -> bool {
        let is_known = self.connect_options().contains(&key);
        match value {
            Some(address) if key == PATH => self.paths.push(address.to_owned()),
            Some(text) if is_known && !FLAGS.contains(&key) => {
                let number = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
                let number = number.map(ConnectValue::Number);
                let value = number.unwrap_or_else(|| ConnectValue::Text(text.to_owned()));
                self.connect.0.insert(key.replace('-', "_"), value);
            }
            None if is_known && FLAGS.contains(&key) => {
                self.connect.0.insert(key.replace('-', "_"), ConnectValue::Flag(true));
            }
            _ => return false,
        }
        true
    }

    /// Returns the configuration of the connection, without keys.
    fn config(&self, args: &ConnectArgs) -> Result<HostConfig, String> {
        let name = RemoteName::parse(self.remote.as_deref().unwrap_or_default(), SettingForm::Key)?;
        let plain = ConnectArgs {
            tls: false,
            concat: false,
            tls_key: None,
            keys: KeyArgs::default(),
            ..args.clone()
        };
        self.config_with(&name, &plain)
    }

    fn config_with(&self, name: &RemoteName<'_>, args: &ConnectArgs) -> Result<HostConfig, String> {
        let address = |text: &str| {
            connect::tcp_address(text, PORT).map_err(|failure| failure.message.replace("-a ", ""))
        };
        let first = address(name.address)?;
        let config =
            connect::config_at(first, name.nqn, args).map_err(|failure| failure.message)?;
        let mut more_addresses = Vec::new();
        for text in &self.paths {
            let path = address(text)?;
            let is_known = |known: &_| known == &path.to_string();
            let all = std::iter::once(&config.address).chain(&more_addresses);
            if all.map(ToString::to_string).any(|known| is_known(&known)) {
                return Err(format!("{path} is given twice"));
            }
            more_addresses.push(path);
        }
        Ok(HostConfig { more_addresses, ..config })
    }

    /// Converts the settings for the engine. Reads the files of keys.
    pub(super) fn remote_store(&self) -> Result<StoreKind, String> {
        self.remote_blocks().map(StoreKind::Remote)
    }

    /// Parses blocks over the network, as on the command line.
    pub(crate) fn parse_remote(word: &str) -> Result<RemoteBlocks, String> {
        word.parse::<NamespaceSettings>()?.remote_blocks()
    }

    /// Returns the blocks over the network. Reads the files of keys.
    pub(crate) fn remote_blocks(&self) -> Result<RemoteBlocks, String> {
        if self.kind == NamespaceKind::Nbd {
            return self.nbd_blocks();
        }
        let name = RemoteName::parse(self.remote.as_deref().unwrap_or_default(), SettingForm::Key)?;
        let config = self.config_with(&name, &self.connect.args()?)?;
        let paths = config.more_addresses.iter().map(|path| (PATH, path.to_string()));
        let options = paths.chain(self.connect.options(&OPTIONS)?).collect();
        Ok(RemoteBlocks::new(NvmeSource::new(config, name.nsid, options)))
    }

    /// Makes the names of files absolute.
    pub(super) fn make_connect_paths_absolute(&mut self) {
        self.make_socket_absolute();
        for file in self.connect.files_mut() {
            let absolute = std::path::absolute(&*file).unwrap_or_else(|_| PathBuf::from(&*file));
            *file = absolute.to_string_lossy().into_owned();
        }
    }

    /// Returns the files with keys.
    pub(crate) fn connect_files(&self) -> Vec<PathBuf> {
        let mut connect = self.connect.clone();
        let files = connect.files_mut().map(|file| PathBuf::from(&*file));
        files.chain(self.socket()).collect()
    }

    pub(super) fn write_remote(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name(), self.remote.as_deref().unwrap_or_default())?;
        self.paths.iter().try_for_each(|path| write!(f, ",{PATH}={path}"))?;
        for (key, value) in &self.connect.0 {
            let name = key.replace('_', "-");
            match value {
                ConnectValue::Flag(true) => write!(f, ",{name}")?,
                ConnectValue::Flag(false) => {}
                value => write!(f, ",{name}={value}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NQN: &str = "nqn.2024-01.test:a/b";

    fn parse(options: &str) -> Result<NamespaceSettings, String> {
        format!("nvme:192.0.2.1:4421/{NQN}/7{options}").parse()
    }

    #[test]
    fn a_namespace_of_another_target_has_the_options_of_attach() {
        let options =
            ",path=192.0.2.2,ctrl-loss-tmo=60,fast-io-fail-tmo=-1,hdgst,keep-alive-tmo=1,nsid=3";
        let settings = parse(options).unwrap();
        let exported = settings.export().unwrap();
        let roadtrain_target_engine::ExportBlocks::Spec(spec) = &exported.blocks else { panic!() };
        let StoreKind::Remote(blocks) = &spec.kind else { panic!("{spec:?}") };
        assert_eq!(blocks.to_string(), format!("nvme:192.0.2.1:4421/{NQN}/7"));
        let again = NamespaceSettings::of_export(&exported).unwrap();
        assert_eq!(again.export().unwrap(), exported, "it is written as it is read");
        let table = toml::to_string(&settings).unwrap();
        assert_eq!(toml::from_str::<NamespaceSettings>(&table).unwrap(), settings, "{table}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (options, why) in [
            (",ctrl-loss-tmo=x", "--ctrl-loss-tmo"),
            (",ctrl-los-tmo=1", "ctrl-loss-tmo"),
            (",path=192.0.2.1:4421", "given twice"),
            (",lba=4096", "its own block size"),
            (",size=1GiB", "its own size"),
            (",standby", "standby is for"),
            (",reservations=none", "are there"),
            (",dhchap-secret=DHHC-1:00:abc:", "name a file"),
        ] {
            let error = parse(options).and_then(|settings| settings.export()).expect_err(options);
            assert!(error.contains(why), "{options}: {error}");
        }
        for text in [
            "nvme:",
            "nvme:192.0.2.1/nqn.2024-01.test:a",
            "nvme:192.0.2.1/nqn.x:y/0",
            "nvme:/nqn.x:y/1",
        ] {
            let error = text.parse::<NamespaceSettings>().expect_err(text);
            assert!(error.contains("ADDR[:PORT]/NQN/NSID"), "{text}: {error}");
        }
        let error = "mem:1MiB,path=192.0.2.1".parse::<NamespaceSettings>().unwrap_err();
        assert!(error.contains("for nvme"), "{error}");
    }
}
