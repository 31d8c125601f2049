//! The handshake: greeting, options and their replies.

use super::{
    InfoCode, MAGIC_INIT, MAGIC_OPTION, MAGIC_OPTION_REPLY, NbdError, OptionCode, OptionReplyCode,
    STRING_BYTES_MAX,
};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Greeting of the server: 18 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Greeting {
    magic_init: U64,
    magic_option: U64,
    flags: U16,
}

impl Greeting {
    /// Bytes on the wire.
    pub const BYTES: usize = size_of::<Self>();

    /// A greeting with these [`handshake_flag`](super::handshake_flag)s.
    pub fn new(flags: u16) -> Self {
        Greeting {
            magic_init: MAGIC_INIT.into(),
            magic_option: MAGIC_OPTION.into(),
            flags: flags.into(),
        }
    }

    /// Returns the bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }

    /// Parses the greeting at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, NbdError> {
        let (greeting, _) = Self::read_from_prefix(bytes).map_err(|_| NbdError::Truncated)?;
        check_magic(greeting.magic_init.get(), MAGIC_INIT)?;
        check_magic(greeting.magic_option.get(), MAGIC_OPTION)?;
        Ok(greeting)
    }

    /// Returns the server's handshake flags.
    pub fn flags(&self) -> u16 {
        self.flags.get()
    }
}

/// Bytes of the client's flags, the reply to the greeting.
pub const CLIENT_FLAGS_BYTES: usize = 4;

/// Parses the client's flags at the start of `bytes`.
pub fn parse_client_flags(bytes: &[u8]) -> Result<u32, NbdError> {
    let (flags, _) = U32::read_from_prefix(bytes).map_err(|_| NbdError::Truncated)?;
    Ok(flags.get())
}

/// Returns the client's flags to send.
pub fn emit_client_flags(flags: u32) -> [u8; CLIENT_FLAGS_BYTES] {
    flags.to_be_bytes()
}

/// Header of an option, followed by `length` bytes of data: 16 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OptionHeader {
    magic: U64,
    option: U32,
    length: U32,
}

impl OptionHeader {
    /// Bytes on the wire.
    pub const BYTES: usize = size_of::<Self>();

    /// Header of `option` with `length` bytes of data.
    pub fn new(option: OptionCode, length: u32) -> Self {
        OptionHeader { magic: MAGIC_OPTION.into(), option: option.0.into(), length: length.into() }
    }

    /// Returns the bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }

    /// Parses the header at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, NbdError> {
        let (header, _) = Self::read_from_prefix(bytes).map_err(|_| NbdError::Truncated)?;
        check_magic(header.magic.get(), MAGIC_OPTION)?;
        Ok(header)
    }

    /// Returns the option.
    pub fn option(&self) -> OptionCode {
        OptionCode(self.option.get())
    }

    /// Returns the bytes of data that follow.
    pub fn length(&self) -> u32 {
        self.length.get()
    }
}

/// Header of a reply to an option, followed by `length` bytes of data: 20 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OptionReplyHeader {
    magic: U64,
    option: U32,
    reply: U32,
    length: U32,
}

impl OptionReplyHeader {
    /// Bytes on the wire.
    pub const BYTES: usize = size_of::<Self>();

    /// Header of a `reply` to `option` with `length` bytes of data.
    pub fn new(option: OptionCode, reply: OptionReplyCode, length: u32) -> Self {
        OptionReplyHeader {
            magic: MAGIC_OPTION_REPLY.into(),
            option: option.0.into(),
            reply: reply.0.into(),
            length: length.into(),
        }
    }

    /// Returns the bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }

    /// Parses the header at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, NbdError> {
        let (header, _) = Self::read_from_prefix(bytes).map_err(|_| NbdError::Truncated)?;
        check_magic(header.magic.get(), MAGIC_OPTION_REPLY)?;
        Ok(header)
    }

    /// Returns the option of the reply.
    pub fn option(&self) -> OptionCode {
        OptionCode(self.option.get())
    }

    /// Returns the type of the reply.
    pub fn reply(&self) -> OptionReplyCode {
        OptionReplyCode(self.reply.get())
    }

    /// Returns the bytes of data that follow.
    pub fn length(&self) -> u32 {
        self.length.get()
    }
}

/// Reply to EXPORT_NAME: size and transmission flags, 10 bytes (then 124 zeroes, unless NO_ZEROES).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ExportNameReply {
    /// Size of the export in bytes.
    pub bytes: U64,
    /// [`transmission_flag`](super::transmission_flag)s.
    pub flags: U16,
}

impl ExportNameReply {
    /// Returns the bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

/// Information EXPORT: size and transmission flags, 12 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InfoExport {
    info: U16,
    /// Size of the export in bytes.
    pub bytes: U64,
    /// [`transmission_flag`](super::transmission_flag)s.
    pub flags: U16,
}

