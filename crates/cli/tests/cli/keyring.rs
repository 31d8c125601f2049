//! Keys for TLS from a keyring: of the kernel, or in a file that nvme-cli has exported.

use crate::harness::{NQN, PROGRAM, TargetProcess, roadtrain, stderr};
use roadtrain_proto::security::{Derivation, Hash, IdentityVersion, TlsKey};
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const HOST: &str = "nqn.2025-01.io.example:host";
const OTHER: &str = "nqn.2025-01.io.example:other";
const SERVE: [&str; 9] =
    ["-a", "127.0.0.1", "-s", "0", "-n", NQN, "--namespace", "mem:8MiB", "--tls=required"];

/// Returns a PSK derived from a configured one: its identity and its bytes.
fn psk(fill: u8, host: &str) -> (String, Vec<u8>) {
    let psk = TlsKey::new(Some(Hash::Sha256), &[fill; 32]).unwrap().tls_psk(host, NQN);
    (psk.identity, psk.psk.reveal().to_vec())
}

/// Writes a file in the format of `nvme tls-key --export`.
fn write(path: &Path, psks: &[(String, Vec<u8>)]) {
    let line = |(identity, bytes): &(String, Vec<u8>)| {
        let key = TlsKey::new(Some(Hash::Sha256), bytes).unwrap();
        format!("{identity} {}\n", *key.print())
    };
    fs::write(path, psks.iter().map(line).collect::<String>()).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

fn identify(target: &TargetProcess, options: &str) -> Result<(), (Option<i32>, String)> {
    let done = target.run("identify", &format!("-n {NQN} -q {HOST} --tls {options}"));
    done.status.success().then_some(()).ok_or_else(|| (done.status.code(), stderr(&done)))
}

#[track_caller]
fn refused(target: &TargetProcess, options: &str, status: i32, said: &str) {
    let (code, message) = identify(target, options).unwrap_err();
    assert_eq!((code, message.lines().count()), (Some(status), 1), "{message}");
    assert!(message.contains(said), "{message}");
    assert!(!message.contains("NVMeTLSkey-1:"), "{message}");
}

#[test]
fn hosts_and_targets_take_keys_that_nvme_has_exported() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let names = ["target", "host", "two", "none"].map(path);
    let [target, host, two, none] = &names;
    let [first, second] = [1, 2].map(|fill| psk(fill, HOST));
    write(target.as_ref(), &[first.clone(), psk(1, OTHER)]);
    write(host.as_ref(), std::slice::from_ref(&first));
    write(two.as_ref(), &[first.clone(), second.clone()]);
    write(none.as_ref(), &[psk(1, OTHER)]);
    let running = TargetProcess::start(&[&SERVE[..], &["--keyring", target]].concat());
    identify(&running, &format!("--keyring {host}")).unwrap();
    for (identity, status) in [(&first.0, 0), (&second.0, 3)] {
        let (port, line) = (running.port.to_string(), ["--tls-key-identity", identity]);
        let words = [
            "identify",
            "-a",
            "127.0.0.1",
            "-s",
            &port,
            "-n",
            NQN,
            "-q",
            HOST,
            "--tls",
            "--keyring",
            two,
        ];
        let done = Command::new(PROGRAM).args(words).args(line).output().unwrap();
        assert_eq!(done.status.code(), Some(status), "{}", stderr(&done));
    }
    refused(&running, &format!("--keyring {two}"), 3, "choose one by --tls-key-identity");
    refused(&running, &format!("--keyring {none}"), 3, "it has no PSK for host");
    refused(&running, "--keyring ./is-not-there", 2, "No such file");
    refused(&running, "--keyring roadtrain-none", 1, "a file has a / in its name");
    // The configured PSK from which the target's was derived is the same key; another one is not.
    for (fill, is_right) in [(1, true), (2, false)] {
        let key = TlsKey::new(Some(Hash::Sha256), &[fill; 32]).unwrap();
        let file = path("configured");
        fs::write(&file, &**key.print()).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let done = identify(&running, &format!("--tls-key {file}"));
        assert_eq!(
            done.as_ref().err().and_then(|(code, _)| *code),
            (!is_right).then_some(3),
            "{done:?}"
        );
    }
}

