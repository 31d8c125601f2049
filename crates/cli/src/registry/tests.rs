use super::*;
use std::os::unix::net::UnixListener;

fn claim<'a>(
    id: Option<&'a str>,
    spec: &'a roadtrain_front::spec::FrontSpec,
) -> AttachmentClaim<'a> {
    AttachmentClaim { id, spec, address: "192.0.2.7:4420".into(), nqn: "nqn.x:y".into() }
}

fn ids(registry: &Registry) -> Vec<String> {
    registry.entries().unwrap().into_iter().map(|entry| entry.id).collect()
}

/// Changes the entry to one of a dead process.
fn kill(registry: &Registry, id: &str) -> AttachmentEntry {
    let mut entry = registry.find(id).unwrap().remove(0);
    entry.process.started += 1;
    write_entry(&registry.folder(id), &entry).unwrap();
    entry
}

#[test]
fn attachments_have_separate_directories() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::at(&directory.path().join("run"));
    assert!(ids(&registry).is_empty(), "no folder yet");
    let specs =
        ["nbd:unix:/a", "nbd:unix:/b", "fuse:/a", "nbd:tcp:h:1"].map(|s| s.parse().unwrap());
    let held: Vec<_> = specs.iter().map(|s| registry.claim(&claim(None, s)).unwrap()).collect();
    assert_eq!(ids(&registry), ["fuse0", "nbd0", "nbd1", "nbd2"]);
    let error = registry.claim(&claim(None, &specs[2])).unwrap_err().message;
    assert!(error.contains("attachment fuse0") && error.contains("detach fuse0"), "{error}");
    let vhost = "vhost-user:/a".parse().unwrap();
    let error = registry.claim(&claim(None, &vhost)).unwrap_err().message;
    assert!(error.contains("attachment nbd0"), "the same socket: {error}");
    let other = "fuse:/other".parse().unwrap();
    assert!(registry.claim(&claim(Some("nbd1"), &other)).is_err(), "the name is taken");
    drop(held);
    assert!(ids(&registry).is_empty());
    let named = registry.claim(&claim(Some("disk-1"), &other)).unwrap();
    assert_eq!(ids(&registry), ["disk-1"]);
    drop(named);
}

#[test]
fn names_are_valid_names_of_directories() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::at(directory.path());
    let spec = "ublk".parse().unwrap();
    for id in ["", ".", "..", ".x", "a/b", "a b", "\u{e4}", &"x".repeat(65)] {
        let failure = registry.claim(&claim(Some(id), &spec)).unwrap_err();
        assert_eq!(failure.kind, crate::FailureKind::Usage, "{id}");
    }
}

#[test]
fn they_are_found_by_all_their_names() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::at(directory.path());
    let spec = "fuse:/mnt/rt".parse().unwrap();
    let mut one = registry.claim(&claim(None, &spec)).unwrap();
    let devices =
        vec![DeviceEntry { nsid: 1, names: vec!["/mnt/rt/nvme0n1".into(), "/dev/loop7".into()] }];
    // The device's path resolves to another one.
    let resources = ["loop:/dev/loop7", "mount:/srv/rt", "folder:/srv/rt", "folder:/srv"];
    let resources = resources.map(|text| text.parse().unwrap());
    one.update(devices, &resources).unwrap();
    let other = "ublk:3".parse().unwrap();
    let _two = registry.claim(&claim(None, &other)).unwrap();
    let found = |name: &str| -> Vec<String> {
        registry.find(name).unwrap().into_iter().map(|entry| entry.id).collect()
    };
    let paths = ["/mnt/rt", "/mnt/rt/", "/srv/rt", "/mnt/rt/nvme0n1", "/dev/loop7"];
    for name in ["fuse0", "fuse:/mnt/rt"].into_iter().chain(paths) {
        assert_eq!(found(name), ["fuse0"], "{name}");
    }
    assert_eq!(found("nqn.x:y"), ["fuse0", "ublk0"]);
    assert!(found("/mnt").is_empty());
    assert!(found("/srv").is_empty(), "others may be there, too");
    assert!(found("").is_empty());
    assert!(registry.find_some("/mnt").unwrap_err().message.contains("roadtrain list"));
}

