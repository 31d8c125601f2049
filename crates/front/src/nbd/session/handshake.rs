//! The handshake: client flags and options.

use super::{
    NbdCloseReason, NbdEvent, NbdSession, NbdStage, NbdViolation, OPTION_BYTES_MAX,
    OPTION_SKIP_BYTES_MAX, ReplyQueue, Tls, unparsed,
};
use roadtrain_wire::nbd::{
    BASE_ALLOCATION, CLIENT_FLAGS_BYTES, EXPORT_NAME_ZEROES, ExportNameReply, InfoBlockSize,
    InfoCode, InfoExport, InfoQuery, MetaContextQuery, OptionCode, OptionHeader, OptionReplyCode,
    OptionReplyHeader, PAYLOAD_BYTES_MAX, check_string, handshake_flag, parse_client_flags,
};

/// Identifier of base:allocation in BLOCK_STATUS replies.
pub(super) const ALLOCATION_CONTEXT: u32 = 1;
/// Identifier of the first dirty bitmap; the others follow.
pub(super) const FIRST_BITMAP_CONTEXT: u32 = 2;
/// Namespace of meta contexts that QEMU has defined.
const QEMU: &str = "qemu:";
/// Beginning of the meta context of a dirty bitmap; its name follows.
const DIRTY_BITMAP: &str = "qemu:dirty-bitmap:";
/// Preferred block size in bytes: larger requests are efficient, also with smaller blocks.
const PREFERRED_BYTES: u32 = 4096;

impl NbdSession {
    pub(super) fn handle_client_flags(&mut self, input: &[u8]) -> (usize, NbdEvent) {
        let flags = match parse_client_flags(input) {
            Ok(flags) => flags,
            Err(error) => return unparsed(error),
        };
        let known = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        if flags & !known != 0 {
            let misbehaved = NbdViolation::ClientFlags(flags);
            return (
                CLIENT_FLAGS_BYTES,
                NbdEvent::Close(NbdCloseReason::PeerMisbehaved(misbehaved)),
            );
        }
        self.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
        self.stage = NbdStage::AwaitOption;
        (CLIENT_FLAGS_BYTES, NbdEvent::Handled)
    }

    pub(super) fn handle_option(
        &mut self,
        input: &[u8],
        out: &mut ReplyQueue,
    ) -> (usize, NbdEvent) {
        let header = match OptionHeader::parse(input) {
            Ok(header) => header,
            Err(error) => return unparsed(error),
        };
        let (option, length) = (header.option(), header.length());
        if length > OPTION_BYTES_MAX {
            return (OptionHeader::BYTES, self.refuse_long_option(option, length, out));
        }
        let end = OptionHeader::BYTES + length as usize;
        match input.get(OptionHeader::BYTES..end) {
            Some(data) => match self.option(option, data, out) {
                // An attacker in between could insert bytes that would count as the client's after the handshake.
                NbdEvent::StartTls if input.len() > end => {
                    let misbehaved = NbdViolation::BeforeTls(input.len() - end);
                    (end, NbdEvent::Close(NbdCloseReason::PeerMisbehaved(misbehaved)))
                }
                event => (end, event),
            },
            None => (0, NbdEvent::More),
        }
    }

    fn refuse_long_option(
        &mut self,
        option: OptionCode,
        length: u32,
        out: &mut ReplyQueue,
    ) -> NbdEvent {
        if length > OPTION_SKIP_BYTES_MAX || option == OptionCode::EXPORT_NAME {
            return NbdEvent::Close(NbdCloseReason::PeerMisbehaved(NbdViolation::OptionLength(
                length,
            )));
        }
        match self.tls {
            Tls::Required => _ = refuse_without_tls(option, out),
            _ => refuse(option, OptionReplyCode::ERR_TOO_BIG, "too long", out),
        }
        self.skip = length.into();
        NbdEvent::Handled
    }

