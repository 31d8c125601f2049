//! The target that `bench` without -a starts: this program in a separate process, so that its CPU time is separate.

use super::usage::ProcessWork;
use crate::args::BenchArgs;
use crate::control::{Call, socket};
use crate::failure::{CommandFailure, CommandResult};
use crate::identity::HostIdentity;
use crate::namespace::NamespaceSettings;
use crate::signals::stop_child;
use crate::{keys, tls};
use roadtrain_host_engine::{HostTls, TlsKeySource};
use roadtrain_proto::security::dhchap::DhchapKeys;
use roadtrain_proto::security::{DhchapKey, TlsKey};
use roadtrain_reactor::metrics::MetricsSnapshot;
use roadtrain_target_proto::TargetLimits;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// NQN of its subsystem.
pub(super) const NQN: &str = "nqn.2025-01.io.roadtrain:bench";
/// Longest wait for the reply with the counters.
const COUNTERS_WAIT: Duration = Duration::from_secs(60);
const STOP_WAIT: Duration = Duration::from_secs(5);

/// A target on loopback. Dropping it stops it.
pub(super) struct OwnTarget {
    child: Child,
    /// Peer of its stdin; `None` makes it stop.
    control: Option<UnixStream>,
    /// Address that it listens on.
    pub address: SocketAddr,
    /// The key of both ends, if they use TLS.
    pub tls: Option<OwnKey>,
}

/// A key in a file, which is removed on drop.
pub(super) struct OwnKey {
    key: OwnKeyKind,
    path: PathBuf,
}

/// A key by its purpose.
enum OwnKeyKind {
    /// TLS.
    Tls(TlsKey),
    /// Authentication, which generates a PSK for TLS.
    Authentication(DhchapKey),
}

impl Drop for OwnKey {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl OwnKey {
    /// Returns the key of the options, else a new one.
    fn of(args: &BenchArgs) -> CommandResult<Self> {
        if args.connect.keyring.is_some() || args.connect.tls_key_identity.is_some() {
            let hint = "bench without -a makes a target and a key of its own";
            return Err(CommandFailure::usage(format!("--keyring needs -a: {hint}")));
        }
        match &args.connect.tls_key {
            _ if args.connect.concat => {
                let key = keys::new_dhchap_key()?;
                let line = key.print();
                OwnKey::make(OwnKeyKind::Authentication(key), &line)
            }
            Some(file) => {
                let key = OwnKeyKind::Tls(tls::key("--tls-key", file)?);
                Ok(OwnKey { key, path: PathBuf::new() })
            }
            None => {
                let key = keys::new_tls_key()?;
                let line = key.print();
                OwnKey::make(OwnKeyKind::Tls(key), &line)
            }
        }
    }

    /// Returns the keys with which the host connects.
    pub(super) fn host(&self) -> (HostTls, DhchapKeys) {
        match &self.key {
            OwnKeyKind::Tls(key) => {
                (HostTls::new(TlsKeySource::Configured(key.clone())), DhchapKeys::default())
            }
            OwnKeyKind::Authentication(key) => {
                let keys = DhchapKeys { host: Some(key.clone()), controller: None };
                (HostTls::concatenated(), keys)
            }
        }
    }

    /// Returns the target's options.
    fn options(&self, host: &str, file: &str) -> [String; 4] {
        let (tls, option) = match &self.key {
            OwnKeyKind::Tls(_) => ("required", "--tls-key"),
            OwnKeyKind::Authentication(_) => ("allowed", "--dhchap-key"),
        };
        ["--tls".to_owned(), tls.to_owned(), option.to_owned(), format!("{host}={file}")]
    }

    /// Returns the key file for the target.
    fn file(&self, args: &BenchArgs) -> String {
        let own = || self.path.display().to_string();
        args.connect.tls_key.clone().unwrap_or_else(own)
    }

    fn make(key: OwnKeyKind, line: &str) -> CommandResult<Self> {
        let path = std::env::temp_dir().join(format!("roadtrain-bench-{}.tls", std::process::id()));
        let options = OpenOptions::new().write(true).create_new(true).mode(0o600).clone();
        let mut file = options.open(&path)?;
        let made = OwnKey { key, path };
        writeln!(file, "{line}")?;
        Ok(made)
    }
}

impl OwnTarget {
    /// Starts the target and waits until it is ready.
    ///
    /// # Errors
    /// The target does not start; it has reported the reason on stderr.
    pub(super) fn start(args: &BenchArgs) -> CommandResult<OwnTarget> {
        let failed = |what: &str, e: std::io::Error| {
            CommandFailure::failed(format!("own target: {what}: {e}"))
        };
        let program = std::env::current_exe().map_err(|e| failed("find this program", e))?;
        let (control, stdin) = UnixStream::pair().map_err(|e| failed("socket", e))?;
        let has_tls = args.connect.tls || args.connect.concat;
        let tls = has_tls.then(|| OwnKey::of(args)).transpose()?;
        let host = HostIdentity::choose(args.connect.hostnqn.as_deref(), None)
            .map_err(CommandFailure::usage)?;
        let options = tls.as_ref().map(|tls| tls.options(&host.nqn, &tls.file(args)));
        let mut child = Command::new(program)
            .args(arguments(args))
            .args(options.into_iter().flatten())
            .stdin(OwnedFd::from(stdin))
            .stdout(Stdio::piped())
            .process_group(0) // Ctrl-C is for this process alone: it requests the target's counters afterwards
            .spawn()
            .map_err(|e| failed("start", e))?;
        let stdout = child.stdout.take();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut target = OwnTarget { child, control: Some(control), address, tls };
        let mut line = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let address = line.split_whitespace().nth(1).and_then(|word| word.parse().ok());
        target.address = address
            .filter(|_| line.starts_with("ready"))
            .ok_or_else(|| CommandFailure::failed("own target: did not become ready, see above"))?;
        Ok(target)
    }