#[test]
fn leftovers_of_dead_processes_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::at(&directory.path().join("run"));
    let socket = directory.path().join("s");
    let spec = format!("nbd:unix:{}", socket.display()).parse().unwrap();
    let first = registry.claim(&claim(None, &spec)).unwrap();
    drop(UnixListener::bind(&socket).unwrap());
    assert!(registry.clear(&registry.find("nbd0").unwrap()[0]).unwrap().removed.is_empty());
    assert!(socket.exists(), "its process lives");
    let dead = kill(&registry, "nbd0");
    drop(first);
    assert_eq!(ids(&registry), ["nbd0"], "not the first one's any more");
    let cleared = registry.clear(&dead).unwrap();
    assert_eq!(cleared.removed, [format!("socket:{}", socket.display())]);
    assert!(!socket.exists() && ids(&registry).is_empty());
    assert!(registry.clear(&dead).unwrap().stuck.is_empty(), "once more does no harm");
}

#[test]
fn a_dead_attachment_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::at(directory.path());
    let (three, any) = ("ublk:3".parse().unwrap(), "ublk".parse().unwrap());
    let first = registry.claim(&claim(Some("disk"), &three)).unwrap();
    kill(&registry, "disk");
    drop(first);
    let again = registry.claim(&claim(Some("disk"), &any)).unwrap();
    assert_eq!(again.recovered, three.resources(), "its device is still there");
    drop(again);
    assert_eq!(ids(&registry), ["disk"], "what could not take it over leaves it to the next one");
    kill(&registry, "disk");
    let mut again = registry.claim(&claim(Some("disk"), &any)).unwrap();
    assert_eq!(again.recovered, three.resources());
    again.update(Vec::new(), &three.resources()).unwrap();
    drop(again);
    assert!(ids(&registry).is_empty(), "taken over, and ended in order");
    let first = registry.claim(&claim(None, &three)).unwrap();
    kill(&registry, "ublk0");
    drop(first);
    let again = registry.claim(&claim(Some("other"), &three)).unwrap();
    assert_eq!(again.recovered, three.resources());
    assert_eq!(ids(&registry), ["other"]);
}

#[test]
fn invalid_entries_hide_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::at(directory.path());
    let spec = "ublk".parse().unwrap();
    let _one = registry.claim(&claim(None, &spec)).unwrap();
    for (name, text) in [("empty", ""), ("wrong", "{\"id\": 3}"), ("nobody", "{}")] {
        fs::create_dir(directory.path().join(name)).unwrap();
        if !text.is_empty() {
            fs::write(directory.path().join(name).join("entry.json"), text).unwrap();
        }
    }
    fs::write(directory.path().join("file"), "").unwrap();
    assert_eq!(ids(&registry), ["ublk0"]);
    assert_eq!(registry.claim(&claim(None, &spec)).unwrap().id(), "ublk1");
}

/// Users who can write there decide which processes are ended and which resources are removed.
#[test]
fn folders_and_entries_of_others_are_not_trusted() {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::at(&directory.path().join("run"));
    let spec = "ublk".parse().unwrap();
    let _one = registry.claim(&claim(None, &spec)).unwrap();
    let set_mode = |mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(&registry.directory, permissions).unwrap();
    };
    set_mode(0o777);
    let failure = registry.entries().unwrap_err().message;
    assert!(failure.contains("others may write to it"), "{failure}");
    set_mode(0o700);
    let link = directory.path().join("link");
    symlink(&registry.directory, &link).unwrap();
    assert!(Registry::at(&link).entries().is_err(), "a link may lead anywhere");
    let (entry, elsewhere) = (registry.folder("ublk0").join("entry.json"), link.join("x"));
    fs::rename(&entry, &elsewhere).unwrap();
    symlink(&elsewhere, &entry).unwrap();
    assert!(ids(&registry).is_empty());
    fs::rename(&elsewhere, &entry).unwrap();
    assert_eq!(ids(&registry), ["ublk0"]);
    if directory::user_id() == 0 {
        chown(&entry, Some(65534), None).unwrap();
        assert!(ids(&registry).is_empty());
        chown(&registry.directory, Some(65534), None).unwrap();
        let failure = registry.entries().unwrap_err().message;
        assert!(failure.contains("belongs to user 65534"), "{failure}");
    }
}
