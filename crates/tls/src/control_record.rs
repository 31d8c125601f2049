//! Records without data: alerts, and messages after the handshake.

use crate::TlsError;
use crate::record::{CONTENT_TYPE_ALERT, CONTENT_TYPE_HANDSHAKE};

/// Maximum number of consecutive records without data.
pub const IDLE_MAX: u32 = 32;
const CLOSE_NOTIFY: u8 = 0;
const WARNING: u8 = 1;
const FATAL: u8 = 2;
const KEY_UPDATE: u8 = 24;
const NEW_SESSION_TICKET: u8 = 4;
/// A KeyUpdate that requests none in return.
pub const KEY_UPDATE_MESSAGE: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 0];

/// Returns the alert with the reason why this end closes the connection; 0: in order.
#[must_use]
pub fn alert_message(code: u8) -> [u8; 2] {
    [if code == CLOSE_NOTIFY { WARNING } else { FATAL }, code]
}

/// Content of a record without data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlRecord {
    /// True if the peer sends nothing more.
    pub closed: bool,
    /// True if the peer's next record has another key.
    pub key_updated: bool,
    /// True if the peer requests another key for our next data.
    pub key_requested: bool,
}

/// Parses a record of type `kind`. Hosts may receive tickets, which are ignored.
///
/// # Errors
/// A fatal alert of the peer, or an invalid record.
pub fn parse_control_record(
    kind: u8,
    content: &[u8],
    is_host: bool,
) -> Result<ControlRecord, TlsError> {
    match kind {
        CONTENT_TYPE_ALERT => alert(content),
        CONTENT_TYPE_HANDSHAKE => handshake(content, is_host),
        _ => wrong("type", kind.into()),
    }
}

fn wrong<T>(what: &'static str, value: usize) -> Result<T, TlsError> {
    Err(TlsError::Record { what, value: value as u32 })
}

fn alert(content: &[u8]) -> Result<ControlRecord, TlsError> {
    match *content {
        [_, CLOSE_NOTIFY] => Ok(ControlRecord { closed: true, ..ControlRecord::default() }),
        [_, code] => Err(TlsError::Alert(code)),
        _ => wrong("alert's length", content.len()),
    }
}

/// Parses messages after the handshake; each lies in one record.
fn handshake(mut content: &[u8], is_host: bool) -> Result<ControlRecord, TlsError> {
    let mut record = ControlRecord::default();
    if content.is_empty() {
        return wrong("handshake message's length", 0);
    }
    while let Some((&[kind, length_2, length_1, length_0], rest)) = content.split_first_chunk() {
        let length = u32::from_be_bytes([0, length_2, length_1, length_0]) as usize;
        let Some((message, rest)) = rest.split_at_checked(length) else {
            return wrong("handshake message's length", length);
        };
        content = rest;
        match (kind, message) {
            // The next record has another key, so the message ends its record.
            (KEY_UPDATE, &[requested @ (0 | 1)]) if content.is_empty() => {
                (record.key_updated, record.key_requested) = (true, requested == 1);
            }
            (NEW_SESSION_TICKET, _) if is_host => {}
            _ => return wrong("handshake message", kind.into()),
        }
    }
    match content.len() {
        0 => Ok(record),
        rest => wrong("handshake message's length", rest),
    }
}
