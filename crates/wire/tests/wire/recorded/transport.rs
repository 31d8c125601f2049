//! PDUs and fabrics commands: every one parses to the values of the independent listing, and is built again, byte for
//! byte.

use super::capture::{self, Recorded};
use super::session::{Agreed, data, for_every_pdu, view};
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::fabrics::{
    AuthenticationFields, CNTLID_DYNAMIC, Connect, ConnectData, Property, PropertySize, fctype,
    parse_nqn,
};
use roadtrain_wire::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, CommonHeader, Digests, H2cData, IcReq, IcResp, PduLayout,
    PduType, R2t, flag, header_digest,
};
use roadtrain_wire::sqe::{SGL_OFFSET, Sqe, opcode};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::collections::HashMap;
use std::fmt::Write;
use std::fs;

/// Returns the line that `pdus.py` prints for the PDU.
fn describe(pdu: &Recorded, layout: &PduLayout) -> String {
    let bytes = &pdu.bytes[..];
    let ch: &CommonHeader = view(bytes);
    let direction = if pdu.from_host { "H>C" } else { "C>H" };
    let name = match layout.kind {
        PduType::IcReq => "ICReq",
        PduType::IcResp => "ICResp",
        PduType::H2cTermReq => "H2CTermReq",
        PduType::C2hTermReq => "C2HTermReq",
        PduType::CapsuleCmd => "CapsuleCmd",
        PduType::CapsuleResp => "CapsuleResp",
        PduType::H2cData => "H2CData",
        PduType::C2hData => "C2HData",
        PduType::R2t => "R2T",
    };
    let mut line = format!(
        "{} {direction} {name:11} flags={:#04x} hlen={} pdo={} plen={} {}",
        pdu.connection,
        ch.flags,
        ch.hlen,
        ch.pdo,
        ch.plen,
        describe_fields(bytes, layout.kind),
    );
    if layout.data_bytes > 0 {
        let _ = write!(line, " data={}", layout.data_bytes);
    }
    let digests = check_digests(pdu, layout);
    line + &digests
}

fn describe_fields(bytes: &[u8], kind: PduType) -> String {
    match kind {
        PduType::IcReq => {
            let p: &IcReq = view(bytes);
            format!("pfv={} hpda={} dgst={} maxr2t={}", p.pfv, p.hpda, p.dgst, p.maxr2t)
        }
        PduType::IcResp => {
            let p: &IcResp = view(bytes);
            format!("pfv={} cpda={} dgst={} maxh2cdata={}", p.pfv, p.cpda, p.dgst, p.maxh2cdata)
        }
        PduType::CapsuleCmd => describe_command(&view::<CapsuleCmd>(bytes).sqe),
        PduType::CapsuleResp => describe_completion(&view::<CapsuleResp>(bytes).cqe),
        PduType::H2cData => {
            let p: &H2cData = view(bytes);
            describe_transfer(p.cccid.get(), p.ttag.get(), p.datao.get(), p.datal.get())
        }
        PduType::C2hData => {
            let p: &C2hData = view(bytes);
            describe_transfer(p.cccid.get(), 0, p.datao.get(), p.datal.get())
        }
        PduType::R2t => {
            let p: &R2t = view(bytes);
            describe_transfer(p.cccid.get(), p.ttag.get(), p.r2to.get(), p.r2tl.get())
        }
        PduType::H2cTermReq | PduType::C2hTermReq => panic!("no recording holds a TermReq"),
    }
}

fn describe_command(sqe: &Sqe) -> String {
    let what = match sqe.opcode {
        opcode::FABRICS => format!("fctype={:#04x}", sqe.fctype()),
        _ => format!("nsid={:#x}", sqe.nsid),
    };
    format!(
        "opc={:#04x} {what} cid={:#06x} flags={:#04x} sgl={:#04x} sgl_len={} cdw10={:#x} \
         cdw11={:#x} cdw12={:#x}",
        sqe.opcode,
        sqe.cid,
        sqe.flags,
        sqe.sgl.kind,
        sqe.sgl.length,
        sqe.cdw10,
        sqe.cdw11,
        sqe.cdw12
    )
}

