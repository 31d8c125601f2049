//! Any messages as an authentication (DH-HMAC-CHAP), to either end. Nobody gets through without the keys, in whatever
//! order messages come, and what is answered is well formed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_proto::security::Secret;
use roadtrain_proto::security::dhchap::{
    Controller, Host, Offer, Parties, Powers, Progress, State, Work,
};
use roadtrain_wire::auth::{MessageHead, RECEIVE_BYTES};

/// In a message's length: the controller is asked for its own after it.
const RECEIVES: u16 = 1 << 15;

fn parties() -> Parties {
    let key = |fill| Some(Secret::new(&[fill; 32]));
    let (hostnqn, subnqn) = ("nqn.x:host".to_owned(), "nqn.x:subsystem".to_owned());
    Parties { hostnqn, subnqn, host_key: key(1), controller_key: key(2) }
}

fn random() -> impl FnMut(&mut [u8]) {
    let mut next = 0u8;
    move |place| {
        next = next.wrapping_add(1);
        place.fill(next);
    }
}

/// Powers take too long to be computed here, and are numbers like others.
fn supply(work: &Work, group_bytes: usize) {
    let shared = Some(Secret::new(&vec![3; group_bytes]));
    work.supply(Powers { public: vec![4; group_bytes], shared });
}

/// What a controller answers, and that the host was not taken for who it says.
fn to_controller(messages: &[(bool, &[u8])]) {
    let mut controller = Controller::new(parties(), Offer::default());
    let mut random = random();
    for (receives, message) in messages {
        if let Progress::Compute(work) = controller.send(message, &mut random) {
            assert!(!controller.resume(), "it was not computed");
            supply(&work, controller.agreed().1.bytes());
            assert!(controller.resume());
        }
        if *receives {
            let answer = controller.receive();
            assert!(answer.len() <= RECEIVE_BYTES as usize);
            assert!(MessageHead::of(&answer).is_some());
        }
        assert!(!matches!(
            controller.state(),
            State::Success1 | State::Success2 | State::Authenticated
        ));
    }
}

/// What a host answers, and that the controller was not taken for one with the key. The first is the challenge.
fn to_host(t_id: u16, messages: &[(bool, &[u8])]) {
    let Some(((_, first), others)) = messages.split_first() else { return };
    let mut host = Host::new(parties(), Offer::default(), t_id);
    let mut random = random();
    let challenged = match host.challenge(first, &mut random) {
        Ok(challenged) => challenged,
        Err(error) => return drop(host.failure2(error)),
    };
    challenged.work().into_iter().for_each(|work| supply(work, 256));
    let reply = host.reply(&challenged, &mut random).expect("all is there");
    assert!(reply.len() <= RECEIVE_BYTES as usize);
    for (_, message) in others {
        let error = host.success1(message).expect_err("the controller has proved nothing");
        let _ = host.failure2(error);
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&[role, low, high], mut rest)) = input.split_first_chunk::<3>() else { return };
    let mut messages = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = u16::from_le_bytes(*length);
        let octets = usize::from(length & !RECEIVES).min(after.len());
        messages.push((length & RECEIVES != 0, &after[..octets]));
        rest = &after[octets..];
    }
    match role & 1 {
        0 => to_controller(&messages),
        _ => to_host(u16::from_le_bytes([low, high]), &messages),
    }
});
