//! PDUs built by hand, valid and invalid ones.

use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::fabrics::Connect;
use roadtrain_wire::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, CommonHeader, Digests, Fes, H2cData, IcReq, IcResp, PduType,
    R2t, TermReq, flag, header_digest,
};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{Immutable, IntoBytes};

/// Offsets of common header fields.
pub const FLAGS: usize = 1;
pub const HLEN: usize = 2;
pub const PDO: usize = 3;
pub const PLEN: usize = 4;

/// No digests.
pub const PLAIN: Digests = Digests { header: false, data: false };
/// Header and data digests.
pub const BOTH: Digests = Digests { header: true, data: true };

/// Returns `pdu` and its data, with the digests of `digests` and the data at PDO.
fn finish<P: IntoBytes + Immutable>(
    pdu: &P,
    ch: &CommonHeader,
    data: &[u8],
    digests: Digests,
) -> Vec<u8> {
    let mut out = pdu.as_bytes().to_vec();
    if digests.header {
        let digest = header_digest(&out);
        out.extend_from_slice(&digest);
    }
    if !data.is_empty() {
        out.resize(ch.pdo.into(), 0);
        out.extend_from_slice(data);
        if digests.data {
            // CRC32C is the same for headers and data.
            out.extend_from_slice(&header_digest(data));
        }
    }
    out
}

pub fn icreq() -> Vec<u8> {
    IcReq::new(PLAIN, 0, 0).as_bytes().to_vec()
}

pub fn icresp(maxh2cdata: u32) -> Vec<u8> {
    IcResp::new(PLAIN, 0, maxh2cdata).as_bytes().to_vec()
}

pub fn term(from_host: bool, data: &[u8]) -> Vec<u8> {
    let pdu = TermReq::new(from_host, Fes::PduSequenceError, 0, data.len() as u32);
    [pdu.as_bytes(), data].concat()
}

pub fn command(cid: u16, mut sqe: Sqe, data: &[u8], digests: Digests) -> Vec<u8> {
    sqe.cid = cid.into();
    let ch = CommonHeader::new(PduType::CapsuleCmd, data.len() as u32, digests, 4);
    finish(&CapsuleCmd { ch, sqe }, &ch, data, digests)
}

pub fn flush(cid: u16) -> Vec<u8> {
    command(cid, Sqe::new(opcode::FLUSH, 1), &[], PLAIN)
}

/// Returns a write of `blocks` by R2T.
pub fn write(cid: u16, blocks: u32) -> Vec<u8> {
    let mut sqe = Sqe::rw(opcode::WRITE, 1, 0, blocks);
    sqe.set_transport(blocks * super::BLOCK);
    command(cid, sqe, &[], PLAIN)
}

/// Returns a write with its data in the capsule.
pub fn write_in_capsule(cid: u16, data: &[u8], digests: Digests) -> Vec<u8> {
    let mut sqe = Sqe::rw(opcode::WRITE, 1, 0, data.len() as u32 / super::BLOCK);
    sqe.set_in_capsule(data.len() as u32);
    command(cid, sqe, data, digests)
}

pub fn connect(cid: u16, entries: u16) -> Vec<u8> {
    let connect = Connect { recfmt: 0, qid: 1, sqsize: entries - 1, cattr: 0, kato_ms: 0 };
    command(cid, connect.emit(), &[0; 1024], PLAIN)
}

pub fn h2c_data(cccid: u16, ttag: u16, datao: u32, data: &[u8], last: bool) -> Vec<u8> {
    let datal = data.len() as u32;
    let mut ch = CommonHeader::new(PduType::H2cData, datal, PLAIN, 4);
    ch.flags |= if last { flag::LAST } else { 0 };
    let (cccid, ttag) = (cccid.into(), ttag.into());
    let (datao, datal) = (datao.into(), datal.into());
    finish(&H2cData { ch, cccid, ttag, datao, datal, reserved: [0; 4] }, &ch, data, PLAIN)
}

pub fn c2h_data(cccid: u16, datao: u32, data: &[u8], flags: u8) -> Vec<u8> {
    let datal = data.len() as u32;
    let mut ch = CommonHeader::new(PduType::C2hData, datal, PLAIN, 4);
    ch.flags |= flags;
    let (cccid, datao, datal) = (cccid.into(), datao.into(), datal.into());
    let pdu = C2hData { ch, cccid, reserved: [0; 2], datao, datal, reserved2: [0; 4] };
    finish(&pdu, &ch, data, PLAIN)
}

pub fn response(cid: u16, status: Status) -> Vec<u8> {
    let ch = CommonHeader::new(PduType::CapsuleResp, 0, PLAIN, 1);
    finish(&CapsuleResp { ch, cqe: Cqe::new(cid, status) }, &ch, &[], PLAIN)
}

pub fn r2t(cccid: u16, ttag: u16, r2to: u32, r2tl: u32) -> Vec<u8> {
    let ch = CommonHeader::new(PduType::R2t, 0, PLAIN, 1);
    let (cccid, ttag) = (cccid.into(), ttag.into());
    let (r2to, r2tl) = (r2to.into(), r2tl.into());
    finish(&R2t { ch, cccid, ttag, r2to, r2tl, reserved: [0; 4] }, &ch, &[], PLAIN)
}

/// Returns a header of a type that is in no specification.
pub fn unknown(pdu_type: u8) -> Vec<u8> {
    let mut pdu = vec![0; 24];
    (pdu[0], pdu[HLEN], pdu[PLEN]) = (pdu_type, 24, 24);
    pdu
}

/// Returns `pdu` with the bytes at `at` replaced.
pub fn patch(mut pdu: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    pdu[at..at + bytes.len()].copy_from_slice(bytes);
    pdu
}
