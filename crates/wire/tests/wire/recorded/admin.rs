//! Admin commands and their pages: our code reads what Linux's target has reported, and builds the commands of Linux's
//! host again.

use super::capture::Recorded;
use super::session::{data, for_every_pdu, view};
use roadtrain_wire::ana::{AnaState, ana_groups};
use roadtrain_wire::discovery::{DiscoveryEntry, DiscoveryLogHeader, adrfam, subtype, trtype};
use roadtrain_wire::fabrics::{DISCOVERY_NQN, parse_nqn};
use roadtrain_wire::feature::{AsyncEvent, GetFeatures, NumberOfQueues, Select, event_type, fid};
use roadtrain_wire::feature::{SetFeatures, notice};
use roadtrain_wire::identify::{
    IdentifyController, IdentifyNamespace, NamespaceDescriptor, NamespaceList, cns, cntrltype,
    namespace_descriptors, parse_ascii,
};
use roadtrain_wire::log::{GetLogPage, SmartLog, lid};
use roadtrain_wire::pdu::{C2hData, CapsuleCmd, CapsuleResp, PduType, flag};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::zerocopy::FromBytes;
use std::collections::HashMap;

/// The kernel target's subsystem in all recordings.
const NQN: &str = "nqn.2024-01.test:kernel";

/// An admin command with its response and data.
struct AdminExchange {
    name: String,
    sqe: Sqe,
    page: Vec<u8>,
    result: u64,
    status: u16,
}

/// Returns all exchanges on the admin queues.
fn exchanges() -> Vec<AdminExchange> {
    let mut open: HashMap<(String, usize, u16), (Sqe, Vec<u8>)> = HashMap::new();
    let mut done = Vec::new();
    let mut is_admin: HashMap<(String, usize), bool> = HashMap::new();
    for_every_pdu(|name, pdu, layout, _| {
        let key = |cid: u16| (name.to_owned(), pdu.connection, cid);
        match layout.kind {
            PduType::CapsuleCmd => {
                let sqe = view::<CapsuleCmd>(&pdu.bytes).sqe;
                learn_queue(&mut is_admin, name, pdu, &sqe);
                open.insert(key(sqe.cid.get()), (sqe, Vec::new()));
            }
            PduType::C2hData => {
                let cid = view::<C2hData>(&pdu.bytes).cccid.get();
                let (_, page) = open.get_mut(&key(cid)).expect("data of a known command");
                page.extend_from_slice(data(pdu, layout));
                if pdu.bytes[1] & flag::SUCCESS != 0 {
                    open.remove(&key(cid)); // no response follows (I/O queues only)
                }
            }
            PduType::CapsuleResp => {
                let cqe = view::<CapsuleResp>(&pdu.bytes).cqe;
                let (sqe, page) = open.remove(&key(cqe.cid.get())).expect("a known command");
                if is_admin[&(name.to_owned(), pdu.connection)] {
                    let (result, status) = (cqe.result(), cqe.status().to_field() >> 1);
                    done.push(AdminExchange { name: name.to_owned(), sqe, page, result, status });
                }
            }
            _ => {}
        }
    });
    done
}

/// Takes the queue of a connection from Connect, its first command.
fn learn_queue(
    is_admin: &mut HashMap<(String, usize), bool>,
    name: &str,
    pdu: &Recorded,
    sqe: &Sqe,
) {
    let qid = sqe.cdw10.get() >> 16;
    is_admin.entry((name.to_owned(), pdu.connection)).or_insert(qid == 0);
}

/// Returns the successful exchanges of an opcode.
fn succeeded(opcode: u8) -> Vec<AdminExchange> {
    exchanges().into_iter().filter(|e| e.sqe.opcode == opcode && e.status == 0).collect()
}

fn identified(wanted: u8) -> Vec<AdminExchange> {
    let mut all = succeeded(opcode::IDENTIFY);
    all.retain(|e| e.sqe.cdw10.get() as u8 == wanted);
    assert!(!all.is_empty(), "no recording has Identify with CNS {wanted:#x}");
    all
}

