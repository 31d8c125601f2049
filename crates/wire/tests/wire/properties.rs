//! Properties of the wire formats. Built values are parsed again. Any bytes are parsed without panic. A PDU cut at any
//! byte differs from a whole one.

use proptest::prelude::*;
use roadtrain_wire::ana::ana_groups;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::discovery::{DiscoveryEntry, adrfam, subtype};
use roadtrain_wire::fabrics::{
    AuthenticationFields, Connect, ConnectData, NQN_BYTES_MAX, Property, PropertySize, fctype,
    nqn_field, parse_nqn,
};
use roadtrain_wire::feature::{AsyncEvent, GetFeatures, NumberOfQueues, SetFeatures};
use roadtrain_wire::identify::{
    IdentifyNamespace, NAMESPACE_LIST_ENTRIES, NamespaceList, namespace_descriptors, parse_ascii,
};
use roadtrain_wire::log::GetLogPage;
use roadtrain_wire::namespace_management::{CONTROLLERS_MAX, ControllerList};
use roadtrain_wire::pdu::{
    CH_BYTES, CapsuleCmd, CommonHeader, DIGEST_BYTES, Digests, Fes, FieldError, HEADER_BYTES_MAX,
    IcReq, IcResp, PduType, TERM_DATA_BYTES_MAX, TermReq, alignment_bytes,
};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};

const KINDS: [PduType; 9] = [
    PduType::IcReq,
    PduType::IcResp,
    PduType::H2cTermReq,
    PduType::C2hTermReq,
    PduType::CapsuleCmd,
    PduType::CapsuleResp,
    PduType::H2cData,
    PduType::C2hData,
    PduType::R2t,
];

fn kind() -> impl Strategy<Value = PduType> {
    proptest::sample::select(&KINDS[..])
}

fn digests() -> impl Strategy<Value = Digests> {
    (any::<bool>(), any::<bool>()).prop_map(|(header, data)| Digests { header, data })
}

/// HPDA or CPDA in bytes.
fn alignment() -> impl Strategy<Value = u32> {
    (0u8..32).prop_map(|pda| alignment_bytes(pda).expect("in range"))
}

/// A kind of PDU and as many bytes of data as it may carry.
fn kind_and_data() -> impl Strategy<Value = (PduType, u32)> {
    (kind(), 0u32..1 << 24).prop_map(|(kind, data_bytes)| match kind {
        kind if !kind.may_have_data() => (kind, 0),
        kind if !kind.has_digests() => (kind, 0),
        kind => (kind, data_bytes),
    })
}

