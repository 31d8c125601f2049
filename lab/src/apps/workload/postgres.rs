//! PostgreSQL with pgbench: a cluster of our own on the device, run by an unprivileged user, with fsync.

use super::AppMeter;
use crate::command::{self, run as finish};
use crate::measure::Measure;
use crate::service::Service;
use anyhow::{Context, ensure};
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// 15 MB each: far more than the server's own cache.
const SCALE: usize = 20;
const CLIENTS: usize = 4;
const CREATE: Duration = Duration::from_secs(120);
/// Every commit reaches the device; nothing happens by itself that one run has and another has not.
const SETTINGS: &str = "
listen_addresses = ''
fsync = on
synchronous_commit = on
shared_buffers = 16MB
max_wal_size = 256MB
wal_level = minimal
max_wal_senders = 0
autovacuum = off
";

/// The installation of PostgreSQL, and the user that it runs as.
pub(in crate::apps) struct Installation {
    programs: PathBuf,
    uid: u32,
    gid: u32,
    /// For sockets and logs of transactions; the user's own.
    folder: PathBuf,
}

/// A server that runs.
pub(in crate::apps) struct PostgresServer<'a> {
    installation: &'a Installation,
    service: Service,
}

/// Why it cannot run here.
pub(in crate::apps) fn unavailable() -> Option<String> {
    if programs().is_none() {
        return Some("PostgreSQL's server is not installed".into());
    }
    user().is_none().then(|| "there is neither a user postgres nor nobody".into())
}

impl Installation {
    /// Finds it; `folder` is made for the user.
    pub(in crate::apps) fn find(folder: PathBuf) -> anyhow::Result<Self> {
        let programs = programs().context("no PostgreSQL")?;
        let (uid, gid) = user().context("no user for PostgreSQL")?;
        fs::create_dir(&folder)?;
        chown(&folder, Some(uid), Some(gid))?;
        Ok(Self { programs, uid, gid, folder })
    }

    fn command(&self, line: &str) -> Command {
        let mut command = command::words(&format!("{}/{line}", self.programs.display()));
        command.uid(self.uid).gid(self.gid).current_dir(&self.folder).env("LC_ALL", "C");
        command
    }

    /// Makes a cluster with pgbench's tables: 300 MB.
    pub(in crate::apps) fn create(&self, data: &Path) -> anyhow::Result<()> {
        fs::create_dir(data)?;
        chown(data, Some(self.uid), Some(self.gid))?;
        let line = format!(
            "initdb -D {} -U postgres -A trust --no-sync --encoding=UTF8 --locale=C",
            data.display()
        );
        finish(&mut self.command(&line), CREATE)?;
        let conf = data.join("postgresql.conf");
        let sockets = format!("unix_socket_directories = '{}'\n", self.folder.display());
        fs::write(&conf, fs::read_to_string(&conf)? + SETTINGS + &sockets)?;
        let _server = self.start(data)?;
        let line = format!("pgbench -i -q -s {SCALE} {}", self.connection());
        finish(&mut self.command(&line), CREATE).map(drop)
    }

    fn connection(&self) -> String {
        format!("-h {} -U postgres postgres", self.folder.display())
    }

    /// Starts a server on a cluster.
    pub(in crate::apps) fn start(&self, data: &Path) -> anyhow::Result<PostgresServer<'_>> {
        // A copy of a cluster whose server has stopped has none.
        let status = data.join("postmaster.pid");
        ensure!(!status.exists(), "{} is in use", data.display());
        let mut command = self.command(&format!("postgres -D {}", data.display()));
        let service = Service::start(&mut command, &self.folder.join("postgres.log"))?;
        // Without waiting for clients and without leaving work for the next start.
        let mut service = service.stopped_by(libc::SIGINT);
        service.until(|| {
            let text = fs::read_to_string(&status).unwrap_or_default();
            (text.lines().nth(7)?.trim() == "ready").then_some(())
        })?;
        Ok(PostgresServer { installation: self, service })
    }
}

