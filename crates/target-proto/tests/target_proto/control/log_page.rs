//! Get Log Page, apart from the discovery log.

use super::script::{NQN, Script};
use roadtrain_target_proto::CommandUsage;
use roadtrain_wire::ana::{AnaState, ana_groups};
use roadtrain_wire::fabrics::DISCOVERY_NQN;
use roadtrain_wire::identify::NSID_ALL;
use roadtrain_wire::log::{
    CommandEffectsLog, EffectsTable, ErrorEntry, FirmwareSlotLog, GetLogPage, PARAMETER_NONE,
    SmartLog, lid,
};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::FromBytes;
use std::time::Duration;

const PAGES: [(u8, u32); 11] = [
    (lid::SUPPORTED, 1024),
    (lid::ERROR, 4096),
    (lid::SMART, 512),
    (lid::FIRMWARE_SLOT, 512),
    (lid::CHANGED_NAMESPACES, 4096),
    (lid::COMMAND_EFFECTS, 4096),
    (lid::ANA, 16 + 516 * 32 + 16_384 * 4),
    (lid::FEATURE_EFFECTS, 1024),
    (lid::MI_EFFECTS, 4096),
    (lid::CROSS_CONTROLLER_RESET, 4096),
    (lid::RESERVATION_NOTIFICATION, 64),
];

#[test]
fn pages_are_read_in_pieces_and_zero_behind_their_end() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    for (lid, bytes) in PAGES {
        let whole = script.succeed(cntlid, GetLogPage::new(lid, bytes + 8).emit(0)).data;
        assert_eq!((whole.len() as u32, &whole[bytes as usize..]), (bytes + 8, &[0; 8][..]));
        let tail = GetLogPage { offset: u64::from(bytes) - 8, ..GetLogPage::new(lid, 16) };
        let tail = script.succeed(cntlid, tail.emit(NSID_ALL)).data;
        assert_eq!(tail, whole[whole.len() - 16..], "{lid:#x}");
        let end = GetLogPage { offset: bytes.into(), ..GetLogPage::new(lid, 4) };
        assert_eq!(script.succeed(cntlid, end.emit(0)).data, [0; 4], "{lid:#x}");
        for offset in [u64::from(bytes) + 4, 1 << 32, !3] {
            let beyond = GetLogPage { offset, ..GetLogPage::new(lid, 4) };
            script.fail(cntlid, beyond.emit(0), Status::INVALID_FIELD);
        }
    }
}

#[test]
fn wrong_fields_are_refused() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let smart = GetLogPage::new(lid::SMART, 512);
    for unknown in [0x06, 0x07, 0x08, 0x0d, 0x70, 0x7f, 0x81, 0xc0, 0xff] {
        let get = GetLogPage::new(unknown, 512);
        script.fail(cntlid, get.emit(0), Status::INVALID_LOG_PAGE);
    }
    script.fail(cntlid, smart.emit(1), Status::INVALID_FIELD);
    script.fail(cntlid, GetLogPage { offset: 2, ..smart }.emit(0), Status::INVALID_FIELD);
    script.fail(cntlid, GetLogPage { indexed: true, ..smart }.emit(0), Status::INVALID_FIELD);
    let most = script.target.limits().transfer_bytes_max();
    script.succeed(cntlid, GetLogPage::new(lid::SMART, most).emit(0));
    let too_much = GetLogPage::new(lid::SMART, most + 4);
    script.fail(cntlid, too_much.emit(0), Status::INVALID_FIELD);
    let other_set = GetLogPage { csi: 2, ..GetLogPage::new(lid::COMMAND_EFFECTS, 4096) };
    script.fail(cntlid, other_set.emit(0), Status::INVALID_COMMAND_SET);
    let mut short = smart.emit(0);
    short.set_transport(508);
    script.fail(cntlid, short, Status::DATA_SGL_LENGTH_INVALID);
}

#[test]
fn supported_pages_are_reported_and_no_others() {
    let mut script = Script::new();
    for (nqn, expected) in [
        (NQN, &PAGES.map(|(lid, _)| lid)[..]),
        (DISCOVERY_NQN, &[lid::SUPPORTED, lid::ERROR, lid::FEATURE_EFFECTS, lid::DISCOVERY]),
    ] {
        let cntlid = script.controller(nqn);
        let answer = script.succeed(cntlid, GetLogPage::new(lid::SUPPORTED, 1024).emit(0));
        let table: &EffectsTable = answer.page();
        for lid in 0..=255 {
            let reported = table.entries[usize::from(lid)].get() & 1 != 0;
            let get = GetLogPage::new(lid, 16).emit(0);
            let is_there = script.submit(cntlid, get).unwrap().status.is_success();
            assert_eq!((reported, is_there), (expected.contains(&lid), reported), "{nqn} {lid:#x}");
        }
    }
}

