//! Connect with valid and invalid fields.

use super::script::{
    HOST, HOSTID, NQN, PRIVATE_NQN, RANDOM, STRANGER, Script, config, connect_sqe, local,
};
use roadtrain_proto::policy::Class;
use roadtrain_proto::security::ConnectionSecurity;
use roadtrain_target_proto::host_connections::HostConnections;
use roadtrain_target_proto::{ConnectRefused, ConnectedQueue, ControllerKind, host_name};
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, Connect, ConnectData, DISCOVERY_NQN, cattr};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;

/// Returns status and DW0 (IPO, IATTR) of a Connect that must fail.
fn refused(result: Result<ConnectedQueue, ConnectRefused>) -> (Status, u32) {
    let error = result.expect_err("must be refused");
    assert!(error.status.is_dnr() || error.status.is(Status::CONNECT_CONTROLLER_BUSY));
    (Status::from_field(error.status.code() << 1), error.result)
}

const PARAMETERS: Status = Status::CONNECT_INVALID_PARAMETERS;

#[test]
fn an_admin_queue_gets_a_controller_of_its_own() {
    let mut script = Script::new();
    let first = script.connect_as(HOST, NQN).unwrap();
    let second = script.connect_as(HOST, NQN).unwrap();
    assert_eq!((first.cntlid, first.result, first.qid, first.entries), (1, 1, 0, 32));
    assert_eq!((second.cntlid, second.result), (2, 2));
    assert_eq!((&*first.subnqn, &*first.hostnqn), (NQN, HOST));
    assert!(first.sq_flow_control && first.kind == ControllerKind::Io);
    script.target.disconnect(1, 0);
    assert_eq!(script.connect_as(HOST, NQN).unwrap().cntlid, 3, "not used again at once");
}

#[test]
fn sq_flow_control_can_be_disabled() {
    let mut script = Script::new();
    let connect = Connect { cattr: cattr::DISABLE_SQ_FLOW_CONTROL, ..connect_sqe(0, 31) };
    let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, NQN, HOST);
    assert!(!script.connect(connect, &data).unwrap().sq_flow_control);
}

/// Urgent (0), which hosts without classes send, sets no class.
#[test]
fn the_lowest_priority_class_is_bulk() {
    for (priority, class) in
        [(0, Class::Normal), (1, Class::Normal), (2, Class::Normal), (3, Class::Bulk)]
    {
        let mut script = Script::new();
        let cntlid = script.controller(NQN);
        let cattr = cattr::DISABLE_SQ_FLOW_CONTROL | priority;
        let data = ConnectData::new(HOSTID, cntlid, NQN, HOST);
        let connected = script.connect(Connect { cattr, ..connect_sqe(1, 31) }, &data).unwrap();
        assert_eq!((connected.class, connected.sq_flow_control), (class, false), "{priority}");
        assert_eq!(class.to_cattr(), if class == Class::Bulk { priority } else { 0 });
    }
}

#[test]
fn wrong_fields_of_the_command() {
    let mut script = Script::new();
    let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, NQN, HOST);
    let recfmt = Connect { recfmt: 1, ..connect_sqe(0, 31) };
    let format = Status::CONNECT_INCOMPATIBLE_FORMAT;
    assert_eq!(refused(script.connect(recfmt, &data)), (format, 0));
    for sqsize in [0, 1024, 0xffff] {
        let result = script.connect(connect_sqe(0, sqsize), &data);
        assert_eq!(refused(result), (PARAMETERS, 44), "{sqsize}");
    }
    assert!(script.connect(connect_sqe(0, 1023), &data).is_ok());
    for length in [0, 1023, 1025] {
        let mut bytes = data.as_bytes().to_vec();
        bytes.resize(length, 0);
        let sqe = connect_sqe(0, 31).emit();
        let result = script.target.connect(script.now, &sqe, &bytes, local(), RANDOM);
        assert_eq!(refused(result), (Status::DATA_SGL_LENGTH_INVALID, 0));
    }
}

#[test]
fn wrong_fields_of_the_data() {
    let mut script = Script::new();
    let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, NQN, HOST);
    let in_data = |byte: u32| (PARAMETERS, 1 << 16 | byte);
    let mut try_with = |change: &dyn Fn(&mut ConnectData)| {
        let mut data = data;
        change(&mut data);
        refused(script.connect(connect_sqe(0, 31), &data))
    };
    assert_eq!(try_with(&|d| d.cntlid = 1.into()), in_data(16), "static controllers");
    assert_eq!(try_with(&|d| d.subnqn[18] = b'x'), in_data(256), "unknown subsystem");
    assert_eq!(try_with(&|d| d.subnqn.fill(b'n')), in_data(256), "not terminated");
    assert_eq!(try_with(&|d| d.subnqn.fill(0)), in_data(256), "empty");
    assert_eq!(try_with(&|d| d.hostnqn[0] = 0xff), in_data(512), "not UTF-8");
}

