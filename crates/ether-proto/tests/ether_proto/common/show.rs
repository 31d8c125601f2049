//! PDUs as one line each, for snapshots.

use roadtrain_proto::framing::{FramingStep, PduFramer};
use roadtrain_wire::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, CommonHeader, Digests, H2cData, PduType, R2t, TermReq, flag,
};
use roadtrain_wire::zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};
use std::fmt::Write;

/// Returns the PDUs in `bytes`, one a line, with a note for an incomplete one.
pub fn pdus(from_host: bool, bytes: &[u8], digests: Digests) -> Vec<String> {
    let mut framer = PduFramer::new(from_host);
    framer.agree(digests, 4);
    let (mut at, mut lines) = (0, Vec::new());
    loop {
        match framer.next(&bytes[at..]) {
            Ok((used, FramingStep::Header(_))) => {
                lines.push(pdu(&bytes[at..]));
                at += used;
            }
            Ok((used, FramingStep::DataEnd { intact })) => {
                at += used;
                if !intact {
                    lines.push("  data digest wrong".into());
                }
            }
            Ok((used, FramingStep::Data(_))) => at += used,
            Ok((used, FramingStep::Need(_))) => {
                if at + used < bytes.len() {
                    lines.push(format!("  {} bytes left over", bytes.len() - at - used));
                }
                return lines;
            }
            Err(error) => {
                lines.push(format!("  {error}"));
                return lines;
            }
        }
    }
}

fn pdu(bytes: &[u8]) -> String {
    let ch: &CommonHeader = at(bytes);
    let kind = PduType::from_byte(ch.pdu_type).expect("the framer knows it");
    let mut line = format!("{kind:?}");
    match kind {
        PduType::CapsuleCmd => {
            let sqe = at::<CapsuleCmd>(bytes).sqe;
            write!(line, " opcode {:#04x} cid {:#x}", sqe.opcode, sqe.cid.get())
        }
        PduType::CapsuleResp => {
            let cqe = at::<CapsuleResp>(bytes).cqe;
            write!(line, " cid {:#x} sqhd {:#x} {}", cqe.cid.get(), cqe.sqhd.get(), cqe.status())
        }
        PduType::H2cData => {
            let p: &H2cData = at(bytes);
            write!(line, " cid {:#x} {}+{}", p.cccid.get(), p.datao.get(), p.datal.get())
        }
        PduType::C2hData => {
            let p: &C2hData = at(bytes);
            write!(line, " cid {:#x} {}+{}", p.cccid.get(), p.datao.get(), p.datal.get())
        }
        PduType::R2t => {
            let p: &R2t = at(bytes);
            write!(line, " cid {:#x} {}+{}", p.cccid.get(), p.r2to.get(), p.r2tl.get())
        }
        PduType::H2cTermReq | PduType::C2hTermReq => {
            let p: &TermReq = at(bytes);
            write!(line, " fes {} fei {:#x}", p.fes.get(), u32::from_le_bytes(p.fei))
        }
        PduType::IcReq | PduType::IcResp => Ok(()),
    }
    .expect("strings take everything");
    let names = [
        (flag::HDGST, "HDGST"),
        (flag::DDGST, "DDGST"),
        (flag::LAST, "LAST"),
        (flag::SUCCESS, "SUCCESS"),
    ];
    for (_, name) in names.iter().filter(|(bit, _)| ch.flags & bit != 0) {
        line += " ";
        line += name;
    }
    write!(line, " (pdo {} plen {})", ch.pdo, ch.plen.get()).expect("strings take everything");
    line
}

/// Returns a view of a header that the framer has found complete.
pub fn at<T: FromBytes + KnownLayout + Immutable + Unaligned>(bytes: &[u8]) -> &T {
    T::ref_from_prefix(bytes).expect("the framer has checked the length").0
}
