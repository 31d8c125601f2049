//! Search for links that lanes do not have, while the lanes live: at local ports that do not reach the target, and to
//! addresses of the target without a link.

use super::address::EtherAddress;
use super::discovery::find_more;
use super::ports::{Ports, shared_port_config};
use super::probe::probe;
use super::route::{LinkPath, Survey};
use crate::link::LinkError;
use roadtrain_ether_proto::fence::{Fence, LaneRoute};
use roadtrain_wire::ether::MacAddress;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;
use tracing::debug;

/// Interval of searches.
const EVERY: Duration = Duration::from_secs(1);
/// Approximate memory for received frames, in bytes.
const RECEIVE_BYTES: usize = 64 << 10;

/// Target of the search, and the local interfaces.
#[derive(Clone, Debug)]
pub(crate) struct Whereabouts {
    pub(crate) address: EtherAddress,
    pub(crate) nqn: String,
    pub(crate) endpoint: [u8; 16],
}

/// Path to a target, and all addresses of the target.
#[derive(Clone, Debug)]
pub(crate) struct FoundPath {
    pub(crate) endpoint: [u8; 16],
    pub(crate) path: LinkPath,
    pub(crate) addresses: Arc<[MacAddress]>,
}

impl FoundPath {
    /// Returns the path for a lane whose thread has this many ports before those that the path is counted from.
    pub(crate) fn after(&self, ports: usize) -> FoundPath {
        let mut found = self.clone();
        found.path.route.port += ports;
        found
    }

    /// Lets the `fence` end earlier lanes over this path, too.
    pub(crate) fn add_to(&self, fence: &mut Fence) {
        fence.add_route(&self.endpoint, self.path.route);
    }
}

impl Survey {
    /// Returns the links that lead to current addresses of the target.
    pub(super) fn used(&self) -> impl Iterator<Item = LaneRoute> {
        self.routes.iter().copied().filter(|route| self.addresses.contains(&route.peer))
    }

    /// True if more links may exist from this many ports.
    fn is_incomplete(&self, ports: usize) -> bool {
        let leads_to = |address: &MacAddress| self.routes.iter().any(|r| r.peer == *address);
        (0..ports).any(|port| self.used().all(|route| route.port != port))
            || !self.addresses.iter().all(leads_to)
    }
}

/// Thread that searches while links may be missing; it ends when this is dropped.
pub(crate) struct PathDiscovery {
    surveys: Sender<Survey>,
}

impl PathDiscovery {
    /// Starts the search. It passes each path to `found`, repeatedly until a survey has it.
    ///
    /// # Errors
    /// The system has no resources left.
    pub(crate) fn start(
        target: Whereabouts,
        found: impl Fn(FoundPath) + Send + 'static,
    ) -> io::Result<PathDiscovery> {
        let (surveys, news) = channel();
        let body = move || {
            let (mut survey, mut ports) = (None, None);
            while let Some(now) = next(&news, &mut survey, target.address.interfaces.len()) {
                match now {
                    Some(survey) => {
                        if let Err(error) = check(&target, survey, &mut ports, &found) {
                            debug!("the search for links has failed: {error}");
                            ports = None;
                        }
                    }
                    None => ports = None,
                }
            }
        };
        thread::Builder::new().name("roadtrain-paths".into()).spawn(body)?;
        Ok(PathDiscovery { surveys })
    }

    /// Passes the links that lanes have now.
    pub(crate) fn update(&self, survey: Survey) {
        let _ = self.surveys.send(survey);
    }
}

/// Waits until a search for a survey is due, or until no link is missing (`Some(None)`); `None`: the search has ended.
fn next<'a>(
    news: &Receiver<Survey>,
    survey: &'a mut Option<Survey>,
    ports: usize,
) -> Option<Option<&'a Survey>> {
    if !survey.as_ref().is_some_and(|survey| survey.is_incomplete(ports)) {
        *survey = Some(news.recv().ok()?);
        return Some(None);
    }
    match news.recv_timeout(EVERY) {
        Ok(new) => *survey = Some(new),
        Err(RecvTimeoutError::Timeout) => return Some(survey.as_ref()),
        Err(RecvTimeoutError::Disconnected) => return None,
    }
    Some(None)
}

fn check(
    target: &Whereabouts,
    survey: &Survey,
    ports: &mut Option<Ports>,
    found: &impl Fn(FoundPath),
) -> Result<(), LinkError> {
    let Whereabouts { address, nqn, endpoint } = target;
    let ports = match ports {
        Some(ports) => ports,
        None => {
            ports.insert(Ports::open(address, &shared_port_config(&address.port, RECEIVE_BYTES))?)
        }
    };
    for path in find_more(ports, nqn, endpoint, survey)? {
        if let Some(path) = probe(ports, path)? {
            let addresses = survey.addresses.as_slice().into();
            found(FoundPath { endpoint: *endpoint, path, addresses });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surveys_with_missing_links_are_incomplete() {
        let mac = |byte| MacAddress([byte; 6]);
        let survey = |addresses: &[u8], routes: &[(usize, u8)]| Survey {
            addresses: addresses.iter().map(|&byte| mac(byte)).collect(),
            routes: routes
                .iter()
                .map(|&(port, peer)| LaneRoute { port, peer: mac(peer) })
                .collect(),
        };
        assert!(!survey(&[1, 2], &[(0, 1), (1, 2)]).is_incomplete(2));
        assert!(survey(&[1, 2], &[(0, 1), (1, 1)]).is_incomplete(2), "an address without link");
        assert!(survey(&[1], &[(0, 1)]).is_incomplete(2), "a port without link");
        assert!(survey(&[1, 3], &[(0, 1), (1, 2)]).is_incomplete(2), "an address has changed");
        assert!(survey(&[1], &[(0, 1), (1, 2)]).is_incomplete(2), "an address has gone");
        assert!(!survey(&[1], &[(0, 1), (0, 2)]).is_incomplete(1));
    }
}