fn describe_completion(cqe: &Cqe) -> String {
    format!(
        "cid={:#06x} status={:#06x} sqhd={} sqid={} result={:#x}",
        cqe.cid,
        cqe.status().to_field() >> 1,
        cqe.sqhd,
        cqe.sqid,
        cqe.result()
    )
}

fn describe_transfer(cid: u16, ttag: u16, offset: u32, length: u32) -> String {
    format!("cid={cid:#06x} ttag={ttag:#06x} offset={offset} length={length}")
}

/// Checks the digests of the PDU; returns their names.
fn check_digests(pdu: &Recorded, layout: &PduLayout) -> String {
    let mut said = String::new();
    let ch: &CommonHeader = view(&pdu.bytes);
    if ch.flags & flag::HDGST != 0 {
        let (header, rest) = pdu.bytes.split_at(usize::from(ch.hlen));
        assert_eq!(header_digest(header), rest[..4], "header digest of {ch:?}");
        said += " hdgst=ok";
    }
    if layout.has_data_digest {
        let carried = &pdu.bytes[pdu.bytes.len() - 4..];
        assert_eq!(crc_fast::crc32_iscsi(data(pdu, layout)).to_le_bytes(), carried, "of {ch:?}");
        said += " ddgst=ok";
    }
    said
}

#[test]
fn every_pdu_is_what_the_listing_says() {
    let mut seen: HashMap<String, String> = HashMap::new();
    for_every_pdu(|name, pdu, layout, _| {
        let listing = seen.entry(name.to_owned()).or_default();
        *listing += &describe(pdu, layout);
        listing.push('\n');
    });
    for (name, listing) in seen {
        let wanted = fs::read_to_string(capture::folder().join(format!("{name}.txt"))).unwrap();
        assert_eq!(listing.lines().count(), wanted.lines().count(), "{name}: number of PDUs");
        for (number, (got, want)) in listing.lines().zip(wanted.lines()).enumerate() {
            assert_eq!(got, want, "{name}.txt, line {}", number + 1);
        }
    }
}

/// Builds the PDU's bytes again, from its values alone. Only the data, the SQE and the CQE are copied, which the tests
/// below check.
fn emit(pdu: &Recorded, layout: &PduLayout, agreed: Agreed) -> Vec<u8> {
    let bytes = &pdu.bytes[..];
    let payload = data(pdu, layout);
    let alignment = agreed.alignment[usize::from(pdu.from_host)];
    let mut ch = CommonHeader::new(layout.kind, layout.data_bytes, agreed.digests, alignment);
    // Flags of the transfer are no matter of form.
    ch.flags |= bytes[1] & (flag::LAST | flag::SUCCESS);
    let mut out = match layout.kind {
        PduType::IcReq => {
            let p: &IcReq = view(bytes);
            let digests = Digests::from_byte(p.dgst).unwrap();
            IcReq::new(digests, p.hpda, p.maxr2t.get()).as_bytes().to_vec()
        }
        PduType::IcResp => {
            let p: &IcResp = view(bytes);
            IcResp::new(agreed.digests, p.cpda, p.maxh2cdata.get()).as_bytes().to_vec()
        }
        PduType::CapsuleCmd => {
            CapsuleCmd { ch, sqe: view::<CapsuleCmd>(bytes).sqe }.as_bytes().to_vec()
        }
        PduType::CapsuleResp => {
            CapsuleResp { ch, cqe: view::<CapsuleResp>(bytes).cqe }.as_bytes().to_vec()
        }
        PduType::H2cData => {
            let &H2cData { cccid, ttag, datao, datal, .. } = view(bytes);
            H2cData { ch, cccid, ttag, datao, datal, reserved: [0; 4] }.as_bytes().to_vec()
        }
        PduType::C2hData => {
            let &C2hData { cccid, datao, datal, .. } = view(bytes);
            C2hData { ch, cccid, reserved: [0; 2], datao, datal, reserved2: [0; 4] }
                .as_bytes()
                .to_vec()
        }
        PduType::R2t => {
            let &R2t { cccid, ttag, r2to, r2tl, .. } = view(bytes);
            R2t { ch, cccid, ttag, r2to, r2tl, reserved: [0; 4] }.as_bytes().to_vec()
        }
        PduType::H2cTermReq | PduType::C2hTermReq => panic!("no recording holds a TermReq"),
    };
    if layout.kind.has_digests() && agreed.digests.header {
        let digest = header_digest(&out);
        out.extend_from_slice(&digest);
    }
    if !payload.is_empty() {
        out.resize(usize::from(ch.pdo), 0);
        out.extend_from_slice(payload);
        if agreed.digests.data {
            out.extend_from_slice(&crc_fast::crc32_iscsi(payload).to_le_bytes());
        }
    }
    out
}

