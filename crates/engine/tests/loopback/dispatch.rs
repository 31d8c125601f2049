//! Commands that pass through other threads of the target than its reactor's.

use crate::loss::survives_at;
use crate::peer::{Rig, raw};
use crate::proxy::Fate;
use crate::rig::*;
use crate::ssd::{collect, submit};
use roadtrain_engine::host::{Client, Op};
use roadtrain_engine::target::{Dispatch, Export, Server};
use roadtrain_wire::pdu::Digests;
use std::time::{Duration, Instant};

const MODES: [Dispatch; 2] = [Dispatch::Rec, Dispatch::Base];
const BOTH: Digests = Digests { header: true, data: true };

fn start(export: Export, dispatch: Dispatch) -> Server {
    let mut config = server_config(vec![export]);
    (config.cores, config.dispatch) = (reactors(2), dispatch);
    Server::start(config).unwrap()
}

fn each(mut test: impl FnMut(Export, Dispatch)) {
    let directory = tempfile::tempdir().unwrap();
    for mode in MODES {
        test(memory(1, 16 * MIB, 512), mode);
        test(file(1, &directory, 16 * MIB, 512), mode);
        test(ssd(1, 16 * MIB, 512, Duration::from_micros(200), 16), mode);
    }
}

#[test]
fn many_commands_keep_their_data() {
    const COUNT: usize = 1000;
    each(|export, dispatch| {
        let server = start(export, dispatch);
        for digests in [Digests::default(), BOTH] {
            let mut config = host_config(address(&server));
            (config.lanes, config.queue_entries, config.digests) = (3, 64, digests);
            let client = Client::connect(config).unwrap();
            collect(&submit(&client, Op::Write, 0..COUNT as u64), COUNT);
            collect(&submit(&client, Op::Read, 0..COUNT as u64), COUNT);
            client.write_zeroes(1, 0, 8, false).unwrap();
            client.flush(1).unwrap();
        }
        assert_nothing_left(&server);
    });
}

#[test]
fn connections_cut_lose_nothing() {
    each(|export, dispatch| survives_at(start(export, dispatch), Fate::Cut, BOTH, 2));
    let in_place = |mode| start(memory(1, 16 * MIB, 512), mode);
    for mode in MODES {
        survives_at(in_place(mode), Fate::Cut, Digests::default(), 1);
    }
}

#[test]
fn commands_of_a_host_that_is_gone_leave_nothing() {
    for mode in MODES {
        let rig = Rig::with_file(|config| config.dispatch = mode);
        for _ in 0..20 {
            let mut peer = rig.queue(raw::PLAIN);
            (2..8).for_each(|cid| peer.send(&raw::write_in_capsule(cid, &[1; 512], raw::PLAIN)));
            drop(peer); // its commands are at any stage now
            let is_over = || rig.server.usage().connections == rig.connections;
            eventually("its commands have ended", is_over);
        }
        rig.assert_healthy();
    }
}

#[test]
fn a_target_stops_while_commands_are_under_way() {
    for mode in MODES {
        let server = start(ssd(1, 16 * MIB, 512, Duration::from_secs(1), 1), mode);
        let client = connect(&server);
        let completions = submit(&client, Op::Write, 0..100);
        eventually("commands are in the backend", || server.usage().backend_commands >= 50);
        let begin = Instant::now();
        server.stop();
        // It gives up on a backend that does not answer after ten seconds.
        assert!(begin.elapsed() < Duration::from_secs(9), "not {:?}", begin.elapsed());
        drop(completions);
    }
}
