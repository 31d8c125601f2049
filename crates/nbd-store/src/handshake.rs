//! Handshake with a server: greeting, TLS, structured replies, block allocation, and the export.
//!
//! ```text
//!   greeting -> flags -> [STARTTLS] -> STRUCTURED_REPLY -> [SET_META_CONTEXT] -> GO -> transmission
//! ```
//!
//! The machine names the number of bytes that it needs next, so that no byte behind the handshake is received with it.

use crate::server_error::server_text;
use crate::{NbdServerError, NbdTerms};
use roadtrain_wire::nbd::{
    BASE_ALLOCATION, Greeting, InfoBlockSize, InfoCode, InfoExport, InfoQuery, MAGIC_OPTION,
    MetaContextQuery, MetaContextReply, OptionCode, OptionHeader, OptionReplyCode,
    OptionReplyHeader, STRING_BYTES_MAX, emit_client_flags, handshake_flag, info_code,
};
use std::mem;

/// Maximum bytes of a reply's data.
const REPLY_BYTES_MAX: usize = 64 << 10;
/// Maximum replies to an option.
const REPLIES_MAX: usize = 64;
/// Maximum bytes of an option's data: two strings, and numbers.
const OPTION_BYTES_MAX: usize = 2 * STRING_BYTES_MAX + 64;
/// Message of an option's reply, in errors.
const REPLY: &str = "reply to an option";

/// Result of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdHandshakeStep {
    /// More bytes are needed.
    More,
    /// The TLS handshake begins now, after the bytes to send. The machine continues above it.
    StartTls,
    /// The transmission begins.
    Done(NbdTerms),
}

/// Next bytes to receive.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Greeting,
    ReplyHeader,
    ReplyData(OptionReplyHeader),
    Nothing,
}

/// Handshake with a server.
#[derive(Debug)]
pub struct NbdClientHandshake {
    export: String,
    expected: Expected,
    option: OptionCode,
    replies: usize,
    needs_tls: bool,
    has_export: bool,
    terms: NbdTerms,
    out: Vec<u8>,
}

impl NbdClientHandshake {
    /// Starts a handshake for an export, which is named as the protocol allows.
    #[must_use]
    pub fn new(export: &str, needs_tls: bool) -> NbdClientHandshake {
        NbdClientHandshake {
            export: export.to_owned(),
            expected: Expected::Greeting,
            option: OptionCode::ABORT,
            replies: 0,
            needs_tls,
            has_export: false,
            terms: NbdTerms::default(),
            out: Vec::new(),
        }
    }

    /// Returns the number of bytes for the next [`receive`](Self::receive); 0 once it is done.
    #[must_use]
    pub fn wanted(&self) -> usize {
        match self.expected {
            Expected::Greeting => Greeting::BYTES,
            Expected::ReplyHeader => OptionReplyHeader::BYTES,
            Expected::ReplyData(header) => header.length() as usize,
            Expected::Nothing => 0,
        }
    }

    /// Takes the bytes to send.
    pub fn take_outgoing(&mut self) -> Vec<u8> {
        mem::take(&mut self.out)
    }

