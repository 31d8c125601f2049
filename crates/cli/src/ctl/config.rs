//! Commands for the whole configuration: show, compare, save, load, reload.

use super::target::ControlledTarget;
use crate::args::ConfigCommand;
use crate::config::{ServeConfig, SubsystemSettings};
use crate::control::{Call, ConfigDiff, ConfigText, ExportChange};
use crate::failure::{CommandFailure, CommandResult};
use crate::output;
use serde_json::{Value, json};
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Prefixes of keys for authentication and TLS.
const KEYS: [&str; 2] = ["DHHC-1:", "NVMeTLSkey-1:"];
/// A method that can be called only once.
const TRANSPORT: &str = "nvmf_create_transport";

impl ControlledTarget {
    pub(super) fn config(&self, command: &ConfigCommand) -> CommandResult {
        match command {
            ConfigCommand::Show => self.show(),
            ConfigCommand::Save { output, spdk: false } => self.save(output.as_deref()),
            ConfigCommand::Save { output, spdk: true } => self.save_calls(output.as_deref()),
            ConfigCommand::Diff => self.diff(),
            ConfigCommand::Load { file } => self.load(file),
            ConfigCommand::Reload => self.change_by(&Call::Reload),
        }
    }

    /// Prints the configuration without its keys.
    fn show(&self) -> CommandResult {
        let ConfigText { toml } = self.call_as(&Call::Config)?;
        let config = ConfigText { toml: without_keys(&toml) };
        if self.json { output::json(&config) } else { output::line(config.toml.trim_end()) }
    }

    fn save(&self, path: Option<&Path>) -> CommandResult {
        let config: ConfigText = self.call_as(&Call::Config)?;
        match path {
            None if self.json => output::json(&config),
            None => output::line(config.toml.trim_end()),
            Some(path) => self.write(path, &config.toml),
        }
    }

    /// Writes the calls that recreate the state, in the format of SPDK's save_config.
    fn save_calls(&self, path: Option<&Path>) -> CommandResult {
        let all = self.call("framework_get_subsystems", &Value::Null)?;
        let mut subsystems = Vec::new();
        for one in all.as_array().into_iter().flatten() {
            let name = &one["subsystem"];
            let config = self.call("framework_get_config", &json!({"name": name}))?;
            subsystems.push(json!({"subsystem": name, "config": config}));
        }
        let saved = json!({"subsystems": subsystems});
        let Some(path) = path else { return output::json(&saved) };
        let text = serde_json::to_string_pretty(&saved).map_err(std::io::Error::from)?;
        self.write(path, &(text + "\n"))
    }

