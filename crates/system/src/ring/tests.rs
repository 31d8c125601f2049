//! Tests against the running kernel.

use super::*;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

const A_WHILE: Option<Duration> = Some(Duration::from_secs(10));

fn collect(ring: &mut ReactorRing, count: usize) -> Vec<RingCqe> {
    let mut got = Vec::new();
    while got.len() < count {
        ring.submit_and_wait(1, A_WHILE).unwrap();
        let before = got.len();
        ring.reap(&mut got);
        assert!(got.len() > before, "{before} of {count} completions came");
    }
    got
}

#[test]
fn user_data_packs() {
    for (kind, index, generation) in
        [(0, 0, 0), (255, u32::MAX, UserData::GENERATION_MASK), (1, 2, 3)]
    {
        let data = UserData { kind, index, generation };
        assert_eq!(UserData::unpack(data.pack()), data);
    }
    let wrapped = UserData { kind: 7, index: 8, generation: UserData::GENERATION_MASK + 2 };
    assert_eq!(UserData::unpack(wrapped.pack()), UserData { generation: 1, ..wrapped });
}

#[test]
fn a_full_queue_loses_nothing() {
    let mut ring = ReactorRing::new(4).unwrap();
    (0..1000).for_each(|i| ring.nop(i));
    let got = collect(&mut ring, 1000);
    let order: Vec<u64> = got.iter().map(|c| c.user_data).collect();
    assert_eq!(order, (0..1000).collect::<Vec<_>>());
}

#[test]
fn a_time_out_is_no_error() {
    let mut ring = ReactorRing::new(4).unwrap();
    ring.submit_and_wait(1, Some(Duration::from_millis(1))).unwrap();
    ring.submit_and_wait(0, None).unwrap();
    assert_eq!(ring.next_completion(), None);
}

#[test]
fn a_sleep_ends_with_its_time_or_with_a_completion() {
    let mut ring = ReactorRing::new(4).unwrap();
    let begin = clock::now();
    let until = begin + Duration::from_millis(20);
    while clock::now() < until {
        ring.submit_and_sleep(Some(until.since(clock::now()))).unwrap();
        assert_eq!(ring.next_completion(), None);
    }
    ring.nop(7);
    while ring.next_completion().is_none_or(|completion| completion.user_data != 7) {
        ring.submit_and_sleep(A_WHILE).unwrap();
    }
    // Set alarms do not disturb other waits.
    for ms in (1..9).rev() {
        ring.submit_and_sleep(Some(Duration::from_millis(ms))).unwrap();
    }
    assert_eq!(ring.next_completion(), None);
}

#[test]
fn poll_fires_once_and_can_be_removed() {
    let mut ring = ReactorRing::new(4).unwrap();
    let (mut near, far) = UnixStream::pair().unwrap();
    ring.poll_add(far.as_fd(), libc::POLLIN, 1);
    ring.submit_and_wait(0, None).unwrap();
    near.write_all(b"x").unwrap();
    let ready = collect(&mut ring, 1)[0];
    assert_eq!((ready.user_data, ready.result & i32::from(libc::POLLIN)), (1, 1));

    ring.poll_add(near.as_fd(), libc::POLLIN, 2);
    ring.poll_remove(2, 3);
    ring.poll_remove(99, 4);
    let mut results: Vec<_> =
        collect(&mut ring, 3).iter().map(|c| (c.user_data, c.result)).collect();
    results.sort_unstable();
    assert_eq!(results, [(2, -libc::ECANCELED), (3, 0), (4, -libc::ENOENT)]);
}

/// The kernel runs a few dozen completions in an enter. Descriptors that are ready when their poll is submitted
/// complete at once, so that others would fall behind if there were only one enter.
#[test]
fn one_wait_completes_all_polls_that_are_due() {
    const PAIRS: u64 = 300;
    let mut ring = ReactorRing::new(1024).unwrap();
    let mut pairs: Vec<_> = (0..PAIRS).map(|_| UnixStream::pair().unwrap()).collect();
    (0..).zip(&pairs).for_each(|(i, (_, far))| ring.poll_add(far.as_fd(), libc::POLLIN, i));
    ring.submit_and_wait(0, None).unwrap();
    pairs.iter_mut().for_each(|(near, _)| near.write_all(b"x").unwrap());
    ring.submit_and_wait(1, A_WHILE).unwrap();
    let mut got = Vec::new();
    ring.reap(&mut got);
    assert_eq!(got.len() as u64, PAIRS);
}

#[test]
fn a_bad_entry_fails_alone() {
    let mut ring = ReactorRing::new(8).unwrap();
    let bad = opcode::Fsync::new(types::Fd(-1)).build().user_data(1);
    ring.nop(0);
    // SAFETY: points to nothing.
    unsafe { ring.push(&bad) };
    ring.nop(2);
    let mut results: Vec<_> =
        collect(&mut ring, 3).iter().map(|c| (c.user_data, c.result)).collect();
    results.sort_unstable();
    assert_eq!(results, [(0, 0), (1, -libc::EBADF), (2, 0)]);
}

#[test]
fn cancel_ends_a_poll() {
    let mut ring = ReactorRing::new(4).unwrap();
    let (near, _far) = UnixStream::pair().unwrap();
    ring.poll_add(near.as_fd(), libc::POLLIN, 1);
    ring.cancel(1, 2);
    let mut results: Vec<_> =
        collect(&mut ring, 2).iter().map(|c| (c.user_data, c.result)).collect();
    results.sort_unstable();
    assert_eq!(results, [(1, -libc::ECANCELED), (2, 0)]);
}

