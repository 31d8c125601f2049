//! Mandatory functions of each kind of controller (NVMe Base 2.1, section 3.1.3), as in docs/reference/conformance.md.

use super::script::{NQN, Script};
use roadtrain_wire::fabrics::{DISCOVERY_NQN, Property, PropertySize, property};
use roadtrain_wire::feature::fid;
use roadtrain_wire::identify::{IdentifyController, cns};
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;

const FEATURES_IO: [u8; 8] = [
    fid::ARBITRATION,
    fid::POWER_MANAGEMENT,
    fid::TEMPERATURE_THRESHOLD,
    fid::VOLATILE_WRITE_CACHE, // there is a cache
    fid::NUMBER_OF_QUEUES,
    fid::ASYNC_EVENT_CONFIG,
    fid::KEEP_ALIVE_TIMER,
    fid::COMMAND_SET_PROFILE, // CAP.CSS reports selectable command sets
];
/// Features of the NVM command set.
const FEATURES_NVM: [u8; 2] = [fid::ERROR_RECOVERY, fid::WRITE_ATOMICITY];
const FEATURES_DISCOVERY: [u8; 2] = [fid::ASYNC_EVENT_CONFIG, fid::KEEP_ALIVE_TIMER];

const PAGES_IO: [(u8, u32); 7] = [
    (lid::SUPPORTED, 1024),
    (lid::ERROR, 4096),
    (lid::SMART, 512),
    (lid::FIRMWARE_SLOT, 512),
    (lid::COMMAND_EFFECTS, 4096),
    (lid::ANA, 4096), // CMIC reports ANA
    (lid::FEATURE_EFFECTS, 1024),
];
const PAGES_DISCOVERY: [(u8, u32); 3] =
    [(lid::SUPPORTED, 1024), (lid::FEATURE_EFFECTS, 1024), (lid::DISCOVERY, 1024)];

const IDENTIFY_IO: [(u8, u32); 9] = [
    (cns::NAMESPACE, 1),
    (cns::CONTROLLER, 0),
    (cns::ACTIVE_NAMESPACES, 0),
    (cns::NAMESPACE_DESCRIPTORS, 1),
    (cns::NAMESPACE_COMMAND_SET, 1),
    (cns::CONTROLLER_COMMAND_SET, 0),
    (cns::ACTIVE_NAMESPACES_COMMAND_SET, 0),
    (cns::NAMESPACE_INDEPENDENT, 1),
    (cns::COMMAND_SETS, 0),
];

fn has(
    script: &mut Script,
    cntlid: u16,
    features: &[u8],
    pages: &[(u8, u32)],
    names: &[(u8, u32)],
) {
    for &fid in features {
        let mut sqe = Sqe::new(opcode::GET_FEATURES, 0);
        sqe.cdw10 = u32::from(fid).into();
        script.succeed(cntlid, sqe);
    }
    for &(lid, bytes) in pages {
        let answer = script.succeed(cntlid, GetLogPage::new(lid, bytes).emit(0));
        assert_eq!(answer.data.len(), bytes as usize, "{lid:#x}");
    }
    for &(cns, nsid) in names {
        let mut sqe = Sqe::new(opcode::IDENTIFY, nsid);
        sqe.cdw10 = (u32::from(cns) | 0xffff_0000).into();
        sqe.set_transport(4096);
        assert_eq!(script.succeed(cntlid, sqe).data.len(), 4096, "{cns:#x}");
    }
    script.succeed(cntlid, Sqe::new(opcode::KEEP_ALIVE, 0));
    assert_eq!(script.submit(cntlid, Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0)), None);
    // The command is known: Set Features of an unknown feature fails.
    script.fail(cntlid, Sqe::new(opcode::SET_FEATURES, 0), Status::INVALID_FIELD);
    for (offset, size) in [
        (property::CAP, PropertySize::Eight),
        (property::VS, PropertySize::Four),
        (property::CC, PropertySize::Four),
        (property::CSTS, PropertySize::Four),
        (property::CRTO, PropertySize::Four),
    ] {
        script.succeed(cntlid, Property::get(offset, size));
    }
}

#[test]
fn io_controllers_have_what_is_mandatory() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let features = [&FEATURES_IO[..], &FEATURES_NVM].concat();
    has(&mut script, cntlid, &features, &PAGES_IO, &IDENTIFY_IO);
    assert_eq!(script.succeed(cntlid, Sqe::new(opcode::ABORT, 0)).result, 1, "of nothing");
    let mut sqe = Sqe::new(opcode::IDENTIFY, 0);
    sqe.cdw10 = u32::from(cns::CONTROLLER).into();
    sqe.set_transport(4096);
    let answer = script.succeed(cntlid, sqe);
    let page: &IdentifyController = answer.page();
    // A controller of this version must not report 0 here.
    assert_eq!((page.wctemp.get(), page.cctemp.get()), (0x157, 0x161));
    assert!(page.kas.get() > 0 && page.maxcmd.get() > 0 && page.cntrltype == 1);
}

#[test]
fn discovery_controllers_have_what_is_mandatory() {
    let mut script = Script::new();
    let cntlid = script.controller(DISCOVERY_NQN);
    let names = [(cns::CONTROLLER, 0)];
    has(&mut script, cntlid, &FEATURES_DISCOVERY, &PAGES_DISCOVERY, &names);
}