#[test]
fn hosts_that_are_not_allowed_are_refused() {
    let mut script = Script::new();
    assert!(script.connect_as(HOST, PRIVATE_NQN).is_ok());
    let invalid_host = (Status::CONNECT_INVALID_HOST, 1 << 16 | 512);
    assert_eq!(refused(script.connect_as(STRANGER, PRIVATE_NQN)), invalid_host);
    assert!(script.connect_as(STRANGER, NQN).is_ok());
    assert!(script.connect_as(STRANGER, DISCOVERY_NQN).is_ok());
}

/// Programs without a configured host NQN send an empty one.
#[test]
fn an_anonymous_host_may_go_where_any_host_may() {
    let mut script = Script::new();
    let connected = script.connect_as("", NQN).unwrap();
    assert_eq!((&*connected.hostnqn, host_name(&connected.hostnqn)), ("", "anonymous"));
    script.enable(connected.cntlid);
    let mut queue = |qid, host| {
        let data = ConnectData::new(HOSTID, connected.cntlid, NQN, host);
        script.connect(connect_sqe(qid, 127), &data)
    };
    assert!(queue(1, "").is_ok());
    assert_eq!(refused(queue(2, HOST)), (PARAMETERS, 1 << 16 | 512), "of another host");
    assert!(script.connect_as("", DISCOVERY_NQN).is_ok());
    let invalid_host = (Status::CONNECT_INVALID_HOST, 1 << 16 | 512);
    assert_eq!(refused(script.connect_as("", PRIVATE_NQN)), invalid_host);
}

#[test]
fn a_refusal_names_the_field_and_its_value() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let refusal_text = |result: Result<ConnectedQueue, ConnectRefused>| {
        let ConnectRefused { field, value, .. } = result.expect_err("must be refused");
        format!("{field} {value}")
    };
    assert_eq!(refusal_text(script.connect_as(HOST, "nqn.x:no")), "SUBNQN \"nqn.x:no\"");
    assert_eq!(refusal_text(script.connect_as("", PRIVATE_NQN)), "HOSTNQN \"\"");
    let stranger = format!("HOSTNQN \"{STRANGER}\"");
    assert_eq!(refusal_text(script.connect_as(STRANGER, PRIVATE_NQN)), stranger);
    assert_eq!(refusal_text(script.connect_io(77, 1)), "CNTLID 77");
    assert_eq!(refusal_text(script.connect_io(cntlid, 129)), "QID 129");
    let mut data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, NQN, HOST);
    assert_eq!(refusal_text(script.connect(connect_sqe(0, 1024), &data)), "SQSIZE 1024");
    data.hostid = [0; 16];
    assert_eq!(refusal_text(script.connect(connect_sqe(0, 31), &data)), "HOSTID 0");
    data.hostid = HOSTID;
    // A name that is no text is escaped for the log.
    data.hostnqn.fill(b'\n');
    data.hostnqn[0] = 0xff;
    let value = refusal_text(script.connect(connect_sqe(0, 31), &data));
    assert_eq!(value, format!("HOSTNQN \"\\xff{}\"", "\\n".repeat(222)));
}

#[test]
fn io_queues_belong_to_their_controller() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let in_data = |byte: u32| (PARAMETERS, 1 << 16 | byte);
    let mut try_as = |cntlid, nqn, host, hostid| {
        let data = ConnectData::new(hostid, cntlid, nqn, host);
        script.connect(connect_sqe(1, 127), &data)
    };
    assert_eq!(refused(try_as(77, NQN, HOST, HOSTID)), in_data(16));
    assert_eq!(refused(try_as(CNTLID_DYNAMIC, NQN, HOST, HOSTID)), in_data(16));
    assert_eq!(refused(try_as(cntlid, PRIVATE_NQN, HOST, HOSTID)), in_data(256));
    assert_eq!(refused(try_as(cntlid, NQN, STRANGER, HOSTID)), in_data(512));
    assert_eq!(refused(try_as(cntlid, NQN, HOST, [0; 16])), in_data(0));
    assert_eq!(try_as(cntlid, NQN, HOST, HOSTID).unwrap().cntlid, cntlid);
}

/// Some hosts generate another HOSTID for each Connect; that of the admin queue applies.
#[test]
fn io_queues_take_the_hostid_of_their_admin_queue() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    for (qid, hostid, reported) in
        [(1, HOSTID, None), (2, [1; 16], Some([1; 16])), (3, [2; 16], None)]
    {
        let data = ConnectData::new(hostid, cntlid, NQN, HOST);
        let connected = script.connect(connect_sqe(qid, 127), &data).unwrap();
        assert_eq!((connected.hostid, connected.other_hostid), (HOSTID, reported), "queue {qid}");
    }
}

#[test]
fn a_connect_with_other_pointers_than_sgls_is_refused() {
    let mut script = Script::new();
    let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, NQN, HOST);
    for flags in [0, 0x80, 0xc0, 0x41] {
        let sqe = Sqe { flags, ..connect_sqe(0, 31).emit() };
        let refused = script.target.connect(script.now, &sqe, data.as_bytes(), local(), RANDOM);
        assert_eq!(refused.unwrap_err().status, Status::INVALID_FIELD.dnr(), "{flags:#x}");
    }
}

