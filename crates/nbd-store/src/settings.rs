//! Settings of a store's connections.

use crate::NbdTlsFiles;
use std::time::Duration;

/// Settings of a store's connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdStoreSettings {
    /// Name of the export; empty: the default one.
    pub export: String,
    /// Files for TLS; `None`: without TLS.
    pub tls: Option<NbdTlsFiles>,
    /// Block size of hosts in bytes, 512 or 4096; larger if the server has larger ones.
    pub lba_bytes: u32,
    /// Number of connections, if the server allows several; `None`: one for each reactor, 4 at most.
    pub connections: Option<usize>,
    /// Time limit for a connection, until the export can be used.
    pub connect_timeout: Duration,
    /// Pause before the first attempt to reconnect; it doubles up to 10 seconds.
    pub reconnect_delay: Duration,
    /// Time without a server after which operations fail; `None`: they wait for ever.
    pub fast_io_fail: Option<Duration>,
    /// Silence of a server that has requests after which the connections are made again; `None`: no limit.
    pub io_timeout: Option<Duration>,
}

impl Default for NbdStoreSettings {
    fn default() -> NbdStoreSettings {
        NbdStoreSettings {
            export: String::new(),
            tls: None,
            lba_bytes: 512,
            connections: None,
            connect_timeout: Duration::from_secs(5),
            reconnect_delay: Duration::from_millis(250),
            fast_io_fail: Some(Duration::from_secs(600)),
            io_timeout: None,
        }
    }
}
