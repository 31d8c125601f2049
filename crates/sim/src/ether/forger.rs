//! Somebody on the segment who sends what nobody has asked for: frames of the past, whole or in part or
//! changed, and random ones. The tokens of frames that it has not seen it cannot know.

use super::net::Net;
use crate::network::End;
use crate::rng::Rng;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::{FRAME_HEADER_BYTES, FrameHeader, VERSION, seal};
use roadtrain_wire::zerocopy::FromBytes;

/// A flood lasts that long.
const FLOOD: Duration = Duration::from_millis(20);

/// Sends `frames` frames over all links, in both directions.
pub(super) fn flood(now: Instant, frames: u32, net: &mut Net, rng: &mut Rng) {
    for _ in 0..frames {
        let at = now + rng.micros(0, FLOOD.as_micros() as u64);
        let (link, to) = (rng.below(net.links().into()) as u8, rng.pick(&[End::Host, End::Target]));
        let seen = net.any_seen();
        match (rng.below(100), seen) {
            (0..50, Some(seen)) => net.inject(at, seen.link, seen.to, seen.octets),
            (50..65, Some(seen)) => net.inject(at, link, to, seen.octets),
            (65..80, Some(mut seen)) => {
                seen.octets.truncate(rng.below(seen.octets.len() as u64) as usize);
                net.inject(at, seen.link, seen.to, seen.octets);
            }
            (80..90, Some(mut seen)) => {
                let octet = rng.below(seen.octets.len().min(FRAME_HEADER_BYTES) as u64) as usize;
                seen.octets[octet] ^= rng.between(1, 255) as u8;
                net.inject(at, seen.link, seen.to, seen.octets);
            }
            _ => net.inject(at, link, to, random(rng)),
        }
    }
}

/// Random octets behind a header that is right in itself, but for its token.
fn random(rng: &mut Rng) -> Vec<u8> {
    let length = rng.between(0, 2000) as usize;
    let mut octets: Vec<u8> = (0..length).map(|_| rng.bits() as u8).collect();
    if let Ok((header, _)) = FrameHeader::mut_from_prefix(&mut octets)
        && rng.chance(80)
    {
        header.version = VERSION;
        header.kind = rng.between(1, 10) as u8;
        header.body = ((length - FRAME_HEADER_BYTES) as u16).into();
        header.flags = (header.flags.get() & 6).into();
        seal(header);
    }
    octets
}
