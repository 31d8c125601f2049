//! An attacker between the ends of a TCP connection that sees its records and changes bytes in flight: it flips bits,
//! and drops, repeats, reorders or makes up bytes and records.

use crate::rng::SimRng;

/// Bytes of a record's header.
const HEADER_BYTES: usize = 5;
/// Most bytes that are dropped or inserted.
const BYTES_MAX: u64 = 60;

/// Changes `pieces`, which follow the first `arrived` bytes of all that was `sent`. True if they differ now.
pub(crate) fn forge(
    rng: &mut SimRng,
    sent: &[u8],
    arrived: usize,
    mut pieces: Vec<&mut Vec<u8>>,
) -> bool {
    let before: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
    let after = match rng.below(3) {
        0 => {
            let mut after = before.clone();
            let at = rng.below(after.len() as u64) as usize;
            after[at] ^= 1 << rng.below(8);
            after
        }
        1 => bytes_changed(rng, &before),
        _ => records_changed(rng, sent, arrived, &before),
    };
    // Additional bytes arrive with the last piece.
    let last = pieces.len() - 1;
    let mut rest = &after[..];
    for (number, piece) in pieces.iter_mut().enumerate() {
        let length = if number == last { rest.len() } else { piece.len().min(rest.len()) };
        let (now, later) = rest.split_at(length);
        **piece = now.to_vec();
        rest = later;
    }
    after != before
}

/// Drops some bytes, and inserts some.
fn bytes_changed(rng: &mut SimRng, before: &[u8]) -> Vec<u8> {
    let at = rng.below(before.len() as u64) as usize;
    let (head, tail) = before.split_at(at);
    let skipped = (rng.below(BYTES_MAX) as usize).min(tail.len());
    let made_up: Vec<u8> = (0..rng.below(BYTES_MAX)).map(|_| rng.bits() as u8).collect();
    [head, &made_up, &tail[skipped..]].concat()
}

/// Returns the begin and end of each record of `sent`.
fn records(sent: &[u8]) -> Vec<(usize, usize)> {
    let (mut records, mut at) = (Vec::new(), 0);
    while let Some(&[_, _, _, high, low]) = sent[at..].first_chunk::<HEADER_BYTES>() {
        let end = at + HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
        if end > sent.len() {
            break;
        }
        records.push((at, end));
        at = end;
    }
    records
}

/// Changes whole records; all that were sent before may be repeated.
fn records_changed(rng: &mut SimRng, sent: &[u8], arrived: usize, before: &[u8]) -> Vec<u8> {
    let all = records(sent);
    let flies =
        |&&(start, end): &&(usize, usize)| start >= arrived && end <= arrived + before.len();
    let flying: Vec<_> = all.iter().filter(flies).collect();
    if flying.is_empty() {
        return before.to_vec();
    }
    let number = rng.below(flying.len() as u64) as usize;
    let (start, end) = *flying[number];
    let (head, rest) = before.split_at(start - arrived);
    let (record, tail) = rest.split_at(end - start);
    match (rng.below(4), flying.get(number + 1)) {
        (0, _) => [head, tail].concat(),
        (1, Some((start, end))) => {
            let (next, tail) = tail.split_at(end - start);
            [head, next, record, tail].concat()
        }
        (2, _) => {
            let noise: Vec<u8> = record[HEADER_BYTES..].iter().map(|_| rng.bits() as u8).collect();
            [head, &record[..HEADER_BYTES], &noise, tail].concat()
        }
        _ => {
            let (start, end) = all[rng.below(all.len() as u64) as usize];
            [head, &sent[start..end], record, tail].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All but two kinds of changes keep whole records, which shows that the records are found.
    #[test]
    fn records_are_moved_as_a_whole() {
        let record = |fill: u8| [&[23, 3, 3, 0, 3][..], &[fill; 3]].concat();
        let sent: Vec<u8> = (0..4).flat_map(record).collect();
        let is_whole =
            |bytes: &[u8]| bytes.chunks(8).all(|r| r.len() == 8 && r[..5] == record(0)[..5]);
        let mut lengths = Vec::new();
        for seed in 0..50 {
            let changed = records_changed(&mut SimRng::new(seed), &sent, 9, &sent[9..]);
            assert!(is_whole(&changed[7..]), "{changed:?}");
            lengths.push(changed.len());
        }
        lengths.sort_unstable();
        lengths.dedup();
        assert_eq!(lengths, [15, 23, 31]);
    }
}
