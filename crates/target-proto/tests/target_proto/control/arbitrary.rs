//! Any command of a host completes, and nothing panics.

use super::script::{
    HOST, HOSTID, NQN, PRIVATE_NQN, RANDOM, Script, add, local, managed, remove, resize,
};
use crate::cases::cases;
use proptest::collection::vec;
use proptest::prelude::*;
use roadtrain_target_proto::{AdminOutcome, ConfigOperation, NamespaceConfig, TargetEvent};
use roadtrain_wire::fabrics::{Connect, ConnectData, DISCOVERY_NQN};
use roadtrain_wire::namespace_management::ControllerList;
use roadtrain_wire::sqe::{FLAG_SGL, SGL_TRANSPORT, Sgl, Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::time::Duration;

/// Returns a value with a meaning somewhere, or any other.
fn dword() -> impl Strategy<Value = u32> {
    prop_oneof![
        prop::sample::select(vec![0, 1, 2, 3, 0x14, 0x1c, 0x900, 0xffff_fffe, 0xffff_ffff]),
        0..0x100u32,
        any::<u32>(),
    ]
}

/// Returns an SQE that a host may send: known opcodes, plausible fields and lengths are likely.
fn sqe() -> impl Strategy<Value = Sqe> {
    let opcode = prop_oneof![
        8 => prop::sample::select(vec![0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x0d, 0x15, 0x18, 0x38, 0x7f, 0x86]),
        1 => any::<u8>(),
    ];
    let flags = prop_oneof![8 => Just(FLAG_SGL), 1 => any::<u8>()];
    let cdw10 = prop_oneof![dword(), (any::<u8>(), 0..4096u32).prop_map(numd)];
    let length = prop_oneof![Just(4096), Just(512), 0..8192u32, any::<u32>()];
    let kind = prop_oneof![8 => Just(SGL_TRANSPORT), 1 => any::<u8>()];
    let dwords = (cdw10, dword(), dword(), dword(), dword());
    (opcode, flags, any::<u16>(), dword(), length, kind, dwords).prop_map(
        |(opcode, flags, cid, nsid, length, kind, (cdw10, cdw11, cdw12, cdw13, cdw14))| Sqe {
            opcode,
            flags,
            cid: cid.into(),
            nsid: nsid.into(),
            sgl: Sgl { length: length.into(), kind, ..Sgl::default() },
            cdw10: cdw10.into(),
            cdw11: cdw11.into(),
            cdw12: cdw12.into(),
            cdw13: cdw13.into(),
            cdw14: cdw14.into(),
            ..Sqe::default()
        },
    )
}

fn numd((lid, numd): (u8, u32)) -> u32 {
    u32::from(lid) | numd << 16
}

#[derive(Clone, Debug)]
enum ArbitraryStep {
    Admin(Sqe, Vec<u8>),
    Fabrics(u16, Sqe),
    Connect(Vec<u8>, Vec<u8>),
    ConnectIo(u16, u16),
    Change(u32, u64),
    Wait(u32),
    Disconnect(u16),
}

/// Returns a controller list with the first controller.
fn list() -> Vec<u8> {
    ControllerList::from_cntlids([1]).as_bytes().to_vec()
}

fn step() -> impl Strategy<Value = ArbitraryStep> {
    prop_oneof![
        12 => (sqe(), prop_oneof![Just(vec![]), Just(vec![0; 512]), Just(list()), vec(any::<u8>(), 0..600)])
            .prop_map(|(sqe, data)| ArbitraryStep::Admin(sqe, data)),
        2 => (0..4u16, sqe()).prop_map(|(qid, sqe)| ArbitraryStep::Fabrics(qid, sqe)),
        1 => (vec(any::<u8>(), 64), vec(any::<u8>(), 1024)).prop_map(|(a, b)| ArbitraryStep::Connect(a, b)),
        2 => (0..200u16, any::<u16>()).prop_map(|(qid, sqsize)| ArbitraryStep::ConnectIo(qid, sqsize)),
        2 => (0..5u32, 0..100u64).prop_map(|(nsid, blocks)| ArbitraryStep::Change(nsid, blocks)),
        1 => (0..7000u32).prop_map(ArbitraryStep::Wait),
        1 => (0..4u16).prop_map(ArbitraryStep::Disconnect),
    ]
}

/// Commands that may complete later.
const WAIT: [u8; 5] = [
    opcode::ASYNC_EVENT_REQUEST,
    opcode::ABORT,
    opcode::CROSS_CONTROLLER_RESET,
    opcode::NAMESPACE_MANAGEMENT,
    opcode::NAMESPACE_ATTACHMENT,
];

/// Checks conditions that hold for any outcome.
fn check_outcome(sqe: &Sqe, outcome: AdminOutcome, out: &[u8]) {
    match outcome {
        AdminOutcome::Complete { status, .. } if status.is_success() => {
            assert!(out.is_empty() || out.len() == sqe.sgl.length.get() as usize);
        }
        AdminOutcome::Complete { status, .. } => {
            let may_be_retried = [Status::ABORTED_SQ_DELETION, Status::COMMAND_INTERRUPTED];
            assert!(status.is_dnr() || may_be_retried.contains(&status), "{status}");
            assert!(out.is_empty(), "data with an error");
        }
        AdminOutcome::Pending => assert!(WAIT.contains(&sqe.opcode), "{:#04x}", sqe.opcode),
        AdminOutcome::QueryLbaStatus(wanted) => {
            assert!(sqe.opcode == opcode::GET_LBA_STATUS && wanted.blocks > 0);
            assert_eq!(wanted.bytes, sqe.sgl.length.get());
        }
        AdminOutcome::Disconnected => panic!("on the admin queue"),
    }
}

/// Runs one step against controller `cntlid`.
fn run(script: &mut Script, cntlid: u16, step: &ArbitraryStep) {
    let now = script.now;
    match step {
        ArbitraryStep::Admin(sqe, data) => {
            let mut out = Vec::new();
            let outcome = script.target.admin_command(now, cntlid, sqe, data, &mut out);
            check_outcome(sqe, outcome, &out);
        }
        ArbitraryStep::Fabrics(qid, sqe) => {
            let _ = script.target.fabrics_command(now, cntlid, *qid, sqe);
        }
        ArbitraryStep::Connect(sqe, data) => {
            let sqe = Sqe::read_from_bytes(sqe).unwrap();
            let _ = script.target.connect(now, &sqe, data, local(), RANDOM);
        }
        ArbitraryStep::ConnectIo(qid, sqsize) => {
            let connect = Connect { recfmt: 0, qid: *qid, sqsize: *sqsize, cattr: 0, kato_ms: 0 };
            let data = ConnectData::new(HOSTID, cntlid, NQN, HOST);
            let _ = script.target.connect(now, &connect.emit(), data.as_bytes(), local(), RANDOM);
        }
        ArbitraryStep::Change(nsid, blocks) => {
            let target = &mut script.target;
            let _ = target.apply(&[resize(*nsid, *blocks)]);
            let _ = match blocks % 3 {
                0 => target.apply(&[add(NQN, NamespaceConfig::new(*nsid, *blocks, 9))]),
                1 => target.apply(&[remove(*nsid)]),
                _ => target.apply(&[ConfigOperation::AllowAnyHost {
                    nqn: PRIVATE_NQN.to_owned(),
                    allow: blocks % 2 == 0,
                }]),
            };
        }
        ArbitraryStep::Wait(ms) => {
            script.wait(Duration::from_millis(u64::from(*ms)));
            script.target.handle_timeout(script.now);
        }
        ArbitraryStep::Disconnect(qid) => script.target.disconnect(cntlid, *qid),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]

    #[test]
    fn arbitrary_commands_are_answered(
        discovery in any::<bool>(),
        steps in vec(step(), 1..80),
    ) {
        let mut script = Script::with(&managed());
        let cntlid = script.controller(if discovery { DISCOVERY_NQN } else { NQN });
        for (at, step) in steps.iter().enumerate() {
            run(&mut script, cntlid, step);
            for event in script.events() {
                if let TargetEvent::NamespaceRequest { id, .. } = event && at % 2 == 0 {
                    script.target.namespace_request_done(id, Ok(1));
                }
            }
            script.events();
        }
        // After all steps the target serves the next host.
        script.controller(NQN);
    }

    #[test]
    fn any_bytes_are_a_command(bytes in any::<[[u8; 32]; 2]>()) {
        let mut script = Script::new();
        let cntlid = script.controller(NQN);
        let sqe = Sqe::read_from_bytes(bytes.as_flattened()).unwrap();
        let mut out = Vec::new();
        let outcome = script.target.admin_command(script.now, cntlid, &sqe, &[], &mut out);
        check_outcome(&sqe, outcome, &out);
    }
}