    /// Processes as many bytes as were [wanted](Self::wanted).
    ///
    /// # Errors
    /// The server breaks the protocol, or cannot be used: the connection has to end.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<NbdHandshakeStep, NbdServerError> {
        match self.expected {
            Expected::Greeting => self.greeted(bytes),
            Expected::ReplyHeader => {
                let header = OptionReplyHeader::parse(bytes)
                    .map_err(|error| NbdServerError::format(REPLY, bytes.len(), error))?;
                self.check_reply(header)?;
                if header.length() > 0 {
                    self.expected = Expected::ReplyData(header);
                    return Ok(NbdHandshakeStep::More);
                }
                self.replied(header.reply(), &[])
            }
            Expected::ReplyData(header) => self.replied(header.reply(), bytes),
            Expected::Nothing => Ok(NbdHandshakeStep::More),
        }
    }

    fn greeted(&mut self, bytes: &[u8]) -> Result<NbdHandshakeStep, NbdServerError> {
        const MESSAGE: &str = "greeting";
        let old = bytes.get(8..16).is_some_and(|magic| magic != MAGIC_OPTION.to_be_bytes());
        let greeting = Greeting::parse(bytes).map_err(|error| {
            if old && bytes.starts_with(b"NBDMAGIC") {
                let text =
                    "it speaks the oldstyle protocol, which has no options: use a newer server";
                return NbdServerError::Unusable(text.into());
            }
            NbdServerError::format(MESSAGE, bytes.len(), error)
        })?;
        let flags = greeting.flags();
        if flags & handshake_flag::FIXED_NEWSTYLE == 0 {
            let text = "it does not speak the fixed newstyle protocol: use a newer server";
            return Err(NbdServerError::Unusable(text.into()));
        }
        let flags = flags & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        self.out.extend(emit_client_flags(flags.into()));
        match self.needs_tls {
            true => self.send(OptionCode::STARTTLS),
            false => self.send(OptionCode::STRUCTURED_REPLY),
        }
        Ok(NbdHandshakeStep::More)
    }

    fn send(&mut self, option: OptionCode) {
        let mut place = [0; OPTION_BYTES_MAX];
        let data = match option {
            OptionCode::SET_META_CONTEXT => {
                MetaContextQuery::emit(&self.export, &[BASE_ALLOCATION], &mut place)
            }
            OptionCode::GO => InfoQuery::emit(&self.export, &[InfoCode::BLOCK_SIZE], &mut place),
            _ => None,
        };
        let data = data.unwrap_or_default();
        self.out.extend(OptionHeader::new(option, data.len() as u32).as_bytes());
        self.out.extend(data);
        (self.option, self.replies, self.expected) = (option, 0, Expected::ReplyHeader);
    }

    fn check_reply(&mut self, header: OptionReplyHeader) -> Result<(), NbdServerError> {
        self.replies += 1;
        let wrong = |field, value: String, problem| {
            Err(NbdServerError::field((REPLY, field), value, problem))
        };
        if header.option() != self.option {
            return wrong("option", header.option().to_string(), "it is not the one that was sent");
        }
        if header.length() as usize > REPLY_BYTES_MAX {
            return wrong("length", header.length().to_string(), "it is more than 65536");
        }
        if self.replies > REPLIES_MAX {
            return wrong("reply", header.reply().to_string(), "an option has 64 replies at most");
        }
        Ok(())
    }

    fn replied(
        &mut self,
        reply: OptionReplyCode,
        data: &[u8],
    ) -> Result<NbdHandshakeStep, NbdServerError> {
        self.expected = Expected::ReplyHeader;
        let is_error = reply.0 & 1 << 31 != 0;
        match (self.option, reply) {
            (OptionCode::STARTTLS, OptionReplyCode::ACK) => {
                self.send(OptionCode::STRUCTURED_REPLY);
                return Ok(NbdHandshakeStep::StartTls);
            }
            (OptionCode::STRUCTURED_REPLY, OptionReplyCode::ACK) => {
                self.terms.is_structured = true;
                self.send(OptionCode::SET_META_CONTEXT);
            }
            (OptionCode::SET_META_CONTEXT, OptionReplyCode::META_CONTEXT) => {
                let context = MetaContextReply::parse(data)
                    .map_err(|error| NbdServerError::format(REPLY, data.len(), error))?;
                if context.name == BASE_ALLOCATION {
                    self.terms.allocation = Some(context.context);
                }
            }
            (OptionCode::SET_META_CONTEXT, OptionReplyCode::ACK) => self.send(OptionCode::GO),
            (OptionCode::GO, OptionReplyCode::INFO) => self.informed(data)?,
            (OptionCode::GO, OptionReplyCode::ACK) => return self.finished(),
            // A server that requires TLS refuses all else, too: GO names the reason.
            (OptionCode::STRUCTURED_REPLY | OptionCode::SET_META_CONTEXT, _) if is_error => {
                self.terms.allocation = None;
                self.send(OptionCode::GO);
            }
            (option, reply) if is_error => {
                return Err(NbdServerError::Refused { option, reply, text: server_text(data) });
            }
            (_, reply) => {
                let problem = "it is not one to this option";
                return Err(NbdServerError::field((REPLY, "type"), reply, problem));
            }
        }
        Ok(NbdHandshakeStep::More)
    }

    fn informed(&mut self, data: &[u8]) -> Result<(), NbdServerError> {
        let wrong = |error| NbdServerError::format("INFO of an export", data.len(), error);
        match info_code(data).map_err(wrong)? {
            InfoCode::EXPORT => {
                let info = InfoExport::parse(data).map_err(wrong)?;
                (self.terms.bytes, self.terms.flags) = (info.bytes.get(), info.flags.get());
                self.has_export = true;
            }
            InfoCode::BLOCK_SIZE => {
                let info = InfoBlockSize::parse(data).map_err(wrong)?;
                let terms = &mut self.terms;
                terms.bytes_min = info.bytes_min.get();
                terms.bytes_preferred = info.bytes_preferred.get();
                terms.bytes_max = info.bytes_max.get();
                terms.check_sizes()?;
            }
            _ => {}
        }
        Ok(())
    }

    fn finished(&mut self) -> Result<NbdHandshakeStep, NbdServerError> {
        if !self.has_export {
            let problem = "the size of the export is missing before it";
            return Err(NbdServerError::field((REPLY, "type"), OptionReplyCode::ACK, problem));
        }
        self.expected = Expected::Nothing;
        Ok(NbdHandshakeStep::Done(self.terms))
    }
}

#[cfg(test)]
mod tests;
