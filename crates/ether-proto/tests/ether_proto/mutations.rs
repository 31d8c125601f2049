//! Valid streams with random mutations: neither end panics, data stays within its slot, every command completes at
//! most once, and nothing follows an error.

use crate::cases::cases;
use crate::common::{BLOCK, ConnectionPair, Delivery, PairSetup, pattern};
use proptest::prelude::*;
use roadtrain_proto::time::Instant;
use roadtrain_wire::pdu::Digests;

const NOW: Instant = Instant(0);

#[derive(Clone, Debug)]
enum Mutation {
    Flip { at: prop::sample::Index, bit: u8 },
    Set { at: prop::sample::Index, byte: u8 },
    Remove { at: prop::sample::Index, length: usize },
    Repeat { at: prop::sample::Index, length: usize },
    Insert { at: prop::sample::Index, bytes: Vec<u8> },
    Cut { at: prop::sample::Index },
}

fn mutation() -> impl Strategy<Value = Mutation> {
    use Mutation::*;
    let at = any::<prop::sample::Index>;
    prop_oneof![
        4 => (at(), 0..8u8).prop_map(|(at, bit)| Flip { at, bit }),
        4 => (at(), any::<u8>()).prop_map(|(at, byte)| Set { at, byte }),
        1 => (at(), 1..200usize).prop_map(|(at, length)| Remove { at, length }),
        1 => (at(), 1..2000usize).prop_map(|(at, length)| Repeat { at, length }),
        1 => (at(), prop::collection::vec(any::<u8>(), 1..80))
            .prop_map(|(at, bytes)| Insert { at, bytes }),
        1 => at().prop_map(|at| Cut { at }),
    ]
}

impl Mutation {
    fn apply(&self, stream: &mut Vec<u8>) {
        if stream.is_empty() {
            return;
        }
        let size = stream.len();
        match self {
            Mutation::Flip { at, bit } => stream[at.index(size)] ^= 1 << bit,
            Mutation::Set { at, byte } => stream[at.index(size)] = *byte,
            Mutation::Remove { at, length } => {
                let at = at.index(size);
                stream.drain(at..(at + length).min(size));
            }
            Mutation::Repeat { at, length } => {
                let at = at.index(size);
                let part = stream[at..(at + length).min(size)].to_vec();
                stream.splice(at..at, part);
            }
            Mutation::Insert { at, bytes } => {
                let at = at.index(size);
                stream.splice(at..at, bytes.iter().copied());
            }
            Mutation::Cut { at } => stream.truncate(at.index(size)),
        }
    }
}

fn setup() -> impl Strategy<Value = PairSetup> {
    let delivery = prop_oneof![
        Just(Delivery::Whole),
        (1..3000usize).prop_map(Delivery::Pieces),
        (1..3000usize).prop_map(Delivery::Placed),
    ];
    (0..4u8, any::<bool>(), delivery).prop_map(|(dgst, sq_flow_control, delivery)| PairSetup {
        digests: Digests::from_byte(dgst).expect("two bits"),
        sq_flow_control,
        delivery,
        ..PairSetup::default()
    })
}

/// Submits commands of every kind: two writes, two reads, a flush.
fn load(pair: &mut ConnectionPair) {
    pair.host.write(NOW, 0, pattern(2 * BLOCK, 1));
    pair.host.write(NOW, 16, pattern(20 * BLOCK, 2));
    pair.host.read(NOW, 0, 2);
    pair.host.read(NOW, 16, 20);
    pair.host.flush(NOW);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(2000)))]

    #[test]
    fn of_what_the_host_sends(setup in setup(), mutations in prop::collection::vec(mutation(), 1..5)) {
        let mut pair = ConnectionPair::connected(setup);
        load(&mut pair);
        let (mut commands, mut data) = (pair.host.send(NOW), h2c_data(setup));
        let (first, rest) = mutations.split_at(mutations.len() / 2);
        first.iter().for_each(|m| m.apply(&mut commands));
        rest.iter().for_each(|m| m.apply(&mut data));
        let mut ended = pair.target.receive(NOW, &commands, setup.delivery).is_err();
        let mut answer = pair.target.send(NOW);
        if !ended {
            ended = pair.target.receive(NOW, &data, setup.delivery).is_err();
            answer.extend(pair.target.send(NOW));
        }
        if ended {
            pair.target.take_events();
            prop_assert!(pair.target.receive(NOW, &commands, setup.delivery).is_ok());
            prop_assert!(pair.target.take_events().is_empty());
            prop_assert!(pair.target.send(NOW).is_empty());
        }
        if setup.digests.data && setup.digests.header {
            // CRC32C finds every change of a few bits, so no wrong data is written.
            let disk = &pair.target.disk;
            for (at, written) in [(0, pattern(2 * BLOCK, 1)), (8192, pattern(20 * BLOCK, 2))] {
                let found = &disk[at..at + written.len()];
                prop_assert!(found == written || found.iter().all(|&o| o == 0), "wrong data written");
            }
        }
        // The target's reply follows the protocol in any case.
        if !ended {
            let _ = pair.host.receive(NOW, &answer, setup.delivery);
        }
    }

    #[test]
    fn of_what_the_target_sends(setup in setup(), mutations in prop::collection::vec(mutation(), 1..5)) {
        let mut pair = ConnectionPair::connected(setup);
        load(&mut pair);
        let from_host = pair.host.send(NOW);
        pair.target.receive(NOW, &from_host, Delivery::Whole).expect("valid");
        let mut stream = pair.target.send(NOW);
        mutations.iter().for_each(|m| m.apply(&mut stream));
        let ended = pair.host.receive(NOW, &stream, setup.delivery).is_err();
        pair.host.send(NOW);
        let done = pair.host.take_completions();
        prop_assert!(done.len() <= 5);
        prop_assert_eq!(pair.host.qpair.in_flight() as usize, 5 - done.len());
        if ended {
            prop_assert!(pair.host.receive(NOW, &stream, setup.delivery).is_ok());
            prop_assert!(pair.host.take_completions().is_empty());
            prop_assert!(pair.host.send(NOW).is_empty());
        } else if setup.digests.data && setup.digests.header {
            // CRC32C finds every change of a few bits, so no wrong data is accepted.
            for read in done.iter().filter(|d| d.data_intact && d.data.len() == 2 * BLOCK as usize) {
                prop_assert!(read.data == pattern(2 * BLOCK, 1), "wrong data with right digests");
            }
        }
    }
}

/// Returns the H2CData that follows in an undisturbed session of that setup.
fn h2c_data(setup: PairSetup) -> Vec<u8> {
    let mut pair = ConnectionPair::connected(setup);
    load(&mut pair);
    let from_host = pair.host.send(NOW);
    pair.target.receive(NOW, &from_host, Delivery::Whole).expect("valid");
    let back = pair.target.send(NOW);
    pair.host.receive(NOW, &back, Delivery::Whole).expect("valid");
    pair.host.send(NOW)
}