/// SPDK's targets support version 0, Linux's the version in the keyring. Key files may end with a newline or not.
#[test]
fn a_configured_key_is_offered_by_both_versions_of_its_identity() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (keyring, file) = (path("keyring"), path("key"));
    let key = TlsKey::new(Some(Hash::Sha256), &[1; 32]).unwrap();
    for (version, known, other) in
        [(IdentityVersion::V0, "0", "1"), (IdentityVersion::V1, "1", "0")]
    {
        let psk = key.tls_psk_by(HOST, NQN, Derivation { version, compat: false });
        write(keyring.as_ref(), &[(psk.identity, psk.psk.reveal().to_vec())]);
        let running = TargetProcess::start(&[&SERVE[..], &["--keyring", &keyring]].concat());
        for end in ["", "\n"] {
            fs::write(&file, format!("{}{end}", *key.print())).unwrap();
            fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
            identify(&running, &format!("--tls-key {file}")).unwrap();
        }
        identify(&running, &format!("--tls-key {file} --tls-key-identity {known}")).unwrap();
        let only = |identity: &str| format!("--tls-key {file} --tls-key-identity {identity}");
        refused(&running, &only(other), 3, "the target refuses this host's key");
        refused(&running, &only("2"), 2, "write 0 or 1");
    }
}

#[test]
fn a_target_says_which_hosts_its_keyring_lacks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    write(&path, &[psk(1, HOST)]);
    let empty = directory.path().join("empty");
    write(&empty, &[]);
    let check = |options: String| {
        let serve = format!("serve {} {options} --check-config", SERVE.join(" "));
        let checked = roadtrain(&serve);
        (checked.status.code(), stderr(&checked))
    };
    let (path, empty) = (path.display(), empty.display());
    assert_eq!(check(format!("--keyring {path} --allow-host {HOST}")).0, Some(0));
    for (options, said) in [
        (format!("--keyring {path} --allow-host {OTHER}"), "has no key for TLS"),
        (format!("--keyring {empty}"), "no host could connect"),
    ] {
        let (status, message) = check(options);
        assert_eq!(status, Some(2), "{message}");
        assert!(message.contains(said), "{message}");
    }
    let off =
        roadtrain(&format!("serve -a 127.0.0.1 -n {NQN} --namespace mem:8MiB --keyring {path}"));
    assert_eq!(off.status.code(), Some(2));
    assert!(stderr(&off).contains("--keyring needs --tls required"), "{}", stderr(&off));
}

/// Returns the key's serial number that a system call has returned, or its error.
fn serial(done: libc::c_long) -> io::Result<libc::c_long> {
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

fn add(
    kind: &str,
    description: &str,
    payload: &[u8],
    keyring: libc::c_long,
) -> io::Result<libc::c_long> {
    let [kind, description] = [kind, description].map(|text| CString::new(text).unwrap());
    let (payload, length) = (payload.as_ptr(), payload.len());
    let (kind, description) = (kind.as_ptr(), description.as_ptr());
    // SAFETY: strings that end with a zero, and a payload with its length; all live longer than the call.
    serial(unsafe { libc::syscall(libc::SYS_add_key, kind, description, payload, length, keyring) })
}

#[test]
fn hosts_and_targets_take_keys_of_the_kernel() {
    const JOIN_SESSION: libc::c_int = 1;
    const OF_SESSION: libc::c_long = -3;
    // SAFETY: no name: a new session keyring for this thread, and for programs that it starts.
    let joined = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION, std::ptr::null::<u8>()) };
    let name = format!("roadtrain-{}", std::process::id());
    let made = serial(joined).and_then(|_| add("keyring", &name, b"", OF_SESSION));
    let keyring = match made {
        Ok(keyring) => keyring,
        Err(error) => return crate::skipped::skipped(format!("no keyring of the kernel: {error}")),
    };
    let [(identity, bytes), (other_identity, other)] = [1, 2].map(|fill| psk(fill, HOST));
    add("user", &identity, &bytes, keyring).unwrap();
    add("user", "another program's", b"secret", keyring).unwrap();
    let running = TargetProcess::start(&[&SERVE[..], &["--keyring", &name]].concat());
    identify(&running, &format!("--keyring {name}")).unwrap();
    identify(&running, &format!("--keyring {keyring}")).unwrap();
    let second = add("keyring", &format!("{name}-second"), b"", OF_SESSION).unwrap();
    add("user", &other_identity, &other, second).unwrap();
    let said = "the target refuses this host's key";
    refused(&running, &format!("--keyring {name}-second"), 3, said);
    add("user", &identity, &bytes[..31], second).unwrap();
    refused(&running, &format!("--keyring {name}-second"), 2, "it has 31 bytes");
}
