//! Names of settings in messages: as written in a file or on the command line.

use std::collections::BTreeSet;
use std::fmt::Display;

/// Options with another name than their key.
const OPTIONS: [(&str, &str); 12] = [
    ("address", "--traddr"),
    ("allow_hosts", "--allow-host"),
    ("authentication.groups", "--dhchap-dhgroup"),
    ("authentication.hashes", "--dhchap-hash"),
    ("authentication.required", "--require-auth"),
    ("ether.interfaces", "--traddr"),
    ("file_roots", "--file-root"),
    ("subsystem", "--nqn"),
    ("tls.keyring", "--keyring"),
    ("tls.keys", "--tls-key"),
    ("tls.mode", "--tls"),
    ("port", "--trsvcid"),
];

/// A form of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettingForm {
    /// A key of a file: `service_us = 10`.
    Key,
    /// An option of the command line: `--service-us 10`.
    Option,
    /// A word within the value of an option: `service-us=10`.
    Word,
}

impl SettingForm {
    /// Returns the name of the setting with that key.
    pub(crate) fn name(self, key: &str) -> String {
        let last = || key.rsplit('.').next().unwrap_or(key).replace('_', "-");
        match self {
            SettingForm::Key => key.to_owned(),
            SettingForm::Word => last(),
            SettingForm::Option => {
                let known = OPTIONS.iter().find(|(known, _)| *known == key);
                known.map_or_else(|| format!("--{}", last()), |(_, option)| (*option).to_owned())
            }
        }
    }

    /// Formats a setting with its value.
    pub(crate) fn value(self, key: &str, value: impl Display) -> String {
        let name = self.name(key);
        match self {
            SettingForm::Key => format!("{name} = {value}"),
            SettingForm::Option => format!("{name} {value}"),
            SettingForm::Word => format!("{name}={value}"),
        }
    }

    /// Formats a setting with a text value.
    pub(crate) fn text(self, key: &str, value: &str) -> String {
        match self {
            SettingForm::Key => self.value(key, format!("\"{value}\"")),
            _ => self.value(key, value),
        }
    }
}

/// Source of settings. Configurations compare equal independent of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spelling {
    /// True if all settings are options, not keys of a file.
    is_command_line: bool,
    /// Keys of a file that options have overridden.
    options: BTreeSet<String>,
}

impl PartialEq for Spelling {
    fn eq(&self, _: &Spelling) -> bool {
        true
    }
}

impl Eq for Spelling {}

impl Spelling {
    /// Creates the spelling of settings that are all options.
    pub(crate) fn of_command_line() -> Spelling {
        Spelling { is_command_line: true, ..Spelling::default() }
    }

    /// Records keys that options have set.
    pub(crate) fn set_by_options(&mut self, keys: impl IntoIterator<Item = String>) {
        self.options.extend(keys);
    }

    /// True if all settings are options.
    pub(crate) fn is_command_line(&self) -> bool {
        self.is_command_line
    }

    /// Returns the form of the setting with that key.
    pub(crate) fn form(&self, key: &str) -> SettingForm {
        let is_option = self.is_command_line || self.options.contains(key);
        if is_option { SettingForm::Option } else { SettingForm::Key }
    }

    /// Returns its name, as [`SettingForm::name`].
    pub(crate) fn name(&self, key: &str) -> String {
        self.form(key).name(key)
    }

    /// Returns advice to give a host a key for authentication.
    pub(crate) fn add_dhchap_key(&self) -> &'static str {
        match self.is_command_line {
            true => "add --dhchap-key HOSTNQN=FILE",
            false => "add a host with a dhchap_key",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::CommandLine;
    use clap::CommandFactory;

    #[test]
    fn every_option_is_one_of_serve() {
        let mut command = CommandLine::command();
        command.build();
        let serve = command.find_subcommand("serve").unwrap();
        let keys = OPTIONS.iter().map(|(key, _)| *key);
        let plain = [
            "ana",
            "cores",
            "dhchap_ctrl_key",
            "dhchap_key",
            "ether.port_kind",
            "ether.seal",
            "ether.vlan",
            "limits.buffers",
            "limits.in_capsule_bytes",
            "limits.max_controllers_per_host",
            "log_level",
            "lvstore",
            "rpc_credentials",
            "rpc_http",
            "rpc_http_anywhere",
            "state",
            "waiting.spin_us",
        ];
        for key in keys.chain(plain) {
            let option = SettingForm::Option.name(key);
            let is_known = |arg: &clap::Arg| arg.get_long() == option.strip_prefix("--");
            // A program without Ethernet has none of its options.
            let is_built = cfg!(feature = "ether") || !key.starts_with("ether.");
            assert!(!is_built || serve.get_arguments().any(is_known), "{key}: {option}");
        }
    }

    #[test]
    fn forms_are_those_of_files_options_and_words() {
        let written = |form: SettingForm| form.value("rates.read_iops", 0);
        let forms = [SettingForm::Key, SettingForm::Option, SettingForm::Word].map(written);
        assert_eq!(forms, ["rates.read_iops = 0", "--read-iops 0", "read-iops=0"]);
        assert_eq!(SettingForm::Key.text("log_level", "x"), "log_level = \"x\"");
        let mut spelling = Spelling::default();
        spelling.set_by_options(["rpc_http".to_owned()]);
        assert_eq!(spelling.name("rpc_http"), "--rpc-http");
        assert_eq!(spelling.name("rpc_credentials"), "rpc_credentials");
        assert_eq!(Spelling::of_command_line().name("limits.buffers"), "--buffers");
    }
}
