use super::super::guest::{ChainPart, Guest};
use super::*;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{ioctl_fionbio, read, write};
use std::os::fd::OwnedFd;
use std::sync::mpsc::channel;
use std::time::Duration;

const SIZE: u16 = 8;

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK).unwrap()
}

/// Starts a ring on the guest's queue; returns it with the event that it signals.
fn start(guest: &Guest, inflight: Option<&Arc<InflightMemory>>) -> (Virtqueue, OwnedFd) {
    let (kick, call) = (event(), event());
    let ring = start_with(guest, inflight, kick.into(), &call);
    (ring, call)
}

fn start_with(
    guest: &Guest,
    inflight: Option<&Arc<InflightMemory>>,
    kick: File,
    call: &OwnedFd,
) -> Virtqueue {
    let setup = RingSetup {
        index: 0,
        size: SIZE,
        descriptors: guest.table(),
        available: guest.avail_ring(),
        used: guest.used_ring(),
        base: guest.used_index(),
        event_idx: true,
        write_through: false,
        kick,
        signals: QueueSignals {
            call: Some(EventfdSignaller::new(call.as_fd()).unwrap()),
            error: None,
        },
        memory: guest.memory().clone(),
        inflight: inflight.cloned(),
    };
    Virtqueue::start(setup).unwrap()
}

fn offer(guest: &mut Guest) -> u16 {
    let head = guest.lay_chain(&[ChainPart::Read(vec![0; 16]), ChainPart::Write(1)]);
    guest.offer(head);
    head
}

fn take(ring: &mut Virtqueue) -> Result<Option<u16>, BadRing> {
    ring.take(&mut Chain::default(), false)
}

fn give(ring: &mut Virtqueue, guest: &Guest, head: u16) {
    let status_at = GuestAddress(guest.base + 0x20000);
    ring.give(head, RequestStatus::Ok, status_at, 0).unwrap();
}

fn is_signalled(signals: &OwnedFd) -> bool {
    read(signals, &mut [0; 8]).is_ok()
}

#[test]
fn a_successor_takes_what_was_not_given_back() {
    let mut guest = Guest::new(SIZE);
    let (memory, ..) = InflightMemory::create(1, SIZE).unwrap();
    let memory = Arc::new(memory);
    let heads = [0; 4].map(|_| offer(&mut guest));
    let (mut ring, _) = start(&guest, Some(&memory));
    (0..3).for_each(|at| assert_eq!(take(&mut ring).unwrap(), Some(heads[at])));
    give(&mut ring, &guest, heads[1]);
    drop(ring);
    // The monitor knows the used index only, and would begin with the second.
    let (mut ring, _) = start(&guest, Some(&memory));
    assert!(ring.has_old());
    let old = ring.take(&mut Chain::default(), true).unwrap();
    assert_eq!((old, take(&mut ring).unwrap()), (Some(heads[0]), Some(heads[2])));
    assert!(!ring.has_old());
    assert_eq!(ring.take(&mut Chain::default(), true).unwrap(), None);
    assert_eq!((take(&mut ring).unwrap(), take(&mut ring).unwrap()), (Some(heads[3]), None));
    [0, 2, 3].into_iter().for_each(|at| give(&mut ring, &guest, heads[at]));
    let used: Vec<u16> = std::iter::from_fn(|| guest.next_used()).map(|used| used.0).collect();
    assert_eq!(used, [heads[1], heads[0], heads[2], heads[3]]);
    assert!(!start(&guest, Some(&memory)).0.has_old());
}

#[test]
fn the_guest_is_signalled_when_it_wants_to_be() {
    let mut guest = Guest::new(SIZE);
    let (mut ring, signals) = start(&guest, None);
    guest.arm();
    let heads = [0; 3].map(|_| offer(&mut guest));
    heads.iter().for_each(|head| assert_eq!(take(&mut ring).unwrap(), Some(*head)));
    ring.signal().unwrap();
    assert!(!is_signalled(&signals), "nothing is used");
    give(&mut ring, &guest, heads[0]);
    ring.signal().unwrap();
    assert!(is_signalled(&signals));
    // The guest has not enabled notifications again.
    give(&mut ring, &guest, heads[1]);
    ring.signal().unwrap();
    assert!(!is_signalled(&signals));
    (0..2).for_each(|_| drop(guest.next_used().unwrap()));
    guest.arm();
    give(&mut ring, &guest, heads[2]);
    ring.signal().unwrap();
    assert!(is_signalled(&signals));
}

