//! Targets that the driver manages: of the command line, or of a file.

use crate::args::Args;
use crate::rpc::RpcPlace;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A target that the driver manages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TargetSettings {
    /// Name in IDs of volumes and in the topology.
    pub(crate) name: String,
    /// Addresses for NVMe/TCP, with their ports: paths.
    pub(crate) addresses: Vec<String>,
    /// JSON-RPC: a path, or `http://HOST:PORT`.
    rpc: String,
    /// File with the credentials for HTTP.
    rpc_credentials: Option<PathBuf>,
    /// Stores that the driver may use.
    pub(crate) stores: Vec<String>,
    /// True if the addresses take connections with TLS only.
    #[serde(default)]
    pub(crate) tls: bool,
    /// Folder in which keys are given to the target.
    pub(crate) key_dir: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetsFile {
    target: Vec<TargetSettings>,
}

impl TargetSettings {
    /// Checks the settings and returns the place of JSON-RPC.
    ///
    /// # Errors
    /// A setting cannot be used.
    pub(crate) fn place(&self) -> Result<RpcPlace, String> {
        let name = &self.name;
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if name.is_empty() || name.len() > 40 || !name.chars().all(is_word) {
            return Err(format!("target {name:?}: a name has 1 to 40 letters, digits and hyphens"));
        }
        if self.addresses.is_empty() || self.stores.is_empty() {
            return Err(format!("target {name}: needs an address and a store"));
        }
        for address in &self.addresses {
            let (host, port) = split_address(address);
            if host.parse::<std::net::IpAddr>().is_err() || port.parse::<u16>().is_err() {
                let what = format!("target {name}: {address} is no address");
                return Err(format!(
                    "{what}: write ADDRESS:PORT, such as 192.0.2.7:4420 or [2001:db8::7]:4420"
                ));
            }
        }
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let credentials = self.rpc_credentials.as_ref().map(read).transpose()?;
        RpcPlace::parse(&self.rpc, credentials.as_deref())
    }
}

/// Splits `ADDRESS:PORT` or `[IPv6]:PORT`; the port is 4420 if there is none.
pub(crate) fn split_address(text: &str) -> (&str, &str) {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
        _ => (text, "4420"),
    };
    (host.trim_start_matches('[').trim_end_matches(']'), port)
}

/// Returns the targets of the command line; none if there is no controller service.
///
/// # Errors
/// The file cannot be read, or settings cannot be used.
pub(crate) fn targets(args: &Args) -> Result<Vec<(TargetSettings, RpcPlace)>, String> {
    let targets = match (&args.targets, &args.rpc) {
        (Some(path), _) => read(path)?,
        (None, Some(rpc)) => vec![TargetSettings {
            name: args.target_name.clone(),
            addresses: args.target.clone(),
            rpc: rpc.clone(),
            rpc_credentials: args.rpc_credentials.clone(),
            stores: args.store.clone(),
            tls: args.target_tls,
            key_dir: args.key_dir.clone(),
        }],
        (None, None) => Vec::new(),
    };
    let mut names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
        return Err(format!("target {}: two targets have that name", twice[0]));
    }
    let with_place = |target: TargetSettings| {
        let place = target.place()?;
        Ok((target, place))
    };
    targets.into_iter().map(with_place).collect()
}

fn read(path: &Path) -> Result<Vec<TargetSettings>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let file: TargetsFile = toml::from_str(&text).map_err(|error| failed(&error))?;
    Ok(file.target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_split() {
        assert_eq!(split_address("192.0.2.7:4421"), ("192.0.2.7", "4421"));
        assert_eq!(split_address("192.0.2.7"), ("192.0.2.7", "4420"));
        assert_eq!(split_address("[2001:db8::7]:4421"), ("2001:db8::7", "4421"));
        assert_eq!(split_address("2001:db8::7"), ("2001:db8::7", "4420"));
    }

    #[test]
    fn files_are_checked() {
        let text = |name: &str, address: &str, rest: &str| {
            format!(
                "[[target]]\nname = {name:?}\naddresses = [{address:?}]\nrpc = \"/a\"\n{rest}\n"
            )
        };
        let check = |text: &str| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("targets.toml");
            std::fs::write(&path, text).unwrap();
            let line = ["roadtrain-csi", "--endpoint", "unix:///a", "--targets"];
            let line = line.into_iter().chain(path.to_str());
            targets(&clap::Parser::parse_from(line))
        };
        let stores = "stores = [\"a\", \"b\"]";
        let fine = text("a", "192.0.2.7:4420", stores) + &text("b", "[::1]:4420", stores);
        let found = check(&fine).unwrap();
        assert_eq!(found.iter().map(|(t, _)| t.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(found[0].0.stores, ["a", "b"]);
        for (wrong, says) in [
            (text("a", "192.0.2.7:4420", stores).repeat(2), "two targets"),
            (text("a/b", "192.0.2.7:4420", stores), "letters"),
            (text("a", "host:4420", stores), "is no address"),
            (text("a", "192.0.2.7:x", stores), "is no address"),
            (text("a", "192.0.2.7:4420", "stores = []"), "a store"),
            (text("a", "192.0.2.7:4420", ""), "stores"),
            (text("a", "192.0.2.7:4420", "stores = [\"a\"]\nother = 1"), "other"),
        ] {
            let error = check(&wrong).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
