//! Any bytes as every NBD format.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_wire::nbd::{
    Greeting, InfoQuery, MetaContextQuery, NbdChunk, NbdRequest, OptionHeader, OptionReplyHeader,
    SimpleReply, parse_client_flags,
};

fuzz_target!(|input: &[u8]| {
    let _ = (Greeting::parse(input), parse_client_flags(input));
    let _ = (OptionHeader::parse(input), OptionReplyHeader::parse(input));
    if let Ok(request) = NbdRequest::parse(input) {
        assert_eq!(request.emit(), input[..NbdRequest::BYTES]);
    }
    if let Ok(reply) = SimpleReply::parse(input) {
        assert_eq!(reply.emit(), input[..SimpleReply::BYTES]);
    }
    if let Ok(chunk) = NbdChunk::parse(input) {
        assert_eq!(chunk.emit(), input[..NbdChunk::BYTES]);
    }
    if let Ok(query) = InfoQuery::parse(input) {
        assert!(query.infos().count() * 2 <= input.len());
    }
    if let Ok(query) = MetaContextQuery::parse(input) {
        assert_eq!(query.queries().count(), query.count() as usize);
    }
});
