//! A host as small as the standard allows: it connects an admin queue and I/O queues and holds them.

use anyhow::{Context, bail, ensure};
use roadtrain_wire::fabrics::{
    CNTLID_DYNAMIC, Connect, ConnectData, Property, PropertySize, property,
};
use roadtrain_wire::pdu::{CapsuleCmd, CapsuleResp, CommonHeader, Digests, IcReq, IcResp, PduType};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// CC: enabled, 64 byte submission and 16 byte completion entries.
const CC_ENABLED: u32 = 4 << 20 | 6 << 16 | 1;
const CSTS_READY: u64 = 1;
/// Feature: number of queues.
const FEATURE_QUEUES: u32 = 0x07;
const KEEP_ALIVE_MS: u32 = 120_000;
const QUEUE_ENTRIES: u16 = 128;
const TIMEOUT: Duration = Duration::from_secs(10);

/// An admin queue and its I/O queues, connected and idle.
pub(super) struct IdleAssociation {
    _admin: HandshakeQueue,
    _io: Vec<HandshakeQueue>,
}

impl IdleAssociation {
    /// Connects to a subsystem; `host` distinguishes the hosts.
    pub(super) fn open(
        at: SocketAddr,
        subnqn: &str,
        io_queues: u16,
        host: u8,
    ) -> anyhow::Result<Self> {
        let data = |cntlid| {
            let hostnqn = format!("nqn.2026-11.io.roadtrain:bench-host-{host}");
            ConnectData::new([host + 1; 16], cntlid, subnqn, &hostnqn)
        };
        let mut admin = HandshakeQueue::open(at)?;
        let cntlid = admin.connect(0, &data(CNTLID_DYNAMIC))? as u16;
        admin.enable()?;
        let mut queues = Sqe::new(opcode::SET_FEATURES, 0);
        queues.cdw10 = FEATURE_QUEUES.into();
        queues.cdw11 = (u32::from(io_queues - 1) << 16 | u32::from(io_queues - 1)).into();
        let granted = admin.command(queues, &[])? as u16 + 1;
        ensure!(granted >= io_queues, "the target grants {granted} queues of {io_queues}");
        let mut io = Vec::new();
        for qid in 1..=io_queues {
            let mut queue = HandshakeQueue::open(at)?;
            queue.connect(qid, &data(cntlid)).with_context(|| format!("connect queue {qid}"))?;
            io.push(queue);
        }
        Ok(Self { _admin: admin, _io: io })
    }
}

/// One connection, past ICReq and ICResp.
struct HandshakeQueue(TcpStream);

impl HandshakeQueue {
    fn open(at: SocketAddr) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect(at)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        stream.write_all(IcReq::new(Digests::default(), 0, 0).as_bytes())?;
        let mut answer = [0; size_of::<IcResp>()];
        stream.read_exact(&mut answer).context("ICResp")?;
        let answer = IcResp::read_from_bytes(&answer).expect("the length of an ICResp");
        ensure!(answer.ch.pdu_type == PduType::IcResp as u8, "no ICResp");
        Ok(Self(stream))
    }

    /// Connects the queue; the controller's identifier.
    fn connect(&mut self, qid: u16, data: &ConnectData) -> anyhow::Result<u64> {
        let kato_ms = if qid == 0 { KEEP_ALIVE_MS } else { 0 };
        let sqsize = if qid == 0 { 31 } else { QUEUE_ENTRIES - 1 };
        let sqe = Connect { recfmt: 0, qid, sqsize, cattr: 0, kato_ms }.emit();
        self.command(sqe, data.as_bytes())
    }

    fn enable(&mut self) -> anyhow::Result<()> {
        self.command(Property::set(property::CC, CC_ENABLED), &[])?;
        let deadline = Instant::now() + TIMEOUT;
        while self.command(Property::get(property::CSTS, PropertySize::Four), &[])? & CSTS_READY
            == 0
        {
            ensure!(Instant::now() < deadline, "the controller does not become ready");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Runs one command with in-capsule data; the result of its completion.
    fn command(&mut self, mut sqe: Sqe, data: &[u8]) -> anyhow::Result<u64> {
        sqe.cid = 1.into();
        let bytes = data.len() as u32;
        let ch = CommonHeader::new(PduType::CapsuleCmd, bytes, Digests::default(), 1);
        self.0.write_all(&[CapsuleCmd { ch, sqe }.as_bytes(), data].concat())?;
        let mut answer = [0; size_of::<CapsuleResp>()];
        self.0.read_exact(&mut answer).context("CapsuleResp")?;
        let answer = CapsuleResp::read_from_bytes(&answer).expect("the length of a CapsuleResp");
        if answer.ch.pdu_type != PduType::CapsuleResp as u8 {
            bail!("PDU type {:#04x} instead of a CapsuleResp", answer.ch.pdu_type);
        }
        let status = answer.cqe.status.get() >> 1;
        ensure!(status == 0, "status {status:#06x}");
        Ok(answer.cqe.result())
    }
}