#[test]
fn every_pdu_is_built_again() {
    let mut pdus = 0;
    for_every_pdu(|name, pdu, layout, agreed| {
        let built = emit(pdu, layout, agreed);
        assert_eq!(built, pdu.bytes, "{name}, connection {}: {layout:?}", pdu.connection);
        pdus += 1;
    });
    assert_eq!(pdus, 2669, "PDUs in all recordings");
}

/// The command again, from the values its own format gives it; `None` for formats of other modules.
fn emit_command(sqe: &Sqe) -> Option<Sqe> {
    let mut built = match (sqe.opcode, sqe.fctype()) {
        (opcode::FABRICS, fctype::CONNECT) => Connect::parse(sqe).emit(),
        (opcode::FABRICS, fctype::PROPERTY_GET) => {
            let property = Property::parse(sqe);
            Property::get(property.offset, property.size?)
        }
        (opcode::FABRICS, fctype::PROPERTY_SET) => {
            let property = Property::parse(sqe);
            assert_eq!(property.size, Some(PropertySize::Four));
            Property::set(property.offset, property.value as u32)
        }
        (
            opcode::FABRICS,
            kind @ (fctype::AUTHENTICATION_SEND | fctype::AUTHENTICATION_RECEIVE),
        ) => {
            let mut built = AuthenticationFields::parse(sqe).emit(kind);
            built.sgl = sqe.sgl;
            built
        }
        _ => return None,
    };
    built.cid = sqe.cid;
    Some(built)
}

#[test]
fn fabrics_commands_are_built_again() {
    let mut commands = 0;
    for_every_pdu(|name, pdu, layout, _| {
        if layout.kind != PduType::CapsuleCmd {
            return;
        }
        let sqe = &view::<CapsuleCmd>(&pdu.bytes).sqe;
        let Some(mut built) = emit_command(sqe) else { return };
        // Linux leaves a transport SGL of no bytes as zeroes or not: no information either way.
        if layout.data_bytes == 0 && sqe.sgl.length.get() == 0 {
            built.sgl = sqe.sgl;
        }
        assert_eq!(built, *sqe, "{name}");
        commands += 1;
    });
    assert!(commands > 200, "only {commands} fabrics commands in all recordings");
}

#[test]
fn connect_data_is_built_again() {
    let mut connects = 0;
    for_every_pdu(|name, pdu, layout, _| {
        if layout.kind != PduType::CapsuleCmd {
            return;
        }
        let sqe = &view::<CapsuleCmd>(&pdu.bytes).sqe;
        if (sqe.opcode, sqe.fctype()) != (opcode::FABRICS, fctype::CONNECT) {
            return;
        }
        assert_eq!(sqe.sgl.kind, SGL_OFFSET);
        let data = ConnectData::read_from_bytes(data(pdu, layout)).expect("1,024 bytes");
        let subnqn = parse_nqn(&data.subnqn).expect("a subsystem NQN");
        let hostnqn = parse_nqn(&data.hostnqn).expect("a host NQN");
        assert!(hostnqn.starts_with("nqn.2014-08.org.nvmexpress:uuid:"), "{hostnqn}");
        let is_admin = Connect::parse(sqe).qid == 0;
        assert_eq!(data.cntlid.get() == CNTLID_DYNAMIC, is_admin, "{name}");
        let built = ConnectData::new(data.hostid, data.cntlid.get(), subnqn, hostnqn);
        assert_eq!(built, data, "{name}");
        connects += 1;
    });
    assert!(connects > 40, "only {connects} Connect commands in all recordings");
}
