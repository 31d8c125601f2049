//! Identity of blocks: targets that return with other blocks, and configurations that replace them.

use crate::harness::*;
use roadtrain_host_engine::{HostClient, IoCompletion, IoOp, NamespaceInfo};
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{ConfigOperation, Export, Server, ServerError, Subsystem};
use roadtrain_wire::status::Status;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

fn file_at(nsid: u32, path: &Path, size: Option<u64>) -> Export {
    let kind = StoreKind::File { path: path.into(), size, create: size.is_some() };
    Export::new(nsid, StoreSpec { kind, lba_bytes: 512, read_only: false })
}

fn namespace(client: &HostClient, nsid: u32) -> NamespaceInfo {
    client.view().namespace(nsid).expect("it is there")
}

fn is_refused(completion: &IoCompletion) -> bool {
    completion.status.is(Status::INVALID_NAMESPACE) && completion.status.is_dnr()
}

/// Stops `server`, submits a write meanwhile, and starts a target with `exports` at the same address.
fn write_across_a_restart(
    client: &HostClient,
    server: Server,
    exports: Vec<Export>,
) -> (Server, IoCompletion) {
    let listen = address(&server);
    server.stop();
    let (done, ended) = channel();
    client.submit_to(request(IoOp::Write, 0, 8, Some(pattern(4096, 5)), 1), &done);
    let mut config = server_config(exports);
    config.listen = vec![listen];
    let server = Server::start(config).unwrap();
    let completion = ended.recv_timeout(LONG).expect("it completes");
    (server, completion)
}

#[test]
fn a_host_does_not_go_on_with_memory_that_was_lost() {
    let server = serve(vec![memory(1, MIB, 512), memory(2, MIB, 512)]);
    let client = connect(&server);
    client.write(1, 0, pattern(4096, 1), false).unwrap();
    let (server, waited) = write_across_a_restart(&client, server, vec![memory(1, MIB, 512)]);
    assert!(is_refused(&waited), "a write that waited for the connection: {:?}", waited.status);
    let later = client.write(1, 0, pattern(4096, 6), false).unwrap_err();
    assert!(later.status.is(Status::INVALID_NAMESPACE), "{later}");
    assert!(client.read(1, 0, Buffer::alloc(4096)).is_err(), "it is not what was written");
    let new = connect(&server);
    assert!(new.read(1, 0, Buffer::alloc(4096)).unwrap().iter().all(|&byte| byte == 0));
}

/// Only other blocks stay hidden for seconds, so that the host can react.
#[test]
fn a_file_that_is_removed_and_added_is_there_again_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let export = file(1, &directory, MIB, 512);
    let server = serve(vec![export.clone()]);
    let client = connect(&server);
    client.write(1, 0, pattern(4096, 1), false).unwrap();
    let nqn = NQN.to_owned();
    server.apply(&[ConfigOperation::RemoveNamespace { nqn: nqn.clone(), nsid: 1 }]).unwrap();
    let begun = Instant::now();
    server.apply(&[ConfigOperation::AddNamespace { nqn, namespace: export }]).unwrap();
    let mut found = None;
    eventually("it is there", || {
        found = client.read(1, 0, Buffer::alloc(4096)).ok();
        found.is_some()
    });
    assert!(*found.unwrap() == *pattern(4096, 1));
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn a_host_goes_on_with_a_file_that_is_there_again() {
    let directory = tempfile::tempdir().unwrap();
    let exports = || vec![file(1, &directory, MIB, 512)];
    let server = serve(exports());
    let client = connect(&server);
    client.write(1, 8, pattern(4096, 1), false).unwrap();
    let (_server, waited) = write_across_a_restart(&client, server, exports());
    assert!(waited.status.is_success(), "{:?}", waited.status);
    assert!(*client.read(1, 8, Buffer::alloc(4096)).unwrap() == *pattern(4096, 1));
}

#[test]
fn a_host_goes_on_when_its_namespace_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let right = || vec![file(1, &directory, MIB, 512)];
    let server = serve(right());
    let client = connect(&server);
    let (server, waited) = write_across_a_restart(&client, server, vec![memory(1, MIB, 512)]);
    assert!(is_refused(&waited), "{:?}", waited.status);
    let (_server, _) = write_across_a_restart(&client, server, right());
    eventually("its namespace is back", || client.write(1, 0, pattern(4096, 1), false).is_ok());
}

