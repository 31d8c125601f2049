//! A target with two subsystems and a host that sends commands to it, for scripted tests.

use roadtrain_proto::block_limits::BlockLimits;
use roadtrain_proto::security::ConnectionSecurity;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::{
    AdminOutcome, ConfigOperation, ConnectRefused, ConnectedQueue, NamespaceConfig,
    NamespaceManagement, SubsystemConfig, TargetConfig, TargetControl, TargetEvent, TargetListener,
    TlsUse,
};
use roadtrain_wire::fabrics::{
    CNTLID_DYNAMIC, Connect, ConnectData, Property, PropertySize, property,
};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

/// Open to any host; namespace 1 of 512-byte blocks, 3 of 4 KiB blocks, write protected.
pub(crate) const NQN: &str = "nqn.2024-01.test:a";
/// Open to [`HOST`] only.
pub(crate) const PRIVATE_NQN: &str = "nqn.2024-01.test:private";
pub(crate) const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:a";
pub(crate) const STRANGER: &str = "nqn.2014-08.org.nvmexpress:uuid:b";
pub(crate) const HOSTID: [u8; 16] = *b"host identifier.";
pub(crate) const KATO_MS: u32 = 5000;
/// Unpredictable number.
pub(crate) const RANDOM: u64 = 0x0123_4567_89ab_cdef;
/// Value that Linux writes to CC to enable a controller.
pub(crate) const CC_ENABLE: u32 = 0x0046_0061;

/// A completion with its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminCompletion {
    pub(crate) status: Status,
    pub(crate) result: u64,
    pub(crate) data: Vec<u8>,
}

impl AdminCompletion {
    /// Returns the data as a page.
    pub(crate) fn page<T: FromBytes + KnownLayout + Immutable>(&self) -> &T {
        assert_eq!(self.status, Status::SUCCESS);
        T::ref_from_bytes(&self.data).expect("data of the page's size")
    }
}

pub(crate) struct Script {
    pub(crate) target: TargetControl,
    pub(crate) now: Instant,
    next_cid: u16,
}

pub(crate) fn config() -> TargetConfig {
    let mut open = SubsystemConfig::new(NQN);
    open.namespaces.push(NamespaceConfig::new(1, 0x10_0000, 9));
    let read_only = NamespaceConfig::new(3, 1000, 12);
    open.namespaces.push(NamespaceConfig {
        read_only: true,
        volatile_cache: false,
        deallocated_reads_zero: false,
        limits: BlockLimits::pages_of(65536),
        ..read_only
    });
    let mut private = SubsystemConfig::new(PRIVATE_NQN);
    private.allowed_hosts = Some(BTreeSet::from([HOST.to_owned()]));
    let listeners =
        vec![TargetListener { portid: 1, address: local(), tls: TlsUse::Off, named_only: false }];
    TargetConfig { subsystems: vec![open, private], listeners, ..TargetConfig::default() }
}

/// Returns the configuration, where [`HOST`] may manage namespaces of 4,096-byte blocks.
pub(crate) fn managed() -> TargetConfig {
    let mut config = config();
    config.subsystems[0].management =
        Some(NamespaceManagement { administrators: [HOST.to_owned()].into(), lba_shift: 12 });
    config
}

/// Adds a namespace to subsystem `nqn`.
pub(crate) fn add(nqn: &str, namespace: NamespaceConfig) -> ConfigOperation {
    ConfigOperation::AddNamespace { nqn: nqn.to_owned(), namespace }
}

/// Removes a namespace of [`NQN`].
pub(crate) fn remove(nsid: u32) -> ConfigOperation {
    ConfigOperation::RemoveNamespace { nqn: NQN.to_owned(), nsid }
}

/// Resizes a namespace of [`NQN`], as in [`config`], to `blocks` blocks.
pub(crate) fn resize(nsid: u32, blocks: u64) -> ConfigOperation {
    let bytes = blocks.saturating_mul(if nsid == 3 { 4096 } else { 512 });
    ConfigOperation::ResizeNamespace { nqn: NQN.to_owned(), nsid, bytes }
}

pub(crate) fn remove_subsystem(nqn: &str) -> ConfigOperation {
    ConfigOperation::RemoveSubsystem { nqn: nqn.to_owned() }
}

pub(crate) fn local() -> SocketAddr {
    "192.0.2.7:4420".parse().expect("an address")
}

pub(crate) fn connect_sqe(qid: u16, sqsize: u16) -> Connect {
    Connect { recfmt: 0, qid, sqsize, cattr: 0, kato_ms: if qid == 0 { KATO_MS } else { 0 } }
}

impl Script {
    pub(crate) fn new() -> Self {
        Script::with(&config())
    }

    pub(crate) fn with(config: &TargetConfig) -> Self {
        let now = Instant(1_000_000_000);
        let target = TargetControl::new(now, config).expect("a good configuration");
        Script { target, now, next_cid: 0 }
    }