fn logged(wanted: u8) -> Vec<AdminExchange> {
    let mut all = succeeded(opcode::GET_LOG_PAGE);
    all.retain(|e| GetLogPage::parse(&e.sqe).lid == wanted);
    assert!(!all.is_empty(), "no recording has log page {wanted:#x}");
    all
}

#[test]
fn identify_controller_is_read() {
    for AdminExchange { name, page, .. } in identified(cns::CONTROLLER) {
        let controller = IdentifyController::ref_from_bytes(&page).expect("4,096 bytes");
        assert_eq!(parse_ascii(&controller.mn), "Linux", "{name}");
        let nqn = parse_nqn(&controller.subnqn).expect("a subsystem NQN");
        if name.contains("discover") {
            assert_eq!(nqn, DISCOVERY_NQN, "{name}");
            assert_eq!(controller.cntrltype, cntrltype::DISCOVERY, "{name}");
            continue;
        }
        assert_eq!(nqn, NQN, "{name}");
        assert_eq!(parse_ascii(&controller.sn), "RT-KERNEL-0001", "{name}");
        assert_eq!((controller.sqes, controller.cqes), (0x66, 0x44), "{name}");
        let in_capsule_bytes = if name == "io-inline1k-4kn" { 1024 } else { 16384 };
        assert_eq!(controller.ioccsz.get() * 16, 64 + in_capsule_bytes, "{name}");
        assert_eq!(controller.iorcsz.get() * 16, 16, "{name}");
    }
}

#[test]
fn identify_namespace_is_read() {
    for AdminExchange { name, sqe, page, .. } in identified(cns::NAMESPACE) {
        let namespace = IdentifyNamespace::ref_from_bytes(&page).expect("4,096 bytes");
        if !namespace.is_active() {
            assert!(["errors", "namespace-events"].contains(&&name[..]), "{name}");
            continue;
        }
        let block_bytes = if name == "io-inline1k-4kn" { 4096 } else { 512 };
        assert_eq!(namespace.block_bytes(), Some(block_bytes), "{name}");
        assert_eq!(namespace.nsze.get() * u64::from(block_bytes), 512 << 20, "{name}, {sqe:?}");
        assert!(!namespace.is_read_only(), "{name}");
    }
}

#[test]
fn namespace_lists_are_read() {
    for AdminExchange { name, sqe, page, .. } in identified(cns::ACTIVE_NAMESPACES) {
        let list = NamespaceList::ref_from_bytes(&page).expect("4,096 bytes");
        let nsids: Vec<u32> = list.iter().collect();
        let above = sqe.nsid.get();
        let possible: &[&[u32]] = match (&name[..], above) {
            ("namespace-events", 0) => &[&[1], &[1, 2], &[2]],
            (_, 0) => &[&[1]],
            _ => &[&[]],
        };
        assert!(possible.contains(&&nsids[..]), "{name}: {nsids:?} above {above}");
        assert_eq!(NamespaceList::from_nsids(nsids).nsids, list.nsids);
    }
}

#[test]
fn namespace_descriptors_are_built_again() {
    for AdminExchange { name, page, .. } in identified(cns::NAMESPACE_DESCRIPTORS) {
        let mut built = vec![0; page.len()];
        let mut at = 0;
        let mut has_identifier = false;
        for descriptor in namespace_descriptors(&page) {
            has_identifier |= !matches!(descriptor, NamespaceDescriptor::Csi(_));
            at += descriptor.emit(&mut built[at..]).expect("it had room");
        }
        assert!(has_identifier, "{name}");
        assert_eq!(built, page, "{name}");
    }
}

#[test]
fn get_log_page_is_built_again() {
    let all = succeeded(opcode::GET_LOG_PAGE);
    assert!(all.len() > 20, "only {} Get Log Page commands", all.len());
    for AdminExchange { name, sqe, page, .. } in all {
        let get = GetLogPage::parse(&sqe);
        assert_eq!(get.bytes, page.len() as u64, "{name}: {get:?}");
        let mut built = get.emit(sqe.nsid.get());
        built.cid = sqe.cid;
        assert_eq!(built, sqe, "{name}: {get:?}");
    }
}

