//! Changes of namespaces that a host requests: the program that embeds the target executes them.

use crate::harness::*;
use roadtrain_host_engine::{AdminConnection, HostControlError};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_proto::{NamespaceManagement, NamespaceRequest};
use roadtrain_wire::namespace_management::delete;
use roadtrain_wire::status::Status;
use std::sync::Mutex;
use std::sync::mpsc::channel;

fn status(failed: HostControlError) -> Status {
    match failed {
        HostControlError::Command { status, .. } => status,
        other => panic!("{other}"),
    }
}

/// A request that takes long keeps no reactor from other commands.
#[test]
fn a_thread_of_the_program_executes_requests() {
    let mut config = server_config(vec![memory(1, MIB, 512)]);
    config.subsystems[0].management =
        Some(NamespaceManagement { administrators: [HOST_NQN.to_owned()].into(), lba_shift: 9 });
    let server = roadtrain_target_engine::Server::start(config).unwrap();
    let client = connect(&server);
    let mut admin = AdminConnection::connect(&host_config(address(&server))).unwrap();
    let refused = admin.run("delete", &delete(1), &[], &mut []).unwrap_err();
    assert_eq!(status(refused), Status::INTERNAL_ERROR.dnr(), "nothing executes it");

    let (begun, requests) = channel();
    let (outcomes, next) = channel::<Result<u32, Status>>();
    let next = Mutex::new(next);
    let execute = move |nqn: &str, request: &NamespaceRequest| {
        begun.send((nqn.to_owned(), request.clone())).unwrap();
        next.lock().unwrap().recv().unwrap()
    };
    server.manage_namespaces(execute).unwrap();
    for outcome in [Ok(7), Err(Status::ACCESS_DENIED.dnr())] {
        std::thread::scope(|scope| {
            let run = scope.spawn(|| admin.run("delete", &delete(1), &[], &mut []));
            let (nqn, request) = requests.recv_timeout(LONG).unwrap();
            assert_eq!((&*nqn, request), (NQN, NamespaceRequest::Delete { nsid: Some(1) }));
            client.read(1, 0, Buffer::alloc(4096)).unwrap();
            outcomes.send(outcome).unwrap();
            let completion = run.join().unwrap();
            let result = completion.map(|cqe| cqe.dw0.get()).map_err(status);
            assert_eq!(result, outcome);
        });
    }
}
