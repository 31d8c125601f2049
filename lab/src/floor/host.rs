//! The host's end: keeps `depth` requests in flight and takes the time of each.

use super::args::{DataDirection, FloorArgs};
use super::inbox::FloorInbox;
use super::link::FloorLink;
use super::memory::FloorMemory;
use super::result::{FloorOutcome, ThreadUsageProbe};
use super::send_buffer::{FloorMessage, SendBuffer};
use super::sizes::{ANSWER_BYTES, REQUEST_BYTES};
use super::target::FloorCounts;
use hdrhistogram::Histogram;
use std::net::TcpStream;
use std::ptr;
use std::time::{Duration, Instant};

/// The host's end of the floor.
pub(crate) struct FloorHost {
    bs: usize,
    reads: bool,
    link: FloorLink,
    inbox: FloorInbox,
    out: SendBuffer,
    /// The caller's buffers, one a slot.
    buffers: FloorMemory,
    started: Vec<Instant>,
    random: BlockRandom,
    blocks: u32,
    requests: u64,
    latency_ns: Histogram<u64>,
}

impl FloorHost {
    /// Maps the callers' buffers and tunes the connection.
    pub(crate) fn new(args: &FloorArgs, stream: TcpStream) -> anyhow::Result<Self> {
        let reads = args.rw == DataDirection::Read;
        let (data_in, data_out) = if reads { (args.bs, 0) } else { (0, args.bs) };
        Ok(Self {
            bs: args.bs,
            reads,
            link: FloorLink::new(args, stream)?,
            inbox: FloorInbox::new(ANSWER_BYTES, data_in, args.no_copy, &args.knobs)?,
            out: SendBuffer::new(REQUEST_BYTES, data_out, args.gather, args.depth),
            buffers: FloorMemory::new(args.bs * args.depth, !args.knobs.small_pages)?,
            started: vec![Instant::now(); args.depth],
            random: BlockRandom::default(),
            blocks: u32::try_from(args.memory / args.bs)?,
            requests: 0,
            latency_ns: Histogram::new_with_bounds(1, 60_000_000_000, 3)?,
        })
    }

    /// Warms up, measures, closes.
    pub(crate) fn run(
        &mut self,
        args: &FloorArgs,
        target: &ThreadUsageProbe,
    ) -> anyhow::Result<FloorOutcome> {
        let host = ThreadUsageProbe::current();
        self.submit_all(args.depth);
        self.turn_until(Instant::now() + Duration::from_secs_f64(args.warmup))?;
        self.latency_ns.clear();
        let (requests, begin) = (self.requests, Instant::now());
        let before = (host.sample(), target.sample());
        self.turn_until(begin + args.duration())?;
        let elapsed = begin.elapsed();
        let after = (host.sample(), target.sample());
        self.link.close();
        Ok(FloorOutcome {
            requests: self.requests - requests,
            elapsed,
            latency_ns: self.latency_ns.clone(),
            host: after.0.since(before.0),
            target: after.1.since(before.1),
            counts: FloorCounts {
                requests: self.requests,
                sends: self.out.sends,
                bytes_sent: self.out.bytes,
                syscalls: self.link.syscalls,
            },
        })
    }

    fn submit_all(&mut self, depth: usize) {
        let now = Instant::now();
        for slot in 0..depth as u32 {
            self.submit(slot, now);
        }
    }

    #[inline]
    fn submit(&mut self, slot: u32, now: Instant) {
        let message = FloorMessage { slot, block: self.random.below(self.blocks) };
        self.started[slot as usize] = now;
        let data = if self.reads { ptr::null_mut() } else { self.place(slot) };
        // SAFETY: a slot's buffer lives as long as this host and is not written while in flight.
        unsafe { self.out.push(message, data) };
    }

    fn place(&self, slot: u32) -> *mut u8 {
        self.buffers.at(slot as usize * self.bs, self.bs)
    }

    fn turn_until(&mut self, deadline: Instant) -> anyhow::Result<()> {
        let mut answered = Vec::with_capacity(self.started.len());
        loop {
            self.out.flush(&mut self.link)?;
            let idle = self.out.is_empty();
            if !idle {
                self.link.wait_either()?;
            }
            let open = self.inbox.receive(&mut self.link, idle)?;
            anyhow::ensure!(open, "the target closed the connection");
            let (buffers, bs) = (&self.buffers, self.bs);
            let place = |message: FloorMessage| buffers.at(message.slot as usize * bs, bs);
            // SAFETY: a slot in flight owns its buffer; `at` checks that it exists.
            unsafe { self.inbox.drain(place, |message| answered.push(message.slot)) };
            if answered.is_empty() {
                continue;
            }
            let now = Instant::now();
            for slot in answered.drain(..) {
                let waited = now - self.started[slot as usize];
                self.latency_ns.saturating_record(waited.as_nanos() as u64);
                self.requests += 1;
                self.submit(slot, now);
            }
            if now >= deadline {
                return Ok(());
            }
        }
    }
}

/// xorshift64*: random blocks for a few cycles.
pub(crate) struct BlockRandom(u64);

impl Default for BlockRandom {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl BlockRandom {
    /// A number less than `limit`.
    #[inline]
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((high * u64::from(limit)) >> 32) as u32
    }
}
