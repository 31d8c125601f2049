//! Checks of a response: each of its bytes, in its transaction, by the keys that are valid now and for their owners.

use super::dhchap::{authenticate, key, parties};
use super::helpers::{offer, seed};
use super::{HOST, SUBSYSTEM};
use roadtrain_proto::security::dhchap::{
    AuthController, AuthHost, AuthHostError, AuthOffer, AuthParties, AuthState, Challenged,
    DhGroup, DhchapKeys,
};
use roadtrain_proto::security::{DhchapKey, Hash, Secret};
use roadtrain_wire::auth::Explanation;

/// Bytes of SHA-256.
const BYTES: usize = 32;

fn null() -> AuthOffer {
    offer(Hash::Sha256, DhGroup::Null)
}

/// Both ends when the host has been challenged.
fn challenged(both: &AuthParties) -> (AuthController, AuthHost, Challenged) {
    let mut controller = AuthController::new(both.clone(), null());
    let mut host = AuthHost::new(both.clone(), null(), 7);
    controller.send(&host.negotiate(), &mut seed(1));
    let challenged = host.challenge(&controller.receive(), &mut seed(2)).unwrap();
    (controller, host, challenged)
}

/// Both ends when the controller has sent its response, with its message.
fn proved(both: &AuthParties) -> (AuthController, AuthHost, Vec<u8>) {
    let (mut controller, mut host, challenged) = challenged(both);
    controller.send(&host.reply(&challenged, &mut seed(3)).unwrap(), &mut seed(4));
    let success1 = controller.receive();
    (controller, host, success1)
}

/// A response that begins as the right one is wrong, however long the common part is.
#[test]
fn every_byte_of_a_response_counts() {
    let both = parties(key(1), key(2));
    for at in 0..BYTES {
        let (mut controller, mut host, challenged) = challenged(&both);
        let mut reply = host.reply(&challenged, &mut seed(3)).unwrap();
        reply[16 + at] ^= 1;
        controller.send(&reply, &mut seed(4));
        let failure = controller.take_failure().map(|(explanation, _)| explanation);
        assert_eq!(failure, Some(Explanation::Failed), "of the host, byte {at}");
        let (_, mut host, mut success1) = proved(&both);
        success1[16 + at] ^= 1;
        let refused = host.success1(&success1);
        let is_refused = matches!(refused, Err(AuthHostError::Refuses(Explanation::Failed, _)));
        assert!(is_refused, "of the controller, byte {at}: {refused:?}");
    }
    let (_, mut host, success1) = proved(&both);
    assert!(host.success1(&success1).unwrap().is_some());
}

#[test]
fn a_response_has_the_length_of_the_hash() {
    let (_, mut host, mut success1) = proved(&parties(key(1), None));
    success1[6] = 48;
    assert!(matches!(
        host.success1(&success1),
        Err(AuthHostError::Refuses(Explanation::Payload, "HL"))
    ));
}

#[test]
fn the_last_message_belongs_to_its_transaction() {
    let (mut controller, mut host, success1) = proved(&parties(key(1), key(2)));
    let mut success2 = host.success1(&success1).unwrap().unwrap();
    success2[4] ^= 1; // T_ID
    controller.send(&success2, &mut seed(5));
    assert!(!matches!(controller.state(), AuthState::Authenticated));
    assert_eq!(controller.take_failure().unwrap(), (Explanation::Payload, "T_ID"));
}

/// A host begins again: the controller's keys of that moment count; a transaction uses the keys of its start.
#[test]
fn keys_of_now_count_when_a_host_begins_again() {
    let with = |byte| parties(key(byte), None);
    let mut controller = AuthController::new(with(1), null());
    controller.accept_also(key(3));
    let begins = |controller: &mut AuthController, byte| {
        let ended = authenticate(controller, &mut AuthHost::new(with(byte), null(), 7));
        ended.map_err(|error| error == AuthHostError::Refused(Explanation::Failed))
    };
    assert_eq!(begins(&mut controller, 3), Ok(()));
    assert!(controller.renew(with(2), null()));
    controller.accept_also(None);
    assert_eq!(begins(&mut controller, 2), Ok(()));
    // Neither the key nor the other one of before.
    for gone in [1, 3] {
        let mut controller = AuthController::new(with(1), null());
        controller.accept_also(key(3));
        assert_eq!(begins(&mut controller, gone), Ok(()));
        assert!(controller.renew(with(2), null()));
        controller.accept_also(None);
        assert_eq!(begins(&mut controller, gone), Err(true), "key {gone}");
    }
    let (mut controller, mut host, challenged) = challenged(&with(1));
    assert!(!controller.renew(with(2), null()), "in the middle of a transaction");
    controller.send(&host.reply(&challenged, &mut seed(3)).unwrap(), &mut seed(4));
    assert!(matches!(controller.state(), AuthState::Success1));
}

/// Each side's key is bound to its own name, so that no other host can use it.
#[test]
fn keys_are_transformed_for_their_owners() {
    let key = |byte| DhchapKey::new(Some(Hash::Sha256), &[byte; BYTES]).unwrap();
    let keys = DhchapKeys { host: Some(key(1)), controller: Some(key(2)) };
    let parties = keys.parties(HOST, SUBSYSTEM);
    assert_eq!(parties.host_key, Some(key(1).transform(HOST)));
    assert_eq!(parties.controller_key, Some(key(2).transform(SUBSYSTEM)));
    assert_ne!(key(1).transform(HOST), key(1).transform(SUBSYSTEM));
}

/// No key differs from a key without bytes.
#[test]
fn a_host_without_a_key_at_the_target_is_not_let_in_by_an_empty_one() {
    let mut controller = AuthController::new(parties(None, None), null());
    let empty = parties(Some(Secret::new(&[])), None);
    let ended = authenticate(&mut controller, &mut AuthHost::new(empty, null(), 7));
    assert_eq!(ended, Err(AuthHostError::Refused(Explanation::Failed)));
}

/// The host reports its reason.
#[test]
fn a_host_that_abandons_names_its_reason() {
    let host = AuthHost::new(parties(key(1), None), null(), 0x0201);
    for (error, explanation) in [
        (AuthHostError::NoKey, Explanation::Failed),
        (AuthHostError::AuthNotRequired, Explanation::Failed),
        (AuthHostError::NotSealed, Explanation::Failed),
        (AuthHostError::AuthOnAdminQueueOnly, Explanation::Failed),
        (AuthHostError::SecureChannel, Explanation::SecureChannel),
        (AuthHostError::NoChannel, Explanation::SecureChannel),
        (AuthHostError::Refuses(Explanation::Hash, "hash"), Explanation::Hash),
    ] {
        let message = host.failure2(error).unwrap();
        let expected = [0, 0xf0, 0, 0, 1, 2, 1, explanation as u8];
        assert_eq!(message[..8], expected, "{error:?}");
    }
    assert_eq!(host.failure2(AuthHostError::RefusedBoth), None);
}

#[test]
fn a_secret_is_not_a_part_of_it() {
    let secret = Secret::new(&[1, 2, 3]);
    assert!(secret.is(&[1, 2, 3]));
    for other in [&[][..], &[1, 2], &[1, 2, 3, 4], &[1, 2, 4]] {
        assert!(!secret.is(other), "{other:?}");
    }
}