    /// Returns the CPU usage of its process, and its counters.
    ///
    /// # Errors
    /// The target has died.
    pub(super) fn work(&self) -> CommandResult<ProcessWork> {
        let failed = |e: &dyn std::fmt::Display| {
            CommandFailure::failed(format!("own target: counters: {e}"))
        };
        let control = self.control.as_ref().ok_or_else(|| failed(&"it ends"))?;
        let reply =
            socket::call_over(control, &Call::Snapshot, COUNTERS_WAIT).map_err(|e| failed(&e))?;
        let seen: MetricsSnapshot = serde_json::from_value(reply?).map_err(|e| failed(&e))?;
        ProcessWork::of(self.child.id(), seen.reactors).map_err(|e| failed(&e))
    }
}

impl Drop for OwnTarget {
    fn drop(&mut self) {
        self.control = None;
        stop_child(&self.child);
        let deadline = Instant::now() + STOP_WAIT;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the namespaces that it exports.
#[must_use]
pub(super) fn namespaces(args: &BenchArgs) -> Vec<NamespaceSettings> {
    match &args.own.namespaces[..] {
        [] => vec![NamespaceSettings::mem(1 << 30)],
        some => some.to_vec(),
    }
}

fn arguments(args: &BenchArgs) -> Vec<String> {
    let mut words: Vec<String> = [
        "serve",
        "--control-stdin",
        "--log-level",
        "warn",
        "-a",
        "127.0.0.1",
        "-s",
        "0",
        "-n",
        NQN,
    ]
    .map(str::to_owned)
    .to_vec();
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    for namespace in namespaces(args) {
        add("--namespace", namespace.to_string());
    }
    if let Some(cores) = &args.own.target_cores {
        add("--cores", cores.to_string());
    }
    let granted = u32::from(TargetLimits::default().io_queues_max);
    if let Some(lanes) = args.lanes.lanes.filter(|&lanes| lanes > granted) {
        add("--max-queues", lanes.to_string());
    }
    add("--placement", args.lanes.placement.to_string());
    let policy = args.policy.of(args.own.target_policy.unwrap_or(args.policy.policy));
    words.extend(policy.words());
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    if let Some(us) = args.wait.spin_us {
        add("--spin-us", us.to_string());
    }
    if !args.slow_over.is_default() {
        words.extend(["--slow-over".into(), args.slow_over.to_string()]);
    }
    if args.wait.busy_poll {
        words.push("--busy-poll".to_owned());
    }
    if args.connect.mptcp {
        words.push("--mptcp".to_owned());
    }
    if args.wait.no_spin {
        words.push("--no-spin".to_owned());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{CommandLine, RoadtrainCommand};
    use clap::Parser;

    fn bench(line: &str) -> BenchArgs {
        let words = ["roadtrain", "bench"].into_iter().chain(line.split_whitespace());
        let RoadtrainCommand::Bench(args) = CommandLine::try_parse_from(words).unwrap().command
        else {
            unreachable!()
        };
        *args
    }

    #[test]
    fn its_command_line_parses_to_the_same_options() {
        let args = bench(
            "--namespace null:1GiB,lba=4096 --target-cores 1 --policy i10 --target-policy none \
             --caravan-requests 1 --spin-us 20 --placement buffers --lanes 512",
        );
        let words = ["roadtrain".to_owned()].into_iter().chain(arguments(&args));
        let RoadtrainCommand::Serve(serve) = CommandLine::try_parse_from(words).unwrap().command
        else {
            panic!()
        };
        assert_eq!(serve.export.namespaces, args.own.namespaces);
        assert_eq!(serve.export.cores, args.own.target_cores);
        assert_eq!(serve.policy.config().limits.count_max, 1);
        assert_eq!(serve.policy.policy, crate::args::PolicyName::None);
        assert_eq!(serve.wait, args.wait);
        assert_eq!(serve.export.placement, args.lanes.placement);
        assert_eq!(serve.limits.max_queues, Some(512));
        assert!(serve.control_stdin);
        assert_eq!(namespaces(&bench("")), [NamespaceSettings::mem(1 << 30)]);
    }
}