#[test]
fn another_file_under_an_nsid_gets_no_write_of_hosts_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| directory.path().join(name));
    let export = |path| vec![subsystem(vec![file_at(1, path, Some(MIB))])];
    let mut config = server_config(vec![]);
    config.subsystems = export(&paths[0]);
    let server = Server::start(config).unwrap();
    let client = connect(&server);
    let first = namespace(&client, 1);
    client.write(1, 0, pattern(4096, 1), false).unwrap();
    server.reload(&export(&paths[1])).unwrap();
    let refused = client.write(1, 0, pattern(4096, 2), false).unwrap_err();
    assert!(refused.status.is(Status::INVALID_NAMESPACE), "{refused}");
    eventually("it goes", || client.view().namespace(1).is_none());
    eventually("another comes", || client.view().namespace(1).is_some());
    let second = namespace(&client, 1);
    assert!(second.nguid != first.nguid && second.uuid != first.uuid);
    assert!(client.write(1, 0, pattern(4096, 3), false).is_err(), "it means the first one");
    assert!(std::fs::read(&paths[1]).unwrap().iter().all(|&byte| byte == 0), "untouched");
    let other = connect(&server);
    other.write(1, 0, pattern(4096, 4), false).unwrap();
    assert!(std::fs::read(&paths[0]).unwrap()[..4096] == *pattern(4096, 1), "so is the first");
}

#[test]
fn a_file_keeps_its_identity_under_another_name_and_number() {
    let directory = tempfile::tempdir().unwrap();
    let [before, after] = ["before", "after"].map(|name| directory.path().join(name));
    let server = serve(vec![file_at(1, &before, Some(MIB))]);
    let first = namespace(&connect(&server), 1);
    std::fs::rename(&before, &after).unwrap();
    let renamed = server.reload(&[subsystem(vec![file_at(1, &after, None)])]);
    assert_eq!(renamed.unwrap(), [], "nothing has changed for hosts");
    server.reload(&[subsystem(vec![file_at(7, &after, None)])]).unwrap();
    let client = connect(&server);
    assert!(namespace(&client, 7).is_same(&first));
    assert!(client.view().namespace(1).is_none());
}

fn of_blocks(path: &Path, lba_bytes: u32, read_only: bool) -> Export {
    let kind = StoreKind::File { path: path.into(), size: None, create: false };
    Export::new(1, StoreSpec { kind, lba_bytes, read_only })
}

#[test]
fn a_file_keeps_its_block_size() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    std::fs::write(&path, vec![0; MIB as usize]).unwrap();
    if rustix::fs::setxattr(&path, "user.test", b"", rustix::fs::XattrFlags::empty()).is_err() {
        return crate::skipped::skipped("the temporary directory takes no extended attributes");
    }
    let text = |result: Result<Server, ServerError>| match result {
        Ok(_) => String::new(),
        Err(error) => ServerError::to_string(&error),
    };
    let start = |exports| Server::start(server_config(exports));
    // A start that fails changes no file.
    let with_missing =
        vec![of_blocks(&path, 512, false), file_at(2, &directory.path().join("none"), None)];
    assert!(start(with_missing).is_err());
    let served = |lba_bytes, read_only| start(vec![of_blocks(&path, lba_bytes, read_only)]);
    let server = served(4096, false).unwrap();
    let first = namespace(&connect(&server), 1);
    // The error of a reload names the block size, not a process that has the file open.
    let reloaded = server.reload(&[subsystem(vec![of_blocks(&path, 512, false)])]);
    let refusal = reloaded.unwrap_err().to_string();
    assert!(refusal.contains("blocks of 4096 bytes") && refusal.contains("lba=4096"), "{refusal}");
    let reloaded = server.reload(&[subsystem(vec![of_blocks(&path, 4096, true)])]);
    let refusal = reloaded.unwrap_err().to_string();
    assert!(
        refusal.contains("this target serves it with blocks of 4096 bytes, for writing"),
        "{refusal}"
    );
    server.stop();
    for read_only in [false, true] {
        let refusal = text(served(512, read_only));
        assert!(
            refusal.contains("blocks of 4096 bytes") && refusal.contains("setfattr -x"),
            "{refusal}"
        );
        // A configured identity does not change the content.
        let given = Export { nguid: Some([7; 16]), ..of_blocks(&path, 512, read_only) };
        assert!(text(start(vec![given])).contains("blocks of 4096 bytes"));
    }
    let again = namespace(&connect(&served(4096, false).unwrap()), 1);
    assert!(again.is_same(&first));
}