proptest! {
    #[test]
    fn common_headers_round_trip(
        (kind, data_bytes) in kind_and_data(),
        digests in digests(),
        alignment in alignment(),
    ) {
        let ch = CommonHeader::new(kind, data_bytes, digests, alignment);
        let layout = ch.layout(digests, alignment).unwrap();
        prop_assert_eq!((layout.kind, layout.data_bytes), (kind, data_bytes));
        let has_hdgst = kind.has_digests() && digests.header;
        let header_bytes = kind.header_bytes() + usize::from(has_hdgst) * DIGEST_BYTES;
        prop_assert_eq!(layout.header_bytes as usize, header_bytes);
        prop_assert!(header_bytes <= HEADER_BYTES_MAX);
        if data_bytes > 0 {
            prop_assert!(layout.data_offset >= layout.header_bytes);
            prop_assert_eq!(layout.data_offset % alignment, 0);
            let digest = u32::from(layout.has_data_digest) * DIGEST_BYTES as u32;
            prop_assert_eq!(layout.data_offset + data_bytes + digest, layout.pdu_bytes);
            prop_assert_eq!(layout.has_data_digest, digests.data);
        } else {
            prop_assert_eq!(layout.pdu_bytes, layout.header_bytes);
        }
    }

    /// Whatever the bytes are, the parts lie inside the PDU and in order.
    #[test]
    fn any_common_header_is_refused_or_consistent(
        bytes: [u8; CH_BYTES],
        digests in digests(),
        alignment in alignment(),
    ) {
        let (ch, _) = CommonHeader::ref_from_prefix(&bytes).unwrap();
        match ch.layout(digests, alignment) {
            Ok(layout) => {
                prop_assert!(layout.header_bytes <= layout.pdu_bytes);
                let digest = u64::from(layout.has_data_digest) * DIGEST_BYTES as u64;
                let end = u64::from(layout.data_offset) + u64::from(layout.data_bytes) + digest;
                prop_assert!(end <= u64::from(layout.pdu_bytes));
                prop_assert_eq!(layout.data_bytes == 0, layout.data_offset == 0);
                prop_assert!(layout.data_bytes == 0 || layout.kind.may_have_data());
            }
            Err(FieldError { offset }) => prop_assert!(offset < CH_BYTES as u32),
        }
    }

    /// The likely case: a right header with one byte changed.
    #[test]
    fn a_changed_byte_is_refused_or_consistent(
        (kind, data_bytes) in kind_and_data(),
        digests in digests(),
        alignment in alignment(),
        at in 0..CH_BYTES,
        value: u8,
    ) {
        let mut ch = CommonHeader::new(kind, data_bytes, digests, alignment);
        ch.as_mut_bytes()[at] = value;
        if let Ok(layout) = ch.layout(digests, alignment) {
            prop_assert!(layout.data_offset + layout.data_bytes <= layout.pdu_bytes);
        }
    }

    #[test]
    fn a_view_needs_all_its_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
        let length = bytes.len();
        prop_assert_eq!(CommonHeader::ref_from_prefix(&bytes).is_ok(), length >= CH_BYTES);
        prop_assert_eq!(IcReq::ref_from_prefix(&bytes).is_ok(), length >= 128);
        prop_assert_eq!(CapsuleCmd::ref_from_prefix(&bytes).is_ok(), length >= 72);
        prop_assert_eq!(Cqe::ref_from_prefix(&bytes).is_ok(), length >= 16);
        prop_assert!(ConnectData::ref_from_prefix(&bytes).is_err());
    }

    #[test]
    fn icreq_and_icresp_round_trip(digests in digests(), pda in 0u8..32, value: u32) {
        let icreq = IcReq::new(digests, pda, value);
        let seen = IcReq::read_from_bytes(icreq.as_bytes()).unwrap();
        prop_assert_eq!(Digests::from_byte(seen.dgst), Some(digests));
        prop_assert_eq!((seen.pfv.get(), seen.hpda, seen.maxr2t.get()), (0, pda, value));
        let icresp = IcResp::new(digests, pda, value);
        let seen = IcResp::read_from_bytes(icresp.as_bytes()).unwrap();
        prop_assert_eq!(Digests::from_byte(seen.dgst), Some(digests));
        prop_assert_eq!((seen.pfv.get(), seen.cpda, seen.maxh2cdata.get()), (0, pda, value));
    }

    #[test]
    fn term_reqs_round_trip(
        from_host: bool,
        fes in 0u16..9,
        fei: u32,
        data_bytes in 0..=TERM_DATA_BYTES_MAX as u32,
    ) {
        let Some(fes) = Fes::from_value(fes) else { return Ok(()) };
        let term = TermReq::new(from_host, fes, fei, data_bytes);
        let layout = term.ch.layout(Digests { header: true, data: true }, 4).unwrap();
        prop_assert_eq!(layout.kind.is_from_host(), from_host);
        prop_assert_eq!((layout.header_bytes, layout.data_bytes), (24, data_bytes));
        prop_assert_eq!(Fes::from_value(term.fes.get()), Some(fes));
        prop_assert_eq!(u32::from_le_bytes(term.fei), fei);
    }

    #[test]
    fn read_and_write_round_trip(nsid: u32, slba: u64, blocks in 1u32..=65536, write: bool) {
        let opcode = if write { opcode::WRITE } else { opcode::READ };
        let sqe = Sqe::rw(opcode, nsid, slba, blocks);
        let seen = Sqe::read_from_bytes(sqe.as_bytes()).unwrap();
        prop_assert_eq!((seen.opcode, seen.nsid.get()), (opcode, nsid));
        prop_assert_eq!((seen.slba(), seen.blocks()), (slba, blocks));
    }

    #[test]
    fn completions_round_trip(cid: u16, field: u16, result: u64) {
        // The phase tag is no part of the status.
        let status = Status::from_field(field & !1);
        prop_assert_eq!(status.to_field(), field & !1);
        let cqe = Cqe::new(cid, status).with_result(result);
        let seen = Cqe::read_from_bytes(cqe.as_bytes()).unwrap();
        prop_assert_eq!((seen.cid.get(), seen.status(), seen.result()), (cid, status, result));
    }

    #[test]
    fn connect_round_trips(recfmt: u16, qid: u16, sqsize: u16, cattr: u8, kato_ms: u32) {
        let connect = Connect { recfmt, qid, sqsize, cattr, kato_ms };
        let sqe = connect.emit();
        prop_assert_eq!((sqe.opcode, sqe.fctype()), (opcode::FABRICS, fctype::CONNECT));
        prop_assert_eq!(Connect::parse(&sqe), connect);
    }

    #[test]
    fn properties_round_trip(offset: u32, value: u32, eight: bool) {
        let size = if eight { PropertySize::Eight } else { PropertySize::Four };
        let seen = Property::parse(&Property::get(offset, size));
        prop_assert_eq!((seen.size, seen.offset), (Some(size), offset));
        let seen = Property::parse(&Property::set(offset, value));
        prop_assert_eq!(seen.size, Some(PropertySize::Four));
        prop_assert_eq!((seen.offset, seen.value), (offset, u64::from(value)));
    }

    #[test]
    fn authentication_round_trips(spsp: u16, secp: u8, length: u32, send: bool) {
        let kind = if send { fctype::AUTHENTICATION_SEND } else { fctype::AUTHENTICATION_RECEIVE };
        let authentication = AuthenticationFields { spsp, secp, length };
        let sqe = authentication.emit(kind);
        prop_assert_eq!(sqe.fctype(), kind);
        prop_assert_eq!(AuthenticationFields::parse(&sqe), authentication);
    }

    #[test]
    fn get_log_page_round_trips(
        (lid, lsp, rae) in (any::<u8>(), 0u8..128, any::<bool>()),
        dwords in 1u64..=1 << 32,
        (lsi, offset, indexed, csi) in (any::<u16>(), any::<u64>(), any::<bool>(), any::<u8>()),
    ) {
        let get = GetLogPage { lid, lsp, rae, bytes: dwords * 4, lsi, offset, indexed, csi };
        prop_assert_eq!(GetLogPage::parse(&get.emit(1)), get);
    }

    #[test]
    fn features_and_events_round_trip(fid: u8, value: u32, submission in 1u32..65536, kind in 0u8..8) {
        let set = SetFeatures::parse(&SetFeatures::emit(fid, value));
        prop_assert_eq!((set.fid, set.save, set.value), (fid, false, value));
        let queues = NumberOfQueues { submission, completion: 65536 - submission };
        prop_assert_eq!(NumberOfQueues::parse(queues.emit()), Some(queues));
        let event = AsyncEvent { event_type: kind, information: fid, lid: fid ^ 0x55 };
        prop_assert_eq!(AsyncEvent::parse(event.emit()), event);
    }

    #[test]
    fn controller_lists_round_trip(cntlids in proptest::collection::btree_set(any::<u16>(), 0..2047)) {
        let list = ControllerList::from_cntlids(cntlids.iter().copied());
        let parsed = ControllerList::read_from_bytes(list.as_bytes()).expect("the list's bytes");
        let parsed = parsed.cntlids().expect("a valid list").iter().map(|cntlid| cntlid.get());
        prop_assert!(parsed.eq(cntlids));
    }

    #[test]
    fn any_controller_list_is_parsed(bytes in proptest::collection::vec(any::<u8>(), 4096)) {
        let list = ControllerList::ref_from_bytes(&bytes).expect("4,096 bytes");
        let is_short = usize::from(list.count.get()) <= CONTROLLERS_MAX;
        prop_assert!(is_short || list.cntlids().is_none());
    }

    #[test]
    fn namespace_lists_round_trip(nsids in proptest::collection::vec(1u32.., 0..1100)) {
        let list = NamespaceList::from_nsids(nsids.iter().copied());
        let kept = nsids.len().min(NAMESPACE_LIST_ENTRIES);
        prop_assert!(list.iter().eq(nsids[..kept].iter().copied()));
    }

    #[test]
    fn discovery_entries_round_trip(nqn in "[!-~]{1,223}", address in "[!-~]{1,255}", port: u16) {
        let mut entry = DiscoveryEntry::new(subtype::NVM, &nqn);
        entry.set_address(adrfam::IPV6, &address, &port.to_string());
        let seen = DiscoveryEntry::ref_from_bytes(entry.as_bytes()).unwrap();
        prop_assert_eq!(seen.subnqn(), Some(&nqn[..]));
        prop_assert_eq!((seen.traddr(), seen.trsvcid()), (&address[..], &port.to_string()[..]));
    }

    /// Pages of any content and any length, as from a target that the host cannot trust.
    #[test]
    fn any_page_is_read_without_panic(page in proptest::collection::vec(any::<u8>(), 0..4200)) {
        prop_assert!(namespace_descriptors(&page).count() <= page.len() / 5);
        for (group, nsids) in ana_groups(&page) {
            prop_assert_eq!(group.nnsids.get() as usize, nsids.len());
        }
        if let Ok((namespace, _)) = IdentifyNamespace::ref_from_prefix(&page) {
            let bytes = namespace.block_bytes();
            prop_assert!(bytes.is_none_or(|bytes| (512..=65536).contains(&bytes)));
        }
        if let Ok((entry, _)) = DiscoveryEntry::ref_from_prefix(&page) {
            let _ = (entry.subnqn(), entry.traddr(), entry.trsvcid());
        }
        if let Ok((list, _)) = NamespaceList::ref_from_prefix(&page) {
            prop_assert!(list.iter().all(|nsid| nsid != 0));
        }
        prop_assert!(parse_ascii(&page).is_ascii());
    }

    /// Any command is read as any format without panic.
    #[test]
    fn any_command_is_parsed_without_panic(bytes: [u8; 64]) {
        let sqe = Sqe::read_from_bytes(&bytes).unwrap();
        let _ = (Connect::parse(&sqe), Property::parse(&sqe), AuthenticationFields::parse(&sqe));
        let _ = (GetLogPage::parse(&sqe), GetFeatures::parse(&sqe), SetFeatures::parse(&sqe));
        let _ = (sqe.slba(), sqe.blocks(), sqe.fctype());
        prop_assert_eq!(sqe.as_bytes(), &bytes[..]);
    }

    #[test]
    fn nqns_round_trip(nqn in "[ -~]{1,223}") {
        let field = nqn_field(&nqn);
        prop_assert_eq!(parse_nqn(&field), Some(&nqn[..]));
    }

    #[test]
    fn any_nqn_field_is_refused_or_a_name(bytes in proptest::collection::vec(any::<u8>(), 256)) {
        let field: [u8; 256] = bytes.try_into().unwrap();
        if let Some(nqn) = parse_nqn(&field) {
            prop_assert!((1..=NQN_BYTES_MAX).contains(&nqn.len()));
            prop_assert!(!nqn.contains('\0'));
        }
    }
}