#[test]
fn effects_report_the_supported_commands_and_features() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let answer = script.succeed(cntlid, GetLogPage::new(lid::COMMAND_EFFECTS, 4096).emit(0));
    let log: &CommandEffectsLog = answer.page();
    for opcode in 0..=255u8 {
        let reported = log.admin[usize::from(opcode)].get() & 1 != 0;
        let answer = script.submit(cntlid, Sqe::new(opcode, 0));
        let unknown = answer.is_some_and(|answer| answer.status.is(Status::INVALID_OPCODE));
        assert_eq!(reported, !unknown && opcode != 0x7f, "{opcode:#x}");
    }
    let io: Vec<usize> = (0..256).filter(|&opcode| log.io[opcode].get() & 1 != 0).collect();
    assert_eq!(io, [0, 1, 2, 4, 5, 8, 9, 0xc, 0xd, 0xe, 0x11, 0x15, 0x19]);
    let changing: Vec<usize> = (0..256).filter(|&opcode| log.io[opcode].get() & 2 != 0).collect();
    assert_eq!(changing, [1, 4, 8, 9, 0x19]);

    let answer = script.succeed(cntlid, GetLogPage::new(lid::FEATURE_EFFECTS, 1024).emit(0));
    let table: &EffectsTable = answer.page();
    for fid in 0..=255u8 {
        let reported = table.entries[usize::from(fid)].get() & 1 != 0;
        let mut capabilities = Sqe::new(opcode::GET_FEATURES, 0);
        capabilities.cdw10 = (u32::from(fid) | 3 << 8).into();
        let is_there = script.submit(cntlid, capabilities).unwrap().status.is_success();
        assert_eq!(reported, is_there, "{fid:#x}");
    }
}

#[test]
fn errors_are_logged_newest_first() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    script.fail(cntlid, Sqe::new(0x6c, 5), Status::INVALID_OPCODE);
    let first_cid = script.cid();
    let mut read = Sqe::rw(opcode::READ, 1, 0x1_2345_6789, 8);
    read.cid = 0x4321.into();
    let shared = script.connect_io(cntlid, 2).unwrap().shared;
    shared.record_error(2, &read, Status::LBA_OUT_OF_RANGE.dnr());
    let answer = script.succeed(cntlid, GetLogPage::new(lid::ERROR, 4096).emit(NSID_ALL));
    let entries = <[ErrorEntry]>::ref_from_bytes(&answer.data).unwrap();
    let [newest, oldest, unused, ..] = entries else { panic!("64 entries") };
    assert_eq!((newest.error_count.get(), newest.sqid.get(), newest.cid.get()), (2, 2, 0x4321));
    assert_eq!(newest.status.get(), Status::LBA_OUT_OF_RANGE.dnr().to_field());
    assert_eq!((newest.lba.get(), newest.nsid.get(), newest.opcode), (0x1_2345_6789, 1, 2));
    assert_eq!((newest.trtype, newest.version), (3, 1));
    assert_eq!(newest.parameter.get(), PARAMETER_NONE);
    assert_eq!((oldest.error_count.get(), oldest.cid.get()), (1, first_cid));
    assert_eq!((oldest.parameter.get(), oldest.sqid.get(), oldest.lba.get()), (0, 0, 0));
    assert_eq!(unused.error_count.get(), 0);
}

#[test]
fn only_the_newest_errors_are_kept() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    for _ in 0..100 {
        script.fail(cntlid, Sqe::new(0x6c, 0), Status::INVALID_OPCODE);
    }
    let answer = script.succeed(cntlid, GetLogPage::new(lid::ERROR, 4096).emit(0));
    let entries = <[ErrorEntry]>::ref_from_bytes(&answer.data).unwrap();
    assert!(entries.iter().map(|entry| entry.error_count.get()).eq((37..=100).rev()));
    let answer = script.succeed(cntlid, GetLogPage::new(lid::SMART, 512).emit(0));
    assert_eq!(answer.page::<SmartLog>().error_log_entries.get(), 100);
}

#[test]
fn smart_sums_the_subsystem() {
    let mut script = Script::new();
    let (first, second) = (script.controller(NQN), script.controller(NQN));
    for (cntlid, commands) in [(first, 10), (second, 5)] {
        let shared = script.connect_io(cntlid, 1).unwrap().shared;
        shared.add_usage(&CommandUsage {
            read_commands: commands,
            write_commands: 1,
            read_units: commands * 100,
            write_units: 1000,
        });
    }
    script.target.disconnect(second, 0);
    for _ in 0..3 * 900 {
        script.wait(Duration::from_secs(4));
        script.succeed(first, Sqe::new(opcode::KEEP_ALIVE, 0));
    }
    let answer = script.succeed(first, GetLogPage::new(lid::SMART, 512).emit(NSID_ALL));
    let smart: &SmartLog = answer.page();
    assert_eq!((smart.host_read_commands.get(), smart.host_write_commands.get()), (15, 2));
    assert_eq!((smart.data_units_read.get(), smart.data_units_written.get()), (2, 2));
    assert_eq!((smart.critical_warning, smart.available_spare), (0, 100));
    assert_eq!(smart.power_on_hours.get(), 3);
}

#[test]
fn one_firmware_slot_and_one_ana_group() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let answer = script.succeed(cntlid, GetLogPage::new(lid::FIRMWARE_SLOT, 512).emit(0));
    let slots: &FirmwareSlotLog = answer.page();
    assert!(slots.afi == 1 && slots.frs[0].starts_with(env!("CARGO_PKG_VERSION").as_bytes()));
    let get = GetLogPage::new(lid::ANA, 88);
    let whole = script.succeed(cntlid, get.emit(0)).data;
    let (group, nsids) = ana_groups(&whole).next().unwrap();
    assert_eq!((group.grpid.get(), group.state()), (1, Some(AnaState::Optimized)));
    assert!(nsids.iter().map(|nsid| nsid.get()).eq([1, 3]));
    let groups = script.succeed(cntlid, GetLogPage { lsp: 1, ..get }.emit(0)).data;
    assert_eq!(ana_groups(&groups).next().unwrap().1.len(), 0);
}
