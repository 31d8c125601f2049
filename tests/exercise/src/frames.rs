//! A hostile peer on the segment: sends frames that were replayed, cut off, changed, or forged.

use anyhow::{Context, bail};
use fastrand::Rng;
use roadtrain_wire::ether::{
    ETHERTYPE, FRAME_HEADER_BYTES, FrameHeader, FrameType, GROUP, MacAddress, VERSION, flags,
    parse, set_hcrc,
};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

const ETHERNET_BYTES: usize = 14;
/// Most frames kept for replay.
const KEPT_MAX: usize = 4096;
/// Sends between two reads of received frames.
const SENDS_PER_READ: usize = 32;

/// Send hostile frames from an interface
#[derive(clap::Args)]
pub(crate) struct FramesArgs {
    /// The interface
    interface: String,
    /// How long
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How many to send at least, though it takes longer
    #[arg(long, default_value_t = 0)]
    frames: u64,
    /// Kinds of frames: replayed, cut, changed, forged, random; altered: detectable only with keys; moved: replayed
    /// from another address, Joins before others
    #[arg(long, value_delimiter = ',', default_value = "replayed,cut,changed,forged,random")]
    kinds: Vec<String>,
    /// Repeats a run
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

struct HostileSocket {
    fd: OwnedFd,
    address: libc::sockaddr_ll,
}

impl HostileSocket {
    /// Opens a socket that receives all frames of the interface, also outgoing ones.
    fn open(interface: &str) -> anyhow::Result<HostileSocket> {
        let name = CString::new(interface)?;
        // SAFETY: the name is a C string.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            bail!("there is no interface {interface}");
        }
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes numbers only.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, i32::from(protocol)) };
        if fd < 0 {
            return Err(io::Error::last_os_error()).context("packet socket");
        }
        // SAFETY: the descriptor is new and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: an all-zero address is valid.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as i32;
        let length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address is of that length.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) };
        if bound < 0 {
            return Err(io::Error::last_os_error()).context("bind");
        }
        Ok(HostileSocket { fd, address })
    }

    /// Receives the next frame.
    fn receive(&self, buffer: &mut [u8]) -> Option<usize> {
        let place = buffer.as_mut_ptr().cast();
        // SAFETY: writes at most `buffer.len()` bytes to the buffer.
        let got = unsafe { libc::recv(self.fd.as_raw_fd(), place, buffer.len(), 0) };
        usize::try_from(got).ok()
    }

    fn send(&self, frame: &[u8]) -> bool {
        let length = size_of_val(&self.address) as libc::socklen_t;
        let address = (&raw const self.address).cast();
        let start = frame.as_ptr().cast();
        // SAFETY: the frame and the address are of these lengths.
        let sent =
            unsafe { libc::sendto(self.fd.as_raw_fd(), start, frame.len(), 0, address, length) };
        sent >= 0
    }
}

/// Frames of the project's EtherType that were received.
#[derive(Default)]
struct SeenFrames {
    frames: Vec<Vec<u8>>,
    passed: usize,
}

impl SeenFrames {
    fn check(&mut self, socket: &HostileSocket, buffer: &mut [u8], rng: &mut Rng) {
        while let Some(length) = socket.receive(buffer) {
            let frame = &buffer[..length];
            let is_ours = length > ETHERNET_BYTES && frame[12..14] == ETHERTYPE.to_be_bytes();
            if !is_ours || parse(&frame[ETHERNET_BYTES..]).is_err() {
                continue;
            }
            self.passed += 1;
            if self.frames.len() < KEPT_MAX {
                self.frames.push(frame.to_vec());
            } else {
                let place = rng.usize(..self.passed);
                if let Some(kept) = self.frames.get_mut(place) {
                    *kept = frame.to_vec();
                }
            }
        }
    }

    fn any(&self, rng: &mut Rng) -> Option<Vec<u8>> {
        rng.choice(&self.frames).cloned()
    }
}

