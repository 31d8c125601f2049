//! Byte for byte as in the tables of the specification.

use super::*;
use crate::sqe::SGL_OFFSET;
use zerocopy::FromZeros;

#[test]
fn register_has_the_bytes_of_the_specification() {
    let register = ReservationRegister {
        action: Some(RegisterAction::Replace),
        ignores_key: true,
        persistence: Some(ChangePersistence::Set),
    };
    let sqe = register.emit(7);
    let bytes = sqe.as_bytes();
    assert_eq!((bytes[0], &bytes[4..8]), (0x0d, &[7, 0, 0, 0][..]));
    assert_eq!(bytes[32..40], [16, 0, 0, 0, 0, 0, 0, SGL_OFFSET]);
    assert_eq!(bytes[40..44], [0b1010, 0, 0, 0xc0]);
    assert_eq!(bytes[44..], [0; 20]);
    assert_eq!(ReservationRegister::parse(&sqe), register);
    let keys = TwoKeys { current: 0x0102_0304.into(), other: 0xff.into() };
    assert_eq!(keys.as_bytes(), [4, 3, 2, 1, 0, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn acquire_has_the_bytes_of_the_specification() {
    let acquire = ReservationAcquire {
        action: Some(AcquireAction::PreemptAndAbort),
        ignores_key: false,
        kind: Some(ReservationType::ExclusiveAccessAllRegistrants),
    };
    let sqe = acquire.emit(1);
    assert_eq!((sqe.opcode, sqe.sgl.length.get()), (0x11, 16));
    assert_eq!(sqe.as_bytes()[40..44], [2, 6, 0, 0]);
    assert_eq!(ReservationAcquire::parse(&sqe), acquire);
}

#[test]
fn release_has_the_bytes_of_the_specification() {
    let release = ReservationRelease {
        action: Some(ReleaseAction::Clear),
        ignores_key: true,
        kind: Some(ReservationType::WriteExclusive),
    };
    let sqe = release.emit(1);
    assert_eq!((sqe.opcode, sqe.sgl.length.get()), (0x15, 8));
    assert_eq!(sqe.as_bytes()[40..44], [0b1001, 1, 0, 0]);
    assert_eq!(ReservationRelease::parse(&sqe), release);
}

#[test]
fn report_has_the_bytes_of_the_specification() {
    let report = ReservationReportFields { bytes: 4096, extended: true };
    let sqe = report.emit(1);
    assert_eq!((sqe.opcode, sqe.cdw10.get(), sqe.cdw11.get()), (0x0e, 1023, 1));
    assert_eq!(ReservationReportFields::parse(&sqe), report);
    let mut sqe = sqe;
    sqe.cdw10 = u32::MAX.into();
    assert_eq!(
        ReservationReportFields::parse(&sqe).bytes,
        1 << 34,
        "the largest NUMD does not overflow"
    );
}

#[test]
fn reserved_values_are_no_actions() {
    let mut sqe = Sqe::new(opcode::RESERVATION_REGISTER, 1);
    for cdw10 in 3..8 {
        sqe.cdw10 = cdw10.into();
        assert_eq!(ReservationRegister::parse(&sqe).action, None);
        assert_eq!(ReservationAcquire::parse(&sqe).action, None);
    }
    sqe.cdw10 = (1 << 30).into();
    assert_eq!(ReservationRegister::parse(&sqe).persistence, None);
    for number in [0, 7, 0xff] {
        sqe.cdw10 = (number << 8).into();
        assert_eq!(ReservationAcquire::parse(&sqe).kind, None);
        assert_eq!(ReservationRelease::parse(&sqe).kind, None);
    }
    for kind in ReservationType::ALL {
        assert_eq!(ReservationType::parse(kind.emit()), Some(kind));
    }
}

const HEAD: ReportHead = ReportHead {
    generation: U32::new(0x0102_0304),
    rtype: 5,
    registrants: U16::new(1),
    reserved7: [0; 2],
    ptpls: 1,
    reserved10: [0; 14],
};

#[test]
fn the_report_has_the_bytes_of_the_specification() {
    let entry = ReportEntry {
        cntlid: 0x1234.into(),
        rcsts: RCSTS_HOLDER,
        reserved3: [0; 5],
        hostid: 0x11.into(),
        key: 0x22.into(),
    };
    let mut page = [0; 48];
    page[..24].copy_from_slice(HEAD.as_bytes());
    page[24..].copy_from_slice(entry.as_bytes());
    assert_eq!(page[..10], [4, 3, 2, 1, 5, 1, 0, 0, 0, 1]);
    assert_eq!(page[24..28], [0x34, 0x12, 1, 0]);
    assert_eq!((page[32], page[40]), (0x11, 0x22));
    assert_eq!(parse_short(&page), Some((&HEAD, &[entry][..])));
}

#[test]
fn the_extended_report_has_the_bytes_of_the_specification() {
    let entry = ReportEntryExtended {
        cntlid: CNTLID_NONE.into(),
        rcsts: 0,
        reserved3: [0; 5],
        key: 0x22.into(),
        hostid: *b"0123456789abcdef",
        reserved32: [0; 32],
    };
    let mut page = [0; 128];
    page[..24].copy_from_slice(HEAD.as_bytes());
    page[64..].copy_from_slice(entry.as_bytes());
    assert_eq!(page[64..67], [0xff, 0xff, 0]);
    assert_eq!((page[72], &page[80..96]), (0x22, &b"0123456789abcdef"[..]));
    assert_eq!(parse_extended(&page), Some((&HEAD, &[entry][..])));
}

#[test]
fn a_report_that_is_cut_short_has_what_is_there() {
    let mut page = [0; 64 + 2 * 64 + 7];
    page[5..7].fill(0xff);
    assert_eq!(parse_extended(&page).unwrap().1.len(), 2);
    assert_eq!(parse_short(&page).unwrap().1.len(), 7);
    page[5..7].copy_from_slice(&[1, 0]);
    assert_eq!(parse_extended(&page).unwrap().1.len(), 1);
    for length in 24..128 {
        assert_eq!(parse_extended(&page[..length]).unwrap().1.len(), 0);
    }
    for length in 0..24 {
        assert_eq!((parse_extended(&page[..length]), parse_short(&page[..length])), (None, None));
    }
}

#[test]
fn the_notification_log_has_the_bytes_of_the_specification() {
    let mut log = NotificationLog::new_zeroed();
    (log.count, log.kind) = (9.into(), Notification::ReservationReleased as u8);
    (log.available, log.nsid) = (3, 0x0102.into());
    let bytes = log.as_bytes();
    assert_eq!(bytes[..16], [9, 0, 0, 0, 0, 0, 0, 0, 2, 3, 0, 0, 2, 1, 0, 0]);
    assert_eq!(bytes[16..], [0; 48]);
    for (number, bit) in [(1, 2), (2, 4), (3, 8)] {
        let kind = Notification::parse(number).unwrap();
        assert_eq!((kind as u8, kind.mask_bit()), (number, bit));
        assert_eq!(NOTIFICATION_MASK & bit, bit);
    }
    assert_eq!((Notification::parse(0), Notification::parse(4)), (None, None));
}
