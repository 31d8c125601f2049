//! Sealed lanes: frames that an observer can replay, or send in clear text, are no sign of life and get no reply.

use super::world::{LaneSetup, LaneWorld};
use roadtrain_ether_proto::channel::{ChannelConfig, WINDOW};
use roadtrain_ether_proto::host_queue::{EtherHostEvent, EtherHostQpair};
use roadtrain_ether_proto::links::LaneLinks;
use roadtrain_ether_proto::liveness::{LaneLoss, Liveness};
use roadtrain_ether_proto::target_queue::EtherTargetQpair as Target;
use roadtrain_proto::seal::{CipherFailed, KeyLimits, Seal, SealCipher, SealDirection, TAG_BYTES};
use roadtrain_proto::security::{FrameKeys, FrameSecret, Hash, NONCE_BYTES, Secret, Suite};
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::setup::{LeaveBody, LeaveReason};
use roadtrain_wire::ether::{FrameHeader, FrameType, flags};
use roadtrain_wire::zerocopy::IntoBytes;
use std::cell::Cell;
use std::time::Duration;

const NOW: Instant = Instant(5_000_000);

thread_local! {
    /// Number of frames that the cipher has begun.
    static PASSES: Cell<u32> = const { Cell::new(0) };
}

/// A cipher that hides nothing but detects alterations.
struct SumCipher(u64);

impl SumCipher {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl SealCipher for SumCipher {
    fn new(_: Suite, _: &[u8], _: SealDirection) -> Result<Self, CipherFailed> {
        Ok(SumCipher(0))
    }

    fn begin(&mut self, nonce: &[u8; NONCE_BYTES], header: &[u8]) -> Result<(), CipherFailed> {
        PASSES.set(PASSES.get() + 1);
        self.0 = 1;
        self.add(nonce);
        self.add(header);
        Ok(())
    }

    fn update(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), CipherFailed> {
        output.copy_from_slice(input);
        self.update_in_place(output)
    }

    fn update_in_place(&mut self, bytes: &mut [u8]) -> Result<(), CipherFailed> {
        self.add(bytes);
        Ok(())
    }

    fn tag(&mut self) -> Result<[u8; TAG_BYTES], CipherFailed> {
        Ok(u128::from(self.0).to_le_bytes())
    }

    fn verify(&mut self, tag: &[u8; TAG_BYTES]) -> bool {
        u128::from(self.0).to_le_bytes() == *tag
    }
}

type SealedLaneFrame = (FrameHeader, Vec<u8>);

/// Returns a frame of an end with a SEQ `ahead` of the next one, or without a number.
fn frame(
    (links, seal): (&mut LaneLinks<u8>, &mut Seal<SumCipher>),
    token: u64,
    kind: FrameType,
    ahead: Option<u32>,
) -> SealedLaneFrame {
    let mut header = links.header(0, kind);
    if let Some(ahead) = ahead {
        header = links.send(NOW, 0, 100, &[0]);
        header.kind = kind as u8;
        header.seq = header.seq.get().wrapping_add(ahead).into();
        header.flags = (header.flags.get() | flags::ASK).into();
    }
    header.token = token.into();
    let mut body = vec![0; 40];
    assert!(seal.seal(&mut header, &mut body));
    (header, body)
}

fn keys() -> FrameKeys {
    FrameSecret::new(Hash::Sha256, &Secret::new(&[1]), None, b"").keys(1, 2)
}

/// Returns the links of an end.
fn links(token: u64, peer_token: u64) -> LaneLinks<u8> {
    let mut links = LaneLinks::new(token, peer_token, 9);
    let config =
        ChannelConfig { link: 0, first_tx: 7, first_rx: 7, window: 1024, frame_bytes: 9000 };
    assert!(links.add(NOW, &config, 8));
    links
}

/// A host's end of a sealed lane, and the sending side of its target.
struct SealedLane {
    qpair: EtherHostQpair,
    seal: Seal<SumCipher>,
    liveness: Liveness,
    target: LaneLinks<u8>,
    target_seal: Seal<SumCipher>,
}

impl SealedLane {
    fn new() -> Self {
        let keys = keys();
        let mut qpair = LaneWorld::new(LaneSetup::default()).host;
        let seal = Seal::host(&keys, KeyLimits::HOST).unwrap();
        qpair.set_sealed(seal.proofs());
        let target = links(2, 1);
        let target_seal = Seal::target(&keys, KeyLimits::TARGET).unwrap();
        let liveness = Liveness::new(NOW, Duration::from_secs(5));
        SealedLane { qpair, seal, liveness, target, target_seal }
    }

