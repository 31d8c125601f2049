//! Attachments with a program that stands for roadtrain.

use super::*;

const UUID: &str = "01234567-89ab-4cde-8f01-23456789abcd";

/// Attachments whose `roadtrain` is a shell script with this body.
fn attachments(folder: &Path, script: &str) -> Attachments {
    let path = folder.join("roadtrain");
    fs::write(&path, script).unwrap();
    Attachments {
        mode: AttachMode::Ublk,
        node: "nqn.a:h".into(),
        roadtrain: vec!["sh".into(), path.display().to_string()],
        options: vec!["--lanes".into(), "2".into()],
        run_dir: folder.join("run"),
        kernel: KernelHost::default(),
    }
}

fn publication(tls: bool) -> Publication {
    let addresses = vec!["192.0.2.7:4420".into(), "192.0.2.8:4420".into()];
    Publication { nqn: names::subsystem(UUID), addresses, tls }
}

#[test]
fn publications_survive_contexts() {
    for tls in [false, true] {
        let one = publication(tls);
        assert_eq!(Publication::of_context(&one.context()), Some(one));
    }
    assert_eq!(Publication::of_context(&HashMap::new()), None);
}

#[tokio::test]
async fn attachments_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let found = async |state: &str, spec: &str, device: &str| {
        let row = serde_json::json!([
            {"kind": "target", "state": "serving", "id": "target0", "listeners": []},
            {"kind": "attachment", "state": state, "id": names::attachment(UUID), "as": spec,
             "devices": [{"nsid": 1, "names": [device]}]}]);
        let one = attachments(folder.path(), &format!("echo '{row}'"));
        one.find(UUID).await
    };
    assert_eq!(found("starting", "ublk", "").await, Ok(Attached::Starting));
    let gone = |can_be_taken_over| Ok(Attached::Gone { can_be_taken_over });
    assert_eq!(found("gone", "ublk:3", "").await, gone(true));
    assert_eq!(found("gone", "fuse:/run/x", "").await, gone(false));
    assert!(found("ready", "ublk", "/dev/null").await.unwrap_err().contains("no block device"));
    let none = attachments(folder.path(), "echo '[]'");
    assert_eq!(none.find(UUID).await, Ok(Attached::No));
    let broken = attachments(folder.path(), "echo broken >&2; exit 1");
    assert!(broken.find(UUID).await.unwrap_err().contains("broken"));
}

#[tokio::test]
async fn keys_are_private_and_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("words");
    let one = attachments(folder.path(), &format!("echo \"$@\" >{}", log.display()));
    let secrets = [("dhchap-key", "DHHC-1:k"), ("tls-key", "NVMeTLS:t"), ("other", "x")];
    let secrets = secrets.map(|(key, value)| (key.to_owned(), value.to_owned()));
    one.attach(UUID, &publication(true), &secrets.clone().into()).await.unwrap();
    let words = fs::read_to_string(&log).unwrap();
    let key = one.folder(UUID).join("dhchap-key");
    for part in [
        "-a 192.0.2.7:4420 -a 192.0.2.8:4420",
        "--as ublk",
        "-q nqn.a:h",
        "--tls --lanes 2",
        &format!("--dhchap-secret {}", key.display()),
        "--tls-key",
    ] {
        assert!(words.contains(part), "no {part}: {words}");
    }
    assert!(!words.contains("DHHC-1") && !words.contains("--loop"), "{words}");
    assert_eq!(fs::read_to_string(&key).unwrap(), "DHHC-1:k\n");
    assert_eq!(fs::metadata(&key).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(one.folder(UUID)).unwrap().mode() & 0o777, 0o700);

    one.attach(UUID, &publication(false), &HashMap::new()).await.unwrap();
    assert!(!key.exists(), "a key that is not given any more");
    one.forget(UUID).unwrap();
    one.forget(UUID).unwrap();
    assert!(!one.folder(UUID).exists());
    assert!(one.attach_again(UUID).await.is_err());
}

#[tokio::test]
async fn devices_of_dead_processes_are_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let row = |number: u32, state: &str, spec: &str| {
        let id = names::attachment(&UUID.replace("01234567", &format!("0123456{number}")));
        serde_json::json!({"kind": "attachment", "state": state, "id": id, "as": spec})
    };
    let rows = serde_json::json!([
        row(1, "gone", "ublk"),
        row(2, "gone", "fuse:/x"),
        row(3, "ready", "ublk")
    ]);
    let log = folder.path().join("words");
    let script =
        format!("case $1 in list) echo '{rows}';; *) echo \"$@\" >>{};; esac", log.display());
    let one = attachments(folder.path(), &script);
    for number in 1..4 {
        let uuid = UUID.replace("01234567", &format!("0123456{number}"));
        one.attach(&uuid, &publication(false), &HashMap::new()).await.unwrap();
    }
    fs::write(&log, "").unwrap();
    let states = one.recover(&VolumeLocks::default()).await.unwrap();
    assert_eq!((states["gone"], states["ready"]), (2, 1));
    let words = fs::read_to_string(&log).unwrap();
    assert!(words.lines().count() == 1 && words.contains("csi-01234561"), "{words}");
}
