//! FUSE INIT: the first request, in which kernel and server agree on their features.

use super::slots::PAYLOAD_BYTES;
use roadtrain_wire::fuse::{
    INIT_BYTES_MIN, InHeader, InitIn, InitOut, MAJOR, MINOR, Opcode, OutHeader, READ_BYTES_MIN,
    init_flag,
};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::io::{self, ErrorKind};

/// Most bytes of a Read or Write.
pub(super) const TRANSFER_BYTES_MAX: usize = PAYLOAD_BYTES;
/// Buffer for the INIT request, in bytes.
pub(super) const READ_BYTES: usize = READ_BYTES_MIN;
const PAGE_BYTES: usize = 4096;
/// Most asynchronous requests at a time, and the number from which the kernel calls the mount congested.
const BACKGROUND_MAX: u16 = 4096;
const CONGESTION: u16 = 3072;

const WANTED: u64 = init_flag::ASYNC_READ
    | init_flag::BIG_WRITES
    | init_flag::ASYNC_DIO
    | init_flag::PARALLEL_DIROPS
    | init_flag::ABORT_ERROR
    | init_flag::MAX_PAGES
    | init_flag::INIT_EXT;

/// Reply to the INIT request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InitReply {
    pub(super) bytes: Vec<u8>,
    /// True if requests come over io_uring.
    pub(super) uring: bool,
}

/// Answers the INIT `request`; agrees on io_uring if `uring` is set and the kernel offers it.
pub(super) fn answer(request: &[u8], uring: bool) -> io::Result<InitReply> {
    let no_init = || io::Error::new(ErrorKind::InvalidData, "no FUSE Init");
    let (header, init) = InHeader::read_from_prefix(request).map_err(|_| no_init())?;
    if header.opcode() != Opcode::INIT || init.len() < INIT_BYTES_MIN {
        return Err(no_init());
    }
    let mut whole = [0; size_of::<InitIn>()];
    let bytes = init.len().min(whole.len());
    whole[..bytes].copy_from_slice(&init[..bytes]);
    let offer = InitIn::read_from_bytes(&whole).map_err(|_| no_init())?;
    if offer.major != MAJOR {
        let what = format!("FUSE {}.{} is not known", offer.major, offer.minor);
        return Err(io::Error::new(ErrorKind::Unsupported, what));
    }
    let wanted = WANTED | if uring { init_flag::OVER_IO_URING } else { 0 };
    let flags = offer.all_flags() & wanted;
    let out = InitOut {
        major: MAJOR,
        minor: MINOR.min(offer.minor),
        max_readahead: offer.max_readahead,
        flags: flags as u32,
        flags2: (flags >> 32) as u32,
        max_background: BACKGROUND_MAX,
        congestion_threshold: CONGESTION,
        max_write: TRANSFER_BYTES_MAX as u32,
        time_gran: 1,
        max_pages: (TRANSFER_BYTES_MAX / PAGE_BYTES) as u16,
        ..InitOut::default()
    };
    let len = size_of::<OutHeader>() + size_of::<InitOut>();
    let out_header = OutHeader { len: len as u32, error: 0, unique: header.unique };
    let bytes = [out_header.as_bytes(), out.as_bytes()].concat();
    Ok(InitReply { bytes, uring: flags & init_flag::OVER_IO_URING != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opcode: Opcode, init: InitIn, bytes: usize) -> Vec<u8> {
        let header = InHeader { opcode: opcode.0, unique: 7, ..InHeader::default() };
        [header.as_bytes(), &init.as_bytes()[..bytes]].concat()
    }

    fn offer(flags: u64) -> InitIn {
        let (flags, flags2) = (flags as u32, (flags >> 32) as u32);
        InitIn { major: 7, minor: 45, flags, flags2, ..InitIn::default() }
    }

    fn out(agreement: &InitReply) -> InitOut {
        InitOut::read_from_bytes(&agreement.bytes[size_of::<OutHeader>()..]).unwrap()
    }

    #[test]
    fn only_what_both_want_is_agreed_on() {
        let all = answer(&request(Opcode::INIT, offer(u64::MAX), 64), true).unwrap();
        let (header, _) = OutHeader::read_from_prefix(&all.bytes).unwrap();
        assert_eq!((header.len, header.error, header.unique), (80, 0, 7));
        assert!(all.uring);
        let agreed = u64::from(out(&all).flags2) << 32 | u64::from(out(&all).flags);
        assert_eq!(agreed, WANTED | init_flag::OVER_IO_URING);
        assert_eq!((out(&all).max_pages, out(&all).max_write, out(&all).minor), (256, 1 << 20, 42));
        let off = answer(&request(Opcode::INIT, offer(u64::MAX), 64), false).unwrap();
        assert!(!off.uring && out(&off).flags2 == 0);
        let not_offered = answer(&request(Opcode::INIT, offer(init_flag::ASYNC_DIO), 64), true);
        let not_offered = not_offered.unwrap();
        assert!(!not_offered.uring);
        assert_eq!(u64::from(out(&not_offered).flags), init_flag::ASYNC_DIO);
    }

    #[test]
    fn short_and_strange_requests_do_no_harm() {
        let short = answer(&request(Opcode::INIT, offer(u64::MAX), INIT_BYTES_MIN), true);
        assert!(!short.unwrap().uring, "an old kernel knows no upper flags");
        for request in [
            request(Opcode::LOOKUP, offer(0), 64),
            request(Opcode::INIT, offer(0), 8),
            request(Opcode::INIT, InitIn { major: 8, ..offer(0) }, 64),
            vec![1; 39],
            Vec::new(),
        ] {
            assert!(answer(&request, true).is_err());
        }
    }
}