#[test]
fn discovery_log_is_read() {
    let mut entries = 0;
    for AdminExchange { name, sqe, page, .. } in logged(lid::DISCOVERY) {
        let get = GetLogPage::parse(&sqe);
        let mut rest = &page[..];
        if get.offset == 0 {
            let (header, tail) = DiscoveryLogHeader::ref_from_prefix(rest).unwrap_or_else(|_| {
                // nvme-cli reads only the first bytes.
                (DiscoveryLogHeader::ref_from_bytes(&[0; 1024]).unwrap(), &[])
            });
            assert!(page.len() < 1024 || header.numrec.get() == 2, "{name}");
            rest = tail;
        }
        while let Ok((entry, tail)) = DiscoveryEntry::ref_from_prefix(rest) {
            rest = tail;
            entries += 1;
            assert_eq!((entry.trtype, entry.adrfam), (trtype::TCP, adrfam::IPV4), "{name}");
            assert_eq!(entry.trsvcid(), "4420", "{name}");
            let wanted = match entry.subtype {
                subtype::CURRENT_DISCOVERY => DISCOVERY_NQN,
                subtype::NVM => NQN,
                other => panic!("{name}: subtype {other}"),
            };
            assert_eq!(entry.subnqn(), Some(wanted), "{name}");
        }
    }
    assert!(entries >= 4, "only {entries} discovery entries");
}

#[test]
fn ana_log_is_read() {
    for AdminExchange { name, sqe, page, .. } in logged(lid::ANA) {
        if GetLogPage::parse(&sqe).offset != 0 {
            continue; // nvme-cli reads on in pieces
        }
        let groups: Vec<_> = ana_groups(&page).collect();
        assert!(!groups.is_empty(), "{name}");
        for (group, nsids) in groups {
            assert_eq!(group.state(), Some(AnaState::Optimized), "{name}");
            assert!(nsids.iter().all(|n| (1..=2).contains(&n.get())), "{name}");
        }
    }
}

#[test]
fn smart_log_is_read() {
    for AdminExchange { name, page, .. } in logged(lid::SMART) {
        let smart = SmartLog::ref_from_bytes(&page).expect("512 bytes");
        assert_eq!(smart.critical_warning, 0, "{name}");
        assert!(smart.host_read_commands.get() > 0, "{name}");
    }
}

#[test]
fn features_are_read() {
    let mut queues = 0;
    for AdminExchange { name, sqe, result, .. } in succeeded(opcode::SET_FEATURES) {
        let set = SetFeatures::parse(&sqe);
        if set.fid == fid::NUMBER_OF_QUEUES {
            let requested = NumberOfQueues::parse(set.value).expect("allowed");
            let granted = NumberOfQueues::parse(result as u32).expect("allowed");
            assert!((1..=2).contains(&requested.submission), "{name}");
            assert!(granted.submission >= requested.submission, "{name}");
            assert_eq!(SetFeatures::emit(set.fid, set.value).cdw11, sqe.cdw11);
            queues += 1;
        }
    }
    assert!(queues >= 15, "only {queues} connects requested queues");
    let gets: Vec<u8> = succeeded(opcode::GET_FEATURES)
        .iter()
        .map(|e| GetFeatures::parse(&e.sqe))
        .map(|get| (get.select == Some(Select::Current)).then_some(get.fid).expect("current"))
        .collect();
    for wanted in [fid::NUMBER_OF_QUEUES, fid::ASYNC_EVENT_CONFIG, fid::KEEP_ALIVE_TIMER] {
        assert!(gets.contains(&wanted), "{gets:x?}");
    }
}

#[test]
fn asynchronous_events_are_read() {
    let events: Vec<AsyncEvent> = succeeded(opcode::ASYNC_EVENT_REQUEST)
        .iter()
        .map(|e| AsyncEvent::parse(e.result as u32))
        .collect();
    let changed = AsyncEvent {
        event_type: event_type::NOTICE,
        information: notice::NAMESPACE_ATTRIBUTE,
        lid: lid::CHANGED_NAMESPACES,
    };
    assert!(events.contains(&changed), "{events:?}");
    assert!(events.iter().all(|e| AsyncEvent::parse(e.emit()) == *e));
}
