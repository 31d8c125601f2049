//! Get LBA Status: the checks of the control plane.

use super::script::{HOST, HOSTID, NQN, Script, add, config, connect_sqe, remove, resize};
use roadtrain_target_proto::{AdminOutcome, LbaStatusQuery, NamespaceConfig};
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, Connect, ConnectData, DISCOVERY_NQN};
use roadtrain_wire::lba_status::{GetLbaStatus, action, condition, list_bytes, parse_list};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::time::Duration;

/// Blocks of namespace 1, 512 bytes each; namespace 3 has 1000 of 4096 bytes.
const BLOCKS: u64 = 0x10_0000;

const GET: GetLbaStatus =
    GetLbaStatus { slba: 0, blocks: None, bytes: 4096, action: action::ALLOCATED };

/// Returns the query for a store.
fn wanted(script: &mut Script, cntlid: u16, sqe: Sqe) -> Result<LbaStatusQuery, Status> {
    match script.target.admin_command(script.now, cntlid, &sqe, &[], &mut Vec::new()) {
        AdminOutcome::QueryLbaStatus(wanted) => Ok(wanted),
        AdminOutcome::Complete { status, .. } => Err(status),
        other => panic!("{other:?}"),
    }
}

#[test]
fn ranges_are_those_of_the_namespace() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let (whole, last) = (0, BLOCKS - 1);
    for (nsid, slba, blocks, expected) in [
        (1, whole, None, Ok((9, BLOCKS))),
        (1, whole, Some(1), Ok((9, 1))),
        (1, 7, None, Ok((9, BLOCKS - 7))),
        (1, last, None, Ok((9, 1))),
        (1, last, Some(1), Ok((9, 1))),
        (1, BLOCKS - 0xffff, Some(0xffff), Ok((9, 0xffff))),
        (3, 999, None, Ok((12, 1))),
        (1, last, Some(2), Err(Status::LBA_OUT_OF_RANGE)),
        (1, BLOCKS, None, Err(Status::LBA_OUT_OF_RANGE)),
        (1, BLOCKS, Some(1), Err(Status::LBA_OUT_OF_RANGE)),
        (1, u64::MAX, None, Err(Status::LBA_OUT_OF_RANGE)),
        (1, u64::MAX, Some(u16::MAX), Err(Status::LBA_OUT_OF_RANGE)),
        (3, 1000, None, Err(Status::LBA_OUT_OF_RANGE)),
        (2, 0, None, Err(Status::INVALID_NAMESPACE)),
        (0, 0, None, Err(Status::INVALID_NAMESPACE)),
        (16_385, 0, None, Err(Status::INVALID_NAMESPACE)),
        (u32::MAX, 0, None, Err(Status::INVALID_NAMESPACE)),
    ] {
        let found = wanted(&mut script, cntlid, GetLbaStatus { slba, blocks, ..GET }.emit(nsid));
        let expected = expected.map_err(Status::dnr).map(|(lba_shift, blocks)| LbaStatusQuery {
            nsid,
            lba_shift,
            slba,
            blocks,
            bytes: 4096,
            timeout: Duration::from_secs(1),
        });
        assert_eq!(found, expected, "nsid {nsid}, {slba}, {blocks:?}");
    }
}

#[test]
fn other_fields_are_checked() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    for action in [0, 1, 3, action::SCAN, action::TRACKED, 0xff] {
        script.fail(cntlid, GetLbaStatus { action, ..GET }.emit(1), Status::INVALID_FIELD);
    }
    let most = u64::from(script.target.limits().transfer_bytes_max());
    for (bytes, is_taken) in [(4, true), (8, true), (most, true), (most + 4, false)] {
        let sqe = GetLbaStatus { bytes, ..GET }.emit(1);
        let found = wanted(&mut script, cntlid, sqe);
        assert_eq!(found.is_ok(), is_taken, "{bytes}: {found:?}");
    }
    let mut all = GET.emit(1);
    all.cdw12 = u32::MAX.into();
    script.fail(cntlid, all, Status::INVALID_FIELD);
    for length in [0, 4092, 4100, u32::MAX] {
        let mut other = GET.emit(1);
        other.set_transport(length);
        script.fail(cntlid, other, Status::DATA_SGL_LENGTH_INVALID);
    }
    let mut in_capsule = GET.emit(1);
    in_capsule.set_in_capsule(4096);
    script.fail(cntlid, in_capsule, Status::SGL_TYPE_INVALID);
}

