//! Keys in the kernel's keyrings (keyrings(7)).

use libc::{c_long, c_ulong};
use std::ffi::{CStr, CString};
use std::fs;
use std::io::{self, ErrorKind};
use zeroize::Zeroizing;

/// Serial number of a key or a keyring.
type Serial = i32;

/// The calling thread's own keyring. The thread possesses the keys that are linked into it.
const OF_THREAD: Serial = -1;
/// The keyring of the process's user.
const OF_USER: Serial = -4;
const DESCRIBE: c_long = 6;
const LINK: c_long = 8;
const UNLINK: c_long = 9;
const READ: c_long = 11;

/// Maximum bytes of a payload: PSKs are shorter.
const PAYLOAD_BYTES_MAX: usize = 128;
/// Maximum bytes of the payload of a `user` key.
const USER_PAYLOAD_BYTES_MAX: usize = 32767;
/// Maximum bytes of a description: that of a PSK has two NQNs.
const DESCRIPTION_BYTES_MAX: usize = 4096;

/// A key that was read.
pub struct KernelKey {
    /// Description that identifies it in its keyring.
    pub description: String,
    /// Payload of the key.
    pub payload: Zeroizing<Vec<u8>>,
}

/// Returns the keys of the keyring with that name or number whose description begins with `prefix`. Expired and revoked
/// keys are left out.
///
/// There is no such keyring, or it or one of these keys cannot be read.
pub fn read(keyring: &str, prefix: &str) -> io::Result<Vec<KernelKey>> {
    let keyring = find(keyring)?;
    // Some keys are readable only by their possessor. Where the link is not allowed, reading fails with the reason.
    let is_linked = control(LINK, keyring, OF_THREAD as c_ulong, 0).is_ok();
    let keys = read_possessed(keyring, prefix);
    if is_linked {
        // The link would end with the thread anyway.
        let _ = control(UNLINK, keyring, OF_THREAD as c_ulong, 0);
    }
    keys
}

/// Returns the payload of the `user` key with that description in the keyrings of this thread, its process, session or
/// user.
///
/// # Errors
/// There is no such key (`ENOKEY`), or it cannot be read.
pub fn read_user_key(description: &str) -> io::Result<Zeroizing<Vec<u8>>> {
    let description = CString::new(description)?;
    // A service's session does not have the keyring of its user.
    let is_linked = control(LINK, OF_USER, OF_THREAD as c_ulong, 0).is_ok();
    let payload = request(&description).and_then(read_payload);
    if is_linked {
        let _ = control(UNLINK, OF_USER, OF_THREAD as c_ulong, 0);
    }
    payload
}

/// Finds a `user` key that this thread possesses.
fn request(description: &CStr) -> io::Result<Serial> {
    let (kind, none) = (c"user".as_ptr(), std::ptr::null::<libc::c_char>());
    // SAFETY: the texts end with NUL. Without further text nothing makes a missing key.
    let found = unsafe {
        libc::syscall(libc::SYS_request_key, kind, description.as_ptr(), none, c_long::from(0_i32))
    };
    Serial::try_from(found).ok().filter(|serial| *serial > 0).ok_or_else(io::Error::last_os_error)
}

/// Reads the whole payload of a key.
fn read_payload(serial: Serial) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut payload = Zeroizing::new(vec![0; USER_PAYLOAD_BYTES_MAX]);
    let length = read_into(READ, serial, &mut payload)?;
    payload.truncate(length);
    Ok(payload)
}

fn read_possessed(keyring: Serial, prefix: &str) -> io::Result<Vec<KernelKey>> {
    let serials = links(keyring)?.into_iter();
    let keys = serials.map(|serial| match key(serial, prefix) {
        Err(error) if is_gone(&error) => Ok(None),
        key => key,
    });
    keys.filter_map(Result::transpose).collect()
}

fn is_gone(error: &io::Error) -> bool {
    let gone = [libc::ENOKEY, libc::EKEYEXPIRED, libc::EKEYREVOKED];
    error.raw_os_error().is_some_and(|code| gone.contains(&code))
}

/// Returns the keyring's serial number.
fn find(keyring: &str) -> io::Result<Serial> {
    match number(keyring) {
        Some(serial) => Ok(serial),
        None => {
            named(keyring, &fs::read_to_string("/proc/keys")?, rustix::process::geteuid().as_raw())
        }
    }
}

