//! Reservations of a namespace, by blocking calls (NVMe Base 2.1, section 8.1.24). They belong to the host, whatever
//! controllers it has: a registration here holds for an attachment with the same host identifier.

use super::admin::AdminConnection;
use super::config::HostConfig;
use super::error::HostControlError;
use roadtrain_wire::identify::{NSID_ALL, ctratt};
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::reservation::{
    AcquireAction, CNTLID_NONE, ChangePersistence, Notification, NotificationLog, ONE_KEY_BYTES,
    RCSTS_HOLDER, RegisterAction, ReleaseAction, ReportEntry, ReportEntryExtended,
    ReservationAcquire, ReservationRegister, ReservationRelease, ReservationReportFields,
    ReservationType, TwoKeys, parse_extended, parse_short,
};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::zerocopy::{FromZeros, IntoBytes};

/// Bytes of the first report that is requested; a longer one is requested again.
const REPORT_BYTES: u32 = 4096;
/// Longest report: 16,383 registrants.
const REPORT_BYTES_MAX: u32 = 1 << 20;

/// Controller of a registrant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedRegistrant {
    /// Controller identifier; `None`: the registrant has no controller now.
    pub cntlid: Option<u16>,
    /// True if it holds the reservation.
    pub is_holder: bool,
    /// Host identifier; one of 64 bits is in the first bytes.
    pub hostid: [u8; 16],
    /// Reservation key.
    pub key: u64,
}

/// Reservation status of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationReport {
    /// Generation, which grows with each change of registrations.
    pub generation: u32,
    /// Reservation type, if there is a reservation.
    pub kind: Option<ReservationType>,
    /// True if the reservation persists through power loss.
    pub persists: bool,
    /// Number of registrants, one for each controller, including those that did not fit the report.
    pub registered: u16,
    /// Registrants in the report.
    pub registrants: Vec<ReportedRegistrant>,
}

/// Queue for reservation commands, with a controller of its own.
pub struct HostReservations {
    config: HostConfig,
    admin: AdminConnection,
    has_long_identifiers: bool,
}

impl HostReservations {
    /// Connects to `config.subsystem_nqn`, as the host that `config` names.
    ///
    /// # Errors
    /// Anything that keeps the controller from being ready.
    pub fn connect(config: &HostConfig) -> Result<Self, HostControlError> {
        let mut admin = AdminConnection::connect_patiently(config)?;
        let attributes = admin.connect_io()?.identify.ctratt.get();
        let has_long_identifiers = attributes & ctratt::HOST_ID_128 != 0;
        Ok(HostReservations { config: config.clone(), admin, has_long_identifiers })
    }

    /// Registers the key `new`, unregisters, or replaces the key `current` by `new`. `ignores_key`: whatever the host's
    /// key is.
    ///
    /// # Errors
    /// The connection's, or its status: Reservation Conflict if the key is another one.
    pub fn register(
        &mut self,
        nsid: u32,
        (action, ignores_key): (RegisterAction, bool),
        persistence: ChangePersistence,
        (current, new): (u64, u64),
    ) -> Result<(), HostControlError> {
        let (action, persistence) = (Some(action), Some(persistence));
        let sqe = ReservationRegister { action, ignores_key, persistence }.emit(nsid);
        let keys = TwoKeys { current: current.into(), other: new.into() };
        self.run("Reservation Register", &sqe, keys.as_bytes())
    }

    /// Acquires a reservation of that type with the key `current`, or takes it from those whose key is `preempted`.
    ///
    /// # Errors
    /// The connection's, or its status: Reservation Conflict if the host is no registrant with that key, or another one holds a
    /// reservation.
    pub fn acquire(
        &mut self,
        nsid: u32,
        action: AcquireAction,
        kind: ReservationType,
        (current, preempted): (u64, u64),
    ) -> Result<(), HostControlError> {
        let (action, kind) = (Some(action), Some(kind));
        let sqe = ReservationAcquire { action, ignores_key: false, kind }.emit(nsid);
        let keys = TwoKeys { current: current.into(), other: preempted.into() };
        self.run("Reservation Acquire", &sqe, keys.as_bytes())
    }

