//! Looks for a target at ports that did not reach it when its lanes were made, as long as they live.

use super::address::EtherAddress;
use super::discovery::{Path, find_at};
use super::ports::{Ports, beside};
use super::probe::probe;
use crate::host::link::LinkError;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use tracing::debug;

/// How often is looked.
const EVERY: Duration = Duration::from_secs(1);
/// About how much memory frames that arrive may take.
const RECEIVE_BYTES: usize = 64 << 10;

/// What is looked for, and where.
#[derive(Clone, Debug)]
pub(crate) struct Absent {
    pub(crate) address: EtherAddress,
    pub(crate) nqn: String,
    pub(crate) endpoint: [u8; 16],
    /// Ports without a link.
    pub(crate) ports: Vec<usize>,
}

/// A thread that looks; it ends when this is dropped, or when no port is left.
pub(crate) struct Scout {
    _stop: Sender<()>,
}

impl Scout {
    /// Tells `found` of each path, once for each port.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(crate) fn start(
        mut absent: Absent,
        found: impl Fn(Path) + Send + 'static,
    ) -> io::Result<Scout> {
        let (stop, stopped) = channel();
        let body = move || {
            let mut ports = None;
            while !absent.ports.is_empty() && goes_on(&stopped) {
                if let Err(error) = look(&mut absent, &mut ports, &found) {
                    debug!("links are not looked for: {error}");
                    ports = None;
                }
            }
        };
        thread::Builder::new().name("roadtrain-scout".into()).spawn(body)?;
        Ok(Scout { _stop: stop })
    }
}

fn goes_on(stopped: &Receiver<()>) -> bool {
    stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout)
}

fn look(
    absent: &mut Absent,
    ports: &mut Option<Ports>,
    found: &impl Fn(Path),
) -> Result<(), LinkError> {
    let Absent { address, nqn, endpoint, ports: wanted } = absent;
    let ports = match ports {
        Some(ports) => ports,
        None => ports.insert(Ports::open(address, &beside(&address.port, RECEIVE_BYTES))?),
    };
    for path in find_at(ports, wanted, nqn, endpoint)? {
        if let Some(path) = probe(ports, path)? {
            wanted.retain(|&port| port != path.route.port);
            found(path);
        }
    }
    Ok(())
}