#[test]
fn io_queue_numbers() {
    let mut script = Script::new();
    let cntlid = script.connect_as(HOST, NQN).unwrap().cntlid;
    let sequence = (Status::COMMAND_SEQUENCE_ERROR, 0);
    assert_eq!(refused(script.connect_io(cntlid, 1)), sequence, "not enabled");
    script.enable(cntlid);
    for qid in 1..=128 {
        assert_eq!(script.connect_io(cntlid, qid).unwrap().qid, qid);
    }
    assert_eq!(refused(script.connect_io(cntlid, 128)), sequence, "there already");
    assert_eq!(refused(script.connect_io(cntlid, 129)), (PARAMETERS, 42));
    assert_eq!(refused(script.connect_io(cntlid, 0xffff)), (PARAMETERS, 42));
    script.target.disconnect(cntlid, 128);
    assert!(script.connect_io(cntlid, 128).is_ok(), "lost and connected again");
}

#[test]
fn discovery_controllers_have_no_io_queues() {
    let mut script = Script::new();
    let cntlid = script.controller(DISCOVERY_NQN);
    let data = ConnectData::new(HOSTID, cntlid, DISCOVERY_NQN, HOST);
    assert_eq!(refused(script.connect(connect_sqe(1, 31), &data)), (PARAMETERS, 42));
}

#[test]
fn controllers_are_limited() {
    let mut config = config();
    config.limits.controllers_max = 2;
    let mut script = Script::with(&config);
    let first = script.connect_as(HOST, NQN).unwrap().cntlid;
    script.connect_as(HOST, DISCOVERY_NQN).unwrap();
    let error = script.connect_as(HOST, NQN).unwrap_err();
    assert_eq!(error.status, Status::CONNECT_CONTROLLER_BUSY, "may be tried again");
    script.target.disconnect(first, 0);
    assert!(script.connect_as(HOST, NQN).is_ok());
}

/// A lane with commands in a store ends late, and would end a queue of the next owner.
#[test]
fn an_identifier_is_not_reused_while_its_last_owner_has_leftovers() {
    let mut config = config();
    (config.limits.cntlid_min, config.limits.cntlid_max) = (1, 3);
    let mut script = Script::with(&config);
    let mut presences = HostConnections::<u32>::default();
    let (sqe, ends) = (connect_sqe(0, 31).emit(), (local(), RANDOM));
    let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, NQN, "nqn.2024-01.test:other");
    let connect = |script: &mut Script, presences: &HostConnections<u32>| {
        let has_leftovers = |cntlid| presences.any_has_leftovers_of(cntlid);
        let (target, now) = (&mut script.target, script.now);
        let connected = target.connect_over(
            ConnectionSecurity::Plain,
            now,
            &sqe,
            data.as_bytes(),
            ends,
            has_leftovers,
        );
        let granted = connected.and_then(|queue| target.grant(now, &queue).map(|()| queue.cntlid));
        granted.map_err(|refused| refused.status)
    };
    let first = script.controller(NQN);
    let lane = script.connect_io(first, 1).unwrap();
    let hangs = presences.enter(script.now, &lane, Some(7));
    presences.drain(&hangs);
    script.target.disconnect(first, 0);
    for expected in [2, 3, 2, 3] {
        assert_eq!(connect(&mut script, &presences), Ok(expected));
        script.target.disconnect(expected, 0);
    }
    let others = [2, 3].map(|cntlid| {
        let mut other = lane.clone();
        other.cntlid = cntlid;
        presences.enter(script.now, &other, Some(cntlid.into()))
    });
    let busy = Err(Status::CONNECT_CONTROLLER_BUSY);
    assert_eq!(connect(&mut script, &presences), busy, "something remains of each");
    presences.leave(&hangs);
    assert_eq!(connect(&mut script, &presences), Ok(first));
    others.iter().for_each(|other| presences.leave(other));
    assert_eq!(connect(&mut script, &presences), Ok(2));
}

#[test]
fn a_host_has_its_share_and_no_more() {
    let mut config = config();
    (config.limits.host_controllers_max, config.limits.host_queues_max) = (2, 4);
    let mut script = Script::with(&config);
    let [first, second] = [0, 1].map(|_| script.controller(NQN));
    let busy = |refused: ConnectRefused, option: &str| {
        assert!(refused.status.is(Status::CONNECT_CONTROLLER_BUSY) && !refused.status.is_dnr());
        assert!(refused.value.contains(option), "{refused}");
    };
    let data = |host| ConnectData::new(HOSTID, CNTLID_DYNAMIC, NQN, host);
    busy(script.connect_as(HOST, NQN).unwrap_err(), "--max-controllers-per-host");
    script.connect_io(first, 1).unwrap();
    script.connect_io(first, 2).unwrap();
    busy(script.connect_io(second, 1).unwrap_err(), "--max-connections-per-host");
    script.connect(connect_sqe(0, 31), &data("nqn.2024-01.test:other")).unwrap();
    for _ in 0..3 {
        script.connect(connect_sqe(0, 31), &data("")).unwrap(); // hosts without a name are several
    }
    script.target.disconnect(first, 1);
    script.connect_io(second, 1).unwrap();
}
