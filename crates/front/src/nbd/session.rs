//! The protocol of one connection without its socket: received bytes in, events and reply bytes out.
//!
//! The session parses and checks. It answers messages that need no storage itself (options, refusals) and hands out the
//! rest as [`NbdEvent::Request`] and [`NbdEvent::BlockStatus`]. Payload never enters it: the bytes behind the header of a
//! Write go from the socket to the buffer that the lane gets.

mod handshake;
mod transmission;

use super::export::NbdExport;
use super::reply_queue::ReplyQueue;
use roadtrain_wire::nbd::{self, Greeting, NbdRequest, handshake_flag};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Longest data of an option that is parsed, in bytes; longer ones are refused with ERR_TOO_BIG.
const OPTION_BYTES_MAX: u32 = 32 << 10;
/// Longest data of an option that is skipped, in bytes; longer ones end the session.
const OPTION_SKIP_BYTES_MAX: u32 = 32 << 20;

/// Result of one call of [`NbdSession::handle`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdEvent {
    /// The data ends within a message: the caller keeps it and adds more.
    More,
    /// A message was handled.
    Handled,
    /// The client may start TLS when the reply has been sent; [`NbdSession::secured`] continues.
    StartTls,
    /// A valid request. The payload of a Write follows and is not for the session.
    Request(NbdRequest),
    /// A valid request for block status.
    BlockStatus(NbdRequest),
    /// The session is over; queued replies are still to be sent.
    Close(NbdCloseReason),
}

/// Reason of a session's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdCloseReason {
    /// The client aborted the handshake.
    Abort,
    /// The client disconnected; requests in flight are still answered.
    Disconnect,
    /// The client requested, with an option that cannot be refused, a namespace that is gone.
    Removed,
    /// The client did not finish the handshake in time.
    Overdue,
    /// The client held buffers that others waited for, without progress for this time.
    Stuck(Duration),
    /// The server stops; requests in flight are still answered.
    Stopping,
    /// The client requested, with an option that cannot be refused, an export that requires TLS.
    NotSecured,
    /// The TLS handshake failed.
    TlsFailed,
    /// The client broke the protocol.
    PeerMisbehaved(NbdViolation),
}

/// Violation of the protocol by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdViolation {
    /// Client flags that were not offered.
    ClientFlags(u32),
    /// A malformed message.
    Format(nbd::NbdError),
    /// An option with this many bytes of data.
    OptionLength(u32),
    /// This many plain-text bytes between STARTTLS and its reply: an attacker may have sent them.
    BeforeTls(usize),
}

