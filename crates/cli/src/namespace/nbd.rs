//! Settings of an export of an NBD server.

use super::{NamespaceKind, NamespaceSettings};
use crate::units::parse_seconds;
use roadtrain_nbd_store::{NbdServerAddress, NbdSource, NbdStoreSettings, NbdTlsFiles};
use roadtrain_store::RemoteBlocks;
use std::path::PathBuf;
use std::time::Duration;

/// Options of the connection.
pub(super) const OPTIONS: [&str; 10] = [
    "export",
    "tls-psk",
    "tls-user",
    "tls-certificates",
    "tls-hostname",
    "connections",
    "connect-timeout",
    "reconnect-delay",
    "io-timeout",
    "fast-io-fail-tmo",
];
/// Options whose values are files or directories.
pub(super) const FILES: [&str; 2] = ["tls-psk", "tls-certificates"];
/// Maximum number of connections.
const CONNECTIONS_MAX: usize = 64;

impl NamespaceSettings {
    /// Returns the settings of an export, as on the command line.
    pub(super) fn nbd(location: &str) -> Self {
        let remote = Some(location.to_owned());
        NamespaceSettings { remote, ..NamespaceSettings::new(NamespaceKind::Nbd) }
    }

    pub(super) fn check_nbd(&self) -> Result<(), String> {
        if !self.paths.is_empty() {
            return Err("path is for nvme: an NBD server has one address".into());
        }
        if self.reservations.is_some() {
            return Err("hosts of other users of an export would not know of reservations, so they are refused: \
                        leave reservations out"
                .into());
        }
        self.nbd_source().map(drop)
    }

    /// Returns the blocks of the export. Reads no file.
    pub(super) fn nbd_blocks(&self) -> Result<RemoteBlocks, String> {
        self.nbd_source().map(RemoteBlocks::new)
    }

    fn nbd_source(&self) -> Result<NbdSource, String> {
        let address: NbdServerAddress = self.remote.as_deref().unwrap_or_default().parse()?;
        let mut options = self.connect.options(&OPTIONS)?;
        let mut settings = NbdStoreSettings { lba_bytes: self.lba, ..NbdStoreSettings::default() };
        let mut tls = TlsOptions::default();
        for (name, value) in &options {
            let wrong = |error: String| format!("{name}={value}: {error}");
            match *name {
                "export" => settings.export.clone_from(value),
                "tls-psk" => tls.psk = Some(value.into()),
                "tls-user" => tls.user = Some(value.clone()),
                "tls-certificates" => tls.certificates = Some(value.into()),
                "tls-hostname" => tls.hostname = Some(value.clone()),
                "connections" => settings.connections = Some(connections(value).map_err(wrong)?),
                "connect-timeout" => {
                    settings.connect_timeout = some_seconds(value).map_err(wrong)?;
                }
                "reconnect-delay" => {
                    settings.reconnect_delay = some_seconds(value).map_err(wrong)?;
                }
                "io-timeout" => {
                    let limit = parse_seconds(value).map_err(wrong)?;
                    settings.io_timeout = Some(limit).filter(|limit| !limit.is_zero());
                }
                _ => settings.fast_io_fail = loss_timeout(value).map_err(wrong)?,
            }
        }
        settings.tls = tls.files()?;
        if self.lba != super::default_lba() {
            options.push(("lba", self.lba.to_string()));
        }
        NbdSource::new(address, settings, options)
    }

    /// Returns the path of the server's Unix socket.
    pub(super) fn socket(&self) -> Option<PathBuf> {
        let remote = self.remote.as_deref().filter(|_| self.kind == NamespaceKind::Nbd)?;
        remote.strip_prefix("unix:").map(PathBuf::from)
    }

    /// Makes the path of the server's Unix socket absolute.
    pub(super) fn make_socket_absolute(&mut self) {
        if let Some(path) = self.socket().and_then(|path| std::path::absolute(path).ok()) {
            self.remote = Some(format!("unix:{}", path.display()));
        }
    }
}

/// Options of TLS as they are written.
#[derive(Default)]
struct TlsOptions {
    psk: Option<PathBuf>,
    user: Option<String>,
    certificates: Option<PathBuf>,
    hostname: Option<String>,
}

