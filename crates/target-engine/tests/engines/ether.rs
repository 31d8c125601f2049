//! A host and a target in one process, with pairs of interfaces between them, in their own network namespace.

mod lab;

use crate::harness::reconnects;
use lab::{EtherLab, HOST_NQN, NQN, in_lab};
use roadtrain_host_engine::{
    Class, EtherAddress, HostClient, HostConfig, HostControlError, IoOp, IoRequest, LinkState,
    discover_ether,
};
use roadtrain_proto::seal::KeyLimits;
use roadtrain_proto::security::dhchap::{AuthOffer, DhGroup, DhchapKeys};
use roadtrain_proto::security::{DhchapKey, Hash, SealUse};
use roadtrain_store::StoreKind;
use roadtrain_system::buffer::Buffer;
use roadtrain_target_proto::HostAuthentication;
use roadtrain_wire::status::Status;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;

fn pattern(seed: u8) -> Buffer {
    let mut buffer = Buffer::alloc(16 * BLOCK);
    for (at, byte) in buffer.iter_mut().enumerate() {
        *byte = seed ^ (at % 251) as u8;
    }
    buffer
}

/// Configures a host that does not take a stalled machine for a silent target.
fn patient(lab: &EtherLab) -> HostConfig {
    HostConfig { keep_alive: Duration::from_secs(30), ..lab.host() }
}

/// Writes and reads 64 KiB at several offsets.
fn exchange(client: &HostClient, seed: u8) {
    for place in 0..8u64 {
        let data = pattern(seed ^ place as u8);
        let written = client.write(1, place * 16, data, false).expect("written");
        let read = client.read(1, place * 16, Buffer::alloc(written.len())).expect("read");
        assert!(*read == *written, "place {place} has other data");
        client.verify(1, place * 16, 16).expect("readable");
        client.copy(1, &[(place * 16 + 8, 8), (place * 16, 8)], 1024, false).expect("copied");
        let copied = client.read(1, 1024, Buffer::alloc(written.len())).expect("read");
        let (behind, first) = copied.split_at(8 * BLOCK);
        assert!([first, behind].concat() == *written, "place {place} is copied to other data");
    }
}

#[test]
fn targets_are_found_and_used_over_all_links() {
    in_lab(2, |lab| {
        let server = lab.serve();
        let mut found = Vec::new();
        lab.eventually("it is offered over both links", || {
            found = discover_ether(&lab.address(), "").unwrap();
            found.iter().map(|offer| offer.interface.as_str()).eq(["host0", "host1"])
        });
        assert!(found.iter().all(|o| o.nqn == NQN && o.endpoint == found[0].endpoint));

        let client = lab.connect(lab.host());
        exchange(&client, 1);
        assert_eq!(client.view().link().state, LinkState::Connected);
        lab.eventually("both links carry frames", || {
            exchange(&client, 2);
            let paths = client.view().paths();
            paths.len() == 2 && paths.iter().all(|path| path.sent > 0 && !path.is_suspect)
        });
        drop(client);
        drop(server);
    });
}

#[test]
fn requests_go_on_over_another_link() {
    in_lab(2, |lab| {
        let _server = lab.serve();
        let client = lab.connect(patient(lab));
        exchange(&client, 1);
        for link in [0, 1] {
            lab.set_up(link, false);
            exchange(&client, 3 + link as u8);
            let is_known = || client.view().paths()[link].is_suspect;
            lab.eventually("the link is suspect", || {
                exchange(&client, 5);
                is_known()
            });
            lab.set_up(link, true);
            lab.eventually("the link is used again", || {
                exchange(&client, 6);
                !is_known()
            });
        }
        assert_eq!(reconnects(&client), 0);
    });
}

#[test]
fn a_link_that_comes_later_joins_the_lanes() {
    in_lab(2, |lab| {
        lab.set_up(1, false);
        let _server = lab.serve();
        let client = lab.connect(HostConfig { lanes: 2, ..patient(lab) });
        lab.eventually("the lanes have a link", || {
            exchange(&client, 1);
            client.view().paths().len() == 2
        });
        assert!(client.view().paths().iter().all(|path| path.interface == "host0"));
        lab.set_up(1, true);
        lab.eventually("both links carry frames", || {
            exchange(&client, 2);
            let paths = client.view().paths();
            // The numbers depend on delays: each frame takes the link that is expected to be faster.
            paths.len() == 4 && paths.iter().all(|path| path.sent > 0 && !path.is_suspect)
        });
        // The joined link can do everything that the first one could.
        lab.set_up(0, false);
        exchange(&client, 3);
        assert_eq!(reconnects(&client), 0);
    });
}

#[test]
fn hosts_stay_with_their_target_among_others_of_the_same_name() {
    in_lab(1, |lab| {
        let _server = lab.serve();
        let config = HostConfig { keep_alive: Duration::from_secs(1), ..lab.host() };
        let client = lab.connect(config);
        client.write(1, 0, pattern(7), false).expect("written");
        let _others = [lab.serve(), lab.serve(), lab.serve()];
        lab.set_up(0, false);
        lab.eventually("the lanes are given up", || {
            client.view().link().state == LinkState::Reconnecting
        });
        lab.set_up(0, true);
        let read = client.read(1, 0, Buffer::alloc(16 * BLOCK)).expect("read");
        assert!(*read == *pattern(7), "another target's data");
    });
}