/// The frontend shares the events, and makes reads and writes of them block at any time.
#[test]
fn a_frontend_cannot_make_a_reactor_wait() {
    let guest = Guest::new(SIZE);
    let (kick, call) = (event(), event());
    write(&call, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let mut ring = start_with(&guest, None, kick.try_clone().unwrap().into(), &call);
    ring.signals.error = Some(call.try_clone().unwrap().into());
    ioctl_fionbio(&kick, false).unwrap();
    ioctl_fionbio(&call, false).unwrap();
    let (done, answer) = channel();
    std::thread::spawn(move || {
        ring.acknowledge(); // without a kick
        ring.signal_always();
        ring.signal_error();
        write(&kick, &1u64.to_ne_bytes()).unwrap();
        ring.acknowledge();
        ioctl_fionbio(&kick, true).unwrap();
        done.send(read(&kick, &mut [0; 8]).is_err()).unwrap();
    });
    let was_taken = answer.recv_timeout(Duration::from_secs(10)).expect("it waits");
    assert!(was_taken, "the kick is reset");
    assert!(is_signalled(&call));
}

#[test]
fn rest_enables_kicks_and_misses_no_chain() {
    let mut guest = Guest::new(SIZE);
    let (mut ring, _) = start(&guest, None);
    assert!(!ring.enable_kicks().unwrap());
    assert_eq!(guest.avail_event(), 0);
    offer(&mut guest);
    assert!(ring.enable_kicks().unwrap());
    take(&mut ring).unwrap();
    assert!(!ring.enable_kicks().unwrap());
    assert_eq!(guest.avail_event(), 1);
}

#[test]
fn invalid_ring_content_is_refused() {
    let mut guest = Guest::new(SIZE);
    let (mut ring, _) = start(&guest, None);
    let head = offer(&mut guest);
    guest.offer(head);
    assert_eq!(take(&mut ring).unwrap(), Some(head));
    assert!(matches!(take(&mut ring), Err(BadRing::Twice(at)) if at == head));
    let mut guest = Guest::new(SIZE);
    let (mut ring, _) = start(&guest, None);
    guest.offer(SIZE);
    assert!(matches!(take(&mut ring), Err(BadRing::Chain(_))));
    let guest = Guest::new(SIZE);
    let (mut ring, _) = start(&guest, None);
    guest.set_avail(SIZE + 1);
    assert!(matches!(take(&mut ring), Err(BadRing::Ring(_))));
}

#[test]
fn rings_must_be_the_guests_memory() {
    let guest = Guest::new(SIZE);
    let start = |change: fn(&mut RingSetup)| {
        let mut setup = RingSetup {
            index: 0,
            size: SIZE,
            descriptors: guest.table(),
            available: guest.avail_ring(),
            used: guest.used_ring(),
            base: 0,
            event_idx: false,
            write_through: false,
            kick: File::open("/dev/null").unwrap(),
            signals: QueueSignals::default(),
            memory: guest.memory().clone(),
            inflight: None,
        };
        change(&mut setup);
        Virtqueue::start(setup).map(drop)
    };
    assert!(start(|_| {}).is_ok());
    let end = super::super::guest::MEMORY_BYTES;
    assert_eq!(end, 64 << 20);
    assert!(start(|setup| setup.descriptors.0 = (64 << 20) - 16).is_err());
    assert!(start(|setup| setup.available.0 = (64 << 20) - 2).is_err());
    assert!(start(|setup| setup.used.0 = u64::MAX - 3).is_err());
    assert!(start(|setup| setup.used.0 += 1).is_err());
    assert!(start(|setup| setup.size = 0).is_err());
    assert!(start(|setup| setup.size = 3).is_err());
    assert!(start(|setup| setup.size = 2048).is_err());
}