    /// Writes a file that only this user can read: keys may be in it.
    fn write(&self, path: &Path, text: &str) -> CommandResult {
        let failed = |error| {
            let problem = output::file_problem(path, &error);
            CommandFailure::failed(format!("{}: {problem}", path.display()))
        };
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let written = options.open(path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(failed)?;
        match self.json {
            true => output::json(&json!(true)),
            false => output::line(&format!("saved to {}", path.display())),
        }
    }

    fn diff(&self) -> CommandResult {
        let diff: ConfigDiff = self.call_as(&Call::ConfigDiff)?;
        if self.json {
            return output::json(&diff);
        }
        let mut lines: Vec<String> =
            diff.changes.iter().map(|change| format!("reload: {}", change.what)).collect();
        lines.extend(diff.restart.iter().map(|key| format!("restart: {key}")));
        lines.extend(diff.both.iter().map(|nqn| {
            format!("both: subsystem {nqn} is in the file, which is served, and in the state, where it is kept")
        }));
        let same = || format!("{} is served as it is", diff.file.display());
        output::line(&if lines.is_empty() { same() } else { lines.join("\n") })
    }

    fn load(&self, path: &Path) -> CommandResult {
        let unfit = |why: &dyn Display| CommandFailure::usage(format!("{}: {why}", path.display()));
        let mut text = String::new();
        let read = match path == Path::new("-") {
            true => std::io::stdin().read_to_string(&mut text).map(drop),
            false => std::fs::read_to_string(path).map(|all| text = all),
        };
        read.map_err(|error| unfit(&error))?;
        match text.trim_start().starts_with('{') {
            true => {
                let saved: Value = serde_json::from_str(&text).map_err(|error| unfit(&error))?;
                let calls = calls(&saved);
                self.make_calls(&calls.ok_or_else(|| unfit(&"it has no \"subsystems\""))?)
            }
            false => {
                let config = ServeConfig::parse(&text).map_err(|error| unfit(&error))?;
                self.make_subsystems(config.subsystems)
            }
        }
    }

    /// Adds the subsystems of a configuration file, all or none.
    fn make_subsystems(&self, subsystems: Vec<SubsystemSettings>) -> CommandResult {
        let add = |subsystem| ExportChange::AddSubsystem { subsystem }.with_absolute_paths();
        let operations = subsystems.into_iter().map(add).collect();
        self.change_by(&Call::Apply { operations })
    }

    /// Makes the saved calls; stops where the target refuses one.
    fn make_calls(&self, calls: &[(&str, &Value)]) -> CommandResult {
        let there = self.call("framework_get_config", &json!({"name": "nvmf"}))?;
        let there = there.as_array().into_iter().flatten();
        let has_transport = there.into_iter().any(|call| call["method"] == TRANSPORT);
        let is_new = |name: &str| !has_transport || name != TRANSPORT;
        let calls: Vec<_> = calls.iter().filter(|(name, _)| is_new(name)).collect();
        for (done, (method, params)) in calls.iter().enumerate() {
            self.call(method, params).inspect_err(|_| {
                tracing::warn!("{done} of {} calls were done before this one", calls.len());
            })?;
        }
        match self.json {
            true => output::json(&json!({"calls": calls.len()})),
            false => output::line(&format!("{} calls done", calls.len())),
        }
    }
}

/// Replaces keys in the text by dots.
fn without_keys(text: &str) -> String {
    let line = |line: &str| {
        let key = KEYS.iter().find_map(|begin| Some((line.find(begin)?, *begin)));
        match key {
            Some((at, begin)) => format!("{}{begin}...\"\n", &line[..at]),
            None => format!("{line}\n"),
        }
    };
    text.lines().map(line).collect()
}

/// Returns the saved calls in order; `None` if it is not in the format of save_config.
fn calls(saved: &Value) -> Option<Vec<(&str, &Value)>> {
    let mut calls = Vec::new();
    for subsystem in saved["subsystems"].as_array()? {
        // SPDK writes null for no configuration.
        for call in subsystem["config"].as_array().into_iter().flatten() {
            calls.push((call["method"].as_str()?, &call["params"]));
        }
    }
    Some(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_shown() {
        let text = "nqn = \"n\"\ndhchap_key = \"DHHC-1:00:c2VjcmV0:\"\n\"n\" = \"NVMeTLSkey-1:01:c2VjcmV0:\"\n";
        let shown = without_keys(text);
        assert!(
            !shown.contains("c2VjcmV0") && shown.contains("dhchap_key = \"DHHC-1:...\""),
            "{shown}"
        );
        assert!(shown.parse::<toml::Table>().is_ok(), "{shown}");
    }

    #[test]
    fn saved_calls_are_a_list() {
        let saved = json!({"subsystems": [
            {"subsystem": "keyring", "config": null},
            {"subsystem": "bdev", "config": [{"method": "a", "params": {"b": 1}}, {"method": "c"}]},
        ]});
        assert_eq!(calls(&saved), Some(vec![("a", &json!({"b": 1})), ("c", &Value::Null)]));
        for odd in [json!([]), json!({"subsystems": [{"config": [{"params": {}}]}]})] {
            assert_eq!(calls(&odd), None, "{odd}");
        }
    }
}
