//! The protocol of one connection without its socket: octets in, events and reply octets out.
//!
//! The session parses and checks; it answers by itself what needs no storage (options, refusals) and hands out the rest as
//! [`Event::Request`] and [`Event::BlockStatus`]. Payload never enters it: what follows
//! the header of a Write goes from the socket to the buffer that the lane gets.

mod handshake;
mod transmission;

use super::export::Export;
use super::reply_queue::ReplyQueue;
use roadtrain_wire::nbd::{self, Greeting, Request, handshake_flag};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Longest data of an option that is looked at; longer ones are refused with ERR_TOO_BIG.
const OPTION_BYTES_MAX: u32 = 32 << 10;
/// Longest data of an option that is skipped in order to go on; longer ones end the session.
const OPTION_SKIP_BYTES_MAX: u32 = 32 << 20;

/// What one call of [`Session::handle`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The octets end within a message: keep them and come back with more.
    More,
    /// A message was dealt with.
    Handled,
    /// The client may begin with TLS when the reply has been sent; [`Session::secured`] goes on.
    StartTls,
    /// A valid request. The payload of a Write follows and is not for the session.
    Request(Request),
    /// A valid request for block status.
    BlockStatus(Request),
    /// The session is over; what waits in the reply queue is still to be sent.
    Close(Close),
}

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// The client gave up in the handshake.
    Abort,
    /// The client is done; requests in flight are still answered.
    Disconnect,
    /// The client asked, in the way that knows no refusal, for a namespace that is gone.
    Removed,
    /// The client did not come to an end of the handshake.
    Overdue,
    /// The client held buffers that others waited for, and moved no octet for so long.
    Stuck(Duration),
    /// The server stops; requests in flight are still answered.
    Stopping,
    /// The client asked, in the way that knows no refusal, for what it gets over TLS only.
    NotSecured,
    /// The handshake of TLS failed.
    TlsFailed,
    /// The client broke the protocol.
    PeerMisbehaved(PeerMisbehaved),
}

/// How the client broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerMisbehaved {
    /// Client flags that were not offered.
    ClientFlags(u32),
    /// A message that is none.
    Format(nbd::Error),
    /// An option with so many octets of data.
    OptionLength(u32),
    /// So many octets in the clear between STARTTLS and its reply: somebody else may have sent them.
    BeforeTls(usize),
}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use PeerMisbehaved::*;
        match self {
            Close::Abort => f.write_str("aborted by the client"),
            Close::Disconnect => f.write_str("disconnected by the client"),
            Close::Removed => f.write_str("the namespace is gone"),
            Close::Overdue => {
                f.write_str("no end of the handshake in time, or others need its room")
            }
            Close::Stuck(time) => {
                let seconds = time.as_secs();
                write!(f, "sent and took nothing for {seconds} s, and others wait for its buffers")
            }
            Close::Stopping => f.write_str("the server stops"),
            Close::NotSecured => f.write_str("the client asked for the export without TLS"),
            Close::TlsFailed => f.write_str("no TLS"),
            Close::PeerMisbehaved(ClientFlags(flags)) => {
                write!(f, "client set unknown flags {flags:#x}")
            }
            Close::PeerMisbehaved(Format(error)) => write!(f, "client broke the protocol: {error}"),
            Close::PeerMisbehaved(OptionLength(length)) => {
                write!(f, "client sent an option of {length} octets")
            }
            Close::PeerMisbehaved(BeforeTls(length)) => {
                write!(f, "client sent {length} octets in the clear after it asked for TLS")
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    AwaitClientFlags,
    AwaitOption,
    /// The client has been told to begin with TLS.
    AwaitTls,
    AwaitRequest,
    Ended,
}

/// Whether a client's connection is secured by TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tls {
    /// There is none here.
    Off,
    /// Nothing but the beginning of TLS is served before it.
    Required,
    /// It is.
    Secured,
}

/// One connection's protocol state.
#[derive(Debug)]
pub struct Session {
    export: Arc<Export>,
    stage: Stage,
    tls: Tls,
    no_zeroes: bool,
    structured: bool,
    /// The client chose the context base:allocation.
    allocation: bool,
    /// Transmission flags as the client was told.
    transmission_flags: u16,
    /// Octets of a refused option or payload that are to be dropped.
    skip: u64,
}

impl Session {
    /// Greets a client, which has to begin with TLS if that is so (FORCEDTLS, as the protocol's text calls it).
    pub fn new(export: Arc<Export>, requires_tls: bool, out: &mut ReplyQueue) -> Self {
        let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
        out.push(Greeting::new(flags).as_octets());
        Session {
            export,
            stage: Stage::AwaitClientFlags,
            tls: if requires_tls { Tls::Required } else { Tls::Off },
            no_zeroes: false,
            structured: false,
            allocation: false,
            transmission_flags: 0,
            skip: 0,
        }
    }

    /// Deals with the message at the start of `input`; returns the octets used and what it was.
    ///
    /// One message at a time, so that the caller can stop when too many replies wait.
    pub fn handle(&mut self, input: &[u8], out: &mut ReplyQueue) -> (usize, Event) {
        if self.skip > 0 {
            let skipped = self.skip.min(input.len() as u64);
            self.skip -= skipped;
            let event = if self.skip > 0 { Event::More } else { Event::Handled };
            return (skipped as usize, event);
        }
        let (used, event) = match self.stage {
            Stage::AwaitClientFlags => self.handle_client_flags(input),
            Stage::AwaitOption => self.handle_option(input, out),
            Stage::AwaitRequest => self.handle_request(input, out),
            // What the caller gives us here did not come by TLS.
            Stage::AwaitTls => {
                let misbehaved = PeerMisbehaved::BeforeTls(input.len());
                (input.len(), Event::Close(Close::PeerMisbehaved(misbehaved)))
            }
            Stage::Ended => (input.len(), Event::More),
        };
        if matches!(event, Event::Close(_)) {
            self.stage = Stage::Ended;
        }
        (used, event)
    }

    /// The connection is secured: what comes from now on came by TLS. Nothing of before counts but the client's flags.
    pub fn secured(&mut self) {
        if self.stage == Stage::AwaitTls {
            (self.stage, self.tls) = (Stage::AwaitOption, Tls::Secured);
            (self.structured, self.allocation) = (false, false);
        }
    }

    /// Whether the handshake is over.
    pub fn in_transmission(&self) -> bool {
        self.stage == Stage::AwaitRequest
    }
}

/// The event for a message that did not parse: wait for the rest, or give up.
fn unparsed(error: nbd::Error) -> (usize, Event) {
    match error {
        nbd::Error::Truncated => (0, Event::More),
        error => (0, Event::Close(Close::PeerMisbehaved(PeerMisbehaved::Format(error)))),
    }
}

#[cfg(test)]
mod tests;
