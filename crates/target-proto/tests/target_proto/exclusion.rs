//! Exclusive access to a range, over several reactors whose messages are delayed: whatever the order of events, no
//! other operation writes in between, and everything ends.

use crate::cases::cases;
use proptest::prelude::*;
use roadtrain_proto::op::ByteRange;
use roadtrain_target_proto::exclusion::{Gates, RangeLocks};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

const REACTORS: usize = 3;
const BLOCKS: usize = 6;

/// A message to a reactor, in order of sending.
enum ExclusionMessage {
    Close { lock: u64, owner: (usize, u32), range: ByteRange, acknowledgement: Rc<u32> },
    Open { lock: u64 },
    Locked(u32),
}

/// A write that is in a store, or held back.
#[derive(Clone, Copy, Debug)]
struct StoredWrite {
    range: ByteRange,
    tag: u64,
    is_begun: bool,
}

/// An operation that adds one to each of its blocks.
struct CountingOperation {
    range: ByteRange,
    lock: u64,
    /// Acknowledgement: access is exclusive once no other reference is left.
    closing: Option<Rc<u32>>,
    /// Blocks as compared.
    compared: Option<Vec<(u64, u64)>>,
}

#[derive(Default)]
struct GateReactor {
    gates: Gates<u8, Rc<u32>>,
    inbox: VecDeque<ExclusionMessage>,
    writes: BTreeMap<u32, StoredWrite>,
    counting: BTreeMap<u32, CountingOperation>,
}

#[derive(Default)]
struct ExclusionWorld {
    reactors: Vec<GateReactor>,
    locks: RangeLocks<(usize, u32)>,
    /// For each block its tag, which each write changes, and the number of counts since.
    blocks: [(u64, u64); BLOCKS],
    last: u32,
    counted: u32,
    /// True if writes begin though a range is closed.
    ignores_gates: bool,
}

#[derive(Clone, Copy, Debug)]
enum ExclusionEvent {
    Write {
        reactor: usize,
        at: u64,
        blocks: u64,
    },
    Count {
        reactor: usize,
        at: u64,
        blocks: u64,
    },
    /// The reactor takes a message.
    Receive {
        reactor: usize,
    },
    /// A store continues one of the reactor's operations.
    Continue {
        reactor: usize,
        which: usize,
    },
}

impl ExclusionWorld {
    fn new(ignores_gates: bool) -> Self {
        let reactors = (0..REACTORS).map(|_| GateReactor::default()).collect();
        ExclusionWorld { reactors, ignores_gates, ..ExclusionWorld::default() }
    }

    fn send_all(&mut self, message: impl Fn() -> ExclusionMessage) {
        self.reactors.iter_mut().for_each(|reactor| reactor.inbox.push_back(message()));
    }

    /// Begins a write, or holds it back.
    fn write(&mut self, reactor: usize, number: u32) {
        let ignores = self.ignores_gates;
        let GateReactor { gates, writes, .. } = &mut self.reactors[reactor];
        let Some(write) = writes.get_mut(&number) else { return };
        write.is_begun = !gates.holds(&0, &write.range, Some(number)) || ignores;
    }

    fn locked(&mut self, reactor: usize, number: u32) {
        let Some(counting) = self.reactors[reactor].counting.get_mut(&number) else { return };
        let acknowledgement = Rc::new(number);
        counting.closing = Some(acknowledgement.clone());
        let (lock, range, owner) = (counting.lock, counting.range, (reactor, number));
        self.send_all(|| ExclusionMessage::Close {
            lock,
            owner,
            range,
            acknowledgement: acknowledgement.clone(),
        });
    }

    fn receive(&mut self, reactor: usize) -> bool {
        let Some(message) = self.reactors[reactor].inbox.pop_front() else { return false };
        match message {
            ExclusionMessage::Locked(number) => self.locked(reactor, number),
            ExclusionMessage::Close { lock, owner, range, acknowledgement } => {
                let GateReactor { gates, writes, .. } = &mut self.reactors[reactor];
                let touch = |write: &StoredWrite| write.is_begun && write.range.overlaps(&range);
                let in_flight: Vec<_> =
                    writes.iter().filter(|(_, w)| touch(w)).map(|(n, _)| *n).collect();
                let owner = (owner.0 == reactor).then_some(owner.1);
                drop(gates.close((lock, 0, range), owner, in_flight, acknowledgement));
            }
            ExclusionMessage::Open { lock } => {
                for number in self.reactors[reactor].gates.open(&0, lock) {
                    self.write(reactor, number);
                }
            }
        }
        true
    }

