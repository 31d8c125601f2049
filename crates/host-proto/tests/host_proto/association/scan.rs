//! Namespaces and ANA states of controllers with lists and logs of several pages.

use super::*;
use roadtrain_host_proto::namespace_scan::{self, ChangedNsids};
use roadtrain_host_proto::procedure::{Procedure, ProcedureDriver, ProcedureStep};
use roadtrain_wire::ana::{ANA_GROUPS_ONLY, AnaGroup, AnaHeader, AnaState};
use roadtrain_wire::identify::{
    IdentifyController, IdentifyNamespace, LbaFormat, NSID_ALL, NamespaceList, cmic, cns, lpa,
};
use roadtrain_wire::log::GetLogPage;
use roadtrain_wire::zerocopy::{FromZeros, IntoBytes};
use std::collections::BTreeSet;

type ScanResult<T> = Result<T, ProcedureFailure<&'static str>>;

/// Controller with these active namespaces, each in an ANA group of its own.
#[derive(Default)]
struct ScannedController {
    active: Vec<u32>,
    lpa: u8,
    /// Changes of the ANA log between the next reads.
    ana_changes: u32,
    chgcnt: u64,
    /// NSIDs of Identify Namespace commands, first NSIDs of list commands, and offsets of log commands.
    identified: Vec<u32>,
    listed: Vec<u32>,
    read: Vec<(u64, u64)>,
}

impl ScannedController {
    fn new(active: impl IntoIterator<Item = u32>) -> Self {
        let active = active.into_iter().collect();
        ScannedController { active, lpa: lpa::EXTENDED_DATA, ..ScannedController::default() }
    }

    fn execute(&mut self, sqe: &Sqe) -> Vec<u8> {
        let (nsid, what) = (sqe.nsid.get(), sqe.cdw10.get() as u8);
        match (sqe.opcode, what) {
            (opcode::IDENTIFY, cns::ACTIVE_NAMESPACES) => {
                self.listed.push(nsid);
                let above = self.active.iter().copied().filter(|one| *one > nsid);
                NamespaceList::from_nsids(above).as_bytes().to_vec()
            }
            (opcode::IDENTIFY, cns::NAMESPACE) => {
                self.identified.push(nsid);
                let mut page = IdentifyNamespace::new_zeroed();
                (page.nsze, page.ncap, page.anagrpid) = (9.into(), 9.into(), nsid.into());
                page.lbaf[0] = LbaFormat { ms: 0.into(), lbads: 9, rp: 0 };
                page.as_bytes().to_vec()
            }
            (opcode::IDENTIFY, cns::NAMESPACE_DESCRIPTORS) => vec![0; 4096],
            (opcode::GET_LOG_PAGE, _) => self.ana_log(&GetLogPage::parse(sqe)),
            _ => panic!("{sqe:?}"),
        }
    }

    fn ana_log(&mut self, get: &GetLogPage) -> Vec<u8> {
        self.read.push((get.offset, get.bytes));
        self.chgcnt += u64::from(self.ana_changes > 0);
        self.ana_changes = self.ana_changes.saturating_sub(1);
        let groups = self.active.len() as u16;
        let mut log = AnaHeader::new(self.chgcnt, groups).as_bytes().to_vec();
        for nsid in &self.active {
            let nsids = if get.lsp & ANA_GROUPS_ONLY == 0 { &[*nsid][..] } else { &[] };
            let group = AnaGroup::new(*nsid, nsids.len() as u32, 1, state_of(*nsid));
            log.extend([group.as_bytes(), nsids.as_bytes()].concat());
        }
        let (from, bytes) = (get.offset as usize, get.bytes as usize);
        log.resize(log.len().max(from + bytes), 0);
        log[from..from + bytes].to_vec()
    }

    fn identify(&self) -> IdentifyController {
        let mut page = IdentifyController::new_zeroed();
        (page.cmic, page.lpa, page.mdts) = (cmic::ANA, self.lpa, 8);
        (page.nn, page.mnan, page.nanagrpid) = (16_384.into(), 16_384.into(), 16_384.into());
        page
    }

    fn carry_out<T, F: Future<Output = ScanResult<T>> + Send + 'static>(
        &mut self,
        body: impl FnOnce(ProcedureDriver<&'static str>) -> F,
    ) -> ScanResult<T> {
        let mut procedure = Procedure::new(body);
        loop {
            match procedure.poll(Instant(0)) {
                ProcedureStep::Request(DriverRequest::Run { command, .. }) => {
                    let data = self.execute(&command.sqe);
                    procedure.answer(Ok(completed(Status::SUCCESS, 0, data)));
                }
                ProcedureStep::Ended(ended) => return ended,
                _ => panic!("the procedure waits for something else"),
            }
        }
    }
}

fn state_of(nsid: u32) -> AnaState {
    AnaState::ALL[nsid as usize % AnaState::ALL.len()]
}