impl InfoExport {
    /// Information about an export of `bytes` bytes.
    pub fn new(bytes: u64, flags: u16) -> Self {
        InfoExport { info: InfoCode::EXPORT.0.into(), bytes: bytes.into(), flags: flags.into() }
    }

    /// Parses a whole INFO reply with this information.
    pub fn parse(data: &[u8]) -> Result<Self, NbdError> {
        let info = Self::read_from_bytes(data).map_err(|_| NbdError::Length)?;
        check_info(info.info, InfoCode::EXPORT).map(|()| info)
    }

    /// Returns the bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

/// Information BLOCK_SIZE: alignment of requests, 14 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InfoBlockSize {
    info: U16,
    /// Offsets and lengths should be multiples of this.
    pub bytes_min: U32,
    /// Optimal granularity.
    pub bytes_preferred: U32,
    /// Maximum payload.
    pub bytes_max: U32,
}

impl InfoBlockSize {
    /// Block sizes in bytes.
    pub fn new(bytes_min: u32, bytes_preferred: u32, bytes_max: u32) -> Self {
        InfoBlockSize {
            info: InfoCode::BLOCK_SIZE.0.into(),
            bytes_min: bytes_min.into(),
            bytes_preferred: bytes_preferred.into(),
            bytes_max: bytes_max.into(),
        }
    }

    /// Parses a whole INFO reply with this information.
    pub fn parse(data: &[u8]) -> Result<Self, NbdError> {
        let info = Self::read_from_bytes(data).map_err(|_| NbdError::Length)?;
        check_info(info.info, InfoCode::BLOCK_SIZE).map(|()| info)
    }

    /// Returns the bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

/// Returns the kind of an INFO reply.
pub fn info_code(data: &[u8]) -> Result<InfoCode, NbdError> {
    let (code, _) = U16::read_from_prefix(data).map_err(|_| NbdError::Length)?;
    Ok(InfoCode(code.get()))
}

fn check_info(found: U16, wanted: InfoCode) -> Result<(), NbdError> {
    check_magic(found.get().into(), wanted.0.into())
}

/// Data of INFO and GO: an export's name and the requested information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoQuery<'a> {
    /// Name of the export; empty for the default one.
    pub name: &'a str,
    infos: &'a [U16],
}

impl<'a> InfoQuery<'a> {
    /// Parses an option's whole data.
    pub fn parse(data: &'a [u8]) -> Result<Self, NbdError> {
        let (name, rest) = take_string(data)?;
        let (count, rest) = U16::ref_from_prefix(rest).map_err(|_| NbdError::Length)?;
        let infos = <[U16]>::ref_from_bytes(rest).map_err(|_| NbdError::Length)?;
        if infos.len() != usize::from(count.get()) {
            return Err(NbdError::Length);
        }
        Ok(InfoQuery { name, infos })
    }

    /// Writes the data of an option into `place`, and returns it; `None` if it does not fit.
    pub fn emit<'p>(name: &str, infos: &[InfoCode], place: &'p mut [u8]) -> Option<&'p [u8]> {
        let mut writer = OptionWriter { place, used: 0 };
        writer.string(name)?;
        writer.put(&u16::try_from(infos.len()).ok()?.to_be_bytes())?;
        infos.iter().try_for_each(|info| writer.put(&info.0.to_be_bytes()))?;
        Some(writer.finish())
    }

    /// Returns the requested information, in the client's order.
    pub fn infos(&self) -> impl Iterator<Item = InfoCode> + 'a {
        self.infos.iter().map(|info| InfoCode(info.get()))
    }
}

/// Data of LIST_META_CONTEXT and SET_META_CONTEXT: an export's name and queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaContextQuery<'a> {
    /// Name of the export; empty for the default one.
    pub name: &'a str,
    queries: &'a [u8],
    count: u32,
}

impl<'a> MetaContextQuery<'a> {
    /// Parses an option's whole data and checks every query in it.
    pub fn parse(data: &'a [u8]) -> Result<Self, NbdError> {
        let (name, rest) = take_string(data)?;
        let (count, queries) = U32::read_from_prefix(rest).map_err(|_| NbdError::Length)?;
        let count = count.get();
        let mut rest = queries;
        // Each query takes at least four bytes, so a lying count ends the loop early.
        for _ in 0..count {
            (_, rest) = take_string(rest)?;
        }
        if rest.is_empty() {
            Ok(MetaContextQuery { name, queries, count })
        } else {
            Err(NbdError::Length)
        }
    }

