//! An attacker on the segment that sends unsolicited frames: recorded frames, whole, in part or changed, and random
//! ones. It cannot know the tokens of frames that it has not recorded.

use super::net::{Net, RecordedFrame};
use crate::ends::ConnEnd;
use crate::rng::SimRng;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::setup::LeaveBody;
use roadtrain_wire::ether::{FRAME_HEADER_BYTES, FrameHeader, FrameType, VERSION, flags, set_hcrc};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::collections::BTreeMap;

/// Duration of a flood.
const FLOOD: Duration = Duration::from_millis(20);
/// Interval between two rounds of an echo.
const ECHO_EVERY: Duration = Duration::from_millis(10);

/// Sends `frames` frames over all links, in both directions.
pub(super) fn flood(now: Instant, frames: u32, seals: bool, net: &mut Net, rng: &mut SimRng) {
    for _ in 0..frames {
        let at = now + rng.micros(0, FLOOD.as_micros() as u64);
        let (link, to) =
            (rng.below(net.links().into()) as u8, rng.pick(&[ConnEnd::Host, ConnEnd::Target]));
        let seen = net.any_seen();
        let seen = match seen {
            Some(seen) if seals && rng.chance(40) => forge(net, seen, rng),
            seen => seen,
        };
        match (rng.below(100), seen) {
            (0..50, Some(seen)) => net.inject(at, seen.link, seen.to, seen.bytes),
            (50..65, Some(seen)) => net.inject(at, link, to, seen.bytes),
            (65..80, Some(mut seen)) => {
                seen.bytes.truncate(rng.below(seen.bytes.len() as u64) as usize);
                net.inject(at, seen.link, seen.to, seen.bytes);
            }
            (80..90, Some(mut seen)) => {
                let byte = rng.below(seen.bytes.len().min(FRAME_HEADER_BYTES) as u64) as usize;
                seen.bytes[byte] ^= rng.between(1, 255) as u8;
                net.inject(at, seen.link, seen.to, seen.bytes);
            }
            _ => net.inject(at, link, to, random(rng)),
        }
    }
}

/// Repeats one frame of each lane to one end, until the given time.
pub(super) fn echo(now: Instant, until: Instant, to: ConnEnd, net: &mut Net) {
    let mut frames = BTreeMap::new();
    for seen in net.seen(to) {
        if let Ok((header, _)) = FrameHeader::ref_from_prefix(&seen.bytes)
            && header.flags.get() & flags::SEQ != 0
        {
            frames.entry(header.token.get()).or_insert_with(|| seen.clone());
        }
    }
    let mut at = now;
    while at < until {
        for RecordedFrame { link, to, bytes } in frames.values() {
            net.inject(at, *link, *to, bytes.clone());
        }
        at += ECHO_EVERY;
    }
}

/// Forges a sealed frame, with knowledge of the format and of frames of both directions. Only the tag, or the missing
/// proof, shows that it is not the peer's. Without sealing it would be accepted.
fn forge(net: &mut Net, mut seen: RecordedFrame, rng: &mut SimRng) -> Option<RecordedFrame> {
    let other = net.any_seen()?;
    let (other, _) = FrameHeader::read_from_prefix(&other.bytes).ok()?;
    let (mut header, body) = FrameHeader::read_from_prefix(&seen.bytes).ok()?;
    if header.flags.get() & flags::SEALED == 0 {
        return Some(seen);
    }
    let mut body = body.to_vec();
    match rng.below(4) {
        0 if !body.is_empty() => {
            let byte = rng.below(body.len() as u64) as usize;
            body[byte] ^= rng.between(1, 255) as u8;
        }
        1 => header.flags = (header.flags.get() & !flags::SEALED).into(),
        2 => {
            header.seq = (header.seq.get().wrapping_add(rng.between(1, 500) as u32)).into();
            header.number = (header.number.get() + rng.between(1, 500)).into();
            (header.ack, header.sack) = (header.ack.get().wrapping_add(3).into(), u64::MAX.into());
        }
        _ => {
            (header.kind, header.flags) = (FrameType::Leave as u8, 0.into());
            let reason = (rng.between(1, 4) as u16).into();
            let leave = LeaveBody { token: other.token, reason, endpoint: [0; 6] };
            body = leave.as_bytes().to_vec();
            body.extend(rng.chance(50).then_some([7; 16]).into_iter().flatten());
        }
    }
    header.body = (body.len() as u16).into();
    set_hcrc(&mut header);
    seen.bytes = [header.as_bytes(), &body].concat();
    Some(seen)
}

/// Returns random bytes after a valid header with a wrong token.
fn random(rng: &mut SimRng) -> Vec<u8> {
    let length = rng.between(0, 2000) as usize;
    let mut bytes: Vec<u8> = (0..length).map(|_| rng.bits() as u8).collect();
    if let Ok((header, _)) = FrameHeader::mut_from_prefix(&mut bytes)
        && rng.chance(80)
    {
        header.version = VERSION;
        header.kind = rng.between(1, 10) as u8;
        header.body = ((length - FRAME_HEADER_BYTES) as u16).into();
        header.flags = (header.flags.get() & 6).into();
        set_hcrc(header);
    }
    bytes
}
