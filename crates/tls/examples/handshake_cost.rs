//! Time of a handshake with pre-shared keys at each end, and of the exponentiations in each group of DH-HMAC-CHAP.
//!
//!     cargo run --release -p roadtrain-tls --example handshake_cost

use roadtrain_proto::security::dhchap::{
    AuthController, AuthHost, AuthOffer, AuthParties, AuthProgress, DhGroup, DhTask,
};
use roadtrain_proto::security::{Hash, Secret, Suite, TlsPsk};
use roadtrain_tls::{Acceptor, Handshake, TlsError};
use std::mem::take;
use std::time::{Duration, Instant};

const HANDSHAKES: usize = 1001;
const POWERS: usize = 21;

fn timed<T>(sum: &mut Duration, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    *sum += begun.elapsed();
    done
}

fn median(mut all: Vec<Duration>) -> f64 {
    all.sort_unstable();
    all[all.len() / 2].as_secs_f64() * 1e6
}

/// Runs a handshake until both ends have their keys; returns the time of the host and of the target.
fn handshake(acceptor: &Acceptor, psk: &TlsPsk) -> Result<[Duration; 2], TlsError> {
    let (mut at_host, mut at_target) = (Duration::ZERO, Duration::ZERO);
    let mut host = timed(&mut at_host, || Handshake::connect(psk.clone()))?;
    let mut target = timed(&mut at_target, || acceptor.accept())?;
    while !(host.is_done() && target.is_done()) {
        let bytes = take(host.outgoing());
        timed(&mut at_target, || target.receive(&bytes))?;
        let bytes = take(target.outgoing());
        timed(&mut at_host, || host.receive(&bytes))?;
    }
    timed(&mut at_host, || host.keys(u64::MAX))?;
    timed(&mut at_target, || target.keys(u64::MAX))?;
    Ok([at_host, at_target])
}

fn handshakes(suite: Suite) -> Result<(), TlsError> {
    let psk = match suite {
        Suite::Aes128GcmSha256 => Secret::new(&[7; 32]),
        Suite::Aes256GcmSha384 => Secret::new(&[7; 48]),
    };
    let psk = TlsPsk { identity: "someone".into(), psk, suite };
    let known = psk.clone();
    let acceptor = Acceptor::new(move |_| Some(known.clone()))?;
    let all: Result<Vec<_>, TlsError> =
        (0..HANDSHAKES).map(|_| handshake(&acceptor, &psk)).collect();
    let all = all?;
    let end = |at: usize| median(all.iter().map(|ends| ends[at]).collect());
    println!("{suite:?}: host {:.0} us, target {:.0} us", end(0), end(1));
    Ok(())
}

/// Returns the time of a controller's two exponentiations: for its public value, and for the shared secret.
fn powers(group: DhGroup) -> [Duration; 2] {
    let secret = Some(Secret::new(&[7; 32]));
    let (hostnqn, subnqn) = ("nqn.x:host".to_owned(), "nqn.x:subsystem".to_owned());
    let parties = AuthParties { hostnqn, subnqn, host_key: secret, controller_key: None };
    let offer = AuthOffer { hashes: vec![Hash::Sha256], groups: vec![group] };
    let mut random = |place: &mut [u8]| place.fill(0xa5);
    let mut controller = AuthController::new(parties.clone(), offer.clone());
    let mut host = AuthHost::new(parties, offer, 1);
    let compute = |work: DhTask| {
        let mut time = Duration::ZERO;
        timed(&mut time, || work.compute());
        time
    };
    let AuthProgress::Compute(work) = controller.send(&host.negotiate(), &mut random) else {
        unreachable!("a group has powers")
    };
    let public = compute(work);
    controller.resume();
    let challenged = host.challenge(&controller.receive(), &mut random).expect("a challenge");
    challenged.work().expect("a group has powers").compute();
    let reply = host.reply(&challenged, &mut random).expect("a reply");
    let AuthProgress::Compute(work) = controller.send(&reply, &mut random) else {
        unreachable!("a group has powers")
    };
    [public, compute(work)]
}

fn main() -> Result<(), TlsError> {
    println!("TLS 1.3 handshakes, the median of {HANDSHAKES}:");
    handshakes(Suite::Aes128GcmSha256)?;
    handshakes(Suite::Aes256GcmSha384)?;
    println!("powers of an authentication at the target, the median of {POWERS}:");
    for group in &DhGroup::ALL[1..] {
        let all: Vec<_> = (0..POWERS).map(|_| powers(*group)).collect();
        let of = |at: usize| median(all.iter().map(|both| both[at]).collect());
        println!("{group}: public value {:.0} us, secret {:.0} us", of(0), of(1));
    }
    Ok(())
}