    fn option(&mut self, option: OptionCode, data: &[u8], out: &mut ReplyQueue) -> NbdEvent {
        if option == OptionCode::STARTTLS {
            return self.start_tls(data, out);
        }
        if self.tls == Tls::Required && option != OptionCode::ABORT {
            return refuse_without_tls(option, out);
        }
        match option {
            OptionCode::EXPORT_NAME => return self.export_name(data, out),
            OptionCode::ABORT => {
                ack(option, out);
                return NbdEvent::Close(NbdCloseReason::Abort);
            }
            OptionCode::LIST => self.list(data, out),
            OptionCode::INFO => {
                self.info(option, data, out);
            }
            OptionCode::GO => {
                if self.info(option, data, out) {
                    self.stage = NbdStage::AwaitRequest;
                }
            }
            OptionCode::STRUCTURED_REPLY => self.structured_reply(data, out),
            OptionCode::LIST_META_CONTEXT | OptionCode::SET_META_CONTEXT => {
                self.meta_context(option, data, out);
            }
            _ => refuse(option, OptionReplyCode::ERR_UNSUP, "unknown option", out),
        }
        NbdEvent::Handled
    }

    fn start_tls(&mut self, data: &[u8], out: &mut ReplyQueue) -> NbdEvent {
        let option = OptionCode::STARTTLS;
        let (code, why) = match self.tls {
            Tls::Off => (OptionReplyCode::ERR_POLICY, "no TLS on this server"),
            Tls::Secured => (OptionReplyCode::ERR_INVALID, "TLS is active already"),
            Tls::Required if !data.is_empty() => {
                (OptionReplyCode::ERR_INVALID, "STARTTLS takes no data")
            }
            Tls::Required => {
                ack(option, out);
                self.stage = NbdStage::AwaitTls;
                return NbdEvent::StartTls;
            }
        };
        refuse(option, code, why, out);
        NbdEvent::Handled
    }

    /// EXPORT_NAME: any name is the one namespace; hanging up is the only possible refusal.
    fn export_name(&mut self, data: &[u8], out: &mut ReplyQueue) -> NbdEvent {
        if let Err(error) = check_string(data) {
            return NbdEvent::Close(NbdCloseReason::PeerMisbehaved(NbdViolation::Format(error)));
        }
        if self.export.disk().is_removed() {
            return NbdEvent::Close(NbdCloseReason::Removed);
        }
        self.transmission_flags = self.export.transmission_flags(self.structured);
        let (bytes, flags) = (self.export.disk().bytes().into(), self.transmission_flags.into());
        out.push(ExportNameReply { bytes, flags }.as_bytes());
        if !self.no_zeroes {
            out.push(&[0; EXPORT_NAME_ZEROES]);
        }
        self.stage = NbdStage::AwaitRequest;
        NbdEvent::Handled
    }

    fn list(&self, data: &[u8], out: &mut ReplyQueue) {
        let option = OptionCode::LIST;
        if !data.is_empty() {
            return refuse(option, OptionReplyCode::ERR_INVALID, "LIST takes no data", out);
        }
        if !self.export.disk().is_removed() {
            let export = &self.export;
            let (name, description) = (export.name().as_bytes(), export.description().as_bytes());
            let length = (name.len() as u32).to_be_bytes();
            reply(option, OptionReplyCode::SERVER, &[&length, name, description], out);
        }
        ack(option, out);
    }

    /// Answers INFO and GO. True if the client got the export.
    fn info(&mut self, option: OptionCode, data: &[u8], out: &mut ReplyQueue) -> bool {
        let Ok(query) = InfoQuery::parse(data) else {
            refuse(option, OptionReplyCode::ERR_INVALID, "malformed", out);
            return false;
        };
        if self.export.disk().is_removed() {
            refuse(option, OptionReplyCode::ERR_UNKNOWN, "the namespace is gone", out);
            return false;
        }
        self.transmission_flags = self.export.transmission_flags(self.structured);
        let export = InfoExport::new(self.export.disk().bytes(), self.transmission_flags);
        reply(option, OptionReplyCode::INFO, &[export.as_bytes()], out);
        // Each kind once, however often a client requests it.
        let mut answered = [false; 4];
        for info in query.infos() {
            if let Some(answered) = answered.get_mut(usize::from(info.0))
                && !std::mem::replace(answered, true)
            {
                self.optional_info(option, info, out);
            }
        }
        ack(option, out);
        true
    }

