//! Any bytes from an NBD client: the replies do not depend on the portions in which they arrive, and only valid
//! requests are passed on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_front::disk::DiskInfo;
use roadtrain_front::nbd::{
    ExportInfo, NbdCloseReason, NbdEvent, NbdExport, NbdSession, NbdViolation, ReplyQueue,
};
use roadtrain_wire::nbd::Command;
use std::sync::Arc;

const BYTES: u64 = 1 << 20;

fn export(read_only: bool) -> Arc<NbdExport> {
    let info = ExportInfo {
        name: "disk".into(),
        description: "a disk".into(),
        disk: DiskInfo {
            nsid: 1,
            nguid: [0; 16],
            uuid: [0; 16],
            eui64: [0; 8],
            model: "a model".into(),
            serial: "1".into(),
            blocks: BYTES / 512,
            lba_bytes: 512,
            physical_block_bytes: 512,
            optimal_io_bytes: 512,
            discard_granularity_bytes: 512,
            max_transfer_bytes: 1 << 17,
            read_only,
            trim: true,
            write_zeroes: true,
            reports_allocation: true,
        },
    };
    Arc::new(NbdExport::new(info).expect("a valid export"))
}

/// Returns the requests and the bytes of the replies, with the input in portions of `step`. With TLS, it ends where
/// TLS begins: bytes after that are refused at once or later, depending on their arrival.
fn play(input: &[u8], step: usize, (read_only, tls): (bool, bool)) -> (Vec<NbdEvent>, usize) {
    let mut out = ReplyQueue::default();
    let mut session = NbdSession::new(export(read_only), tls, &mut out);
    let (mut from, mut events) = (0, Vec::new());
    let mut to = 0;
    while to < input.len() {
        to = (to + step).min(input.len());
        loop {
            let (used, event) = session.handle(&input[from..to], &mut out);
            from += used;
            match event {
                NbdEvent::More => break,
                NbdEvent::Handled => assert!(used > 0, "no progress"),
                NbdEvent::StartTls
                | NbdEvent::Close(NbdCloseReason::PeerMisbehaved(NbdViolation::BeforeTls(_))) => {
                    assert!(tls);
                    return (events, out.header_bytes());
                }
                NbdEvent::Close(_) => {
                    events.push(event);
                    return (events, out.header_bytes());
                }
                NbdEvent::Request(request) | NbdEvent::BlockStatus(request) => {
                    assert!(!tls, "nothing is served in the clear");
                    if request.command != Command::FLUSH {
                        assert!(request.offset + u64::from(request.length) <= BYTES);
                        assert!(request.length > 0);
                    }
                    let changes = !matches!(request.command, Command::READ | Command::BLOCK_STATUS);
                    assert!(!read_only || !changes);
                    events.push(event);
                    if request.command == Command::WRITE {
                        // The payload is not part of the session; this client sends none.
                        session.reply_done(request.cookie, &mut out);
                    }
                }
            }
        }
    }
    (events, out.header_bytes())
}

fuzz_target!(|input: &[u8]| {
    let Some((first, input)) = input.split_first() else { return };
    let (kind, step) = ((first & 1 == 1, first & 2 == 2), usize::from(first >> 2) + 1);
    assert_eq!(play(input, step, kind), play(input, input.len().max(1), kind));
});
