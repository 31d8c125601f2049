//! Asynchronous events of a controller (NVMe Base 2.1, section 5.1.2).
//!
//! A notice is reported once, then masked until the host has read its log page. Further occurrences in the meantime
//! coalesce.

use roadtrain_proto::error::CommandError;
use roadtrain_wire::feature::{AsyncEvent, RESERVATION_LOG_AVAILABLE, event_type, notice};
use roadtrain_wire::identify::oaes;
use roadtrain_wire::log::lid;
use roadtrain_wire::status::Status;
use std::collections::VecDeque;

/// Outstanding Asynchronous Event Requests of a host, at most (AERL + 1).
pub(super) const AER_MAX: usize = 4;
/// Critical warnings of the SMART log: hosts may enable them, but they never occur.
const SMART_WARNINGS: u32 = 0xff;

/// Kinds of notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventNotice {
    NamespaceAttribute,
    AnaChange,
    DiscoveryLog,
    CrossControllerReset,
    /// A Reservation Notification log page is available; its own feature masks it.
    Reservation,
}

const NOTICES: [EventNotice; 5] = [
    EventNotice::NamespaceAttribute,
    EventNotice::AnaChange,
    EventNotice::DiscoveryLog,
    EventNotice::CrossControllerReset,
    EventNotice::Reservation,
];

impl EventNotice {
    /// True if that Asynchronous Event Configuration enables the notice.
    fn is_enabled(self, config: u32) -> bool {
        let bit = match self {
            EventNotice::NamespaceAttribute => oaes::NAMESPACE_ATTRIBUTE,
            EventNotice::AnaChange => oaes::ANA_CHANGE,
            EventNotice::DiscoveryLog => oaes::DISCOVERY_LOG,
            EventNotice::CrossControllerReset => oaes::CROSS_CONTROLLER_RESET,
            EventNotice::Reservation => return true,
        };
        config & bit != 0
    }

    fn event(self) -> AsyncEvent {
        let (information, lid) = match self {
            EventNotice::NamespaceAttribute => {
                (notice::NAMESPACE_ATTRIBUTE, lid::CHANGED_NAMESPACES)
            }
            EventNotice::AnaChange => (notice::ANA_CHANGE, lid::ANA),
            EventNotice::DiscoveryLog => (notice::DISCOVERY_LOG, lid::DISCOVERY),
            EventNotice::CrossControllerReset => {
                (notice::CROSS_CONTROLLER_RESET, lid::CROSS_CONTROLLER_RESET)
            }
            EventNotice::Reservation => (RESERVATION_LOG_AVAILABLE, lid::RESERVATION_NOTIFICATION),
        };
        let event_type = match self {
            EventNotice::Reservation => event_type::COMMAND_SET,
            _ => event_type::NOTICE,
        };
        AsyncEvent { event_type, information, lid }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct NoticeState {
    pending: bool,
    masked: bool,
}

/// Events of one controller.
#[derive(Debug)]
pub(super) struct Events {
    supported: u32,
    enabled: u32,
    requests: VecDeque<u16>,
    states: [NoticeState; NOTICES.len()],
}

impl Events {
    /// Returns the events of a controller that reports `supported` in OAES; all are disabled.
    pub(super) fn new(supported: u32) -> Self {
        Events { supported, enabled: 0, requests: VecDeque::new(), states: Default::default() }
    }

    /// Returns the current Asynchronous Event Configuration.
    pub(super) fn enabled(&self) -> u32 {
        self.enabled
    }

    /// Sets the Asynchronous Event Configuration. Returns false if it has unsupported events.
    pub(super) fn enable(&mut self, config: u32) -> bool {
        if config & !(self.supported | SMART_WARNINGS) != 0 {
            return false;
        }
        self.enabled = config;
        for (notice, state) in NOTICES.iter().zip(&mut self.states) {
            state.pending &= notice.is_enabled(config);
        }
        true
    }

    /// Adds an Asynchronous Event Request.
    pub(super) fn request(&mut self, cid: u16) -> Result<(), CommandError> {
        if self.requests.len() >= AER_MAX {
            return Err(CommandError::new(Status::AER_LIMIT_EXCEEDED));
        }
        self.requests.push_back(cid);
        Ok(())
    }

    /// Removes the request `cid`. Returns false if there is none.
    pub(super) fn abort(&mut self, cid: u16) -> bool {
        let found = self.requests.iter().position(|&request| request == cid);
        found.is_some_and(|index| self.requests.remove(index).is_some())
    }

    /// Removes the request whose identifier `cid` a new command uses: its host considers it ended, and receives no
    /// completion.
    pub(super) fn retire(&mut self, cid: u16) {
        self.requests.retain(|&request| request != cid);
    }

    /// Records an occurrence of `notice`.
    pub(super) fn raise(&mut self, notice: EventNotice) {
        if notice.is_enabled(self.enabled) {
            self.states[notice as usize].pending = true;
        }
    }

    /// True if `notice` is enabled, and the host has not read its log page since the last occurrence.
    pub(super) fn is_unread(&self, notice: EventNotice) -> bool {
        let state = self.states[notice as usize];
        state.pending || state.masked
    }

    /// Records that the host has read the notice's log page; `again`: it has changed since.
    pub(super) fn acknowledge(&mut self, notice: EventNotice, again: bool) {
        let enabled = notice.is_enabled(self.enabled);
        self.states[notice as usize] = NoticeState { pending: again && enabled, masked: false };
    }

    /// Returns the next request to complete, with its event.
    pub(super) fn poll(&mut self) -> Option<(u16, AsyncEvent)> {
        let cid = *self.requests.front()?;
        let ready = |notice: &&EventNotice| {
            let state = self.states[**notice as usize];
            state.pending && !state.masked
        };
        let notice = *NOTICES.iter().find(ready)?;
        self.states[notice as usize] = NoticeState { pending: false, masked: true };
        self.requests.pop_front();
        Some((cid, notice.event()))
    }

    /// Resets the events to the defaults, for a controller reset. Returns the outstanding requests.
    pub(super) fn reset(&mut self) -> VecDeque<u16> {
        let old = core::mem::replace(self, Events::new(self.supported));
        old.requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events() -> Events {
        let mut events = Events::new(oaes::NAMESPACE_ATTRIBUTE | oaes::ANA_CHANGE);
        assert!(events.enable(0x900));
        events
    }

    #[test]
    fn disabled_notices_do_not_happen() {
        let mut events = Events::new(oaes::DISCOVERY_LOG);
        events.request(1).unwrap();
        events.raise(EventNotice::DiscoveryLog);
        assert_eq!(events.poll(), None);
        assert!(!events.enable(oaes::NAMESPACE_ATTRIBUTE), "not supported here");
        assert!(events.enable(oaes::DISCOVERY_LOG));
        assert_eq!(events.poll(), None, "it happened before it was enabled");
        events.raise(EventNotice::DiscoveryLog);
        assert!(events.enable(0));
        assert_eq!(events.poll(), None);
    }

    #[test]
    fn requests_are_limited_and_abortable() {
        let mut events = events();
        for cid in 0..AER_MAX as u16 {
            events.request(cid).unwrap();
        }
        let error = events.request(9).unwrap_err();
        assert!(error.status.is(Status::AER_LIMIT_EXCEEDED) && error.status.is_dnr());
        assert!(events.abort(2) && !events.abort(2));
        assert!(events.request(9).is_ok());
        assert!(events.reset().into_iter().eq([0, 1, 3, 9]));
        assert_eq!(events.enabled(), 0);
    }
}
