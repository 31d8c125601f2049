//! Attachments of volumes on this node: by `roadtrain attach`, or by the kernel.

use super::command;
use super::kernel::KernelHost;
use crate::args::AttachMode;
use crate::health::VolumeProblem;
use crate::locks::VolumeLocks;
use crate::names;
use crate::plan::stage::{Attached, BlockDevice};
use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Most time until a volume is attached.
const ATTACH: Duration = Duration::from_secs(60);
/// Most time for `roadtrain detach`, which ends by itself before that.
const DETACH: Duration = Duration::from_secs(90);
const SHORT: Duration = Duration::from_secs(30);

/// Where a volume can be reached: what the controller returns to the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Publication {
    /// NQN of the volume's subsystem.
    pub(crate) nqn: String,
    /// Addresses of the target.
    pub(crate) addresses: Vec<String>,
    /// True if they take connections with TLS only.
    pub(crate) tls: bool,
}

impl Publication {
    /// Returns it as a publish context has it.
    pub(crate) fn context(&self) -> HashMap<String, String> {
        let pairs = [
            ("nqn", self.nqn.clone()),
            ("addresses", self.addresses.join(",")),
            ("tls", self.tls.to_string()),
        ];
        pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Reads a publish context.
    pub(crate) fn of_context(context: &HashMap<String, String>) -> Option<Publication> {
        let addresses = context.get("addresses")?.split(',').map(str::to_owned).collect();
        let tls = context.get("tls").is_some_and(|tls| tls == "true");
        Some(Publication { nqn: context.get("nqn")?.clone(), addresses, tls })
    }
}

/// Keys of Secrets: their names there, options of `roadtrain attach`, and options of the kernel.
const KEYS: [(&str, &str, Option<&str>); 3] = [
    ("dhchap-key", "--dhchap-secret", Some("dhchap_secret")),
    ("dhchap-ctrl-key", "--dhchap-ctrl-secret", Some("dhchap_ctrl_secret")),
    ("tls-key", "--tls-key", None),
];

/// An attachment, as `roadtrain list --json` shows it.
#[derive(Clone, Debug, Deserialize)]
struct ListedRow {
    kind: String,
    state: String,
    id: String,
    #[serde(default, rename = "as")]
    spec: String,
    #[serde(default)]
    devices: Vec<ListedDevice>,
}

#[derive(Clone, Debug, Deserialize)]
struct ListedDevice {
    names: Vec<String>,
}

/// Attachments of this node.
#[derive(Clone, Debug)]
pub(crate) struct Attachments {
    /// How new volumes are attached.
    pub(crate) mode: AttachMode,
    /// Host NQN of the node.
    pub(crate) node: String,
    /// Command that runs roadtrain.
    pub(crate) roadtrain: Vec<String>,
    /// Further options of attach.
    pub(crate) options: Vec<String>,
    /// Folder for mountpoints and keys.
    pub(crate) run_dir: PathBuf,
    /// The kernel's host.
    pub(crate) kernel: KernelHost,
}

impl Attachments {
    async fn roadtrain(
        &self,
        words: &[&str],
        limit: Duration,
    ) -> Result<command::CommandOutput, String> {
        let own = self.roadtrain.iter().map(String::as_str);
        let all: Vec<&str> = own.chain(words.iter().copied()).collect();
        command::run(&all, limit).await
    }

    /// Folder of a volume, for its mountpoint and keys.
    fn folder(&self, uuid: &str) -> PathBuf {
        self.run_dir.join(uuid)
    }

    async fn rows(&self) -> Result<Vec<ListedRow>, String> {
        let text = self.roadtrain(&["list", "--json"], SHORT).await?.ok()?;
        let rows: Vec<ListedRow> = serde_json::from_str(&text)
            .map_err(|error| format!("roadtrain list --json: {error}"))?;
        let is_ours = |row: &ListedRow| {
            row.kind == "attachment" && names::attachment_volume(&row.id).is_some()
        };
        Ok(rows.into_iter().filter(is_ours).collect())
    }

    /// Returns the attachment of a volume.
    ///
    /// # Errors
    /// It cannot be found out.
    pub(crate) async fn find(&self, uuid: &str) -> Result<Attached, String> {
        let id = names::attachment(uuid);
        let row = match (self.rows().await, self.mode) {
            (Ok(rows), _) => rows.into_iter().find(|row| row.id == id),
            // Such a node needs no program.
            (Err(_), AttachMode::Kernel) => None,
            (Err(failure), _) => return Err(failure),
        };
        let Some(row) = row else { return self.find_in_kernel(uuid) };
        match row.state.as_str() {
            "starting" => Ok(Attached::Starting),
            "ready" => {
                let named = row.devices.first().and_then(|device| device.names.first());
                let path = named.ok_or_else(|| format!("the attachment {id} has no device"))?;
                Ok(Attached::Ready(block_device(path)?))
            }
            _ => Ok(Attached::Gone { can_be_taken_over: row.spec.starts_with("ublk") }),
        }
    }