#[test]
fn identities_are_what_the_configuration_says() {
    let (uuid, nguid) = (Some([0x11; 16]), Some([0x22; 16]));
    let with_ids = |nsid, uuid, nguid| Export { uuid, nguid, ..memory(nsid, MIB, 512) };
    let exports = || vec![with_ids(1, uuid, nguid), with_ids(2, Some([0x33; 16]), None)];
    let ids = || {
        let client = connect(&serve(exports()));
        [1, 2].map(|nsid| (namespace(&client, nsid).uuid, namespace(&client, nsid).nguid))
    };
    let first = ids();
    assert_eq!((first[0], first[1].0), (([0x11; 16], [0x22; 16]), [0x33; 16]));
    assert_eq!(ids(), first, "a second target with the same configuration");
}

/// Returns the state that a reload can change: the files and their sizes, and the namespaces that hosts see.
fn snapshot(directory: &Path, server: &Server) -> (BTreeMap<String, Vec<u8>>, Vec<NamespaceInfo>) {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
    });
    (files.collect(), connect(server).view().info().namespaces)
}

#[test]
fn a_reload_that_fails_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let before = vec![memory(1, 2 * MIB, 512), file_at(2, &path("two"), Some(MIB))];
    let server = serve(before.clone());
    let client = connect(&server);
    client.write(1, 4000, pattern(4096, 1), false).unwrap();
    client.write(2, 0, pattern(4096, 2), false).unwrap();
    std::fs::write(path("small"), [7; 4096]).unwrap();
    let known = snapshot(directory.path(), &server);
    // These changes would shrink, grow, create and grow before the one that is impossible.
    let changes = vec![
        memory(1, MIB, 512),
        file_at(2, &path("two"), Some(2 * MIB)),
        file_at(3, &path("new"), Some(MIB)),
        file_at(4, &path("small"), Some(MIB)),
    ];
    let twice = Export { uuid: Some([1; 16]), ..memory(5, MIB, 512) };
    for (what, wrong) in [
        ("no such file", vec![file_at(5, &path("none"), None)]),
        ("a directory", vec![file_at(5, directory.path(), None)]),
        ("no whole blocks", vec![memory(5, 1000, 512)]),
        ("a file that is exported", vec![file_at(5, &path("two"), None)]),
        ("an NSID out of range", vec![memory(50_000, MIB, 512)]),
        ("an identity twice", vec![twice.clone(), Export { nsid: 6, ..twice.clone() }]),
    ] {
        let wanted = [changes.clone(), wrong].concat();
        assert!(server.reload(&[subsystem(wanted.clone())]).is_err(), "{what}");
        assert!(snapshot(directory.path(), &server) == known, "{what}");
        assert!(*client.read(1, 4000, Buffer::alloc(4096)).unwrap() == *pattern(4096, 1), "{what}");
        let start = Server::start(server_config(wanted[2..].to_vec()));
        assert!(start.is_err(), "{what}");
        assert!(snapshot(directory.path(), &server) == known, "a start that fails: {what}");
    }
    let elsewhere = Subsystem { nqn: "no NQN".into(), ..subsystem(vec![]) };
    assert!(server.reload(&[subsystem(changes.clone()), elsewhere]).is_err());
    assert!(snapshot(directory.path(), &server) == known, "a subsystem that cannot be");

    server.reload(&[subsystem(changes)]).unwrap();
    let (files, namespaces) = snapshot(directory.path(), &server);
    let sizes: Vec<u64> = namespaces.iter().map(|n| n.blocks * 512).collect();
    assert_eq!(sizes, [MIB, 2 * MIB, MIB, MIB]);
    assert_eq!(files["two"].len() as u64, 2 * MIB);
    assert!(files["two"][..4096] == *pattern(4096, 2) && files["small"][..4096] == [7; 4096]);
    server.reload(&[subsystem(before)]).unwrap_err(); // a file is not truncated
}