    /// Releases a reservation of that type with the key `current`, or clears all registrations.
    ///
    /// # Errors
    /// The connection's, or its status: Reservation Conflict if the host is no registrant with that key.
    pub fn release(
        &mut self,
        nsid: u32,
        action: ReleaseAction,
        kind: Option<ReservationType>,
        current: u64,
    ) -> Result<(), HostControlError> {
        let sqe = ReservationRelease { action: Some(action), ignores_key: false, kind }.emit(nsid);
        let key: [u8; ONE_KEY_BYTES] = current.to_le_bytes();
        self.run("Reservation Release", &sqe, &key)
    }

    fn run(&mut self, what: &'static str, sqe: &Sqe, data: &[u8]) -> Result<(), HostControlError> {
        self.admin.run_io(what, sqe, data, &mut []).map(drop)
    }

    /// Reads the reservation status of a namespace. `extended`: with host identifiers of 128 bits, which is required if
    /// the controller has those ([`HostReservations::has_long_identifiers`]). `bytes`: maximum size of the report, a
    /// multiple of 4; `None`: all.
    ///
    /// # Errors
    /// The connection fails, the status is not success, or the report is invalid.
    pub fn report(
        &mut self,
        nsid: u32,
        extended: bool,
        bytes: Option<u32>,
    ) -> Result<ReservationReport, HostControlError> {
        let mut wanted = bytes.unwrap_or(REPORT_BYTES);
        loop {
            let mut page = vec![0; wanted as usize];
            let sqe = ReservationReportFields { bytes: wanted.into(), extended }.emit(nsid);
            self.admin.run_io("Reservation Report", &sqe, &[], &mut page)?;
            let report = parse(&page, extended)
                .ok_or_else(|| HostControlError::Controller("a report without a head".into()))?;
            let is_whole = report.registrants.len() >= usize::from(report.registered);
            if bytes.is_some() || is_whole || wanted >= REPORT_BYTES_MAX {
                return Ok(report);
            }
            wanted = REPORT_BYTES_MAX.min(64 + 64 * (u32::from(report.registered) + 16));
        }
    }

    /// True if the controller has host identifiers of 128 bits, as those over fabrics have.
    #[must_use]
    pub fn has_long_identifiers(&self) -> bool {
        self.has_long_identifiers
    }

    /// Returns the oldest unread Reservation Notification of this controller, with its namespace.
    ///
    /// # Errors
    /// The connection's, or its status.
    pub fn next_notification(&mut self) -> Result<Option<(Notification, u32)>, HostControlError> {
        let mut log = NotificationLog::new_zeroed();
        let get = GetLogPage::new(lid::RESERVATION_NOTIFICATION, size_of_val(&log) as u32);
        let what = "Get Log Page (Reservation Notification)";
        self.admin.run(what, &get.emit(NSID_ALL), &[], log.as_mut_bytes())?;
        Ok(Notification::parse(log.kind).map(|kind| (kind, log.nsid.get())))
    }

    /// Shuts the controller down normally; registrations stay.
    pub fn close(self) {
        let timeout = self.config.timeout;
        self.admin.shut_down(timeout);
    }
}

/// Parses a report as far as it is complete.
fn parse(page: &[u8], extended: bool) -> Option<ReservationReport> {
    let controller = |cntlid: u16| Some(cntlid).filter(|&cntlid| cntlid != CNTLID_NONE);
    let (head, registrants) = if extended {
        let (head, entries) = parse_extended(page)?;
        let registrant = |entry: &ReportEntryExtended| ReportedRegistrant {
            cntlid: controller(entry.cntlid.get()),
            is_holder: entry.rcsts & RCSTS_HOLDER != 0,
            hostid: entry.hostid,
            key: entry.key.get(),
        };
        (head, entries.iter().map(registrant).collect())
    } else {
        let (head, entries) = parse_short(page)?;
        let registrant = |entry: &ReportEntry| {
            let mut hostid = [0; 16];
            hostid[..8].copy_from_slice(entry.hostid.as_bytes());
            ReportedRegistrant {
                cntlid: controller(entry.cntlid.get()),
                is_holder: entry.rcsts & RCSTS_HOLDER != 0,
                hostid,
                key: entry.key.get(),
            }
        };
        (head, entries.iter().map(registrant).collect())
    };
    Some(ReservationReport {
        generation: head.generation.get(),
        kind: ReservationType::parse(head.rtype),
        persists: head.ptpls & 1 != 0,
        registered: head.registrants.get(),
        registrants,
    })
}