/// Returns a frame of that kind.
fn hostile(kind: &str, seen: &SeenFrames, rng: &mut Rng) -> Vec<u8> {
    let Some(mut frame) = seen.any(rng) else { return random(rng) };
    match kind {
        "replayed" => {}
        "cut" => frame.truncate(rng.usize(ETHERNET_BYTES..=frame.len())),
        "changed" => {
            for _ in 0..rng.usize(1..=8) {
                let at = rng.usize(ETHERNET_BYTES..frame.len());
                frame[at] = rng.u8(..);
            }
        }
        "forged" => forge(&mut frame, rng),
        "altered" => alter(&mut frame, rng),
        "moved" => {
            let joins =
                seen.frames.iter().filter(|f| f[ETHERNET_BYTES + 1] == FrameType::Join as u8);
            if let Some(join) = rng.choice(joins.collect::<Vec<_>>())
                && rng.bool()
            {
                frame.clone_from(join);
            }
            frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, rng.u8(..)]);
        }
        _ => {
            let made_up = random(rng);
            frame.truncate(ETHERNET_BYTES);
            frame.extend_from_slice(&made_up[ETHERNET_BYTES..]);
        }
    }
    frame
}

/// Gives a frame another valid header. The token is random: no attacker can guess it.
fn forge(frame: &mut [u8], rng: &mut Rng) {
    let Some(bytes) = frame.get_mut(ETHERNET_BYTES..) else { return };
    let Ok((header, body)) = FrameHeader::mut_from_prefix(bytes) else { return };
    rng.fill(body);
    header.token = rng.u64(..).into();
    header.kind = rng.u8(FrameType::Discover as u8..=FrameType::Leave as u8);
    header.seq = rng.u32(..).into();
    header.ack = rng.u32(..).into();
    header.link = rng.u8(..4);
    header.flags = rng.u16(..8).into();
    if rng.bool() {
        header.socket_number = 0.into();
    }
    set_hcrc(header);
}

/// Changes a sealed frame and makes its header valid again; a clear lane would accept it.
fn alter(frame: &mut [u8], rng: &mut Rng) {
    let Some(bytes) = frame.get_mut(ETHERNET_BYTES..) else { return };
    let Ok((header, body)) = FrameHeader::mut_from_prefix(bytes) else { return };
    let bits = header.flags.get();
    if bits & flags::SEALED == 0 {
        return;
    }
    match rng.u8(..4) {
        0 if !body.is_empty() => body[rng.usize(..body.len())] ^= rng.u8(1..),
        1 => header.flags = (bits & !flags::SEALED).into(),
        2 => (header.kind, header.flags) = (FrameType::Leave as u8, 0.into()),
        _ => {
            header.seq = header.seq.get().wrapping_add(rng.u32(1..200)).into();
            header.ack = header.ack.get().wrapping_add(rng.u32(..4)).into();
            header.number = header.number.get().wrapping_add(rng.u64(1..200)).into();
            header.sack = u64::MAX.into();
        }
    }
    set_hcrc(header);
}

/// Returns a frame to the group address for discovery; half of them have a valid header.
fn random(rng: &mut Rng) -> Vec<u8> {
    let mut frame = vec![0; ETHERNET_BYTES + rng.usize(..1500)];
    rng.fill(&mut frame);
    let source = MacAddress([2, rng.u8(..), 0, 0, 0, rng.u8(..)]);
    frame[..6].copy_from_slice(&GROUP.0);
    frame[6..12].copy_from_slice(&source.0);
    frame[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
    if frame.len() >= ETHERNET_BYTES + FRAME_HEADER_BYTES && rng.bool() {
        let body = frame.len() - ETHERNET_BYTES - FRAME_HEADER_BYTES;
        let mut header = FrameHeader { version: VERSION, ..FrameHeader::default() };
        header.kind = rng.u8(FrameType::Discover as u8..=FrameType::Leave as u8);
        header.reply = rng.u16(1..).into();
        header.body = (body as u16).into();
        set_hcrc(&mut header);
        frame[ETHERNET_BYTES..][..FRAME_HEADER_BYTES].copy_from_slice(header.as_bytes());
    }
    frame
}

pub(crate) fn run(args: &FramesArgs) -> anyhow::Result<()> {
    let socket = HostileSocket::open(&args.interface)?;
    let mut rng = Rng::with_seed(args.seed);
    let (mut seen, mut buffer) = (SeenFrames::default(), vec![0; 1 << 16]);
    let (mut sent, mut refused) = (0u64, 0u64);
    let end = Instant::now() + Duration::from_secs(args.seconds);
    while Instant::now() < end || sent < args.frames {
        seen.check(&socket, &mut buffer, &mut rng);
        for _ in 0..SENDS_PER_READ {
            let kind = rng.choice(&args.kinds).context("--kinds is empty")?;
            let counter = match socket.send(&hostile(kind, &seen, &mut rng)) {
                true => &mut sent,
                false => &mut refused,
            };
            *counter += 1;
        }
    }
    println!("sent {sent} frames, {refused} were refused; {} have passed", seen.passed);
    Ok(())
}
