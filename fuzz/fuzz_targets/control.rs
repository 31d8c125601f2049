//! Any commands, on the admin queue and on an I/O queue, to a controller of a subsystem and to a discovery
//! controller: no panic, and data for the host of exactly the length that the command requests.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::{
    AdminOutcome, NamespaceConfig, NamespaceManagement, SubsystemConfig, TargetConfig,
    TargetControl, TargetListener, TlsUse,
};
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, Connect, ConnectData, DISCOVERY_NQN};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::net::SocketAddr;

const NQN: &str = "nqn.2026-11.test:fuzz";
const HOST: &str = "nqn.2026-11.test:host";
const LOCAL: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4420);
/// Longest data that an engine fetches for an admin command.
const DATA_BYTES_MAX: usize = 4096;

fuzz_target!(|input: &[u8]| {
    let now = Instant(1);
    let mut target = TargetControl::new(now, &config()).expect("a right configuration");
    let io = connect(&mut target, NQN, 0, CNTLID_DYNAMIC).expect("an admin queue");
    let discovery = connect(&mut target, DISCOVERY_NQN, 0, CNTLID_DYNAMIC).expect("an admin queue");
    let mut rest = input;
    let mut data_out = Vec::new();
    while let Some((&[choice], tail)) = rest.split_first_chunk() {
        let Ok((sqe, tail)) = Sqe::read_from_prefix(tail) else { return };
        let data_in = &tail[..tail.len().min(DATA_BYTES_MAX)];
        let now = Instant(u64::from(choice) * 1_000_000_000);
        data_out.clear();
        let cntlid = if choice & 1 == 0 { io } else { discovery };
        match choice >> 1 & 3 {
            0 => drop(target.connect(now, &sqe, data_in, LOCAL, 7)),
            1 => drop(target.fabrics_command(now, cntlid, 1, &sqe)),
            _ => {
                let outcome = target.admin_command(now, cntlid, &sqe, data_in, &mut data_out);
                if let AdminOutcome::Complete { status, .. } = outcome {
                    let has_data = status.is_success() && !data_out.is_empty();
                    assert!(!has_data || data_out.len() == sqe.sgl.length.get() as usize);
                }
            }
        }
        if choice & 8 != 0 {
            target.handle_timeout(now);
        }
        while target.poll_event().is_some() {}
        rest = tail;
    }
});

fn config() -> TargetConfig {
    let mut subsystem = SubsystemConfig::new(NQN);
    subsystem.namespaces =
        vec![NamespaceConfig::new(1, 1 << 20, 9), NamespaceConfig::new(7, 1 << 10, 12)];
    let administrators = [HOST.to_owned()].into();
    subsystem.management = Some(NamespaceManagement { administrators, lba_shift: 9 });
    TargetConfig {
        subsystems: vec![subsystem],
        listeners: vec![TargetListener {
            portid: 1,
            address: LOCAL,
            tls: TlsUse::Off,
            named_only: false,
        }],
        ..TargetConfig::default()
    }
}

fn connect(target: &mut TargetControl, nqn: &str, qid: u16, cntlid: u16) -> Option<u16> {
    let sqe = Connect { recfmt: 0, qid, sqsize: 31, cattr: 0, kato_ms: 1000 }.emit();
    let data = ConnectData::new([7; 16], cntlid, nqn, HOST);
    let connected = target.connect(Instant(1), &sqe, data.as_bytes(), LOCAL, 7).ok()?;
    while target.poll_event().is_some() {}
    Some(connected.cntlid)
}
