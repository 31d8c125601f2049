//! Fixed inputs of the targets with an attacker between two honest ends: seeds for fuzzing, and tests of the states
//! that they must reach.
//!
//! Such an input begins with the bytes of a plan, followed by steps. The low four bits of a step's first byte specify
//! the treatment of the next message in flight: 0 to 3 it passes, 4 it is altered, 5 cut, 6 repeated, 7 moved to the
//! end, 8 lost; 9 forged bytes arrive, 10 an earlier message is replayed, and from 11 on an end acts.

/// Name, bytes, and the states that the input reaches.
pub(crate) type Input = (&'static str, Vec<u8>, &'static [&'static str]);

const PASS: u8 = 0;
const REPEAT: u8 = 6;
const LATER: u8 = 7;
const LOSE: u8 = 8;
/// Flag of a forgery, a replay or an action: it concerns the target.
pub(crate) const TARGET: u8 = 0x80;
/// Flag: checksums without a key are corrected.
const MENDED: u8 = 0x40;

fn alter(at: u16, xor: u8) -> Vec<u8> {
    let [low, high] = at.to_le_bytes();
    vec![4, low, high, xor]
}

fn cut(length: u16) -> Vec<u8> {
    let [low, high] = length.to_le_bytes();
    vec![5, low, high]
}

/// Forges a message for the host or for the target.
pub(crate) fn forge(side: u8, bytes: &[u8]) -> Vec<u8> {
    let [low, high] = (bytes.len() as u16).to_le_bytes();
    [&[9 | side, low, high], bytes].concat()
}

fn replay(side: u8, number: u8) -> Vec<u8> {
    vec![10 | side, number]
}

fn act(side: u8, kind: u8, argument: u8) -> Vec<u8> {
    vec![(11 + kind) | side, argument]
}

fn steps(plan: &[u8], steps: &[Vec<u8>]) -> Vec<u8> {
    [plan, &steps.concat()].concat()
}

fn passes(count: usize) -> Vec<u8> {
    vec![PASS; count]
}

/// Returns the plan of an authentication in which the controller agrees to `group`, if any.
pub(crate) fn auth_plan(bits: u8, purpose: u8, t_id: u16) -> [u8; 4] {
    let [low, high] = t_id.to_le_bytes();
    [bits, purpose, low, high]
}

/// Bits of the plan's first byte, above the hash.
pub(crate) const GROUP: u8 = 4;
pub(crate) const BOTH: u8 = 8;
const FORMER: u8 = 0x10;
const OTHER_HOST_KEY: u8 = 0x20;
const OTHER_CONTROLLER_KEY: u8 = 0x30;
/// Purposes.
const FRAMES: u8 = 1;
const PSK: u8 = 2;

const PROVED: &[&str] = &[
    "controller: Challenge",
    "host: Reply",
    "controller: the host is proved",
    "controller: authenticated",
    "host: believes",
];
const OTHER_RESPONSE: &[&str] = &["response: the host has another key", "host: refused"];
const OTHER_PROOF: &[&str] = &["do --dhchap-ctrl-secret and the target's own key agree?"];

/// Authentications without interference, or with keys that differ.
fn auth_untouched() -> Vec<Input> {
    let plan = |bits, purpose| auth_plan(bits, purpose, 7).to_vec();
    let begin = act(0, 0, 0);
    vec![
        ("one side", plan(0, 0), PROVED),
        ("both sides", plan(2 | GROUP | BOTH, 0), PROVED),
        ("both sides, proved", plan(BOTH, 0), &["host: the controller is proved"]),
        ("frames", plan(1 | BOTH, FRAMES), &["frames: the same keys"]),
        ("frames with a group", plan(GROUP, FRAMES), &["frames: the same keys"]),
        ("a PSK", plan(1 | GROUP | BOTH, PSK), &["a PSK"]),
        ("a PSK of one side", plan(GROUP, PSK), &["a PSK"]),
        ("a PSK without a group", plan(0, PSK), &["groups"]),
        ("the former key", plan(FORMER | BOTH, 0), PROVED),
        ("another key of the host", plan(OTHER_HOST_KEY, 0), OTHER_RESPONSE),
        ("another key of the controller", plan(OTHER_CONTROLLER_KEY | BOTH, 0), OTHER_PROOF),
        (
            "twice",
            steps(&plan(GROUP | BOTH, FRAMES), &[passes(5), begin]),
            &["host: begins again", "frames: the same keys"],
        ),
    ]
}

/// Authentications in which the attacker changes messages.
fn auth_touched() -> Vec<Input> {
    let input = |bits, purpose, passed, step: Vec<u8>| {
        steps(&auth_plan(bits, purpose, 7), &[passes(passed), step])
    };
    let twice = [passes(4), act(0, 0, 0), passes(2), replay(TARGET, 2)].concat();
    vec![
        ("another T_ID", input(0, 0, 1, alter(4, 1)), &["T_ID"]),
        ("a T_ID for each end", input(0, 0, 0, alter(4, 1).repeat(3)), OTHER_RESPONSE),
        ("another S1", input(0, 0, 1, alter(12, 1)), OTHER_RESPONSE),
        ("another C1", input(0, 0, 1, alter(16, 1)), OTHER_RESPONSE),
        (
            "another public value of the controller",
            input(GROUP, 0, 1, alter(99, 1)),
            OTHER_RESPONSE,
        ),
        ("another response", input(0, 0, 2, alter(16, 1)), OTHER_RESPONSE),
        ("another public value of the host", input(GROUP, 0, 2, alter(99, 1)), OTHER_RESPONSE),
        ("another C2", input(BOTH, 0, 2, alter(48, 1)), OTHER_PROOF),
        ("another S2", input(BOTH, 0, 2, alter(12, 1)), OTHER_PROOF),
        ("no C2", input(BOTH, 0, 2, alter(8, 1)), &["it has sent no response"]),
        ("another proof", input(BOTH, 0, 3, alter(16, 1)), OTHER_PROOF),
        ("no proof", input(BOTH, 0, 3, alter(8, 1)), &["it has sent no response"]),
        ("a reserved byte", input(BOTH, FRAMES, 1, alter(7, 1)), &["frames: other keys"]),
        ("no frames", input(0, FRAMES, 0, alter(6, 0xf0)), &["SC_C"]),
        ("a short Reply", input(0, 0, 2, cut(40)), &["length"]),
        ("a Challenge that comes back", input(0, 0, 1, replay(TARGET, 1)), &["message"]),
        ("a Reply that is repeated", input(0, 0, 2, vec![REPEAT]), PROVED),
        ("a Reply of before", steps(&auth_plan(0, 0, 7), &[twice]), &["T_ID"]),
        ("fetched out of turn", input(0, 0, 2, act(0, 2, 0)), &["message"]),
        ("lost", input(0, 0, 1, vec![LOSE]), &["controller: Challenge"]),
        ("noise", input(0, 0, 1, forge(TARGET, &[1])), &["length"]),
    ]
}

pub(crate) fn auth() -> Vec<Input> {
    [auth_untouched(), auth_touched()].concat()
}

/// Bits of the first byte of a connection's plan; the second is the size of a delivery.
const SHAKES: u8 = 1;
const SUITE_256: u8 = 2;
const OTHER_KEY: u8 = 8;
const UNKNOWN: u8 = 12;

/// Connections with their handshake.
fn tls_handshakes() -> Vec<Input> {
    const DONE: &[&str] = &["host: the handshake is done", "target: the handshake is done", "data"];
    let input = |bits, part, list: &[Vec<u8>]| steps(&[SHAKES | bits, part], list);
    vec![
        ("a handshake", input(0, 255, &[]), DONE),
        ("a handshake in small parts", input(SUITE_256, 0, &[]), DONE),
        ("another key", input(OTHER_KEY, 255, &[]), &["handshake: wrong key", "handshake: alert"]),
        ("an unknown host", input(UNKNOWN, 255, &[]), &["handshake: unknown", "handshake: alert"]),
        ("another ClientHello", input(0, 255, &[alter(20, 1)]), &["handshake: wrong key"]),
        ("another ServerHello", input(0, 255, &[passes(1), alter(20, 1)]), &["handshake: refused"]),
        ("no TLS", input(0, 255, &[forge(TARGET, b"GET ")]), &["handshake: plain"]),
        ("nothing comes", input(0, 255, &[vec![LOSE]]), &[]),
    ]
}

/// Connections after their handshake.
fn tls_records() -> Vec<Input> {
    let input = |bits, list: &[Vec<u8>]| steps(&[bits, 255], list);
    let (hosts, targets) = (act(0, 0, 10), act(TARGET, 0, 255));
    let two = [hosts.clone(), hosts.clone()].concat();
    let others = (0..3).map(|what| act(TARGET, 3, what)).collect::<Vec<_>>().concat();
    let updates = [act(0, 2, 1), hosts.clone(), passes(2), targets.clone(), act(0, 3, 7)].concat();
    vec![
        ("data", input(0, &[hosts.clone(), targets.clone()]), &["data"]),
        ("other records", input(SUITE_256, &[others, targets]), &["data"]),
        ("new keys", input(0, &[updates]), &["data"]),
        ("the end", input(0, &[hosts.clone(), act(0, 4, 3)]), &["data", "closed"]),
        (
            "records of another key",
            input(OTHER_KEY, std::slice::from_ref(&hosts)),
            &["record: tag"],
        ),
        ("another byte", input(0, &[hosts.clone(), alter(30, 1)]), &["record: tag"]),
        ("another length", input(0, &[two.clone(), alter(4, 1)]), &["record: tag"]),
        ("another type", input(0, &[hosts.clone(), alter(0, 1)]), &["record: cannot be"]),
        ("half a record", input(0, &[two.clone(), cut(50)]), &["record: tag"]),
        ("a record twice", input(0, &[hosts.clone(), vec![REPEAT]]), &["data", "record: tag"]),
        ("a record too late", input(0, &[two.clone(), vec![LATER]]), &["record: tag"]),
        ("a record is lost", input(0, &[two, vec![LOSE]]), &["record: tag"]),
        ("a record comes back", input(0, &[hosts, replay(0, 0)]), &["record: tag"]),
    ]
}

pub(crate) fn tls() -> Vec<Input> {
    [tls_handshakes(), tls_records()].concat()
}

/// Bits of the first byte of a lane's plan; the second is the policy.
const BEGUN: u8 = 2;
const PACKED: u8 = 12;
const OTHER_KEYS: u8 = 32;

/// Lanes with altered frames.
fn sealed_touched() -> Vec<Input> {
    const COMPLETE: &[&str] = &["all is complete"];
    let input = |list: &[Vec<u8>]| steps(&[BEGUN, 0], list);
    let [read, write] = [0, 2].map(|kind| act(0, 0, kind));
    let four = (0..4).map(|_| act(0, 0, 3)).collect::<Vec<_>>().concat();
    let mended = |at| [&[4 | MENDED][..], &alter(at, 1)[1..]].concat();
    let leave = act(0, 4, 0xff);
    vec![
        ("another byte", input(&[write.clone(), mended(70)]), &["forged", "all is complete"]),
        ("other credits", input(&[read.clone(), mended(38)]), &["forged", "all is complete"]),
        ("another number", input(&[read.clone(), mended(56)]), &["forged", "all is complete"]),
        ("another sum", input(&[read.clone(), alter(20, 1)]), &["no frame", "all is complete"]),
        ("a short frame", input(&[read.clone(), cut(70)]), &["no frame", "all is complete"]),
        ("a frame twice", input(&[read.clone(), vec![REPEAT]]), &["replayed", "all is complete"]),
        (
            "an Ack twice",
            input(&[act(0, 0, 3), passes(2), act(0, 2, 4), vec![REPEAT]]),
            &["replayed"],
        ),
        ("a frame of before", input(&[read.clone(), replay(TARGET, 0)]), &["replayed"]),
        ("a frame comes back", input(&[replay(0, 0)]), &[]),
        ("a frame too late", input(&[four, vec![LATER]]), &["overtaken", "all is complete"]),
        ("a frame is lost", input(&[write.clone(), vec![LOSE], act(0, 2, 255)]), COMPLETE),
        ("in the clear", input(&[act(TARGET, 3, 0), vec![0, 0]]), &["clear"]),
        ("made up", input(&[act(0, 3, 1), vec![5, 0, 90], read]), &["forged", "all is complete"]),
        ("the end", input(&[write, leave.clone()]), &["left"]),
        ("an end without proof", input(&[leave, alter(82, 1), alter(82, 1)]), &["forged"]),
    ]
}

pub(crate) fn sealed() -> Vec<Input> {
    const ALL: &[&str] =
        &["the lane is sealed", "executed", "read", "completed", "all is complete"];
    let requests = (0..5).map(|kind| act(0, 0, kind)).collect::<Vec<_>>().concat();
    // A command of slot 0 in its first generation, as `ether::frame` builds it.
    let clear = [act(TARGET, 3, 0), vec![0, 1, 0, 1, 0, 0, 0]].concat();
    let mut inputs = vec![
        ("requests", steps(&[0, 0], std::slice::from_ref(&requests)), ALL),
        (
            "requests, packed",
            steps(&[1 | BEGUN | PACKED, 0x40], std::slice::from_ref(&requests)),
            ALL,
        ),
        ("other keys", steps(&[OTHER_KEYS, 0], std::slice::from_ref(&requests)), &["forged"][..]),
        (
            "before it is sealed",
            steps(&[0, 0], &[clear, requests]),
            &["a command in the clear", "the lane is sealed"],
        ),
    ];
    inputs.extend(sealed_touched());
    inputs
}