#[test]
fn no_pdu_has_bytes_missing_or_to_spare() {
    for kind in KINDS {
        for header in [false, true] {
            let digests = Digests { header, data: true };
            let data_bytes = if kind.may_have_data() && kind.has_digests() { 512 } else { 0 };
            let right = CommonHeader::new(kind, data_bytes, digests, 4);
            for plen in 0..right.plen.get() {
                let mut cut = right;
                cut.plen = plen.into();
                // Data may be shorter or missing; header and digest may not be cut.
                if let Ok(layout) = cut.layout(digests, 4) {
                    assert!(layout.data_bytes < data_bytes, "{cut:?}");
                    assert!(layout.header_bytes <= plen, "{cut:?}");
                }
            }
            if data_bytes == 0 && kind.has_digests() {
                let mut longer = right;
                longer.plen = (right.plen.get() + 4).into();
                assert!(longer.layout(digests, 4).is_err(), "{longer:?}");
            }
        }
    }
}

#[test]
fn unterminated_and_empty_nqns_are_refused() {
    assert_eq!(parse_nqn(&[b'a'; 256]), None);
    assert_eq!(parse_nqn(&[0; 256]), None);
    let mut longest = [0; 256];
    longest[..223].fill(b'a');
    assert_eq!(parse_nqn(&longest).map(str::len), Some(223));
    longest[223] = b'a';
    assert_eq!(parse_nqn(&longest), None);
}