impl PostgresServer<'_> {
    /// Loads the server for the given time.
    pub(in crate::apps) fn run(&self, reading: bool, meter: &AppMeter) -> anyhow::Result<Measure> {
        let folder = &self.installation.folder;
        let prefix = folder.join("transactions");
        let line = format!(
            "pgbench -n {} -M prepared -c {CLIENTS} -j 2 -T {} -l --log-prefix={} {}",
            if reading { "-S" } else { "-b tpcb-like" },
            meter.seconds,
            prefix.display(),
            self.installation.connection()
        );
        let mut meter = meter.clone();
        meter.parties.application.push(self.service.id());
        let outcome = meter.metered(&mut self.installation.command(&line));
        let logs = take_logs(folder)?;
        let (printed, usage) = outcome?;
        Ok(Measure { usage: Some(usage), ..parse(&printed, &logs)? })
    }
}

/// Reads and removes the logs of transactions.
fn take_logs(folder: &Path) -> anyhow::Result<String> {
    let mut all = String::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("transactions.") {
            all += &fs::read_to_string(&path)?;
            fs::remove_file(&path)?;
        }
    }
    Ok(all)
}

/// The rate from what pgbench prints, latencies from its logs.
fn parse(printed: &str, logs: &str) -> anyhow::Result<Measure> {
    let tps = printed.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next());
    let tps = tps.context("pgbench gives no tps")?;
    let mut times: Vec<u32> =
        logs.lines().filter_map(|line| line.split(' ').nth(2)?.parse().ok()).collect();
    ensure!(!times.is_empty(), "pgbench has logged no transactions");
    times.sort_unstable();
    let percentile = |percent: usize| f64::from(times[(times.len() - 1) * percent / 100]);
    Ok(Measure {
        iops: tps.parse().context("pgbench's tps")?,
        latency_us_p50: percentile(50),
        latency_us_p99: percentile(99),
        ..Measure::default()
    })
}

/// Where its programs are: Debian has a folder for each version, of which the newest counts.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = versions.map(|version| version.path().join("bin"));
    let complete = |folder: &PathBuf| {
        ["initdb", "postgres", "pgbench"].iter().all(|program| folder.join(program).is_file())
    };
    let version =
        |folder: &PathBuf| -> Option<u32> { folder.parent()?.file_name()?.to_str()?.parse().ok() };
    folders.filter(complete).max_by_key(version)
}

/// An unprivileged user and group.
fn user() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    ["postgres", "nobody"].iter().find_map(|name| find_user(&users, name))
}

fn find_user(users: &str, name: &str) -> Option<(u32, u32)> {
    let mut fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let fields = fields.find(|fields| fields[0] == name)?;
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    // As pgbench 15 prints it.
    const PRINTED: &str = "\
pgbench (15.18 (Debian 15.18-0+deb12u1))
transaction type: <builtin: select only>
scaling factor: 20
query mode: prepared
number of clients: 4
number of threads: 2
duration: 1 s
number of transactions actually processed: 17310
latency average = 0.230 ms
initial connection time = 8.412 ms
tps = 17421.035421 (without initial connection time)
";

    #[test]
    fn rate_and_latencies_are_read() {
        let logs: String =
            (1..=101).map(|n| format!("0 {n} {} 0 1763700000 {n}\n", 1000 - n)).collect();
        let said = parse(PRINTED, &logs).expect("complete");
        assert_eq!(said.iops, 17421.035421);
        assert_eq!((said.latency_us_p50, said.latency_us_p99), (949.0, 998.0));
    }

    #[test]
    fn absent_figures_are_refused() {
        assert!(parse(PRINTED, "").is_err());
        assert!(parse("pgbench: error: connection failed", "0 1 2 3 4 5\n").is_err());
    }

    #[test]
    fn users_are_found() {
        let users = "root:x:0:0:root:/root:/bin/sh\npostgres:x:105:109:,,,:/var/lib:/bin/bash\n";
        assert_eq!(find_user(users, "postgres"), Some((105, 109)));
        assert_eq!(find_user(users, "post"), None);
    }
}