    /// Returns a frame of the target.
    fn frame(&mut self, kind: FrameType, ahead: Option<u32>) -> SealedLaneFrame {
        frame((&mut self.target, &mut self.target_seal), 1, kind, ahead)
    }

    /// Returns true if the frame was opened and is a sign of life; `None` if it was dropped.
    fn receive(&mut self, now: Instant, (header, body): &SealedLaneFrame) -> Option<bool> {
        let kind = FrameType::from_byte(header.kind).expect("a type");
        let mut out = vec![0; body.len()];
        let frame = (header, kind, &body[..]);
        let opened = self.qpair.end.open(now, Some(&mut self.seal), frame, &mut out)?;
        if self.liveness.receive(now, kind, opened, &self.qpair.end.links) {
            let body = opened.body;
            let none = &mut |event: EtherHostEvent| panic!("{event:?}");
            self.qpair.receive(now, header, kind, body, none);
        }
        Some(opened.is_sign_of_life)
    }
}

#[test]
fn a_frame_that_is_repeated_costs_no_pass_and_has_no_answer() {
    let mut lane = SealedLane::new();
    let frames = [FrameType::Cargo, FrameType::Ack].map(|kind| lane.frame(kind, Some(0)));
    for frame in &frames {
        assert_eq!(lane.receive(NOW, frame), Some(true));
    }
    lane.qpair.end.links.send_ack(NOW, 0, 64, false); // the answer to these
    let (passes, stats) = (PASSES.get(), lane.qpair.end.links.stats(0));
    for frame in &frames {
        assert_eq!(lane.receive(NOW, frame), None);
    }
    assert_eq!((PASSES.get(), lane.qpair.end.links.stats(0)), (passes, stats));
    assert_eq!(lane.qpair.end.rejected.replayed, 2);
    assert!(lane.qpair.end.links.ack_due(NOW).is_none());
}

/// Before the first sealed frame of a link, forged frames may have taken its numbers.
#[test]
fn numbers_taken_by_a_forger_are_the_peers_again() {
    let mut lane = SealedLane::new();
    let (header, body) = lane.frame(FrameType::Cargo, Some(0));
    lane.qpair.receive(NOW, &header, FrameType::Cargo, &[], &mut |event| panic!("{event:?}"));
    assert_eq!(lane.receive(NOW, &(header, body)), Some(true));
    assert_eq!(lane.qpair.end.links.stats(0).map(|stats| stats.duplicates), Some(0));
}

#[test]
fn only_what_is_new_is_a_sign_of_life() {
    let mut lane = SealedLane::new();
    let [first, second] = [0, 0].map(|ahead| lane.frame(FrameType::Cargo, Some(ahead)));
    assert_eq!(lane.receive(NOW, &second), Some(true));
    assert_eq!(lane.receive(NOW, &first), Some(false), "overtaken: received, but no sign of life");
    assert_eq!(lane.qpair.end.links.stats(0).map(|stats| stats.received), Some(2));
    let beyond = lane.frame(FrameType::Cargo, Some(2 * WINDOW));
    assert_eq!(lane.receive(NOW, &beyond), Some(true));
    assert_eq!(
        lane.receive(NOW, &beyond),
        Some(false),
        "beyond the window, but its seal was checked"
    );
}

#[test]
fn replays_do_not_hide_the_silence_of_the_peer() {
    let mut lane = SealedLane::new();
    let frames = [
        lane.frame(FrameType::Cargo, Some(0)),
        lane.frame(FrameType::Ack, None),
        lane.frame(FrameType::Cargo, Some(2 * WINDOW)),
    ];
    for frame in &frames {
        assert_eq!(lane.receive(NOW, frame), Some(true));
    }
    let clear = [FrameType::Cargo, FrameType::Ack].map(|kind| {
        let header = lane.target.header(0, kind);
        (FrameHeader { token: 1.into(), ..header }, vec![0; 40])
    });
    let leave =
        LeaveBody { token: 2.into(), reason: (LeaveReason::Done as u16).into(), endpoint: [0; 6] };
    let mut header = lane.target.header(0, FrameType::Leave);
    header.token = 1.into();
    let leave = (header, leave.as_bytes().to_vec());
    for second in 1..5 {
        let now = NOW + Duration::from_secs(second);
        for frame in frames.iter().chain(&clear).chain([&leave]) {
            assert_ne!(lane.receive(now, frame), Some(true));
        }
        assert_eq!(lane.liveness.loss(now), None);
    }
    assert_eq!(lane.liveness.loss(NOW + Duration::from_secs(5)), Some(LaneLoss::Silent));
    assert_eq!(lane.qpair.end.ended(), None);
    let rejected = lane.qpair.end.rejected;
    assert_eq!((rejected.clear, rejected.replayed, rejected.forged), (8, 8, 4));
}

/// A target's lane times out when no new frame arrives, whatever frames are replayed meanwhile.
#[test]
fn replays_do_not_keep_a_lane_whose_host_is_gone() {
    const PATIENCE: Duration = Duration::from_secs(30);
    let (keys, later) = (keys(), |seconds| NOW + Duration::from_secs(seconds));
    let mut target = LaneWorld::new(LaneSetup::default()).target;
    target.record_sign_of_life(NOW);
    let mut seal = Seal::<SumCipher>::target(&keys, KeyLimits::TARGET).unwrap();
    let (mut host, mut host_seal) = (links(1, 2), Seal::host(&keys, KeyLimits::HOST).unwrap());
    let mut sent = |kind, ahead: Option<u32>| frame((&mut host, &mut host_seal), 2, kind, ahead);
    let mut receive = |target: &mut Target, now, (header, body): &SealedLaneFrame| {
        let kind = FrameType::from_byte(header.kind).expect("a type");
        let mut out = vec![0; body.len()];
        let frame = (header, kind, &body[..]);
        if let Some(opened) = target.open(now, Some(&mut seal), frame, &mut out) {
            target.receive(now, header, kind, opened.body, &mut |event| panic!("{event:?}"));
        }
    };
    let mut frames = [
        sent(FrameType::Cargo, Some(0)),
        sent(FrameType::Ack, None),
        sent(FrameType::Cargo, Some(2 * WINDOW)),
    ];
    frames.iter().for_each(|frame| receive(&mut target, later(10), frame));
    assert!(!target.is_silent(later(39), PATIENCE), "the frames are signs of life");
    let mut forged = frames.clone();
    forged.iter_mut().for_each(|(_, body)| body[0] ^= 1);
    let mut clear = frames.clone();
    for (header, _) in &mut clear {
        header.flags = (header.flags.get() & !flags::SEALED).into();
    }
    for second in 11..40 {
        for frame in frames.iter().chain(&forged).chain(&clear) {
            receive(&mut target, later(second), frame);
        }
    }
    assert!(target.is_silent(later(40), PATIENCE));
    frames[0] = sent(FrameType::Cargo, Some(0));
    receive(&mut target, later(40), &frames[0]);
    assert!(!target.is_silent(later(41), PATIENCE), "the host itself");
}