fn number(text: &str) -> Option<Serial> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => Serial::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.ok().filter(|number| *number > 0)
}

/// Returns the only keyring with that name in /proc/keys that root or this user owns: another user may use the same
/// name.
fn named(name: &str, table: &str, user: u32) -> io::Result<Serial> {
    let serial = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let serial = Serial::from_str_radix(words.next()?, 16).ok()?;
        let owner: u32 = words.nth(4)?.parse().ok()?;
        let is_keyring = words.nth(1)? == "keyring";
        // Names may have spaces. A colon and the number of keys end them.
        let (_, rest) = line.split_once(" keyring ")?;
        let (found, _) = rest.rsplit_once(": ")?;
        let is_it = is_keyring && found.trim() == name && [0, user].contains(&owner);
        is_it.then_some(serial)
    };
    let mut found = table.lines().filter_map(serial);
    match (found.next(), found.next()) {
        (Some(serial), None) => Ok(serial),
        (None, _) => Err(io::Error::new(ErrorKind::NotFound, "there is no keyring of this name")),
        (Some(first), Some(second)) => Err(io::Error::new(
            ErrorKind::InvalidInput,
            format!("several keyrings have this name: give the number, {first:#x} or {second:#x}"),
        )),
    }
}

/// Returns the keys and keyrings in a keyring.
fn links(keyring: Serial) -> io::Result<Vec<Serial>> {
    let mut bytes = vec![0; 4096];
    loop {
        let length = read_into(READ, keyring, &mut bytes)?;
        if length <= bytes.len() {
            bytes.truncate(length);
            break;
        }
        bytes.resize(length, 0); // and it may have grown once more
    }
    let serials = bytes.as_chunks().0;
    Ok(serials.iter().map(|serial| Serial::from_ne_bytes(*serial)).collect())
}

/// Returns a key of a kind with a readable payload, if its description begins with `prefix`.
fn key(serial: Serial, prefix: &str) -> io::Result<Option<KernelKey>> {
    let mut bytes = vec![0; DESCRIPTION_BYTES_MAX];
    let length = read_into(DESCRIBE, serial, &mut bytes)?.min(bytes.len());
    // kind;owner;group;permissions;description, and a zero
    let text = String::from_utf8_lossy(&bytes[..length]);
    let mut parts = text.trim_end_matches('\0').splitn(5, ';');
    let (kind, description) = (parts.next().unwrap_or_default(), parts.nth(3).unwrap_or_default());
    if !matches!(kind, "psk" | "user") || !description.starts_with(prefix) {
        return Ok(None);
    }
    let mut payload = Zeroizing::new(vec![0; PAYLOAD_BYTES_MAX]);
    let named = |error: io::Error| match is_gone(&error) {
        true => error,
        false => io::Error::new(error.kind(), format!("{description}: {error}")),
    };
    let length = read_into(READ, serial, &mut payload).map_err(named)?;
    payload.truncate(length);
    Ok(Some(KernelKey { description: description.to_owned(), payload }))
}

/// Reads into `bytes` as much as fits; returns the whole length.
fn read_into(operation: c_long, serial: Serial, bytes: &mut [u8]) -> io::Result<usize> {
    control(operation, serial, bytes.as_mut_ptr() as c_ulong, bytes.len() as c_ulong)
}