    fn optional_info(&self, option: OptionCode, code: InfoCode, out: &mut ReplyQueue) {
        let text = |text: &str, out: &mut ReplyQueue| {
            let bytes = [&code.0.to_be_bytes(), text.as_bytes()];
            reply(option, OptionReplyCode::INFO, &bytes, out);
        };
        match code {
            InfoCode::NAME => text(self.export.name(), out),
            InfoCode::DESCRIPTION => text(self.export.description(), out),
            InfoCode::BLOCK_SIZE => {
                let info = self.export.disk().info();
                let preferred = info.physical_block_bytes.max(PREFERRED_BYTES);
                let sizes = InfoBlockSize::new(info.lba_bytes, preferred, PAYLOAD_BYTES_MAX);
                reply(option, OptionReplyCode::INFO, &[sizes.as_bytes()], out);
            }
            _ => {}
        }
    }

    fn structured_reply(&mut self, data: &[u8], out: &mut ReplyQueue) {
        let option = OptionCode::STRUCTURED_REPLY;
        if !data.is_empty() {
            let what = "STRUCTURED_REPLY takes no data";
            return refuse(option, OptionReplyCode::ERR_INVALID, what, out);
        }
        self.structured = true;
        ack(option, out);
    }

    fn meta_context(&mut self, option: OptionCode, data: &[u8], out: &mut ReplyQueue) {
        let setting = option == OptionCode::SET_META_CONTEXT;
        if setting {
            // A failed choice leaves none chosen.
            (self.allocation, self.bitmaps) = (false, 0);
        }
        if !self.structured {
            let what = "structured replies must be agreed on first";
            return refuse(option, OptionReplyCode::ERR_INVALID, what, out);
        }
        let Ok(query) = MetaContextQuery::parse(data) else {
            return refuse(option, OptionReplyCode::ERR_INVALID, "malformed", out);
        };
        let is_meant = |name: &str, groups: &[&str]| match setting {
            true => query.queries().any(|context| context == name),
            false => {
                let is_meant = |context| context == name || groups.contains(&context);
                query.count() == 0 || query.queries().any(is_meant)
            }
        };
        let context = |id: u32, name: &str, out: &mut ReplyQueue| {
            let id = if setting { id } else { 0 };
            let bytes = [&id.to_be_bytes(), name.as_bytes()];
            reply(option, OptionReplyCode::META_CONTEXT, &bytes, out);
        };
        if is_meant(BASE_ALLOCATION, &["base:"]) {
            self.allocation |= setting;
            context(ALLOCATION_CONTEXT, BASE_ALLOCATION, out);
        }
        let bitmaps = self.export.disk().bitmaps().into_iter();
        for (number, name) in bitmaps.flat_map(|bitmaps| bitmaps.names()).enumerate() {
            let name = format!("{DIRTY_BITMAP}{name}");
            if is_meant(&name, &[QEMU, DIRTY_BITMAP]) {
                self.bitmaps |= u32::from(setting) << number;
                context(FIRST_BITMAP_CONTEXT + number as u32, &name, out);
            }
        }
        ack(option, out);
    }
}

/// Refuses an option without TLS: clients get no information and change nothing before it.
fn refuse_without_tls(option: OptionCode, out: &mut ReplyQueue) -> NbdEvent {
    if option == OptionCode::EXPORT_NAME {
        return NbdEvent::Close(NbdCloseReason::NotSecured);
    }
    refuse(option, OptionReplyCode::ERR_TLS_REQD, "begin with STARTTLS", out);
    NbdEvent::Handled
}

fn reply(option: OptionCode, code: OptionReplyCode, data: &[&[u8]], out: &mut ReplyQueue) {
    let length: usize = data.iter().map(|bytes| bytes.len()).sum();
    // Names and messages are bounded far below 32 bits.
    out.push(OptionReplyHeader::new(option, code, length as u32).as_bytes());
    for bytes in data {
        out.push(bytes);
    }
}

fn ack(option: OptionCode, out: &mut ReplyQueue) {
    reply(option, OptionReplyCode::ACK, &[], out);
}

fn refuse(option: OptionCode, code: OptionReplyCode, message: &str, out: &mut ReplyQueue) {
    reply(option, code, &[message.as_bytes()], out);
}
