//! Tests of a command queue against a target that the test simulates.

use super::*;
use crate::lane::tests::{answer, link, link_with_capsules_of, sqes};
use roadtrain_wire::pdu::PduType;
use roadtrain_wire::sqe::opcode;
use roadtrain_wire::status::Status;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::thread;

const LONG: Duration = Duration::from_secs(60);
const IDENTIFY: u32 = 4096;

fn queue() -> (CommandQueue, UnixStream) {
    let (link, peer) = link(PolicyConfig::none());
    (CommandQueue::new(link, Ports::default(), LONG).unwrap(), peer)
}

fn identify() -> Sqe {
    Sqe::new(opcode::IDENTIFY, 0)
}

#[test]
fn an_answer_counts_though_the_connection_ends_behind_it() {
    let (mut queue, mut peer) = queue();
    let target = thread::spawn(move || {
        let [sqe] = sqes(&mut peer, 1)[..] else { panic!("one command") };
        answer(&mut peer, sqe.cid.get(), Status::INVALID_FIELD);
    });
    let (cqe, _) = queue.command(&identify(), &[], IDENTIFY).unwrap();
    assert_eq!(cqe.status(), Status::INVALID_FIELD);
    target.join().unwrap();
    let next = queue.command(&identify(), &[], IDENTIFY);
    assert!(matches!(next, Err(LinkError::Closed | LinkError::Io(_))), "{next:?}");
}

#[test]
fn events_that_come_meanwhile_are_kept() {
    let (mut queue, mut peer) = queue();
    let event = queue.post(&Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0)).unwrap();
    let target = thread::spawn(move || {
        let sqes = sqes(&mut peer, 2);
        sqes.iter().for_each(|sqe| answer(&mut peer, sqe.cid.get(), Status::SUCCESS));
        peer
    });
    queue.command(&Sqe::new(opcode::KEEP_ALIVE, 0), &[], 0).unwrap();
    let (slot, cqe) = queue.next_event().unwrap().expect("it came first");
    assert_eq!((slot, cqe.status()), (event, Status::SUCCESS));
    assert!(queue.next_event().unwrap().is_none());
    target.join().unwrap();
}

/// Its data has a buffer of its own, even after the caller is gone.
#[test]
fn a_late_answer_belongs_to_no_other_command() {
    let (mut queue, mut peer) = queue();
    queue.set_timeout(Duration::from_millis(1));
    let silent = queue.command(&identify(), &[], IDENTIFY).unwrap_err();
    assert!(silent.to_string().starts_with("no answer within"), "{silent}");
    queue.set_timeout(LONG);
    let late = sqes(&mut peer, 1)[0].cid.get();
    answer(&mut peer, late, Status::INTERNAL_ERROR);
    let target = thread::spawn(move || {
        let cid = sqes(&mut peer, 1)[0].cid.get();
        assert_ne!(cid, late);
        answer(&mut peer, cid, Status::SUCCESS);
        peer
    });
    let (cqe, data) = queue.command(&identify(), &[], IDENTIFY).unwrap();
    assert_eq!((cqe.status(), data.len()), (Status::SUCCESS, IDENTIFY as usize));
    target.join().unwrap();
}

#[test]
fn a_protocol_violation_is_reported_to_the_peer() {
    let (mut queue, mut peer) = queue();
    answer(&mut peer, 77, Status::SUCCESS);
    let error = queue.command(&identify(), &[], IDENTIFY).unwrap_err();
    assert!(error.to_string().contains("command identifier"), "{error}");
    let mut sent = Vec::new();
    drop(queue);
    peer.read_to_end(&mut sent).unwrap();
    assert_eq!(sent[0], PduType::H2cTermReq as u8, "nothing else is sent any more: {sent:?}");
}

/// Sends more than a socket takes at once, with a completion before all of it was taken.
#[test]
fn much_data_leaves_while_the_peer_takes_it() {
    let (link, mut peer) = link_with_capsules_of(1 << 20, PolicyConfig::none());
    let mut queue = CommandQueue::new(link, Ports::default(), LONG).unwrap();
    let out: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
    let expected = out.clone();
    let target = thread::spawn(move || {
        let cid = sqes(&mut peer, 1)[0].cid.get();
        answer(&mut peer, cid, Status::SUCCESS);
        let mut data = vec![0; expected.len()];
        peer.read_exact(&mut data).unwrap();
        assert!(data == expected);
        // The next command is intact, too.
        let cid = sqes(&mut peer, 1)[0].cid.get();
        answer(&mut peer, cid, Status::SUCCESS);
        peer
    });
    queue.command(&Sqe::new(opcode::WRITE, 1), &out, 0).unwrap();
    drop(out);
    queue.command(&Sqe::new(opcode::KEEP_ALIVE, 0), &[], 0).unwrap();
    target.join().unwrap();
}

/// The lane would send data from freed memory.
#[test]
fn a_queue_whose_data_is_being_sent_is_not_handed_over() {
    let (link, mut peer) = link_with_capsules_of(1 << 20, PolicyConfig::none());
    let mut queue = CommandQueue::new(link, Ports::default(), LONG).unwrap();
    let target = thread::spawn(move || {
        let cid = sqes(&mut peer, 1)[0].cid.get();
        answer(&mut peer, cid, Status::SUCCESS);
        peer // takes no data
    });
    queue.command(&Sqe::new(opcode::WRITE, 1), &vec![7; 1 << 20], 0).unwrap();
    let peer = target.join().unwrap();
    assert!(matches!(queue.into_link(0, PolicyConfig::none()), Err(LinkError::Nonsense(_))));
    drop(peer);
}
