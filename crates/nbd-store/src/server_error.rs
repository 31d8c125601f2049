//! Errors of a server: what breaks the protocol, and what it refuses.

use roadtrain_wire::nbd::{NbdError, OptionCode, OptionReplyCode};

/// Longest text of a server in a message, in characters.
const TEXT_CHARS_MAX: usize = 200;

/// Reason to end a connection to a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NbdServerError {
    /// A message breaks the protocol.
    #[error("its {message} breaks the NBD protocol: {field} {value}: {problem}")]
    Field {
        /// Message of the protocol.
        message: &'static str,
        /// Field of the message.
        field: &'static str,
        /// Value of the field.
        value: String,
        /// Reason.
        problem: &'static str,
    },
    /// The server refuses an option that is needed.
    #[error("it refuses {option}: {reply}{}{}", text_in_message(text), refusal_advice(*reply))]
    Refused {
        /// Option of the handshake.
        option: OptionCode,
        /// Reply.
        reply: OptionReplyCode,
        /// Text of the server; may be empty.
        text: String,
    },
    /// The server lacks something that is needed.
    #[error("{0}")]
    Unusable(String),
}

impl NbdServerError {
    /// Makes the error of a wrong field.
    pub(crate) fn field(
        (message, field): (&'static str, &'static str),
        value: impl std::fmt::Display,
        problem: &'static str,
    ) -> NbdServerError {
        NbdServerError::Field { message, field, value: value.to_string(), problem }
    }

    /// Makes the error of a message that cannot be parsed.
    pub(crate) fn format(message: &'static str, length: usize, error: NbdError) -> NbdServerError {
        match error {
            NbdError::Magic { found } => {
                let value = format!("{found:#x}");
                NbdServerError::field((message, "magic"), value, "another one is expected here")
            }
            NbdError::String => {
                NbdServerError::field((message, "text"), "of the server", "it is no valid string")
            }
            NbdError::Truncated | NbdError::Length => {
                NbdServerError::field((message, "length"), length, "its fields do not fit into it")
            }
        }
    }
}

/// Returns a text of the server for a message: escaped and shortened.
pub(crate) fn server_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().take(TEXT_CHARS_MAX).flat_map(char::escape_debug).collect()
}

fn text_in_message(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" ({text})") }
}

fn refusal_advice(reply: OptionReplyCode) -> &'static str {
    match reply {
        OptionReplyCode::ERR_UNKNOWN => ": it has no such export: name one with export=NAME",
        OptionReplyCode::ERR_TLS_REQD => {
            ": it wants TLS: write tls-psk=FILE or tls-certificates=DIRECTORY"
        }
        OptionReplyCode::ERR_POLICY => ": its configuration does not allow it",
        _ => "",
    }
}
