//! Counters of a channel.

use core::time::Duration;

/// A channel's counters and state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// Numbered frames sent.
    pub sent: u64,
    /// Bytes of the numbered frames sent.
    pub sent_bytes: u64,
    /// Numbered frames received.
    pub received: u64,
    /// Frames counted as lost; their records were sent again.
    pub lost: u64,
    /// Lost frames that timed out.
    pub timeouts: u64,
    /// Lost frames that arrived later.
    pub revived: u64,
    /// Frames sent with ASK.
    pub ack_requests: u64,
    /// Frames received more than once.
    pub duplicates: u64,
    /// Frames beyond the window.
    pub beyond: u64,
    /// Headers with an impossible ACK or BASE.
    pub absurd: u64,
    /// Number of times the link became suspect.
    pub suspicions: u64,
    /// Frames in flight.
    pub in_flight: u32,
    /// Frames that may be in flight.
    pub window: u32,
    /// Number of later frames whose arrival marks a frame as lost.
    pub threshold: u32,
    /// Smoothed round-trip time.
    pub smoothed_rtt: Duration,
    /// Shortest round-trip time of the last seconds.
    pub minimum_rtt: Duration,
    /// True while new frames avoid the link.
    pub is_suspect: bool,
}