    /// Writes the data of an option into `place`, and returns it; `None` if it does not fit.
    pub fn emit<'p>(name: &str, queries: &[&str], place: &'p mut [u8]) -> Option<&'p [u8]> {
        let mut writer = OptionWriter { place, used: 0 };
        writer.string(name)?;
        writer.put(&u32::try_from(queries.len()).ok()?.to_be_bytes())?;
        queries.iter().try_for_each(|query| writer.string(query))?;
        Some(writer.finish())
    }

    /// Number of queries; none in a LIST requests everything.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the queries, in the client's order.
    pub fn queries(&self) -> impl Iterator<Item = &'a str> {
        let mut rest = self.queries;
        core::iter::from_fn(move || {
            let (query, tail) = take_string(rest).ok()?;
            rest = tail;
            Some(query)
        })
    }
}

/// Writer of an option's data.
struct OptionWriter<'p> {
    place: &'p mut [u8],
    used: usize,
}

impl<'p> OptionWriter<'p> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.used.checked_add(bytes.len())?;
        self.place.get_mut(self.used..end)?.copy_from_slice(bytes);
        self.used = end;
        Some(())
    }

    fn string(&mut self, text: &str) -> Option<()> {
        check_string(text.as_bytes()).ok()?;
        self.put(&u32::try_from(text.len()).ok()?.to_be_bytes())?;
        self.put(text.as_bytes())
    }

    fn finish(self) -> &'p [u8] {
        &self.place[..self.used]
    }
}

/// Data of a reply META_CONTEXT: the number that the server gives a meta context, and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaContextReply<'a> {
    /// Number in BLOCK_STATUS chunks.
    pub context: u32,
    /// Name of the meta context.
    pub name: &'a str,
}

impl<'a> MetaContextReply<'a> {
    /// Parses a reply's whole data.
    pub fn parse(data: &'a [u8]) -> Result<Self, NbdError> {
        let (context, name) = U32::read_from_prefix(data).map_err(|_| NbdError::Length)?;
        Ok(MetaContextReply { context: context.get(), name: check_string(name)? })
    }
}

/// Checks a string as the protocol defines it.
pub fn check_string(bytes: &[u8]) -> Result<&str, NbdError> {
    if bytes.len() > STRING_BYTES_MAX || bytes.contains(&0) {
        return Err(NbdError::String);
    }
    core::str::from_utf8(bytes).map_err(|_| NbdError::String)
}

/// Splits a string with its 32-bit length off the front.
fn take_string(data: &[u8]) -> Result<(&str, &[u8]), NbdError> {
    let (length, rest) = U32::read_from_prefix(data).map_err(|_| NbdError::Length)?;
    let length = usize::try_from(length.get()).map_err(|_| NbdError::Length)?;
    let (bytes, rest) = rest.split_at_checked(length).ok_or(NbdError::Length)?;
    Ok((check_string(bytes)?, rest))
}

