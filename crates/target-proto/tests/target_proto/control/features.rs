//! Get Features and Set Features.

use super::script::{HOSTID, KATO_MS, NQN, Script};
use roadtrain_wire::fabrics::DISCOVERY_NQN;
use roadtrain_wire::feature::{SetFeatures, fid};
use roadtrain_wire::identify::NSID_ALL;
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;

const DEFAULT: u32 = 1;
const SAVED: u32 = 2;
const CAPABILITIES: u32 = 3;

fn get(fid: u8, select: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode::GET_FEATURES, 0);
    sqe.cdw10 = (u32::from(fid) | select << 8).into();
    sqe
}

/// (feature, default, changeable) of features without data.
const PLAIN: [(u8, u64, bool); 10] = [
    (fid::ARBITRATION, 7, false),
    (fid::POWER_MANAGEMENT, 0, false),
    (fid::TEMPERATURE_THRESHOLD, 0x157, true),
    (fid::ERROR_RECOVERY, 0, false),
    (fid::VOLATILE_WRITE_CACHE, 1, true),
    (fid::NUMBER_OF_QUEUES, 0x007f_007f, true),
    (fid::WRITE_ATOMICITY, 0, false),
    (fid::ASYNC_EVENT_CONFIG, 0, true),
    (fid::KEEP_ALIVE_TIMER, 0, true),
    (fid::COMMAND_SET_PROFILE, 0, false),
];

#[test]
fn every_feature_reports_default_saved_and_capabilities() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    for (fid, default, changeable) in PLAIN {
        assert_eq!(script.succeed(cntlid, get(fid, DEFAULT)).result, default, "{fid:#x}");
        assert_eq!(script.succeed(cntlid, get(fid, SAVED)).result, default, "{fid:#x}");
        let capabilities = script.succeed(cntlid, get(fid, CAPABILITIES)).result;
        assert_eq!(capabilities, if changeable { 4 } else { 0 }, "{fid:#x}");
        script.fail(cntlid, get(fid, 4), Status::INVALID_FIELD);
    }
}

#[test]
fn nothing_is_saveable_nor_a_namespaces() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    for (fid, value, _) in PLAIN {
        let mut sqe = SetFeatures::emit(fid, value as u32);
        sqe.cdw10 = (u32::from(fid) | 1 << 31).into();
        script.fail(cntlid, sqe, Status::FEATURE_NOT_SAVEABLE);
        if fid != fid::ERROR_RECOVERY {
            let sqe = Sqe { nsid: 1.into(), ..SetFeatures::emit(fid, value as u32) };
            script.fail(cntlid, sqe, Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
        } else {
            script.succeed(cntlid, Sqe { nsid: 1.into(), ..SetFeatures::emit(fid, value as u32) });
            let sqe = Sqe { nsid: 77.into(), ..SetFeatures::emit(fid, value as u32) };
            script.fail(cntlid, sqe, Status::INVALID_NAMESPACE);
            script.fail(cntlid, Sqe { nsid: 77.into(), ..get(fid, 0) }, Status::INVALID_NAMESPACE);
        }
    }
}

#[test]
fn fixed_features_keep_their_value() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    for (fid, value, changeable) in PLAIN {
        if !changeable {
            assert_eq!(script.succeed(cntlid, get(fid, 0)).result, value, "{fid:#x}");
            script.succeed(cntlid, SetFeatures::emit(fid, value as u32));
            let other = SetFeatures::emit(fid, value as u32 + 1);
            script.fail(cntlid, other, Status::FEATURE_NOT_CHANGEABLE);
        }
    }
}

#[test]
fn unknown_features_are_refused() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    for unknown in [0x00, 0x03, 0x08, 0x09, 0x0c, 0x0d, 0x0e, 0x10, 0x17, 0x7f, 0x84, 0x85] {
        script.fail(cntlid, get(unknown, 0), Status::INVALID_FIELD);
        script.fail(cntlid, get(unknown, CAPABILITIES), Status::INVALID_FIELD);
        script.fail(cntlid, SetFeatures::emit(unknown, 0), Status::INVALID_FIELD);
    }
    let discovery = script.controller(DISCOVERY_NQN);
    script.fail(discovery, get(fid::NUMBER_OF_QUEUES, 0), Status::INVALID_FIELD);
    script.succeed(discovery, get(fid::KEEP_ALIVE_TIMER, 0));
}

#[test]
fn temperature_thresholds_are_kept() {
    const UNDER: u32 = 1 << 20;
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let with = |select: u32, cdw11: u32| Sqe {
        cdw11: cdw11.into(),
        ..get(fid::TEMPERATURE_THRESHOLD, select)
    };
    let set = |cdw11: u32| SetFeatures::emit(fid::TEMPERATURE_THRESHOLD, cdw11);
    assert_eq!(script.succeed(cntlid, with(0, 0)).result, 0x157, "WCTEMP");
    assert_eq!(script.succeed(cntlid, with(0, UNDER)).result, 0);
    script.succeed(cntlid, set(0x150));
    script.succeed(cntlid, set(UNDER | 0x100));
    assert_eq!(script.succeed(cntlid, with(0, 0)).result, 0x150);
    assert_eq!(script.succeed(cntlid, with(0, UNDER)).result, 0x100);
    assert_eq!(script.succeed(cntlid, with(DEFAULT, 0)).result, 0x157);
    script.succeed(cntlid, set(0xf << 16 | 0x160)); // every temperature there is
    assert_eq!(script.succeed(cntlid, with(0, 0)).result, 0x160);
    // Missing sensors, reserved fields, hysteresis.
    for wrong in [1 << 16, 8 << 16, 9 << 16, 2 << 20, 3 << 20] {
        script.fail(cntlid, set(wrong | 1), Status::INVALID_FIELD);
        script.fail(cntlid, with(0, wrong), Status::INVALID_FIELD);
    }
    script.fail(cntlid, set(1 << 22 | 0x150), Status::INVALID_FIELD);
    script.fail(cntlid, with(0, 0xf << 16), Status::INVALID_FIELD);
    script.set_cc(cntlid, 0);
    script.enable(cntlid);
    assert_eq!(script.succeed(cntlid, with(0, 0)).result, 0x157, "as after every reset");
}

