//! Targets known by name, which may resolve to another address on reconnect.

use crate::harness::{
    HOST_NQN, LONG, MIB, NQN, address, memory, patient, pattern, request, serve, silent,
};
use crate::proxy::{ConnectionFault, Proxy};
use roadtrain_host_engine::{HostClient, HostConfig, IoOp, TargetName};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::Export;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

type NameReply = Arc<Mutex<Option<Vec<SocketAddr>>>>;

/// Configures a host whose target name resolves to `answer`.
fn host_by_name(answer: &NameReply) -> HostConfig {
    let answer = answer.clone();
    let name = TargetName::with_lookup("disk.test", 4420, move |_, _| {
        answer.lock().unwrap().clone().ok_or_else(|| io::Error::other("no resolver responds"))
    });
    let mut config = HostConfig::new(name, NQN, HOST_NQN, [7; 16]);
    config.reconnect_delay = Duration::from_millis(20);
    config.lanes = 2;
    config
}

fn resolves_to(addresses: &[SocketAddr]) -> NameReply {
    Arc::new(Mutex::new(Some(addresses.to_vec())))
}

/// Returns an address where no process listens.
fn closed_address(last: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, last], 1))
}

#[test]
fn a_name_that_resolves_to_another_address_is_followed() {
    // Two targets with the same identity of their blocks.
    let same = || Export { uuid: Some([1; 16]), ..memory(1, MIB, 512) };
    let (old, new) = (serve(vec![same()]), serve(vec![same()]));
    let resolved = resolves_to(&[address(&old)]);
    let client = HostClient::connect(host_by_name(&resolved)).unwrap();
    client.write(1, 0, pattern(4096, 1), false).unwrap();
    *resolved.lock().unwrap() = Some(vec![closed_address(1), address(&new)]);
    drop(old);
    client.write(1, 0, pattern(4096, 2), false).unwrap();
    assert!(*client.read(1, 0, Buffer::alloc(4096)).unwrap() == *pattern(4096, 2));
    drop(client);
    let direct = HostClient::connect(crate::harness::host_config(address(&new))).unwrap();
    assert!(*direct.read(1, 0, Buffer::alloc(4096)).unwrap() == *pattern(4096, 2));
}

#[test]
fn without_an_answer_the_old_addresses_are_used() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let proxy = Proxy::new(address(&server), vec![ConnectionFault::Cut(200_000); 4]);
    let resolved = resolves_to(&[proxy.address]);
    let client = HostClient::connect(host_by_name(&resolved)).unwrap();
    *resolved.lock().unwrap() = None;
    for seed in 0..40 {
        client.write(1, 0, pattern(65536, seed), false).unwrap();
    }
    assert!(proxy.strikes() > 0, "nothing was cut");
}

/// An address that accepts connections and sends nothing leaves time for the next one.
#[test]
fn a_silent_address_does_not_take_the_others_time() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let resolved = resolves_to(&[silent.local_addr().unwrap(), address(&server)]);
    let mut config = host_by_name(&resolved);
    config.timeout = Duration::from_secs(2);
    let client = HostClient::connect(config).unwrap();
    client.write(1, 0, pattern(4096, 1), false).unwrap();
}

#[test]
fn all_addresses_that_failed_are_named() {
    let dead = [closed_address(1), closed_address(2)];
    let mut config = host_by_name(&resolves_to(&dead));
    config.timeout = LONG;
    let error = HostClient::connect(config).err().unwrap().to_string();
    assert!(error.contains("cannot reach disk.test:4420"), "{error}");
    assert!(dead.iter().all(|address| error.contains(&address.to_string())), "{error}");

    let unknown = host_by_name(&Arc::default());
    let error = HostClient::connect(unknown).err().unwrap().to_string();
    assert!(error.contains("no resolver responds") && error.contains("getent"), "{error}");
}

/// A host that waits for a reply on a new connection ends soon, whatever its timeout.
#[test]
fn a_controller_ends_soon_while_it_connects_again() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let resolved = resolves_to(&[address(&server)]);
    let mut config = host_by_name(&resolved);
    config.timeout = LONG * 10;
    let client = HostClient::connect(config).unwrap();
    let view = client.view().clone();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    *resolved.lock().unwrap() = Some(vec![silent.local_addr().unwrap()]);
    drop(server);
    let _waiting_for_an_answer = silent.accept().unwrap();
    let (done, ended) = channel();
    client.submit_to(request(IoOp::Write, 0, 8, Some(pattern(4096, 1)), 5), &done);
    let begin = Instant::now();
    drop((client, done));
    assert!(begin.elapsed() < LONG);
    assert_eq!((ended.iter().count(), view.abandoned()), (1, 1));
}

#[test]
fn an_address_that_is_silent_keeps_no_other_waiting() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let silent: Vec<_> = (0..3).map(|_| silent()).collect();
    let addresses = silent.iter().map(|(_, at)| *at).chain([address(&server)]);
    let resolved = resolves_to(&addresses.collect::<Vec<_>>());
    let begun = Instant::now();
    let client = HostClient::connect(patient(host_by_name(&resolved))).unwrap();
    client.write(1, 0, pattern(4096, 1), false).unwrap();
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}
