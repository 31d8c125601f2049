//! Checks of a configuration against this machine: directories, cores, addresses, and access without authentication.

use crate::config::{ServeConfig, Spelling};
use crate::failure::{CommandFailure, CommandResult};
use roadtrain_system::platform::listen_problem;
use roadtrain_target_engine::{ServerConfig, TlsUse};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use tracing::warn;

/// Checks the directories for requests of RPC.
///
/// # Errors
/// A directory that does not exist.
pub(super) fn folders(config: &ServeConfig) -> CommandResult {
    if let Some(path) = &config.state {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let name = config.spelling.name("state");
        is_folder(&name, folder.unwrap_or(Path::new(".")))?;
        if path.is_dir() {
            return Err(CommandFailure::usage(format!(
                "{name} {}: is a folder: name a file in it",
                path.display()
            )));
        }
    }
    let name = config.spelling.name("file_roots");
    config.file_roots.iter().try_for_each(|root| is_folder(&name, root))
}

fn is_folder(what: &str, path: &Path) -> CommandResult {
    let problem = match path.metadata() {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => "is no folder".to_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => "there is no such folder".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(CommandFailure::usage(format!("{what} {}: {problem}: make it first", path.display())))
}

/// Checks that this process may run on the cores: a reactor elsewhere would be slow for no visible reason.
///
/// # Errors
/// The first core that it may not use.
pub(super) fn cores(cores: &[usize], spelling: &Spelling) -> CommandResult {
    let allowed = rustix::thread::sched_getaffinity(None).map_err(std::io::Error::from)?;
    let is_there = |core: usize| core < rustix::thread::CpuSet::MAX_CPU && allowed.is_set(core);
    match cores.iter().find(|core| !is_there(**core)) {
        Some(core) => Err(CommandFailure::usage(format!(
            "{}: core {core} does not exist, or this process may not use it: /proc/self/status has those that are \
             (Cpus_allowed_list)",
            spelling.name("cores")
        ))),
        None => Ok(()),
    }
}

/// Checks cores and addresses for `--check-config`. A start tries the addresses itself.
///
/// # Errors
/// The first one that this machine does not have.
pub(super) fn machine(
    config: &ServerConfig,
    spelling: &Spelling,
    others: &[Option<SocketAddr>],
) -> CommandResult {
    cores(&config.cores, spelling)?;
    // The port may be in use, by the target that is to be restarted with this file.
    let addresses = config.listen.iter().chain(others.iter().flatten());
    for address in addresses {
        let ip = SocketAddr::new(address.ip(), 0);
        let free = match (ip, address) {
            (SocketAddr::V6(ip), SocketAddr::V6(scoped)) => {
                SocketAddr::V6(std::net::SocketAddrV6::new(*ip.ip(), 0, 0, scoped.scope_id()))
            }
            _ => ip,
        };
        TcpListener::bind(free).map_err(|error| {
            let problem = listen_problem(free, &error);
            CommandFailure::usage(format!("address {}: {problem}", address.ip()))
        })?;
    }
    Ok(())
}

/// Warns of each subsystem that any host can use which reaches this machine.
pub(super) fn warn_if_open(config: &ServerConfig, spelling: &Spelling) {
    let tls = |at: &SocketAddr| {
        config.tls.as_ref().map_or(TlsUse::Off, |tls| tls.at.get(at).copied().unwrap_or(tls.tls))
    };
    let is_open =
        |at: &&SocketAddr| !at.ip().to_canonical().is_loopback() && tls(at) != TlsUse::Required;
    let address = config.listen.iter().find(is_open).map(|at| format!("at {at}"));
    let frames = config.ether.as_ref().map(|ether| format!("on {}", ether.interfaces().join(", ")));
    let Some(place) = address.or(frames) else { return };
    let authentication = &config.authentication;
    for subsystem in &config.subsystems {
        let nqn = &subsystem.nqn;
        let proves = authentication.required
            || authentication.required_at.contains(nqn)
            || authentication.tls_at.contains(nqn);
        if subsystem.allowed_hosts.is_none() && !proves && subsystem.listeners.is_none() {
            let tls = spelling.form("tls.mode").text("tls.mode", "required");
            let [hosts, auth] =
                ["allow_hosts", "authentication.required"].map(|k| spelling.name(k));
            warn!(
                "any host that reaches this target {place} can read and write {nqn}: name hosts ({hosts}), have them authenticate ({auth}, {tls}), or listen on an address that only they reach"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{CommandLine, RoadtrainCommand};
    use clap::Parser;

    fn parsed(options: &str) -> ServeConfig {
        let line = format!("roadtrain serve -n nqn.2026-11.test:a --namespace mem:8k {options}");
        let Ok(CommandLine { command: RoadtrainCommand::Serve(args), .. }) =
            CommandLine::try_parse_from(line.split(' '))
        else {
            panic!("{line}");
        };
        ServeConfig::from_args(&args).unwrap()
    }

    #[test]
    fn folders_have_to_be_there() {
        let there = tempfile::tempdir().unwrap();
        let there = there.path().display();
        for (options, problem) in [
            (format!("--rpc {there}/s --state {there}/x --file-root {there}"), None),
            (format!("--rpc {there}/s --state {there}/none/x"), Some("no such folder")),
            (format!("--rpc {there}/s --state {there}"), Some("is a folder")),
            (format!("--rpc {there}/s --file-root {there}/none"), Some("no such folder")),
            (format!("--rpc {there}/s --file-root /dev/null"), Some("is no folder")),
        ] {
            let found = folders(&parsed(&format!("-a 127.0.0.1 {options}")));
            match (found, problem) {
                (Ok(()), None) => {}
                (Err(failure), Some(text)) => {
                    assert!(failure.message.contains(text), "{}", failure.message);
                    assert_eq!(failure.status(), 2);
                }
                (found, _) => panic!("{options}: {found:?}"),
            }
        }
    }

    #[test]
    fn cores_and_addresses_are_this_machines() {
        let options = Spelling::of_command_line();
        let check = |line: &str| machine(&parsed(line).server().unwrap(), &options, &[]);
        check("-a 127.0.0.1").unwrap();
        let core = check("-a 127.0.0.1 --cores 4095").unwrap_err();
        assert!(core.message.starts_with("--cores: core 4095"), "{}", core.message);
        let file = Spelling::default();
        let config = parsed("-a 127.0.0.1 --cores 4095").server().unwrap();
        let core = machine(&config, &file, &[]).unwrap_err();
        assert!(core.message.starts_with("cores: core 4095"), "{}", core.message);
        let address = check("-a 198.51.100.213").unwrap_err();
        let said = "address 198.51.100.213: it is no address of this machine";
        assert!(address.message.starts_with(said), "{}", address.message);
        let other = Some("198.51.100.214:80".parse().unwrap());
        let config = parsed("-a 127.0.0.1").server().unwrap();
        assert!(machine(&config, &file, &[None, other]).is_err());
    }
}
