//! Any bytes as every NBD format.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_wire::nbd::{
    ErrorPayload, Greeting, HolePayload, InfoBlockSize, InfoExport, InfoQuery, MetaContextQuery,
    MetaContextReply, NbdChunk, NbdExtent, NbdRequest, OptionHeader, OptionReplyHeader,
    SimpleReply, info_code, parse_client_flags,
};

fuzz_target!(|input: &[u8]| {
    let _ = (Greeting::parse(input), parse_client_flags(input));
    let _ = (OptionHeader::parse(input), OptionReplyHeader::parse(input));
    let _ = (InfoExport::parse(input), InfoBlockSize::parse(input), info_code(input));
    let _ = (MetaContextReply::parse(input), ErrorPayload::parse(input));
    let _ = (HolePayload::parse(input), NbdExtent::parse(input));
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
