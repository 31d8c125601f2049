//! Any bytes from an NBD server: the result does not depend on the portions in which they arrive, no read is filled
//! twice or outside of its range, and each request ends once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_nbd_store::{
    NbdClientHandshake, NbdClientRequest, NbdHandshakeStep, NbdReplies, NbdReplyEvent,
};
use roadtrain_wire::nbd::Command;

const BYTES: usize = 64;

/// Bytes received for a read, results by operation, and true if the server has broken the protocol.
type Played = (Vec<u8>, Vec<u32>, bool);

fn play(input: &[u8], step: usize, is_structured: bool) -> Played {
    let mut replies = NbdReplies::new(is_structured, Some(1));
    let commands = [Command::READ, Command::WRITE, Command::BLOCK_STATUS, Command::FLUSH];
    for (operation, command) in (0..).zip(commands) {
        replies.begin(
            operation,
            NbdClientRequest { command, flags: 0, offset: 4096, length: BYTES as u32 },
        );
    }
    let (mut times, mut ended, mut stated) = (vec![0u8; BYTES], Vec::new(), 0);
    for mut portion in input.chunks(step) {
        loop {
            let Ok((used, event)) = replies.receive(portion) else { return (times, ended, true) };
            portion = &portion[used..];
            match event {
                None => break,
                Some(NbdReplyEvent::Data { operation, at, bytes }) => {
                    assert_eq!(operation, 0);
                    times[at..at + bytes.len()].iter_mut().for_each(|times| *times += 1);
                }
                Some(NbdReplyEvent::Zeroes { operation, range }) => {
                    assert_eq!(operation, 0);
                    times[range].iter_mut().for_each(|times| *times += 1);
                }
                Some(NbdReplyEvent::Extent { operation, length, .. }) => {
                    assert_eq!(operation, 2);
                    stated += length as usize;
                    assert!(stated <= BYTES);
                }
                Some(NbdReplyEvent::Done { operation, result }) => {
                    assert!(!ended.contains(&operation));
                    let is_filled = times.iter().all(|times| *times == 1);
                    assert!(operation != 0 || result.is_err() || is_filled);
                    ended.push(operation);
                }
            }
            assert!(times.iter().all(|times| *times <= 1));
        }
    }
    assert_eq!(replies.count() + ended.len(), commands.len());
    (times, ended, false)
}

fuzz_target!(|input: &[u8]| {
    let mut handshake = NbdClientHandshake::new("disk", input.first() == Some(&1));
    let mut rest = input;
    while handshake.wanted() > 0 && handshake.wanted() <= rest.len() {
        let (bytes, behind) = rest.split_at(handshake.wanted());
        rest = behind;
        match handshake.receive(bytes) {
            Err(_) => break,
            Ok(NbdHandshakeStep::Done(_)) => assert_eq!(handshake.wanted(), 0),
            Ok(_) => assert!(handshake.wanted() <= 64 << 10),
        }
    }
    for is_structured in [false, true] {
        let (_, ended, is_broken) = play(input, input.len().max(1), is_structured);
        let (_, ended_in_parts, is_broken_in_parts) = play(input, 3, is_structured);
        assert_eq!((ended, is_broken), (ended_in_parts, is_broken_in_parts));
    }
});
