//! What a channel counts.

use core::time::Duration;

/// A channel's account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// Numbered frames sent, and their octets.
    pub sent: u64,
    /// Octets of those.
    pub sent_octets: u64,
    /// Numbered frames that have arrived.
    pub received: u64,
    /// Frames given up; what they carried was sent again.
    pub lost: u64,
    /// Of those, by time-out.
    pub timeouts: u64,
    /// Of those, how many have arrived after all.
    pub revived: u64,
    /// Frames that asked.
    pub asks: u64,
    /// Frames that had arrived already.
    pub duplicates: u64,
    /// Frames beyond the window.
    pub beyond: u64,
    /// Headers whose ACK or BASE cannot be.
    pub absurd: u64,
    /// How often the link became suspect.
    pub suspicions: u64,
    /// Frames under way.
    pub in_flight: u32,
    /// Frames that may be under way.
    pub window: u32,
    /// A frame that so many later ones have overtaken is lost.
    pub threshold: u32,
    /// Round-trip time, smoothed.
    pub smoothed_rtt: Duration,
    /// The shortest of the last seconds.
    pub minimum_rtt: Duration,
    /// Whether new frames avoid the link.
    pub is_suspect: bool,
}