    /// Runs one step of a store.
    fn run_store(&mut self, reactor: usize, which: usize) -> Result<bool, TestCaseError> {
        let here = &self.reactors[reactor];
        let begun = here.writes.iter().filter(|(_, w)| w.is_begun).map(|(n, _)| *n);
        let alone =
            |c: &CountingOperation| c.closing.as_ref().is_some_and(|c| Rc::strong_count(c) == 1);
        let counting = here.counting.iter().filter(|(_, c)| alone(c)).map(|(n, _)| *n);
        let all: Vec<u32> = begun.chain(counting).collect();
        if all.is_empty() {
            return Ok(false);
        }
        let number = all[which % all.len()];
        let blocks = |range: ByteRange| range.offset as usize..(range.offset + range.len) as usize;
        let here = &mut self.reactors[reactor];
        if let Some(write) = here.writes.remove(&number) {
            self.blocks[blocks(write.range)].fill((write.tag, 0));
            drop(here.gates.ended(number));
            return Ok(true);
        }
        let Some(counting) = here.counting.get_mut(&number) else { return Ok(false) };
        let now = &mut self.blocks[blocks(counting.range)];
        let Some(compared) = &counting.compared else {
            counting.compared = Some(now.to_vec());
            return Ok(true);
        };
        prop_assert_eq!(&compared[..], &now[..], "another write came in between");
        now.iter_mut().for_each(|(_, count)| *count += 1);
        let lock = counting.lock;
        here.counting.remove(&number);
        self.counted += 1;
        self.send_all(|| ExclusionMessage::Open { lock });
        for (_, (reactor, number)) in self.locks.unlock(lock) {
            self.reactors[reactor].inbox.push_back(ExclusionMessage::Locked(number));
        }
        Ok(true)
    }

    fn step(&mut self, event: ExclusionEvent) -> Result<(), TestCaseError> {
        let range = |at: u64, len: u64| ByteRange { offset: at, len: len.min(BLOCKS as u64 - at) };
        self.last += 1;
        let number = self.last;
        match event {
            ExclusionEvent::Write { reactor, at, blocks } => {
                let write = StoredWrite {
                    range: range(at, blocks),
                    tag: u64::from(number),
                    is_begun: false,
                };
                self.reactors[reactor].writes.insert(number, write);
                self.write(reactor, number);
            }
            ExclusionEvent::Count { reactor, at, blocks } => {
                let range = range(at, blocks);
                let (lock, is_held) = self.locks.lock(range, (reactor, number));
                let counting = CountingOperation { range, lock, closing: None, compared: None };
                self.reactors[reactor].counting.insert(number, counting);
                if is_held {
                    self.locked(reactor, number);
                }
            }
            ExclusionEvent::Receive { reactor } => drop(self.receive(reactor)),
            ExclusionEvent::Continue { reactor, which } => drop(self.run_store(reactor, which)?),
        }
        Ok(())
    }

    /// Runs everything to its end, without new operations.
    fn finish(&mut self) -> Result<(), TestCaseError> {
        loop {
            let mut is_quiet = true;
            for reactor in 0..REACTORS {
                is_quiet &= !self.receive(reactor);
                is_quiet &= !self.run_store(reactor, 0)?;
            }
            if is_quiet {
                break;
            }
        }
        for reactor in &self.reactors {
            prop_assert!(reactor.writes.is_empty() && reactor.counting.is_empty(), "it hangs");
            prop_assert!(reactor.gates.is_empty(), "a range is closed without an owner");
        }
        Ok(())
    }
}

fn events() -> impl Strategy<Value = Vec<ExclusionEvent>> {
    let (reactor, at, blocks) = (0..REACTORS, 0..BLOCKS as u64, 1u64..4);
    let event = prop_oneof![
        2 => (reactor.clone(), at.clone(), blocks.clone())
            .prop_map(|(reactor, at, blocks)| ExclusionEvent::Write { reactor, at, blocks }),
        1 => (reactor.clone(), at, blocks)
            .prop_map(|(reactor, at, blocks)| ExclusionEvent::Count { reactor, at, blocks }),
        4 => reactor.clone().prop_map(|reactor| ExclusionEvent::Receive { reactor }),
        3 => (reactor, 0..8usize).prop_map(|(reactor, which)| ExclusionEvent::Continue { reactor, which }),
    ];
    proptest::collection::vec(event, 0..120)
}

fn run(events: &[ExclusionEvent], ignores_gates: bool) -> Result<u32, TestCaseError> {
    let mut world = ExclusionWorld::new(ignores_gates);
    events.iter().try_for_each(|event| world.step(*event))?;
    world.finish()?;
    Ok(world.counted)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(2_000)))]

    #[test]
    fn no_write_comes_between_the_comparison_and_the_write_and_all_ends(events in events()) {
        let wanted = events.iter().filter(|event| matches!(event, ExclusionEvent::Count { .. })).count();
        prop_assert_eq!(run(&events, false)? as usize, wanted);
    }
}

/// The test above would detect it.
#[test]
fn a_write_that_ignores_the_gates_comes_in_between() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let found = runner.run(&events(), |events| run(&events, true).map(drop));
    assert!(found.is_err(), "writes in between were not found");
}