#[test]
fn requests_survive_a_restarted_target() {
    in_lab(1, |lab| {
        let server = lab.serve();
        let client = lab.connect(patient(lab));
        exchange(&client, 1);
        drop(server);
        let _server = lab.serve();
        exchange(&client, 2);
        assert_eq!(reconnects(&client), 1);
    });
}

#[test]
fn requests_fail_when_the_target_stays_away() {
    in_lab(1, |lab| {
        let server = lab.serve();
        let mut config = lab.host();
        config.controller_loss_timeout = Some(Duration::from_millis(200));
        config.keep_alive = Duration::from_secs(1);
        let client = lab.connect(config);
        exchange(&client, 1);
        drop(server);
        assert!(client.read(1, 0, Buffer::alloc(BLOCK)).is_err());
        assert_eq!(client.view().link().state, LinkState::Failing);
        let _server = lab.serve();
        lab.eventually("connected again", || client.read(1, 0, Buffer::alloc(BLOCK)).is_ok());
    });
}

/// A slow target: the request is aborted, or, if the target cannot do that, the lane ends.
#[test]
fn a_request_without_answer_is_not_waited_for() {
    in_lab(1, |lab| {
        let (size, service) = (16 << 20, Duration::from_secs(8));
        let _server = lab.serve_from(StoreKind::Ssd { size, service, parallel: 1 });
        let config = HostConfig { io_timeout: Some(Duration::from_millis(500)), ..lab.host() };
        let client = lab.connect(config);
        let (done, ended) = channel();
        let request = IoRequest {
            op: IoOp::Read,
            nsid: 1,
            slba: 0,
            blocks: 1,
            fua: false,
            urgent: false,
            class: Class::Normal,
            buffer: Some(Buffer::alloc(BLOCK)),
            token: 7,
        };
        client.submit_to(request, &done);
        let mut ends = Vec::new();
        lab.eventually("it is aborted, or the lane ends", || {
            ends.extend(ended.try_recv());
            reconnects(&client) > 0 || !ends.is_empty()
        });
        drop((client, done));
        ends.extend(ended.iter());
        let statuses: Vec<Status> = ends.iter().map(|completion| completion.status).collect();
        let [status] = statuses[..] else { panic!("it ends once: {statuses:?}") };
        let failures = [Status::ABORT_REQUESTED, Status::HOST_PATH_ERROR, Status::HOST_ABORTED];
        assert!(failures.iter().any(|&failure| status.is(failure)), "{status}");
    });
}

/// A key seals a limited number of frames. Then new lanes with other keys take over, and no request notices.
#[test]
fn lanes_are_made_anew_when_their_keys_are_used_up() {
    // A lane that cannot seal any more would be silent for this time before either end reacts.
    const SILENCE: Duration = Duration::from_secs(60);
    in_lab(1, |lab| {
        let host = Some(DhchapKey::new(Some(Hash::Sha256), &[1; 32]).unwrap());
        let keys = DhchapKeys { host, controller: None };
        let _server = lab.serve_to(
            StoreKind::Memory { size: 16 << 20 },
            HostAuthentication {
                required: true,
                offer: AuthOffer { hashes: vec![Hash::Sha256], groups: vec![DhGroup::Null] },
                keys: [(HOST_NQN.to_owned(), keys.clone())].into(),
                ..HostAuthentication::default()
            },
        );
        let mut address = lab.address();
        address.seals = SealUse::Required;
        address.seal_limits = KeyLimits { frames: 300, ..KeyLimits::HOST };
        let config = HostConfig::new(address, NQN, HOST_NQN, [7; 16]);
        let config = HostConfig { keys, keep_alive: SILENCE, io_timeout: None, ..config };
        let client = lab.connect(config);
        let begun = Instant::now();
        (0..16).for_each(|seed| exchange(&client, seed));
        let reconnects = reconnects(&client);
        assert!(reconnects >= 2, "{reconnects}: the keys were not used up");
        assert!(begun.elapsed() < SILENCE, "a lane was silent");
    });
}

#[test]
fn an_unknown_subsystem_is_not_reached() {
    in_lab(1, |lab: &EtherLab| {
        let _server = lab.serve();
        let other = HostConfig { subsystem_nqn: "nqn.x:other".into(), ..lab.host() };
        let error = HostClient::connect(other).err().expect("no target offers it").to_string();
        assert!(error.contains("no target there offers this subsystem"), "{error}");
        let nowhere = EtherAddress::new(vec!["nowhere".into()]);
        let error = HostClient::connect(HostConfig::new(nowhere, NQN, NQN, [1; 16])).err();
        let Some(HostControlError::Unreachable { .. }) = error else { panic!("{error:?}") };
    });
}
