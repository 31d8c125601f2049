use super::*;
use crate::buffer::Buffer;
use crate::clock;
use crate::mailbox::{Inbox, mailbox};
use crate::target::open_store::OpenStore;
use roadtrain_proto::target::io::IoCommand;
use roadtrain_store::{BackendKind, BackendSpec, ByteRange, open as open_spec};
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(3600);
const MODES: [Dispatch; 3] = [Dispatch::NoWq, Dispatch::Rec, Dispatch::Base];
const SIZE: u64 = 1 << 20;

struct Rig {
    ring: Ring,
    inbox: Inbox<Order>,
    dispatcher: Dispatcher,
}

impl Rig {
    fn new(dispatch: Dispatch) -> Rig {
        let (outbox, inbox) = mailbox().unwrap();
        let dispatcher = Dispatcher::new(dispatch, outbox).unwrap();
        Rig { ring: Ring::new(4).unwrap(), inbox, dispatcher }
    }

    /// Waits for the next completion of another thread.
    fn returned(&mut self) -> Ended {
        loop {
            if let Some(Order::Ended(owner, outcome)) = self.inbox.take() {
                self.dispatcher.returned();
                return (owner, outcome);
            }
            std::thread::yield_now();
        }
    }

    /// Carries a command out.
    fn run(&mut self, owner: Owner, job: Job) -> Outcome {
        let here = self.dispatcher.start(&mut self.ring, owner, job);
        assert_eq!(here.is_none(), self.dispatcher.hands_over());
        here.unwrap_or_else(|| {
            assert_eq!((self.dispatcher.count(), self.dispatcher.in_ring()), (1, 1));
            let (whose, outcome) = self.returned();
            assert_eq!(whose, owner);
            outcome
        })
    }
}

fn open(kind: BackendKind) -> Arc<OpenStore> {
    let spec = BackendSpec { kind, lba_bytes: 512, read_only: false };
    Arc::new(OpenStore::new(open_spec(&spec).unwrap()))
}

fn ssd() -> Arc<OpenStore> {
    open(BackendKind::Ssd { size: SIZE, service: LONG, parallel: 1 })
}

#[test]
fn a_command_goes_and_comes_with_its_buffer() {
    for mode in MODES {
        let (mut rig, backend) = (Rig::new(mode), open(BackendKind::Memory { size: SIZE }));
        let job =
            |command, buffer| Job::Execute { command, store: backend.clone(), buffer, user: None };
        let mut buffer = Buffer::alloc(512);
        buffer.fill(7);
        let write = IoCommand::Write { offset: 512, length: 512, fua: false };
        let written = rig.run(((3, 1), 9), job(write, Some(buffer)));
        assert!(written.result.is_ok() && written.buffer.is_some(), "{mode:?}");
        let read = IoCommand::Read { offset: 512, length: 512, fua: false };
        let outcome = rig.run(((3, 1), 8), job(read, Some(Buffer::alloc(512))));
        assert_eq!(outcome.buffer.unwrap()[..], [7; 512]);
        let outcome = rig.run(((0, 1), 0), job(read, None));
        assert!(outcome.result.is_err(), "a read without a buffer");
        let spare = rig.run(((0, 1), 0), job(IoCommand::Flush, Some(Buffer::alloc(512))));
        assert!(spare.buffer.is_some(), "what the operation did not need");
        assert!(
            rig.run(((0, 1), 0), Job::Announce(backend.clone(), ByteRange { offset: 0, len: 512 }))
                .result
                .is_ok()
        );
        assert!(
            rig.run(((0, 1), 0), Job::FlushAll { stores: vec![backend.clone(); 2], user: None })
                .result
                .is_ok()
        );
        assert!(rig.run(((0, 1), 0), Job::FlushAll { stores: vec![], user: None }).result.is_ok());
        assert_eq!(rig.dispatcher.count(), 0);
    }
}

#[test]
fn nobody_waits_for_an_emulated_ssd_at_the_end() {
    for mode in MODES {
        let mut rig = Rig::new(mode);
        let backend = ssd();
        for slot in 0..3 {
            let job = Job::Announce(backend.clone(), ByteRange { offset: 0, len: 512 });
            assert!(rig.dispatcher.start(&mut rig.ring, ((0, 0), slot), job).is_none());
        }
        assert!(rig.dispatcher.expire(&mut rig.ring, clock::now()).is_none(), "{mode:?}");
        assert_eq!(rig.dispatcher.count(), 3);
        let end = Instant(u64::MAX);
        let mut slots: Vec<u16> = Vec::new();
        while let Some(((_, slot), _)) = rig.dispatcher.expire(&mut rig.ring, end) {
            slots.push(slot);
        }
        rig.dispatcher.hurry();
        while rig.dispatcher.count() > 0 {
            slots.push(rig.returned().0.1);
        }
        assert_eq!(slots, [0, 1, 2], "{mode:?}");
    }
}

#[test]
fn threads_end_with_commands_under_way() {
    for mode in MODES {
        let mut rig = Rig::new(mode);
        let backend = ssd();
        for slot in 0..100 {
            let length = 512;
            let command = IoCommand::Write { offset: 0, length, fua: false };
            let buffer = Some(Buffer::alloc(length as usize));
            let job = Job::Execute { command, store: backend.clone(), buffer, user: None };
            rig.dispatcher.start(&mut rig.ring, ((0, 0), slot), job);
        }
        let end = Instant(u64::MAX);
        while rig.dispatcher.expire(&mut rig.ring, end).is_some() {}
        drop(rig);
        assert_eq!(Arc::strong_count(&backend), 1, "{mode:?}: something is left");
    }
}