impl TlsOptions {
    fn files(self) -> Result<Option<NbdTlsFiles>, String> {
        let TlsOptions { psk, user, certificates, hostname } = self;
        match (psk, certificates) {
            (Some(_), Some(_)) => Err("tls-psk and tls-certificates: write one of both".into()),
            (None, _) if user.is_some() => Err("tls-user needs tls-psk=FILE".into()),
            (_, None) if hostname.is_some() => {
                Err("tls-hostname needs tls-certificates=DIRECTORY".into())
            }
            (Some(path), None) => Ok(Some(NbdTlsFiles::Keys { path, user })),
            (None, Some(directory)) => Ok(Some(NbdTlsFiles::Certificates { directory, hostname })),
            (None, None) => Ok(None),
        }
    }
}

fn connections(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=CONNECTIONS_MAX).contains(number));
    number.ok_or_else(|| format!("write a number from 1 to {CONNECTIONS_MAX}"))
}

fn some_seconds(text: &str) -> Result<Duration, String> {
    let time = parse_seconds(text)?;
    if time.is_zero() { Err("write a time above 0".into()) } else { Ok(time) }
}

fn loss_timeout(text: &str) -> Result<Option<Duration>, String> {
    match text {
        "-1" => Ok(None),
        _ => parse_seconds(text).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_store::StoreKind;
    use roadtrain_target_engine::ExportBlocks;

    fn parse(text: &str) -> Result<NamespaceSettings, String> {
        text.parse()
    }

    #[test]
    fn an_export_is_written_as_it_is_read() {
        for text in [
            "nbd:unix:/run/x.sock,nsid=1",
            "nbd:unix:/run/x.sock,export=007,fast-io-fail-tmo=-1,lba=4096,nsid=2,ro",
            "nbd:tcp:[::1]:10809,connections=2,tls-psk=/k.psk,tls-user=alice,nsid=3",
        ] {
            let settings = parse(text).unwrap();
            assert_eq!(settings.to_string(), text);
            let exported = settings.export().unwrap();
            let ExportBlocks::Spec(spec) = &exported.blocks else { panic!() };
            let StoreKind::Remote(blocks) = &spec.kind else { panic!("{spec:?}") };
            assert!(text.starts_with(&blocks.to_string()), "{blocks}");
            let again = NamespaceSettings::of_export(&exported).unwrap();
            assert_eq!(again.export().unwrap(), exported);
            let table = toml::to_string(&settings).unwrap();
            assert_eq!(toml::from_str::<NamespaceSettings>(&table).unwrap(), settings, "{table}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            ("nbd:", "nbd:unix:/PATH"),
            ("nbd:/run/x.sock", "nbd:unix:/PATH"),
            ("nbd:tcp:", "nbd:tcp:HOST:PORT"),
            ("nbd:unix:/x,size=1GiB", "its own size"),
            ("nbd:unix:/x,tls-psk=k", "no TLS"),
            ("nbd:tcp:a:1,tls-psk=k,tls-certificates=c", "one of both"),
            ("nbd:tcp:a:1,tls-user=k", "needs tls-psk"),
            ("nbd:tcp:a:1,tls-hostname=k", "needs tls-certificates"),
            ("nbd:unix:/x,connections=0", "from 1 to 64"),
            ("nbd:unix:/x,conections=2", "did you mean connections?"),
            ("nbd:unix:/x,reconnect-delay=0", "above 0"),
            ("nbd:unix:/x,path=y", "for nvme"),
            ("nbd:unix:/x,reservations=none", "leave reservations out"),
            ("nbd:unix:/x,hdgst", "unknown option"),
            ("nbd:unix:/x,standby", "standby is for"),
            ("mem:1MiB,export=x", "unknown option"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_socket_has_an_absolute_path() {
        let mut settings = parse("nbd:unix:x.sock").unwrap();
        settings.make_paths_absolute();
        let path = settings.socket().unwrap();
        assert!(path.is_absolute() && path.ends_with("x.sock"), "{path:?}");
        assert_eq!(settings.connect_files(), [path]);
    }
}