#[test]
fn wide_entries_carry_what_narrow_ones_do() {
    let mut ring = ReactorRing::wide(4).unwrap();
    (0..1000).for_each(|i| ring.nop(i));
    let order: Vec<u64> = collect(&mut ring, 1000).iter().map(|c| c.user_data).collect();
    assert_eq!(order, (0..1000).collect::<Vec<_>>());
    let (mut near, far) = UnixStream::pair().unwrap();
    ring.poll_add(far.as_fd(), libc::POLLIN, 1);
    near.write_all(b"x").unwrap();
    assert_eq!(collect(&mut ring, 1)[0].result & i32::from(libc::POLLIN), 1);
}

#[test]
fn a_command_reaches_its_driver() {
    let mut ring = ReactorRing::wide(4).unwrap();
    let file = tempfile::tempfile().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let command = |fd| UringCommand { fd, op: 1, address: 0, length: 0, payload: [0; 80] };
    for (fd, user_data) in [(-1, 1), (file.as_raw_fd(), 2), (null.as_raw_fd(), 3)] {
        // SAFETY: points to nothing.
        if !unsafe { ring.command(&command(fd), user_data) } {
            crate::skipped::skipped("no entries of 128 bytes before Linux 5.19");
            return;
        }
    }
    let mut results: Vec<_> =
        collect(&mut ring, 3).iter().map(|c| (c.user_data, c.result)).collect();
    results.sort_unstable();
    // A regular file takes no commands; /dev/null takes every one.
    assert_eq!(results, [(1, -libc::EBADF), (2, -libc::EOPNOTSUPP), (3, 0)]);
}

#[test]
fn narrow_entries_carry_no_command() {
    let mut ring = ReactorRing::new(4).unwrap();
    let command = UringCommand { fd: -1, op: 1, address: 0, length: 0, payload: [0; 80] };
    // SAFETY: points to nothing.
    assert!(!unsafe { ring.command(&command, 1) });
}

#[test]
fn completions_say_for_which_role_their_entries_were() {
    let mut ring = ReactorRing::new(4).unwrap();
    ring.nop(7);
    ring.set_role(RingRole(2));
    ring.nop(7);
    ring.set_role(RingRole::OWNER);
    ring.nop(8);
    ring.submit_and_wait(3, None).unwrap();
    let completions = std::iter::from_fn(|| ring.next_completion());
    let mut roles: Vec<_> = completions.map(|cqe| (cqe.user_data, cqe.role)).collect();
    roles.sort_by_key(|&(user_data, role)| (user_data, role.0));
    assert_eq!(roles, [(7, RingRole::OWNER), (7, RingRole(2)), (8, RingRole::OWNER)]);
}

/// A poll is found by the user data that its role gave it.
#[test]
fn a_role_ends_its_own_poll() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let mut ring = ReactorRing::new(4).unwrap();
    ring.poll_add(reader.as_fd(), libc::POLLIN, 7);
    ring.set_role(RingRole(2));
    ring.poll_add(reader.as_fd(), libc::POLLIN, 7);
    ring.poll_remove(7, 8);
    ring.submit_and_wait(2, None).unwrap();
    let completions = std::iter::from_fn(|| ring.next_completion());
    let ended: Vec<_> = completions.map(|cqe| (cqe.user_data, cqe.role, cqe.result)).collect();
    assert_eq!(ended.len(), 2, "the other role's poll stays: {ended:?}");
    assert!(ended.contains(&(7, RingRole(2), -libc::ECANCELED)), "{ended:?}");
}

#[test]
fn an_error_of_the_kernel_says_what_to_change() {
    for (errno, kind, advice) in [
        (libc::ENOMEM, io::ErrorKind::OutOfMemory, "ulimit -l"),
        (libc::EPERM, io::ErrorKind::PermissionDenied, "seccomp"),
        (libc::ENOSYS, io::ErrorKind::Unsupported, "seccomp"),
    ] {
        let error = explained(io::Error::from_raw_os_error(errno));
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(advice), "{error}");
    }
    assert_eq!(
        explained(io::Error::from_raw_os_error(libc::EMFILE)).raw_os_error(),
        Some(libc::EMFILE)
    );
}

/// Any number of roles share a ring, and the polls of one can all be cancelled.
#[test]
fn a_role_that_ends_cancels_its_polls() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let mut ring = ReactorRing::new(16).unwrap();
    for role in [RingRole::OWNER, RingRole(1), RingRole(70_000)] {
        ring.set_role(role);
        ring.poll_add(reader.as_fd(), libc::POLLIN, 7);
        ring.poll_add(reader.as_fd(), libc::POLLIN, 9);
    }
    ring.set_role(RingRole(1));
    ring.cancel_polls(8);
    ring.submit_and_wait(4, None).unwrap();
    let completions = std::iter::from_fn(|| ring.next_completion());
    let mut ended: Vec<_> = completions.map(|cqe| (cqe.user_data, cqe.role)).collect();
    ended.sort_by_key(|&(user_data, _)| user_data);
    assert_eq!(ended, [7, 8, 8, 9].map(|user_data| (user_data, RingRole(1))));
}
