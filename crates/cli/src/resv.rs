//! `roadtrain resv`: reservations of a namespace that several hosts share.

use crate::args::{
    GlobalArgs, ReleaseName, ReservationTypeName, ResvAcquireArgs, ResvArgs, ResvCommand,
    ResvNamespaceArgs, ResvRegisterArgs, ResvReleaseArgs, ResvReportArgs, word,
};
use crate::failure::{CommandFailure, CommandResult};
use crate::identity::show_uuid;
use crate::{connect, logs, output};
use roadtrain_host_engine::{
    HostControlError, HostReservations, ReportedRegistrant, ReservationReport,
};
use roadtrain_wire::status::Status;
use serde::Serialize;

/// `roadtrain resv`
pub(crate) fn run(args: &ResvArgs, global: &GlobalArgs) -> CommandResult {
    logs::start("warn", global.verbose);
    match &args.command {
        ResvCommand::Register(args) => register(args),
        ResvCommand::Acquire(args) => acquire(args),
        ResvCommand::Release(args) => release(args),
        ResvCommand::Report(args) => report(args, global),
    }
}

fn register(args: &ResvRegisterArgs) -> CommandResult {
    let action = (args.rrega.into(), args.iekey);
    let (persistence, keys) = (args.cptpl.into(), (args.crkey, args.nrkey));
    let hint = "this host has another key there, or none: `roadtrain resv report` shows it";
    with(&args.namespace, hint, |reservations, nsid| {
        reservations.register(nsid, action, persistence, keys)
    })
}

fn acquire(args: &ResvAcquireArgs) -> CommandResult {
    let keys = (args.crkey, args.prkey);
    let hint = "this host is not registered with --crkey, another host holds the reservation, or none is \
                registered with --prkey: `roadtrain resv report` shows that";
    with(&args.namespace, hint, |reservations, nsid| {
        reservations.acquire(nsid, args.racqa.into(), args.rtype.into(), keys)
    })
}

fn release(args: &ResvReleaseArgs) -> CommandResult {
    if args.rrela == ReleaseName::Release && args.rtype.is_none() {
        return Err(CommandFailure::usage("--rtype: give the type of the reservation to release"));
    }
    let kind = args.rtype.map(Into::into);
    let hint = "this host is not registered with --crkey: `roadtrain resv report` shows the registered hosts";
    with(&args.namespace, hint, |reservations, nsid| {
        reservations.release(nsid, args.rrela.into(), kind, args.crkey)
    })
}

/// Connects, runs `work`, and disconnects in order in any case. `hint` explains a Reservation Conflict.
fn with<T>(
    args: &ResvNamespaceArgs,
    hint: &str,
    work: impl FnOnce(&mut HostReservations, u32) -> Result<T, HostControlError>,
) -> CommandResult<T> {
    let config = connect::config(&args.portal, &args.nqn, &args.connect)?;
    let mut reservations = HostReservations::connect(&config)?;
    let done = work(&mut reservations, args.nsid);
    reservations.close();
    done.map_err(|error| match error {
        HostControlError::Command { what, status } if status.is(Status::RESERVATION_CONFLICT) => {
            CommandFailure::failed(format!("{what}: Reservation Conflict: {hint}"))
        }
        HostControlError::Command { what, status } if status.is(Status::HOST_ID_INCONSISTENT) => {
            CommandFailure::failed(format!("{what} failed: {status}: use --eds"))
        }
        error => error.into(),
    })
}

fn report(args: &ResvReportArgs, global: &GlobalArgs) -> CommandResult {
    let bytes = args.numd.map(|dwords| dwords * 4);
    let report = with(&args.namespace, "", |reservations, nsid| {
        let extended = args.eds || reservations.has_long_identifiers();
        reservations.report(nsid, extended, bytes)
    })?;
    let shown = ShownReservations::new(&report);
    if global.json { output::json(&shown) } else { output::line(&shown.text(&report)) }
}

/// A report with nvme-cli's field names.
#[derive(Serialize)]
struct ShownReservations {
    r#gen: u32,
    /// 0: no reservation.
    rtype: u8,
    regctl: u16,
    ptpls: u8,
    regctlext: Vec<ShownRegistrant>,
}

#[derive(Serialize)]
struct ShownRegistrant {
    /// 65535: no controller at present.
    cntlid: u16,
    rcsts: u8,
    rkey: u64,
    host_id: String,
}

impl ShownReservations {
    fn new(report: &ReservationReport) -> Self {
        let shown = |registrant: &ReportedRegistrant| ShownRegistrant {
            cntlid: registrant.cntlid.unwrap_or(u16::MAX),
            rcsts: registrant.is_holder.into(),
            rkey: registrant.key,
            host_id: show_uuid(&registrant.hostid),
        };
        ShownReservations {
            r#gen: report.generation,
            rtype: report.kind.map_or(0, |kind| kind.emit()),
            regctl: report.registered,
            ptpls: report.persists.into(),
            regctlext: report.registrants.iter().map(shown).collect(),
        }
    }

    fn text(&self, report: &ReservationReport) -> String {
        let kind = report.kind.map_or("none".into(), |kind| word(&ReservationTypeName::from(kind)));
        let persists = if report.persists { "yes" } else { "no" };
        let head = format!(
            "reservation: {kind}\ngeneration: {}\npersists through power loss: {persists}",
            report.generation
        );
        if self.regctlext.is_empty() {
            return format!("{head}\nno host is registered");
        }
        let row = |one: &ReportedRegistrant| {
            let cntlid = one.cntlid.map_or("-".into(), |cntlid| cntlid.to_string());
            let holds = if one.is_holder { "yes" } else { "no" };
            vec![show_uuid(&one.hostid), format!("{:#x}", one.key), holds.into(), cntlid]
        };
        let rows: Vec<Vec<String>> = report.registrants.iter().map(row).collect();
        format!("{head}\n{}", output::columns(&["host", "key", "holds", "controller"], &rows))
    }
}
