//! Express connections: opened when latency-critical requests meet bulk, lost with the others, closed when idle.

use crate::harness::*;
use crate::loss::sqes;
use crate::proxy::Proxy;
use roadtrain_host_engine::{
    Class, ExpressReading, HostClient, HostConfig, HostTls, IoOp, TlsKeySource,
};
use roadtrain_proto::security::dhchap::DhchapKeys;
use roadtrain_proto::security::{DhchapKey, Hash, TlsKey, TlsKeys};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Server, ServerConfig, TlsConfig, TlsUse};
use roadtrain_target_proto::{HostAuthentication, TargetLimits};
use roadtrain_wire::fabrics::fctype;
use roadtrain_wire::sqe::opcode;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const BLOCK: u32 = 4096;
const LARGE: usize = 128 << 10;
/// Number of writers. Each has 128 KiB in flight.
const WRITERS: u64 = 8;
/// Number of blocks of each writer.
const STRIDE: u64 = LARGE as u64 / BLOCK as u64;

/// Load of bulk writers and a reader of small blocks. Each checks the data that it reads.
struct MixedLoad {
    client: Arc<HostClient>,
    writes: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
    writes_ended: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl MixedLoad {
    fn begin(client: HostClient, class: Class) -> MixedLoad {
        let client = Arc::new(client);
        let (writes, ends) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let (reads, writes_ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut threads = Vec::new();
        for writer in 0..WRITERS {
            let (client, writes, ends) = (client.clone(), writes.clone(), ends.clone());
            let ended = writes_ended.clone();
            threads.push(thread::spawn(move || write(&client, writer, (&writes, &ended), &ends)));
        }
        let (of_client, of_ends, count) = (client.clone(), ends.clone(), reads.clone());
        threads.push(thread::spawn(move || read(&of_client, class, &of_ends, &count)));
        MixedLoad { client, writes, ends, reads, writes_ended, threads }
    }

    fn express(&self) -> ExpressReading {
        self.client.view().lanes()[0].express
    }

    fn opens(&self) {
        eventually("an express connection opens and is used", || {
            let express = self.express();
            express.is_open && express.requests > 0
        });
    }

    /// Waits until more reads complete.
    fn goes_on(&self) {
        let before = self.reads.load(Relaxed);
        eventually("reads end", || self.reads.load(Relaxed) > before + 100);
    }

    fn end(self) {
        self.ends.store(true, Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// Writes the writer's blocks again and again, and checks the data that it reads back.
fn write(
    client: &HostClient,
    writer: u64,
    (writes, ended): (&AtomicBool, &AtomicU64),
    ends: &AtomicBool,
) {
    let (slba, mut round) = (64 + writer * STRIDE, 0);
    while !ends.load(Relaxed) {
        if !writes.load(Relaxed) {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        round += 1;
        let seed = round * WRITERS + writer;
        client.write(1, slba, pattern(LARGE, seed), false).unwrap();
        ended.fetch_add(1, Relaxed);
        if round % 16 == 0 {
            let block = client.read(1, slba, Buffer::alloc(BLOCK as usize)).unwrap();
            assert_eq!(block[..], pattern(LARGE, seed)[..BLOCK as usize], "round {round}");
        }
    }
}

/// Reads a block that it has written before.
fn read(client: &HostClient, class: Class, ends: &AtomicBool, count: &AtomicU64) {
    let expected = pattern(BLOCK as usize, 7);
    client.write(1, 3, pattern(BLOCK as usize, 7), false).unwrap();
    while !ends.load(Relaxed) {
        let mut request = request(IoOp::Read, 3, 1, Some(Buffer::alloc(BLOCK as usize)), 0);
        request.class = class;
        let block = client.run(request).unwrap().expect("its buffer");
        assert_eq!(block[..], expected[..]);
        count.fetch_add(1, Relaxed);
    }
}

fn start(limits: TargetLimits) -> Server {
    start_with(|config| config.limits = limits)
}

fn start_with(change: impl FnOnce(&mut ServerConfig)) -> Server {
    let mut config = server_config(vec![memory(1, 16 * MIB, BLOCK)]);
    change(&mut config);
    Server::start(config).unwrap()
}

fn mixed(server: &Server, class: Class, change: impl FnOnce(&mut HostConfig)) -> MixedLoad {
    let mut config = host_config(address(server));
    change(&mut config);
    MixedLoad::begin(HostClient::connect(config).unwrap(), class)
}

#[test]
fn it_opens_next_to_bulk_and_closes_when_idle() {
    let server = start(TargetLimits::default());
    let load = mixed(&server, Class::Latency, |_| {});
    load.opens();
    load.goes_on();
    assert_eq!(load.express().opened, 1);
    load.writes.store(false, Relaxed);
    eventually("it closes", || !load.express().is_open);
    let ended = load.writes_ended.load(Relaxed) + load.reads.load(Relaxed);
    eventually("what took it is counted, too", || {
        load.client.view().lanes()[0].batching.requests >= ended
    });
    load.goes_on();
    load.writes.store(true, Relaxed);
    eventually("it opens again", || load.express().is_open && load.express().opened == 2);
    load.goes_on();
    assert_eq!(load.client.view().lanes()[0].reconnects, 0, "nothing was lost");
    load.end();
    drop(server);
}

#[test]
fn it_does_not_open_where_it_is_not_allowed() {
    let server = start(TargetLimits::default());
    let load = mixed(&server, Class::Latency, |config| config.express = false);
    eventually("many reads beside bulk", || load.reads.load(Relaxed) > 2000);
    assert_eq!(load.express(), ExpressReading::default());
    load.end();
}

#[test]
fn a_controller_with_no_queue_to_spare_is_used_as_it_is() {
    let limits = TargetLimits { io_queues_max: 1, ..TargetLimits::default() };
    let server = start(limits);
    let load = mixed(&server, Class::Latency, |_| {});
    eventually("many reads beside bulk", || load.reads.load(Relaxed) > 2000);
    assert_eq!(load.express(), ExpressReading::default());
    assert_eq!(load.client.view().lanes()[0].reconnects, 0);
    load.end();
}

#[test]
fn its_loss_is_the_lane_s() {
    let server = start(TargetLimits::default());
    let proxy = Proxy::new(address(&server), Vec::new());
    let load =
        MixedLoad::begin(HostClient::connect(host_config(proxy.address)).unwrap(), Class::Latency);
    for round in 1..=3 {
        load.opens();
        proxy.cut(proxy.joined() - 1);
        eventually("everything is connected again", || {
            load.client.view().lanes()[0].reconnects >= round
        });
        load.goes_on();
    }
    load.end();
}

// ---- Security: that of its lane ----

/// First bytes of connections: an ICReq, or a TLS record.
const PLAIN: u8 = 0;
const TLS: u8 = 0x16;

fn dhchap_key() -> DhchapKeys {
    let host = DhchapKey::new(Some(Hash::Sha256), &[1; 32]).unwrap();
    DhchapKeys { host: Some(host), controller: None }
}

fn authentication() -> HostAuthentication {
    let keys = BTreeMap::from([(HOST_NQN.to_owned(), dhchap_key())]);
    HostAuthentication { required: true, keys, ..HostAuthentication::default() }
}

fn tls(tls: TlsUse, keys: TlsKeys) -> Option<TlsConfig> {
    Some(TlsConfig { tls, at: BTreeMap::new(), keys })
}

/// Runs a load until an express connection is used. Returns the proxy that its connections passed.
fn used_through_proxy(server: &Server, change: impl FnOnce(&mut HostConfig)) -> Proxy {
    let proxy = Proxy::new(address(server), Vec::new());
    let mut config = host_config(proxy.address);
    change(&mut config);
    let load = MixedLoad::begin(HostClient::connect(config).unwrap(), Class::Latency);
    load.opens();
    load.goes_on();
    load.end();
    proxy
}

#[test]
fn it_authenticates() {
    let server = start_with(|config| config.authentication = authentication());
    let proxy = used_through_proxy(&server, |config| config.keys = dhchap_key());
    let sqes = sqes(&proxy.sent(2));
    let is_proof = sqes.iter().position(|sqe| {
        sqe.opcode == opcode::FABRICS && sqe.fctype() == fctype::AUTHENTICATION_SEND
    });
    let is_read = sqes.iter().position(|sqe| sqe.opcode == opcode::READ);
    assert!(is_proof.is_some() && is_proof < is_read, "{is_proof:?}, {is_read:?}");
}

#[test]
fn it_is_sealed_by_tls() {
    let key = || TlsKey::new(Some(Hash::Sha256), &[7; 32]).unwrap();
    let keys = TlsKeys::from([(HOST_NQN.to_owned(), vec![key()])]);
    let server = start_with(|config| config.tls = tls(TlsUse::Required, keys));
    let proxy = used_through_proxy(&server, |config| {
        config.tls = Some(HostTls::new(TlsKeySource::Configured(key())))
    });
    assert_eq!(proxy.kinds(), [TLS, TLS, TLS]);
}

#[test]
fn it_is_sealed_with_the_psk_that_authentication_has_made() {
    let server = start_with(|config| {
        config.authentication = authentication();
        config.tls = tls(TlsUse::Allowed, TlsKeys::default());
    });
    let proxy = used_through_proxy(&server, |config| {
        config.keys = dhchap_key();
        config.tls = Some(HostTls::concatenated());
    });
    assert_eq!(proxy.kinds(), [PLAIN, TLS, TLS, TLS]);
}