#[test]
fn it_is_for_controllers_that_are_ready_and_have_namespaces() {
    let mut script = Script::new();
    let cntlid = script.connect_as(HOST, NQN).unwrap().cntlid;
    script.fail(cntlid, GET.emit(1), Status::COMMAND_SEQUENCE_ERROR);
    script.enable(cntlid);
    assert!(wanted(&mut script, cntlid, GET.emit(1)).is_ok());
    let discovery = script.controller(DISCOVERY_NQN);
    script.fail(discovery, GET.emit(1), Status::INVALID_OPCODE);
}

#[test]
fn changes_of_a_namespace_count_at_once() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    script.target.apply(&[resize(1, 8)]).unwrap();
    assert_eq!(wanted(&mut script, cntlid, GET.emit(1)).map(|wanted| wanted.blocks), Ok(8));
    let behind = GetLbaStatus { slba: 8, ..GET }.emit(1);
    assert_eq!(wanted(&mut script, cntlid, behind), Err(Status::LBA_OUT_OF_RANGE.dnr()));
    script.target.apply(&[remove(1)]).unwrap();
    let gone = Err(Status::INVALID_NAMESPACE.dnr());
    assert_eq!(wanted(&mut script, cntlid, GET.emit(1)), gone);
    // Another namespace was added there, and the host has not learnt of the removal.
    script.target.apply(&[add(NQN, NamespaceConfig::new(1, 64, 9))]).unwrap();
    assert_eq!(wanted(&mut script, cntlid, GET.emit(1)), gone);
}

#[test]
fn unknown_blocks_are_reported_as_allocated() {
    let list = |blocks, bytes| {
        let mut data = vec![0xee; bytes];
        let (bytes, patience) = (bytes as u32, Duration::ZERO);
        let wanted =
            LbaStatusQuery { nsid: 1, lba_shift: 9, slba: 5, blocks, bytes, timeout: patience };
        wanted.report_allocated(&mut data);
        let (head, descriptors) = parse_list(&data).unwrap();
        let ranges: Vec<_> = descriptors.iter().map(|d| (d.dslba.get(), d.nlb.get())).collect();
        (ranges, head.condition)
    };
    assert_eq!(list(10, list_bytes(1)), (vec![(5, 9)], condition::COMPLETE));
    assert_eq!(list(10, list_bytes(0)), (vec![], condition::NO_ROOM));
    let long = (1 << 32) + 1;
    assert_eq!(list(long, list_bytes(1)), (vec![(5, u32::MAX)], condition::NO_ROOM));
    let two = vec![(5, u32::MAX), (5 + (1 << 32), 0)];
    assert_eq!(list(long, list_bytes(2)), (two, condition::COMPLETE));
    assert_eq!(config().subsystems[0].namespaces[0].blocks, BLOCKS);
}

#[test]
fn a_store_has_less_time_where_hosts_have_less_patience() {
    let mut script = Script::new();
    for (kato_ms, expected) in [(0, 1000), (60_000, 1000), (2000, 500), (400, 100)] {
        let connect = Connect { kato_ms, ..connect_sqe(0, 31) };
        let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, NQN, HOST);
        let cntlid = script.connect(connect, &data).unwrap().cntlid;
        script.enable(cntlid);
        let patience = wanted(&mut script, cntlid, GET.emit(1)).unwrap().timeout;
        assert_eq!(patience, Duration::from_millis(expected), "{kato_ms}");
    }
}
