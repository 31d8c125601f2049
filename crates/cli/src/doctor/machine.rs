//! A machine's state for the checks: its files below a root directory, and the results of calls and programs.

use roadtrain_system::platform::{NicChannels, Offloads};
use roadtrain_system::ring::ReactorRing;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Submission entries of a ring of `serve`.
const RING_ENTRIES: u32 = 1024;

/// A machine.
pub(super) struct ExaminedMachine {
    root: PathBuf,
    /// State that no file has.
    pub(super) probes: MachineProbes,
}

/// Results of calls and programs; tests supply their own.
#[derive(Default)]
pub(super) struct MachineProbes {
    /// Error of the attempt to create an io_uring as `serve` does; what to do follows a colon.
    pub(super) no_ring: Option<String>,
    /// The firewall's rules, as `nft` and `iptables-save` list them.
    pub(super) rules: FirewallRules,
    /// Offloads by interface.
    pub(super) offloads: BTreeMap<String, Offloads>,
    /// Channels by interface.
    pub(super) channels: BTreeMap<String, NicChannels>,
}

/// The firewall's rules.
#[derive(Default)]
pub(super) struct FirewallRules {
    /// `nft -n list ruleset`.
    pub(super) nft: Listing,
    /// `iptables-save` and `ip6tables-save`.
    pub(super) iptables: Listing,
}

/// Output of a program.
#[derive(Default)]
pub(super) enum Listing {
    /// The program does not exist.
    #[default]
    Absent,
    /// The program fails: its first line.
    Refused(String),
    /// The program's output.
    Listed(String),
}

impl ExaminedMachine {
    /// Reads the state of this machine.
    pub(super) fn this() -> ExaminedMachine {
        let mut machine =
            ExaminedMachine { root: PathBuf::from("/"), probes: MachineProbes::default() };
        let names = machine.entries("sys/class/net");
        let of = |name: &String| Some((name.clone(), Offloads::read(name).ok()?));
        machine.probes = MachineProbes {
            no_ring: ReactorRing::new(RING_ENTRIES).err().map(|error| error.to_string()),
            rules: FirewallRules {
                nft: list(&[&["nft", "-n", "list", "ruleset"]]),
                iptables: list(&[&["iptables-save"], &["ip6tables-save"]]),
            },
            offloads: names.iter().filter_map(of).collect(),
            channels: names
                .iter()
                .filter_map(|name| Some((name.clone(), NicChannels::read(name).ok()?)))
                .collect(),
        };
        machine
    }

    #[cfg(test)]
    pub(super) fn described(root: &Path, probes: MachineProbes) -> ExaminedMachine {
        ExaminedMachine { root: root.to_owned(), probes }
    }

    /// Returns the root directory.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns a file's text without surrounding white space; `None` if it cannot be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim().to_owned())
    }

    /// Returns the number in a file.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// True if the file, device or directory exists.
    pub(super) fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Returns the names in a directory, sorted.
    pub(super) fn entries(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join(path)) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Returns the choice in brackets, as in `always [madvise] never`.
    pub(super) fn chosen(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    }

    /// Returns the number of online cores.
    pub(super) fn cores(&self) -> usize {
        let list = self.text("sys/devices/system/cpu/online").unwrap_or_default();
        roadtrain_system::platform::Cpus::parse(&list).iter().count().max(1)
    }

    /// True if a process with that name runs.
    pub(super) fn runs(&self, name: &str) -> bool {
        let mut processes = self.entries("proc").into_iter();
        processes.any(|process| {
            let is_one = process.bytes().all(|byte| byte.is_ascii_digit());
            is_one && self.text(&format!("proc/{process}/comm")).is_some_and(|comm| comm == name)
        })
    }
}

/// Returns the concatenated output of these programs.
fn list(programs: &[&[&str]]) -> Listing {
    let mut all = Listing::Absent;
    for program in programs {
        let (name, arguments) = program.split_first().unwrap_or((&"", &[]));
        // Root's PATH has them; other users' PATH may not.
        let places = ["/usr/sbin", "/sbin", "/usr/bin", "/usr/local/sbin"];
        let Some(path) =
            places.iter().map(|place| Path::new(place).join(name)).find(|p| p.exists())
        else {
            continue;
        };
        let output = Command::new(path).args(arguments).stdin(Stdio::null()).output();
        match output {
            Ok(output) if output.status.success() => {
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                all = match all {
                    Listing::Listed(before) => Listing::Listed(before + &text),
                    _ => Listing::Listed(text),
                };
            }
            Ok(output) => return Listing::Refused(first_line(&output.stderr)),
            Err(error) => return Listing::Refused(error.to_string()),
        }
    }
    all
}

fn first_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().to_owned()
}