pub(super) fn check_magic(found: u64, wanted: u64) -> Result<(), NbdError> {
    if found == wanted { Ok(()) } else { Err(NbdError::Magic { found }) }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn string(text: &str) -> Vec<u8> {
        let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
        bytes.extend(text.as_bytes());
        bytes
    }

    #[test]
    fn sizes_are_the_protocols() {
        assert_eq!(Greeting::BYTES, 18);
        assert_eq!(OptionHeader::BYTES, 16);
        assert_eq!(OptionReplyHeader::BYTES, 20);
        assert_eq!(size_of::<ExportNameReply>(), 10);
        assert_eq!(size_of::<InfoExport>(), 12);
        assert_eq!(size_of::<InfoBlockSize>(), 14);
    }

    #[test]
    fn greeting_round_trips() {
        let greeting = Greeting::new(3);
        assert_eq!(greeting.as_bytes(), b"NBDMAGICIHAVEOPT\0\x03");
        assert_eq!(Greeting::parse(greeting.as_bytes()).unwrap().flags(), 3);
        assert_eq!(Greeting::parse(&greeting.as_bytes()[..17]).unwrap_err(), NbdError::Truncated);
        let wrong = Greeting::parse(&[0; 18]).unwrap_err();
        assert_eq!(wrong, NbdError::Magic { found: 0 });
    }

    #[test]
    fn info_query_lists_what_is_wanted() {
        let mut data = string("disk");
        data.extend([0, 2, 0, 3, 0, 1]);
        let query = InfoQuery::parse(&data).unwrap();
        assert_eq!(query.name, "disk");
        assert_eq!(query.infos().collect::<Vec<_>>(), [InfoCode::BLOCK_SIZE, InfoCode::NAME]);
    }

    #[test]
    fn info_query_is_refused_at_every_truncation_and_when_longer() {
        let mut data = string("disk");
        data.extend([0, 1, 0, 3]);
        for length in 0..data.len() {
            assert!(InfoQuery::parse(&data[..length]).is_err(), "{length} bytes");
        }
        data.push(0);
        assert_eq!(InfoQuery::parse(&data), Err(NbdError::Length));
    }

    #[test]
    fn meta_context_query_is_checked_whole() {
        let mut data = string("");
        data.extend(2u32.to_be_bytes());
        data.extend(string("base:"));
        data.extend(string(super::super::BASE_ALLOCATION));
        let query = MetaContextQuery::parse(&data).unwrap();
        assert_eq!(query.queries().collect::<Vec<_>>(), ["base:", "base:allocation"]);
        for length in 0..data.len() {
            assert!(MetaContextQuery::parse(&data[..length]).is_err(), "{length} bytes");
        }
        data.push(0);
        assert!(MetaContextQuery::parse(&data).is_err());
    }

    #[test]
    fn options_are_written_as_they_are_parsed() {
        let mut place = [0; 64];
        let infos = [InfoCode::BLOCK_SIZE, InfoCode::NAME];
        let data = InfoQuery::emit("disk", &infos, &mut place).unwrap();
        let query = InfoQuery::parse(data).unwrap();
        assert_eq!((query.name, query.infos().collect::<Vec<_>>()), ("disk", infos.to_vec()));
        let contexts = ["base:allocation", "x:"];
        let data = MetaContextQuery::emit("disk", &contexts, &mut place).unwrap();
        let query = MetaContextQuery::parse(data).unwrap();
        assert_eq!((query.name, query.queries().collect::<Vec<_>>()), ("disk", contexts.to_vec()));
        assert_eq!(InfoQuery::emit("disk", &infos, &mut [0; 13]), None, "a byte too few");
        assert_eq!(InfoQuery::emit("a\0", &[], &mut place), None, "no string of the protocol");
        assert_eq!(parse_client_flags(&emit_client_flags(3)), Ok(3));
    }

    #[test]
    fn information_is_parsed_whole_and_of_its_kind() {
        let export = InfoExport::new(4096, 7);
        let parsed = InfoExport::parse(export.as_bytes()).unwrap();
        assert_eq!((parsed.bytes.get(), parsed.flags.get()), (4096, 7));
        let sizes = InfoBlockSize::new(1, 4096, 65536);
        let parsed = InfoBlockSize::parse(sizes.as_bytes()).unwrap();
        assert_eq!(parsed.bytes_max.get(), 65536);
        assert_eq!(info_code(sizes.as_bytes()), Ok(InfoCode::BLOCK_SIZE));
        let short = &export.as_bytes()[..11];
        assert_eq!(InfoExport::parse(short).unwrap_err(), NbdError::Length);
        let mut other = [0; 12];
        other.copy_from_slice(export.as_bytes());
        other[1] = 3;
        assert_eq!(InfoExport::parse(&other).unwrap_err(), NbdError::Magic { found: 3 });
        let reply = MetaContextReply::parse(b"\0\0\0\x05base:allocation").unwrap();
        assert_eq!((reply.context, reply.name), (5, "base:allocation"));
        assert_eq!(MetaContextReply::parse(b"\0\0\0"), Err(NbdError::Length));
        assert_eq!(MetaContextReply::parse(b"\0\0\0\x05\xff"), Err(NbdError::String));
    }

    #[test]
    fn strings_are_utf8_without_nul() {
        assert_eq!(check_string(b"a\0"), Err(NbdError::String));
        assert_eq!(check_string(&[0xff]), Err(NbdError::String));
        assert_eq!(check_string(&[b'a'; STRING_BYTES_MAX + 1]), Err(NbdError::String));
        assert_eq!(check_string("größe".as_bytes()), Ok("größe"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(bytes: Vec<u8>) {
            let _ = Greeting::parse(&bytes);
            let _ = parse_client_flags(&bytes);
            let _ = OptionHeader::parse(&bytes);
            let _ = OptionReplyHeader::parse(&bytes);
            let _ = (InfoExport::parse(&bytes), InfoBlockSize::parse(&bytes), info_code(&bytes));
            let _ = MetaContextReply::parse(&bytes);
            if let Ok(query) = InfoQuery::parse(&bytes) {
                prop_assert!(query.infos().count() <= bytes.len());
            }
            if let Ok(query) = MetaContextQuery::parse(&bytes) {
                prop_assert_eq!(query.queries().count(), query.count() as usize);
            }
        }

        #[test]
        fn option_headers_round_trip(option: u32, reply: u32, length: u32) {
            let header = OptionHeader::new(OptionCode(option), length);
            let header = OptionHeader::parse(header.as_bytes()).unwrap();
            prop_assert_eq!((header.option().0, header.length()), (option, length));
            let header = OptionReplyHeader::new(OptionCode(option), OptionReplyCode(reply), length);
            let header = OptionReplyHeader::parse(header.as_bytes()).unwrap();
            prop_assert_eq!(
                (header.option().0, header.reply().0, header.length()),
                (option, reply, length)
            );
        }
    }
}