impl fmt::Display for NbdCloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use NbdViolation::*;
        match self {
            NbdCloseReason::Abort => f.write_str("aborted by the client"),
            NbdCloseReason::Disconnect => f.write_str("disconnected by the client"),
            NbdCloseReason::Removed => f.write_str("the namespace is gone"),
            NbdCloseReason::Overdue => {
                f.write_str("the handshake did not end in time, or another client needed its place")
            }
            NbdCloseReason::Stuck(time) => {
                let seconds = time.as_secs();
                write!(f, "sent and took nothing for {seconds} s, and others wait for its buffers")
            }
            NbdCloseReason::Stopping => f.write_str("the server stops"),
            NbdCloseReason::NotSecured => {
                f.write_str("the client requested the export without TLS")
            }
            NbdCloseReason::TlsFailed => f.write_str("the TLS handshake failed"),
            NbdCloseReason::PeerMisbehaved(ClientFlags(flags)) => {
                write!(f, "client set unknown flags {flags:#x}")
            }
            NbdCloseReason::PeerMisbehaved(Format(error)) => {
                write!(f, "client broke the protocol: {error}")
            }
            NbdCloseReason::PeerMisbehaved(OptionLength(length)) => {
                write!(f, "client sent an option of {length} bytes")
            }
            NbdCloseReason::PeerMisbehaved(BeforeTls(length)) => {
                write!(f, "client sent {length} bytes in the clear after STARTTLS")
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NbdStage {
    AwaitClientFlags,
    AwaitOption,
    /// The client got the reply to STARTTLS.
    AwaitTls,
    AwaitRequest,
    Ended,
}

/// State of TLS on a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tls {
    /// TLS is not configured.
    Off,
    /// TLS is required: before it, only STARTTLS is served.
    Required,
    /// The connection uses TLS.
    Secured,
}

/// One connection's protocol state.
#[derive(Debug)]
pub struct NbdSession {
    export: Arc<NbdExport>,
    stage: NbdStage,
    tls: Tls,
    no_zeroes: bool,
    structured: bool,
    /// True if the client chose the context base:allocation.
    allocation: bool,
    /// Contexts of dirty bitmaps that the client chose, as bits by number.
    bitmaps: u32,
    /// Transmission flags that the client got.
    transmission_flags: u16,
    /// Bytes of a refused option or payload that are to be dropped.
    skip: u64,
}

impl NbdSession {
    /// Greets a client; `requires_tls` requires TLS first (FORCEDTLS in the protocol's text).
    pub fn new(export: Arc<NbdExport>, requires_tls: bool, out: &mut ReplyQueue) -> Self {
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        out.push(Greeting::new(flags).as_bytes());
        NbdSession {
            export,
            stage: NbdStage::AwaitClientFlags,
            tls: if requires_tls { Tls::Required } else { Tls::Off },
            no_zeroes: false,
            structured: false,
            allocation: false,
            bitmaps: 0,
            transmission_flags: 0,
            skip: 0,
        }
    }

    /// Handles the message at the start of `input`; returns the used bytes and the event.
    ///
    /// One message at a time, so that the caller can stop when too many replies wait.
    pub fn handle(&mut self, input: &[u8], out: &mut ReplyQueue) -> (usize, NbdEvent) {
        if self.skip > 0 {
            let skipped = self.skip.min(input.len() as u64);
            self.skip -= skipped;
            let event = if self.skip > 0 { NbdEvent::More } else { NbdEvent::Handled };
            return (skipped as usize, event);
        }
        let (used, event) = match self.stage {
            NbdStage::AwaitClientFlags => self.handle_client_flags(input),
            NbdStage::AwaitOption => self.handle_option(input, out),
            NbdStage::AwaitRequest => self.handle_request(input, out),
            // These bytes did not come over TLS.
            NbdStage::AwaitTls => {
                let misbehaved = NbdViolation::BeforeTls(input.len());
                (input.len(), NbdEvent::Close(NbdCloseReason::PeerMisbehaved(misbehaved)))
            }
            NbdStage::Ended => (input.len(), NbdEvent::More),
        };
        if matches!(event, NbdEvent::Close(_)) {
            self.stage = NbdStage::Ended;
        }
        (used, event)
    }

    /// Continues after the TLS handshake. All earlier state is dropped except the client's flags.
    pub fn secured(&mut self) {
        if self.stage == NbdStage::AwaitTls {
            (self.stage, self.tls) = (NbdStage::AwaitOption, Tls::Secured);
            (self.structured, self.allocation, self.bitmaps) = (false, false, 0);
        }
    }

    /// True if the client chose the context base:allocation.
    pub(in crate::nbd) fn has_allocation(&self) -> bool {
        self.allocation
    }

    /// True if the handshake is over.
    pub fn in_transmission(&self) -> bool {
        self.stage == NbdStage::AwaitRequest
    }
}

/// Returns the event for a message that did not parse: more data, or the end.
fn unparsed(error: nbd::NbdError) -> (usize, NbdEvent) {
    match error {
        nbd::NbdError::Truncated => (0, NbdEvent::More),
        error => (0, NbdEvent::Close(NbdCloseReason::PeerMisbehaved(NbdViolation::Format(error)))),
    }
}

#[cfg(test)]
mod tests;