    pub(crate) fn wait(&mut self, time: Duration) {
        self.now += time;
    }

    pub(crate) fn connect(
        &mut self,
        connect: Connect,
        data: &ConnectData,
    ) -> Result<ConnectedQueue, ConnectRefused> {
        self.target.connect(self.now, &connect.emit(), data.as_bytes(), local(), RANDOM)
    }

    /// Connects and grants a queue over `channel`; its host authenticates as required. Returns the queue, or the
    /// status.
    pub(crate) fn connect_over(
        &mut self,
        channel: ConnectionSecurity<'_>,
        qid: u16,
        data: &ConnectData,
    ) -> Result<ConnectedQueue, Status> {
        let claimed = self.claim_over(channel, qid, data).map_err(|error| error.status)?;
        self.target.grant(self.now, &claimed).map_err(|error| error.status)?;
        Ok(claimed)
    }

    /// Claims a queue over `channel`, without authentication.
    pub(crate) fn claim_over(
        &mut self,
        channel: ConnectionSecurity<'_>,
        qid: u16,
        data: &ConnectData,
    ) -> Result<ConnectedQueue, ConnectRefused> {
        let (sqe, bytes) = (connect_sqe(qid, 31).emit(), data.as_bytes());
        let ends = (local(), RANDOM);
        self.target.connect_over(channel, self.now, &sqe, bytes, ends, |_| false)
    }

    /// Connects an admin queue as `host`.
    pub(crate) fn connect_as(
        &mut self,
        host: &str,
        nqn: &str,
    ) -> Result<ConnectedQueue, ConnectRefused> {
        let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, nqn, host);
        self.connect(connect_sqe(0, 31), &data)
    }

    /// Connects an admin queue and enables the controller.
    pub(crate) fn controller(&mut self, nqn: &str) -> u16 {
        let cntlid = self.connect_as(HOST, nqn).expect("connected").cntlid;
        self.enable(cntlid);
        cntlid
    }

    pub(crate) fn enable(&mut self, cntlid: u16) {
        self.set_cc(cntlid, CC_ENABLE);
        assert_eq!(self.csts(cntlid), 1, "ready");
    }

    pub(crate) fn set_cc(&mut self, cntlid: u16, cc: u32) {
        self.succeed(cntlid, Property::set(property::CC, cc));
    }

    pub(crate) fn csts(&mut self, cntlid: u16) -> u64 {
        self.succeed(cntlid, Property::get(property::CSTS, PropertySize::Four)).result
    }

    pub(crate) fn connect_io(
        &mut self,
        cntlid: u16,
        qid: u16,
    ) -> Result<ConnectedQueue, ConnectRefused> {
        let data = ConnectData::new(HOSTID, cntlid, NQN, HOST);
        self.connect(connect_sqe(qid, 127), &data)
    }

    /// Submits an admin command without data from the host. Returns `None` while it is pending.
    pub(crate) fn submit(&mut self, cntlid: u16, sqe: Sqe) -> Option<AdminCompletion> {
        self.submit_with(cntlid, sqe, &[])
    }

    pub(crate) fn submit_with(
        &mut self,
        cntlid: u16,
        mut sqe: Sqe,
        data_in: &[u8],
    ) -> Option<AdminCompletion> {
        self.next_cid = self.next_cid.wrapping_add(1);
        sqe.cid = self.next_cid.into();
        let mut data = vec![0xee; 3]; // what an earlier command has left
        match self.target.admin_command(self.now, cntlid, &sqe, data_in, &mut data) {
            AdminOutcome::Complete { status, result } => {
                Some(AdminCompletion { status, result, data })
            }
            AdminOutcome::Pending => None,
            AdminOutcome::QueryLbaStatus(wanted) => {
                // As a store without block status replies.
                data.resize(wanted.bytes as usize, 0);
                wanted.report_allocated(&mut data);
                Some(AdminCompletion { status: Status::SUCCESS, result: 0, data })
            }
            AdminOutcome::Disconnected => panic!("an admin queue does not disconnect"),
        }
    }

    /// Returns the identifier of the last command.
    pub(crate) fn cid(&self) -> u16 {
        self.next_cid
    }

    pub(crate) fn succeed(&mut self, cntlid: u16, sqe: Sqe) -> AdminCompletion {
        let answer = self.submit(cntlid, sqe).expect("completed at once");
        assert_eq!(answer.status, Status::SUCCESS, "{sqe:?}");
        answer
    }

    /// Submits a command that fails with `status` and Do Not Retry, and returns no data.
    pub(crate) fn fail(&mut self, cntlid: u16, sqe: Sqe, status: Status) {
        let answer = self.submit(cntlid, sqe).expect("completed at once");
        assert_eq!((answer.status, answer.data.len()), (status.dnr(), 0), "{sqe:?}");
    }

    pub(crate) fn events(&mut self) -> Vec<TargetEvent> {
        std::iter::from_fn(|| self.target.poll_event()).collect()
    }
}