#[test]
fn queues_are_granted_before_there_are_any() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    for requested in [0, 0x0001_0001, 0x00ff_00ff, 0xfffe_fffe] {
        let sqe = SetFeatures::emit(fid::NUMBER_OF_QUEUES, requested);
        assert_eq!(script.succeed(cntlid, sqe).result, 0x007f_007f);
    }
    for wrong in [0xffff, 0xffff_0000, 0xffff_ffff] {
        let sqe = SetFeatures::emit(fid::NUMBER_OF_QUEUES, wrong);
        script.fail(cntlid, sqe, Status::INVALID_FIELD);
    }
    script.connect_io(cntlid, 1).unwrap();
    let sqe = SetFeatures::emit(fid::NUMBER_OF_QUEUES, 0);
    script.fail(cntlid, sqe, Status::COMMAND_SEQUENCE_ERROR);
    assert_eq!(script.succeed(cntlid, get(fid::NUMBER_OF_QUEUES, 0)).result, 0x007f_007f);
}

#[test]
fn events_are_configured_if_they_exist() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    script.succeed(cntlid, SetFeatures::emit(fid::ASYNC_EVENT_CONFIG, 0x91f));
    assert_eq!(script.succeed(cntlid, get(fid::ASYNC_EVENT_CONFIG, 0)).result, 0x91f);
    for unknown in [1 << 9, 1 << 14, 1 << 31] {
        let sqe = SetFeatures::emit(fid::ASYNC_EVENT_CONFIG, unknown);
        script.fail(cntlid, sqe, Status::INVALID_FIELD);
    }
    let discovery = script.controller(DISCOVERY_NQN);
    script.succeed(discovery, SetFeatures::emit(fid::ASYNC_EVENT_CONFIG, 1 << 31));
    let sqe = SetFeatures::emit(fid::ASYNC_EVENT_CONFIG, 1 << 8);
    script.fail(discovery, sqe, Status::INVALID_FIELD);
}

#[test]
fn the_keep_alive_timeout_is_rounded_up() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let current = get(fid::KEEP_ALIVE_TIMER, 0);
    assert_eq!(script.succeed(cntlid, current).result, KATO_MS.into());
    let set = SetFeatures::emit(fid::KEEP_ALIVE_TIMER, 30_001);
    script.succeed(cntlid, Sqe { nsid: NSID_ALL.into(), ..set });
    assert_eq!(script.succeed(cntlid, current).result, 30_100);
    let disable = SetFeatures::emit(fid::KEEP_ALIVE_TIMER, 0);
    script.fail(cntlid, disable, Status::KEEP_ALIVE_INVALID);
    script.succeed(cntlid, SetFeatures::emit(fid::KEEP_ALIVE_TIMER, u32::MAX));
}

#[test]
fn without_a_write_cache_writes_go_through() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let shared = script.connect_io(cntlid, 1).unwrap().shared;
    assert!(!shared.is_write_through());
    script.succeed(cntlid, SetFeatures::emit(fid::VOLATILE_WRITE_CACHE, 0));
    assert!(shared.is_write_through());
    assert_eq!(script.succeed(cntlid, get(fid::VOLATILE_WRITE_CACHE, 0)).result, 0);
    script.succeed(cntlid, SetFeatures::emit(fid::VOLATILE_WRITE_CACHE, 1));
    assert!(!shared.is_write_through());
}

#[test]
fn host_behavior_is_kept_if_we_can_follow() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let mut set = |byte: usize, value: u8, length: usize| {
        let mut data = vec![0; length];
        data[byte] = value;
        let sqe = SetFeatures::emit(fid::HOST_BEHAVIOR, 0);
        script.submit_with(cntlid, sqe, &data).unwrap().status
    };
    assert_eq!(set(0, 1, 512), Status::SUCCESS);
    assert_eq!(set(0, 2, 512), Status::INVALID_FIELD.dnr());
    assert_eq!(set(2, 1, 512), Status::INVALID_FIELD.dnr(), "more LBA formats");
    assert_eq!(set(0, 1, 511), Status::DATA_SGL_LENGTH_INVALID.dnr());
    let mut get_it = get(fid::HOST_BEHAVIOR, 0);
    script.fail(cntlid, get_it, Status::DATA_SGL_LENGTH_INVALID);
    get_it.set_transport(512);
    let answer = script.succeed(cntlid, get_it);
    assert_eq!((answer.data.len(), answer.data[0]), (512, 1));
    let mut default = get(fid::HOST_BEHAVIOR, DEFAULT);
    default.set_transport(512);
    assert_eq!(script.succeed(cntlid, default).data, [0; 512]);
    script.succeed(cntlid, get(fid::HOST_BEHAVIOR, CAPABILITIES));
}

#[test]
fn the_host_identifier_is_that_of_connect() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let mut sqe = get(fid::HOST_IDENTIFIER, 0);
    sqe.set_transport(16);
    script.fail(cntlid, sqe, Status::INVALID_FIELD); // 64 bits
    sqe.cdw11 = 1.into();
    assert_eq!(script.succeed(cntlid, sqe).data, HOSTID);
    let set = SetFeatures::emit(fid::HOST_IDENTIFIER, 1);
    script.fail(cntlid, set, Status::COMMAND_SEQUENCE_ERROR);
}