fn control(
    operation: c_long,
    serial: Serial,
    third: c_ulong,
    fourth: c_ulong,
) -> io::Result<usize> {
    // SAFETY: DESCRIBE and READ write at most `fourth` bytes to `third`. `read_into` passes those of a slice that lives
    // longer than the call. LINK and UNLINK take numbers.
    let done =
        unsafe { libc::syscall(libc::SYS_keyctl, operation, c_long::from(serial), third, fourth) };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skipped;
    use std::ffi::CString;

    const OF_PROCESS: Serial = -2;

    const TABLE: &str = "\
03ac8158 I--Q---     1 perm 1f3f0000     0 65534 keyring   _uid_ses.0: 1
080b1d68 I------     1 perm 1f0b0000     0     0 keyring   .nvme: empty
1c8ebff7 I--Q---     2 perm 1f3f0000  1000  1000 keyring   mine: 2
1c8ebff8 I--Q---     2 perm 1f3f0000  1001  1001 keyring   mine: 2
1c8ebff9 I--Q---     2 perm 1f3f0000     0     0 keyring   two words: 2
1c8ebffa I--Q---     2 perm 1f3f0000     0     0 user      secret: 32
1c8ebffb I--Q---     2 perm 1f3f0000     0     0 keyring   same: 2
1c8ebffc I--Q---     2 perm 1f3f0000     0     0 keyring   same: empty
";

    #[test]
    fn a_keyring_has_a_name_and_an_owner_that_is_trusted() {
        let find = |name| named(name, TABLE, 1000).map_err(|error| error.kind());
        assert_eq!(find(".nvme"), Ok(0x80b_1d68));
        assert_eq!(find("mine"), Ok(0x1c8e_bff7), "not the one of another user");
        assert_eq!(find("two words"), Ok(0x1c8e_bff9));
        assert_eq!(find("secret"), Err(ErrorKind::NotFound), "a key is no keyring");
        assert_eq!(find("same"), Err(ErrorKind::InvalidInput));
        assert_eq!(
            [number("0x10"), number("16"), number("-3"), number(".nvme")],
            [Some(16), Some(16), None, None]
        );
    }

    fn add(kind: &str, description: &str, payload: &[u8], keyring: Serial) -> io::Result<Serial> {
        let [kind, description] = [kind, description].map(|text| CString::new(text).unwrap());
        // SAFETY: strings that end with a zero, and a payload with its length; all live longer than the call.
        let serial = unsafe {
            libc::syscall(
                libc::SYS_add_key,
                kind.as_ptr(),
                description.as_ptr(),
                payload.as_ptr(),
                payload.len(),
                keyring,
            )
        };
        Serial::try_from(serial)
            .ok()
            .filter(|serial| *serial > 0)
            .ok_or_else(io::Error::last_os_error)
    }

    #[test]
    fn keys_of_a_real_keyring_are_read() {
        let name = format!("roadtrain-test-{}", std::process::id());
        let keyring = match add("keyring", &name, b"", OF_PROCESS) {
            Ok(keyring) => keyring,
            Err(error) => {
                return skipped(format!("this kernel has no keyrings for this program: {error}"));
            }
        };
        for (kind, description) in
            [("user", "NVMe one"), ("user", "other"), ("keyring", "NVMe ring")]
        {
            let payload: &[u8] = if kind == "user" { description.as_bytes() } else { b"" };
            add(kind, description, payload, keyring).unwrap();
        }
        let revoked = add("user", "NVMe revoked", b"x", keyring).unwrap();
        control(3, revoked, 0, 0).unwrap();
        for by in [name.clone(), keyring.to_string(), format!("{keyring:#x}")] {
            let keys = read(&by, "NVMe").unwrap();
            let [key] = &keys[..] else { panic!("{} keys", keys.len()) };
            assert_eq!((&key.description[..], &key.payload[..]), ("NVMe one", &b"NVMe one"[..]));
        }
        let many = keyring;
        for number in 0..2000 {
            if add("keyring", &format!("{number}"), b"", many).is_err() {
                break; // the user's quota
            }
        }
        assert_eq!(read(&name, "NVMe").unwrap().len(), 1, "of more than fit at once");
        let none = read(&format!("{name}-none"), "").map(|keys| keys.len());
        assert_eq!(none.map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    }

    #[test]
    fn a_user_key_is_found_by_its_name() {
        let name = format!("roadtrain-test-user-{}", std::process::id());
        let payload = vec![7; 20_000];
        // In the user's keyring, which sessions of services do not have, and in the process's.
        let mut tried = 0;
        for (keyring, name) in [(OF_USER, format!("{name} in @u")), (OF_PROCESS, name.clone())] {
            let serial = match add("user", &name, &payload, keyring) {
                Ok(serial) => serial,
                Err(error) => {
                    skipped(format!("this kernel has no keyring {keyring}: {error}"));
                    continue;
                }
            };
            tried += 1;
            assert_eq!(*read_user_key(&name).unwrap(), payload, "{name}");
            control(UNLINK, serial, keyring as c_ulong, 0).unwrap();
            let none = read_user_key(&name).map(drop).unwrap_err();
            assert_eq!(none.raw_os_error(), Some(libc::ENOKEY), "{name}");
        }
        assert!(tried < 3 && read_user_key("a\0b").is_err());
    }
}