#[test]
fn lists_of_several_pages_are_read_to_their_end() {
    for (count, pages) in [(0, 1), (1, 1), (1023, 1), (1024, 2), (1025, 2), (4096, 5), (16_384, 17)]
    {
        let nsids: Vec<u32> = (0..count).map(|n| n * 3 + 1).collect();
        let mut controller = ScannedController::new(nsids.clone());
        let found =
            controller.carry_out(|driver| async move { namespace_scan::all(&driver).await });
        assert!(found.unwrap().iter().map(|one| one.nsid).eq(nsids), "{count}");
        assert_eq!(controller.listed.len(), pages, "{count}");
    }
    let mut controller = ScannedController::new(1..=16_385);
    let found = controller.carry_out(|driver| async move { namespace_scan::all(&driver).await });
    assert!(matches!(found, Err(ProcedureFailure::Controller(why)) if why.contains("16384")));
}

#[test]
fn only_changed_and_new_namespaces_are_read_again() {
    let mut controller = ScannedController::new(1..=2000);
    let known = controller.carry_out(|driver| async move { namespace_scan::all(&driver).await });
    let known = known.unwrap();
    controller.identified.clear();
    controller.active.retain(|nsid| *nsid != 7);
    controller.active.push(3000);
    let changed = ChangedNsids::Only(BTreeSet::from([7, 1500]));
    let of = known.clone();
    let again = |driver| async move { namespace_scan::again(&driver, &of, &changed).await };
    let found = controller.carry_out(again).unwrap();
    assert_eq!(controller.identified, [1500, 3000]);
    assert!(found.iter().map(|one| one.nsid).eq(controller.active.iter().copied()));
    assert_eq!(found[5], known[5]);

    let again =
        |driver| async move { namespace_scan::again(&driver, &known, &ChangedNsids::Any).await };
    controller.identified.clear();
    assert_eq!(controller.carry_out(again).unwrap(), found);
    assert_eq!(controller.identified.len(), 2000, "any may have changed");
}

#[test]
fn a_list_of_changes_that_overflows_stands_for_all() {
    let of = |nsids: &[u32]| {
        let list = NamespaceList::from_nsids(nsids.iter().copied());
        ChangedNsids::parse(list.as_bytes())
    };
    assert_eq!(of(&[3, 9]), ChangedNsids::Only(BTreeSet::from([3, 9])));
    assert_eq!(of(&[NSID_ALL]), ChangedNsids::Any);
    assert_eq!(of(&[]), ChangedNsids::Any, "the event was about some namespace");
    assert_eq!(ChangedNsids::parse(&[0; 12]), ChangedNsids::Any);
}

/// A log of 16,384 groups has 590 KB, in pieces of 64 KiB.
#[test]
fn a_long_ana_log_is_read_in_pieces() {
    for (count, pieces) in [(0, 1), (3, 1), (1820, 1), (1821, 3), (16_384, 11)] {
        let mut controller = ScannedController::new(1..=count);
        let identify = controller.identify();
        let ana = |driver| async move { namespace_scan::ana(&driver, &identify).await };
        let table = controller.carry_out(ana).unwrap();
        assert!(
            table.iter().copied().eq((1..=count).map(|nsid| (nsid, state_of(nsid)))),
            "{count}"
        );
        assert_eq!(controller.read.len(), pieces, "{count}: {:?}", controller.read);
        assert!(controller.read.iter().all(|(_, bytes)| *bytes <= 64 << 10));
    }
}

#[test]
fn an_ana_log_that_changes_between_pieces_is_read_anew() {
    for (changes, reads) in [(1, 3), (2, 6), (4, 6), (5, 9), (100, 12)] {
        let mut controller = ScannedController::new(1..=2000);
        controller.ana_changes = changes;
        let identify = controller.identify();
        let ana = |driver| async move { namespace_scan::ana(&driver, &identify).await };
        assert_eq!(controller.carry_out(ana).unwrap().len(), 2000);
        assert_eq!(controller.read.len(), reads, "{changes} changes");
    }
}

#[test]
fn a_controller_without_offsets_returns_its_log_at_once() {
    let mut controller = ScannedController { lpa: 0, ..ScannedController::new(1..=4096) };
    let identify = controller.identify();
    let ana = |driver| async move { namespace_scan::ana(&driver, &identify).await };
    assert_eq!(controller.carry_out(ana).unwrap().len(), 4096);
    assert_eq!(controller.read, [(0, 16 + 16_384 * 36)]);
}

#[test]
fn states_of_groups_are_those_of_their_namespaces() {
    let mut controller = ScannedController::new(1..=1000);
    let known = controller.carry_out(|driver| async move { namespace_scan::all(&driver).await });
    let (known, identify) = (known.unwrap(), controller.identify());
    let groups =
        |driver| async move { namespace_scan::ana_of_groups(&driver, &identify, &known).await };
    let table = controller.carry_out(groups).unwrap();
    assert!(table.iter().copied().eq((1..=1000).map(|nsid| (nsid, state_of(nsid)))));
    assert_eq!(controller.read, [(0, 64 << 10)]);
}