    fn find_in_kernel(&self, uuid: &str) -> Result<Attached, String> {
        let nqn = names::subsystem(uuid);
        if !self.kernel.is_connected(&nqn) {
            return Ok(Attached::No);
        }
        match self.kernel.device(&nqn) {
            Some(path) => Ok(Attached::Ready(block_device(&path)?)),
            None => Ok(Attached::Starting),
        }
    }

    /// Waits while an attachment starts.
    ///
    /// # Errors
    /// It does not come to an end.
    pub(crate) async fn wait(&self, uuid: &str) -> Result<(), String> {
        let end = Instant::now() + ATTACH;
        while self.find(uuid).await? == Attached::Starting {
            if Instant::now() > end {
                return Err(format!("{} starts and does not get ready", names::attachment(uuid)));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Attaches a volume, or takes over the device of a process that has died.
    ///
    /// # Errors
    /// The target refuses the host or cannot be reached, or the device cannot be made.
    pub(crate) async fn attach(
        &self,
        uuid: &str,
        publication: &Publication,
        secrets: &HashMap<String, String>,
    ) -> Result<(), String> {
        let folder = self.folder(uuid);
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        make_private_folder(&self.run_dir)
            .and_then(|()| make_private_folder(&folder))
            .map_err(failed)?;
        for (name, ..) in KEYS {
            match secrets.get(name) {
                Some(key) => {
                    write_private(&folder.join(name), key.trim().as_bytes()).map_err(failed)?
                }
                None => remove(&folder.join(name)).map_err(failed)?,
            }
        }
        let text = serde_json::to_vec(publication).map_err(|error| error.to_string())?;
        write_private(&folder.join("publication.json"), &text).map_err(failed)?;
        self.attach_again(uuid).await
    }

    /// True if a volume was attached, and [`Attachments::forget`] was not called since then.
    pub(crate) fn was_attached(&self, uuid: &str) -> bool {
        self.folder(uuid).join("publication.json").exists()
    }

    /// Attaches a volume once more, as it was attached the last time.
    ///
    /// # Errors
    /// As [`Attachments::attach`]; or it never was.
    pub(crate) async fn attach_again(&self, uuid: &str) -> Result<(), String> {
        let folder = self.folder(uuid);
        let path = folder.join("publication.json");
        let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let publication: Publication = serde_json::from_slice(&text)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let host_id = names::host_id(&self.node);
        if self.mode == AttachMode::Kernel {
            let read = |(name, _, option): (&str, &str, Option<&'static str>)| {
                Some((option?, fs::read_to_string(folder.join(name)).ok()?))
            };
            let secrets: Vec<(&str, String)> = KEYS.into_iter().filter_map(read).collect();
            return self.kernel.connect(&publication, &self.node, &host_id, &secrets);
        }
        let words = self.attach_words(uuid, &publication, &host_id);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.roadtrain(&words, ATTACH).await?.ok().map(drop)
    }

    /// Arguments of `roadtrain attach`.
    fn attach_words(&self, uuid: &str, publication: &Publication, host_id: &str) -> Vec<String> {
        let folder = self.folder(uuid);
        let mut words: Vec<String> = vec!["attach".into(), "--background".into()];
        let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
        for address in &publication.addresses {
            option("-a", address.clone());
        }
        option("-n", publication.nqn.clone());
        option("--nsid", "1".into());
        option("-q", self.node.clone());
        option("-I", host_id.to_owned());
        option("--id", names::attachment(uuid));
        let is_fuse = self.mode == AttachMode::Fuse;
        let mountpoint = format!("fuse:{}", folder.join("disk").display());
        option("--as", if is_fuse { mountpoint } else { "ublk".into() });
        for (name, option_name, _) in KEYS {
            let path = folder.join(name);
            if path.exists() && (publication.tls || name != "tls-key") {
                option(option_name, path.display().to_string());
            }
        }
        if is_fuse {
            words.push("--loop".into());
        }
        if publication.tls {
            words.push("--tls".into());
        }
        words.extend(self.options.iter().cloned());
        words
    }

    /// Ends an attachment, or removes what a dead one has left.
    ///
    /// # Errors
    /// Something is left, or writes may be lost.
    pub(crate) async fn detach(&self, uuid: &str) -> Result<(), String> {
        let nqn = names::subsystem(uuid);
        if self.kernel.is_connected(&nqn) {
            self.kernel.disconnect(&nqn)?;
        } else {
            let id = names::attachment(uuid);
            self.roadtrain(&["detach", &id], DETACH).await?.ok()?;
        }
        Ok(())
    }

    /// Removes the folder of a volume that is not attached.
    ///
    /// # Errors
    /// The file system fails.
    pub(crate) fn forget(&self, uuid: &str) -> Result<(), String> {
        let folder = self.folder(uuid);
        let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
        for name in KEYS.map(|(name, ..)| name).into_iter().chain(["publication.json"]) {
            remove(&folder.join(name)).map_err(failed)?;
        }
        // Files are removed one by one: below a folder `disk` there may be a volume.
        for path in [folder.join("disk"), folder.clone()] {
            match fs::remove_dir(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(failed(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes over the devices of processes that have died; returns how many attachments are in which state.
    ///
    /// # Errors
    /// Attachments cannot be listed.
    pub(crate) async fn recover(
        &self,
        locks: &VolumeLocks,
    ) -> Result<HashMap<String, usize>, String> {
        let mut states = HashMap::new();
        for row in self.rows().await? {
            if row.state == "gone" && row.spec.starts_with("ublk") {
                let uuid = names::attachment_volume(&row.id).unwrap_or_default();
                // A call that works on the volume takes it over itself.
                if let Ok(_lock) = locks.lock(uuid) {
                    match self.attach_again(uuid).await {
                        Ok(()) => tracing::info!(id = row.id, "device taken over"),
                        Err(failure) => tracing::warn!(id = row.id, "not taken over: {failure}"),
                    }
                }
            }
            *states.entry(row.state).or_insert(0) += 1;
        }
        Ok(states)
    }

    /// Returns what is wrong with a volume on this node; `None`: nothing.
    pub(crate) async fn problem(&self, uuid: &str, attached: &Attached) -> Option<VolumeProblem> {
        let inaccessible = |reason, message: &str| VolumeProblem::inaccessible(reason, message);
        match attached {
            Attached::No => return Some(inaccessible("NotAttached", "the volume is not attached")),
            Attached::Starting => {
                return Some(inaccessible("Starting", "the attachment is starting"));
            }
            Attached::Gone { .. } => {
                return Some(inaccessible("ProcessDied", "the process of the attachment has died"));
            }
            Attached::Ready(_) => {}
        }
        let states = self.kernel.states(&names::subsystem(uuid));
        if !states.is_empty() {
            let is_live = states.iter().any(|state| state == "live");
            let message = format!("no path is live: {}", states.join(", "));
            return (!is_live).then(|| inaccessible("NoPath", &message));
        }
        let id = names::attachment(uuid);
        let status = self.roadtrain(&["status", &id, "--json"], SHORT).await.ok()?;
        let rows: serde_json::Value = serde_json::from_str(&status.out).ok()?;
        let problems = rows[0]["problems"].as_array().cloned().unwrap_or_default();
        let problems: Vec<&str> = problems.iter().filter_map(|problem| problem.as_str()).collect();
        match (problems.is_empty(), rows[0]["state"].as_str()) {
            (_, Some(state)) if state != "connected" => {
                Some(inaccessible("NotConnected", &format!("the attachment is {state}")))
            }
            (true, _) => None,
            (false, _) => Some(VolumeProblem::degraded("AttachmentProblem", problems.join("; "))),
        }
    }
}

/// Returns the block device at a path.
///
/// # Errors
/// There is none.
pub(crate) fn block_device(path: &str) -> Result<BlockDevice, String> {
    let number = device_number(Path::new(path))
        .ok_or_else(|| format!("{path} is no block device of this node"))?;
    Ok(BlockDevice { path: path.to_owned(), number })
}

/// Returns the number of the block device at a path.
pub(crate) fn device_number(path: &Path) -> Option<(u32, u32)> {
    use std::os::unix::fs::FileTypeExt;
    let metadata = fs::metadata(path).ok()?;
    let number = metadata.rdev();
    metadata.file_type().is_block_device().then(|| (major(number), minor(number)))
}

/// Returns the size of a block device in bytes.
///
/// # Errors
/// The kernel does not show it.
pub(crate) fn device_bytes(device: &BlockDevice) -> Result<u64, String> {
    let (major, minor) = device.number;
    let path = format!("/sys/dev/block/{major}:{minor}/size");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let sectors: u64 = text.trim().parse().map_err(|_| format!("{path}: {text}"))?;
    Ok(sectors * 512)
}

fn make_private_folder(path: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that only this user can read, whole or not at all.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    remove(&new)?;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    file.write_all(b"\n")?;
    fs::rename(&new, path)
}

/// Removes a file; one that does not exist is removed.
pub(crate) fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
