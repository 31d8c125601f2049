//! Every admin command that the Linux host has sent to the Linux target has a sensible completion here: success where
//! the kernel reports success.

use super::script::{RANDOM, Script, local};
use crate::capture;
use roadtrain_target_proto::{
    AdminOutcome, ConnectedQueue, NamespaceConfig, SubsystemConfig, TargetConfig,
};
use roadtrain_wire::fabrics::{ConnectData, DISCOVERY_NQN, fctype};
use roadtrain_wire::identify::cns;
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::pdu::{C2hData, CapsuleCmd, CapsuleResp, PduType, flag};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::collections::HashMap;

const NQN: &str = "nqn.2024-01.test:kernel";

/// Returns a target like the recorded one.
fn target(name: &str) -> Script {
    let mut subsystem = SubsystemConfig::new(NQN);
    let lba_shift = if name == "io-inline1k-4kn" { 12 } else { 9 };
    subsystem.namespaces.push(NamespaceConfig::new(1, (512 << 20) >> lba_shift, lba_shift));
    if name == "namespace-events" {
        subsystem.namespaces.push(NamespaceConfig::new(2, 1 << 20, 9));
    }
    Script::with(&TargetConfig { subsystems: vec![subsystem], ..TargetConfig::default() })
}

/// A command as recorded, with the kernel's status (`None`: its completion was not recorded).
struct RecordedCommand {
    connection: usize,
    sqe: Sqe,
    data: Vec<u8>,
    kernel: Option<Status>,
}

fn commands(name: &str) -> Vec<RecordedCommand> {
    let mut commands: Vec<RecordedCommand> = Vec::new();
    let mut open: HashMap<(usize, u16), usize> = HashMap::new();
    for pdu in capture::pdus(name) {
        if pdu.from_host && pdu.bytes[0] == PduType::CapsuleCmd as u8 {
            let sqe = CapsuleCmd::ref_from_prefix(&pdu.bytes).unwrap().0.sqe;
            open.insert((pdu.connection, sqe.cid.get()), commands.len());
            // PDO is the offset of the data; a data digest behind it is not part of the data.
            let pdo = usize::from(pdu.bytes[3]);
            let length = sqe.sgl.length.get() as usize;
            let data = if pdo == 0 { &[] } else { &pdu.bytes[pdo..pdo + length] };
            let (connection, data) = (pdu.connection, data.to_vec());
            commands.push(RecordedCommand { connection, sqe, data, kernel: None });
        } else if pdu.bytes[0] == PduType::CapsuleResp as u8 {
            let cqe = CapsuleResp::ref_from_prefix(&pdu.bytes).unwrap().0.cqe;
            let index = open[&(pdu.connection, cqe.cid.get())];
            commands[index].kernel = Some(cqe.status());
        } else if pdu.bytes[0] == PduType::C2hData as u8 && pdu.bytes[1] & flag::SUCCESS != 0 {
            let cid = C2hData::ref_from_prefix(&pdu.bytes).unwrap().0.cccid.get();
            commands[open[&(pdu.connection, cid)]].kernel = Some(Status::SUCCESS);
        }
    }
    commands
}

/// Returns the deliberate differences to the kernel. Authentication is not offered, and an unknown log page has a
/// status of its own. An unknown feature is unknown whatever its data. The recorded kernels had no CNS 05h.
fn differs(sqe: &Sqe) -> Option<Status> {
    let fctype = sqe.fctype();
    match sqe.opcode {
        opcode::FABRICS
            if matches!(fctype, fctype::AUTHENTICATION_SEND | fctype::AUTHENTICATION_RECEIVE) =>
        {
            Some(Status::INVALID_OPCODE)
        }
        opcode::GET_LOG_PAGE if GetLogPage::parse(sqe).lid == 0x7f => {
            Some(Status::INVALID_LOG_PAGE)
        }
        opcode::IDENTIFY if sqe.cdw10.get() as u8 == cns::NAMESPACE_COMMAND_SET => {
            Some(Status::SUCCESS)
        }
        opcode::GET_FEATURES if sqe.cdw10.get() as u8 == 0x7f => Some(Status::INVALID_FIELD),
        _ => None,
    }
}

struct Replay {
    script: Script,
    /// Queues by connection.
    queues: HashMap<usize, ConnectedQueue>,
    answered: usize,
}

impl Replay {
    fn connect(&mut self, name: &str, command: &RecordedCommand) {
        let mut data = ConnectData::read_from_bytes(&command.data).unwrap();
        if data.cntlid.get() != 0xffff {
            // The kernel's controller corresponds to this one.
            let admin = self.queues.values().filter(|queue| queue.qid == 0);
            data.cntlid = admin.map(|queue| queue.cntlid).max().unwrap().into();
        }
        let (now, bytes) = (self.script.now, data.as_bytes());
        let result = self.script.target.connect(now, &command.sqe, bytes, local(), RANDOM);
        let status = result.as_ref().map_or_else(|error| error.status, |_| Status::SUCCESS);
        assert_eq!(Some(status), command.kernel, "{name}: {result:?}");
        match result {
            Ok(connected) => drop(self.queues.insert(command.connection, connected)),
            Err(error) => assert_eq!(error.result, 0x10100, "as the kernel says it"),
        }
    }

    fn admin(&mut self, name: &str, command: &RecordedCommand, cntlid: u16) {
        let (sqe, mut out) = (&command.sqe, Vec::new());
        let outcome =
            self.script.target.admin_command(self.script.now, cntlid, sqe, &command.data, &mut out);
        let AdminOutcome::Complete { status, .. } = outcome else {
            assert_eq!((outcome, sqe.opcode), (AdminOutcome::Pending, opcode::ASYNC_EVENT_REQUEST));
            return;
        };
        let expected = differs(sqe).map(Status::dnr).or(command.kernel);
        let code = |status: Option<Status>| status.map(Status::code);
        assert_eq!(code(Some(status)), code(expected), "{name}: {sqe:?}");
        if status.is_success() && sqe.sgl.length.get() > 0 {
            assert_eq!(out.len(), sqe.sgl.length.get() as usize, "{name}: {sqe:?}");
        }
        self.answered += 1;
    }
}

fn replay(name: &str) -> usize {
    let mut replay = Replay { script: target(name), queues: HashMap::new(), answered: 0 };
    for command in commands(name) {
        let is_connect =
            command.sqe.opcode == opcode::FABRICS && command.sqe.fctype() == fctype::CONNECT;
        if is_connect {
            replay.connect(name, &command);
            continue;
        }
        let queue = replay.queues.get(&command.connection);
        if let Some(cntlid) = queue.filter(|queue| queue.qid == 0).map(|queue| queue.cntlid) {
            replay.admin(name, &command, cntlid);
        }
    }
    replay.answered
}

#[test]
fn every_recorded_admin_command_is_answered_like_the_kernel_does() {
    let answered: usize = capture::names().iter().map(|name| replay(name)).sum();
    assert!(answered > 400, "only {answered} commands were replayed");
}

#[test]
fn the_recordings_have_what_they_are_there_for() {
    let discovers = commands("discover");
    assert!(discovers.iter().any(|command| {
        command.sqe.opcode == opcode::GET_LOG_PAGE
            && GetLogPage::parse(&command.sqe).lid == lid::DISCOVERY
    }));
    assert!(discovers[0].data.windows(DISCOVERY_NQN.len()).any(|w| w == DISCOVERY_NQN.as_bytes()));
}
