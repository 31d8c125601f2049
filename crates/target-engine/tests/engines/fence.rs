//! Lost controllers that the target still considers connected: the host has them ended.

use crate::harness::*;
use crate::peer::{ENTRIES, EngineHarness, raw};
use crate::proxy::Proxy;
use roadtrain_host_engine::{AdminConnection, HostClient};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::cross_reset::{
    ControllerInstance, IMMEDIATE, LOG_BYTES, REMOVE_COMPLETED, entries, reset_status,
};
use roadtrain_wire::identify::{IDENTIFY_BYTES, IdentifyController, cns};
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::zerocopy::FromBytes;
use std::time::Duration;

/// Without a Keep Alive Timer the target would keep the silent connections forever.
#[test]
fn connections_that_fell_silent_are_ended_by_the_hosts_next_controller() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let proxy = Proxy::new(address(&server), vec![]);
    let mut host = host_config(proxy.address);
    (host.keep_alive, host.timeout) = (Duration::ZERO, Duration::from_secs(2));
    host.io_timeout = Some(Duration::from_secs(1));
    let client = HostClient::connect(host).unwrap();
    client.write(1, 0, pattern(65536, 1), false).unwrap();
    let connections = server.usage().connections;
    proxy.freeze();
    client.write(1, 0, pattern(65536, 2), false).unwrap();
    assert_eq!(server.usage().connections, connections, "the old ones are gone before that");
    assert!(*client.read(1, 0, Buffer::alloc(65536)).unwrap() == *pattern(65536, 2));
    drop(client);
    assert_nothing_left(&server);
}

fn instance(admin: &mut AdminConnection) -> ControllerInstance {
    let mut sqe = Sqe::new(opcode::IDENTIFY, 0);
    sqe.cdw10 = u32::from(cns::CONTROLLER).into();
    let mut page = vec![0; IDENTIFY_BYTES];
    admin.run("Identify", &sqe, &[], &mut page).unwrap();
    let page = IdentifyController::ref_from_bytes(&page).unwrap();
    ControllerInstance { cntlid: admin.cntlid, ciu: page.ciu, cirn: page.cirn.get() }
}

/// Returns the state of a controller's reset in the log.
fn status_of(admin: &mut AdminConnection, named: ControllerInstance) -> u8 {
    let lsp = REMOVE_COMPLETED;
    let get = GetLogPage { lsp, ..GetLogPage::new(lid::CROSS_CONTROLLER_RESET, LOG_BYTES as u32) };
    let mut page = vec![0; LOG_BYTES];
    admin.run("Get Log Page", &get.emit(u32::MAX), &[], &mut page).unwrap();
    let entry = entries(&page).iter().find(|entry| entry.icid.get() == named.cntlid);
    entry.expect("it is in the log").status
}

#[test]
fn commands_of_an_ended_controller_have_left_their_store_when_its_end_is_reported() {
    let service = Duration::from_millis(500);
    let mut harness = EngineHarness::with(server_config(vec![ssd(1, MIB, 512, service, 1)]));
    let named = instance(&mut harness.admin);
    let mut lost = harness.queue(raw::PLAIN);
    for cid in 2..6 {
        lost.send(&raw::write_in_capsule(cid, &[7; 512], raw::PLAIN));
    }
    eventually("they are in the store", || harness.server.usage().store_commands > 0);
    let mut config = host_config(address(&harness.server));
    config.keep_alive = Duration::ZERO;
    let mut next = AdminConnection::connect(&config).unwrap();
    let cqe = next.run("Cross-Controller Reset", &named.emit(), &[], &mut []).unwrap();
    if cqe.dw0.get() & IMMEDIATE == 0 {
        eventually("the log reports its end", || {
            status_of(&mut next, named) == reset_status::SUCCEEDED
        });
    }
    assert_eq!(harness.server.usage().store_commands, 0);
    lost.assert_ends();
    assert!(ENTRIES > 4 && harness.admin.run("Keep Alive", &keep_alive(), &[], &mut []).is_err());
    let again = next.run("Cross-Controller Reset", &named.emit(), &[], &mut []).unwrap();
    assert_eq!(again.dw0.get() & IMMEDIATE, IMMEDIATE, "nothing is left of it");
    // The client belongs to the same host, and keeps its controller.
    harness.assert_healthy();
}

fn keep_alive() -> Sqe {
    Sqe::new(opcode::KEEP_ALIVE, 0)
}
