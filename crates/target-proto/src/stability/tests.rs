use super::*;

const NOW: Instant = Instant(1_000_000_000);

fn user(cntlid: u16, host: u8) -> StoreUser {
    StoreUser { cntlid, hostid: [host; 16], hostnqn: "nqn.x:host".into() }
}

type TestStability = Stability<u8>;

fn write(store: &TestStability, mark: &WriteMark) {
    mark.wrote(store.epoch());
}

/// Runs a flush alone. Returns true if it succeeds.
fn flush(store: &mut TestStability, user: &StoreUser, flushed: Flushed) -> bool {
    let ticket = store.begin(NOW, user);
    assert!(store.join(0));
    assert!(store.ended(flushed).is_empty());
    store.settle(NOW, ticket, flushed)
}

#[test]
fn a_failure_is_reported_once_to_every_writer() {
    let mut store = TestStability::default();
    let users = [user(1, 1), user(2, 2), user(3, 3), user(4, 4)];
    let marks: Vec<_> = users.iter().map(|user| store.enter(NOW, user)).collect();
    marks[..3].iter().for_each(|mark| write(&store, mark));
    assert!(flush(&mut store, &users[2], Flushed::Done));
    assert!(!flush(&mut store, &users[0], Flushed::Failed));
    assert_eq!(store.unreported_hosts(), 1);
    // The system forgets the failure; the account does not.
    assert!(flush(&mut store, &users[0], Flushed::Done), "it got the report");
    assert!(!flush(&mut store, &users[1], Flushed::Done), "it did not");
    assert!(flush(&mut store, &users[1], Flushed::Done));
    assert!(flush(&mut store, &users[2], Flushed::Done), "its writes were stable before");
    write(&store, &marks[3]);
    assert!(flush(&mut store, &users[3], Flushed::Done), "it wrote after");
    assert_eq!((store.unreported_hosts(), store.is_clean()), (0, true));
}

/// A host with two paths writes on one and flushes on the other.
#[test]
fn what_a_host_has_written_by_another_controller_counts() {
    let mut store = TestStability::default();
    let (one, other, stranger) = (user(1, 1), user(2, 1), user(3, 3));
    let (mark, mark_of_other) = (store.enter(NOW, &one), store.enter(NOW, &other));
    let mark_of_stranger = store.enter(NOW, &stranger);
    write(&store, &mark);
    assert!(flush(&mut store, &other, Flushed::Done));
    write(&store, &mark);
    write(&store, &mark_of_stranger);
    assert!(!flush(&mut store, &stranger, Flushed::Failed));
    assert!(!flush(&mut store, &other, Flushed::Done), "what its host wrote may be lost");
    assert!(flush(&mut store, &other, Flushed::Done), "once");
    assert!(!flush(&mut store, &one, Flushed::Done), "it may be of another process");
    assert!(flush(&mut store, &one, Flushed::Done));
    write(&store, &mark_of_other);
    assert!(!flush(&mut store, &stranger, Flushed::Failed));
    assert!(!flush(&mut store, &one, Flushed::Done));
}

/// A path is lost with the completion of a failed flush, and the host repeats the flush on its other path.
#[test]
fn a_failure_whose_completion_is_lost_is_reported_on_the_other_path() {
    for has_ended in [false, true] {
        let mut store = TestStability::default();
        let (one, other) = (user(1, 1), user(2, 1));
        let (mark, _mark_of_other) = (store.enter(NOW, &one), store.enter(NOW, &other));
        write(&store, &mark);
        assert!(!flush(&mut store, &one, Flushed::Failed));
        if has_ended {
            store.leave(NOW, &one, &mark);
        }
        assert!(!flush(&mut store, &other, Flushed::Done), "{has_ended}");
        assert!(flush(&mut store, &other, Flushed::Done), "{has_ended}: once");
    }
    // After that time it has arrived.
    let mut store = TestStability::default();
    let (one, other) = (user(1, 1), user(2, 1));
    let (mark, _mark_of_other) = (store.enter(NOW, &one), store.enter(NOW, &other));
    write(&store, &mark);
    assert!(!flush(&mut store, &one, Flushed::Failed));
    let ticket = store.begin(NOW + ARRIVED, &other);
    assert!(store.join(0) && store.ended(Flushed::Done).is_empty());
    assert!(store.settle(NOW + ARRIVED, ticket, Flushed::Done));
}

/// A controller has ended with unflushed writes, and no other one was connected since.
#[test]
fn what_a_host_has_left_counts_on_its_other_path() {
    let mut store = TestStability::default();
    let (one, other, stranger) = (user(1, 1), user(2, 1), user(3, 3));
    let (mark, _mark_of_other) = (store.enter(NOW, &one), store.enter(NOW, &other));
    write(&store, &mark);
    store.leave(NOW, &one, &mark);
    assert!(!flush(&mut store, &stranger, Flushed::Failed));
    assert!(!flush(&mut store, &other, Flushed::Done));
    assert!(flush(&mut store, &other, Flushed::Done), "once");
}

#[test]
fn what_began_before_the_failure_and_ended_after_it_may_be_lost() {
    let mut store = TestStability::default();
    let (a, b) = (user(1, 1), user(2, 2));
    let (mark, _other) = (store.enter(NOW, &a), store.enter(NOW, &b));
    let began = store.epoch();
    assert!(!flush(&mut store, &b, Flushed::Failed));
    mark.wrote(began);
    assert!(!flush(&mut store, &a, Flushed::Done));
}

#[test]
fn a_write_during_a_flush_is_not_covered_by_it() {
    let mut store = TestStability::default();
    let (a, b) = (user(1, 1), user(2, 2));
    let (mark, _other) = (store.enter(NOW, &a), store.enter(NOW, &b));
    let ticket = store.begin(NOW, &a);
    assert!(store.join(0));
    write(&store, &mark);
    assert!(store.ended(Flushed::Done).is_empty());
    assert!(store.settle(NOW, ticket, Flushed::Done));
    assert!(!store.is_clean());
    assert!(!flush(&mut store, &b, Flushed::Failed));
    assert!(!flush(&mut store, &a, Flushed::Done));
}

#[test]
fn flushes_at_the_same_time_share_the_next_one() {
    let mut store = TestStability::default();
    let users = [user(1, 1), user(2, 2), user(3, 3)];
    let marks: Vec<_> = users.iter().map(|user| store.enter(NOW, user)).collect();
    marks.iter().for_each(|mark| write(&store, mark));
    let tickets: Vec<_> = users.iter().map(|user| store.begin(NOW, user)).collect();
    assert_eq!((0..3).map(|n| store.join(n)).collect::<Vec<_>>(), [true, false, false]);
    // The first one gets the error. The others must not receive success for the lost writes.
    assert_eq!(store.ended(Flushed::Failed), [(1, Wake::Lead)]);
    assert_eq!(store.ended(Flushed::Done), [(2, Wake::Ended(Flushed::Done))]);
    let reported: Vec<bool> =
        tickets.into_iter().map(|t| store.settle(NOW, t, Flushed::Done)).collect();
    assert_eq!(reported, [false, false, false]);
    assert!(users.iter().all(|user| flush(&mut store, user, Flushed::Done)));
}

#[test]
fn a_flush_that_was_not_carried_out_changes_nothing() {
    let mut store = TestStability::default();
    let (a, b) = (user(1, 1), user(2, 2));
    let (mark, _other) = (store.enter(NOW, &a), store.enter(NOW, &b));
    write(&store, &mark);
    let ticket = store.begin(NOW, &a);
    assert!(store.join(0) && !store.join(1) && !store.join(2));
    assert_eq!(store.ended(Flushed::NotRun), [(1, Wake::Lead)]);
    assert!(!store.settle(NOW, ticket, Flushed::NotRun));
    assert!(!store.join(3));
    // The longest waiter leads again.
    assert_eq!(store.ended(Flushed::NotRun), [(2, Wake::Lead)]);
    assert_eq!(store.ended(Flushed::Done), [(3, Wake::Ended(Flushed::Done))]);
    assert!(!store.is_clean());
    assert!(!flush(&mut store, &b, Flushed::Failed));
    assert!(!flush(&mut store, &a, Flushed::Done));
}

#[test]
fn two_flushes_of_a_controller_report_the_same_loss() {
    let mut store = TestStability::default();
    let (a, b) = (user(1, 1), user(2, 2));
    let (mark, _other) = (store.enter(NOW, &a), store.enter(NOW, &b));
    write(&store, &mark);
    assert!(!flush(&mut store, &b, Flushed::Failed));
    let (first, second) = (store.begin(NOW, &a), store.begin(NOW, &a));
    assert!(!store.settle(NOW, first, Flushed::Done));
    // A flush that begins after the report has nothing to report.
    let third = store.begin(NOW, &a);
    assert!(!store.settle(NOW, second, Flushed::Done));
    assert!(store.settle(NOW, third, Flushed::Done));
}

#[test]
fn a_host_that_connects_again_gets_a_report() {
    for is_reported in [false, true] {
        let mut store = TestStability::default();
        let (a, b) = (user(1, 1), user(2, 2));
        let (mark, _other) = (store.enter(NOW, &a), store.enter(NOW, &b));
        write(&store, &mark);
        assert!(!flush(&mut store, &b, Flushed::Failed));
        if is_reported {
            // The completion may be lost with the connection.
            assert!(!flush(&mut store, &a, Flushed::Done));
        }
        store.leave(NOW, &a, &mark);
        let again = user(3, 1);
        let _mark = store.enter(NOW, &again);
        let stranger = user(4, 4);
        assert!(flush(&mut store, &stranger, Flushed::Done));
        assert!(!flush(&mut store, &again, Flushed::Done), "{is_reported}");
        assert!(flush(&mut store, &again, Flushed::Done), "{is_reported}");
    }
}

#[test]
fn a_host_gets_no_second_report_long_after() {
    let mut store = TestStability::default();
    let (a, again) = (user(1, 1), user(3, 1));
    let mark = store.enter(NOW, &a);
    write(&store, &mark);
    assert!(!flush(&mut store, &a, Flushed::Failed));
    store.leave(NOW + ARRIVED, &a, &mark);
    assert!(flush(&mut store, &again, Flushed::Done));
    // The same holds after a controller shutdown.
    let mark = store.enter(NOW, &a);
    write(&store, &mark);
    assert!(!flush(&mut store, &a, Flushed::Failed));
    store.end_reports(NOW, &a);
    store.leave(NOW, &a, &mark);
    assert!(flush(&mut store, &again, Flushed::Done));
}

#[test]
fn a_controller_may_take_over_from_one_that_still_seems_to_live() {
    let mut store = TestStability::default();
    let (a, b, again) = (user(1, 1), user(2, 2), user(3, 1));
    let (mark, _other) = (store.enter(NOW, &a), store.enter(NOW, &b));
    write(&store, &mark);
    assert!(!flush(&mut store, &b, Flushed::Failed));
    let _mark = store.enter(NOW, &again);
    assert!(!flush(&mut store, &again, Flushed::Done));
    assert!(!flush(&mut store, &a, Flushed::Done), "it may be another program");
}

#[test]
fn hosts_that_are_gone_are_remembered_within_bounds() {
    let mut store = TestStability::default();
    for host in 0..=255 {
        for nqn in ["nqn.x:a", "nqn.x:b"] {
            let user = StoreUser { hostnqn: nqn.into(), ..user(1, host) };
            let mark = store.enter(NOW, &user);
            write(&store, &mark);
            store.leave(NOW, &user, &mark);
        }
    }
    assert_eq!(store.former_hosts.len(), FORMER_HOSTS_MAX);
    // Forgotten marks count for every host.
    let other = user(9, 9);
    assert!(!flush(&mut store, &other, Flushed::Failed));
    assert!(!flush(
        &mut store,
        &StoreUser { hostnqn: "nqn.x:a".into(), ..user(7, 0) },
        Flushed::Done
    ));
    // A successful flush covers hosts that ended before it began.
    let mut store = TestStability::default();
    let gone = user(1, 1);
    let mark = store.enter(NOW, &gone);
    write(&store, &mark);
    store.leave(NOW, &gone, &mark);
    assert!(!store.is_clean());
    assert!(flush(&mut store, &other, Flushed::Done));
    assert!(store.is_clean());
}

/// Lanes may end before the controller's last flush.
#[test]
fn a_controller_that_ends_in_order_gets_no_second_report() {
    let mut store = TestStability::default();
    let a = user(1, 1);
    let mark = store.enter(NOW, &a);
    write(&store, &mark);
    assert!(!flush(&mut store, &a, Flushed::Failed));
    assert!(flush(&mut store, &a, Flushed::Done), "it got the report");
    store.leave(NOW, &a, &mark);
    let last = store.enter_last(NOW, &a);
    assert!(flush(&mut store, &a, Flushed::Done), "it got the report before its lane ended");
    store.end_reports(NOW, &a);
    store.leave(NOW, &a, &last);
    assert_eq!((store.unreported_hosts(), store.is_clean()), (0, true));
}

/// A flush has taken writes of two epochs, the older one reported, and is not executed: the other flush covers the
/// later ones.
#[test]
fn a_report_does_not_hide_a_later_loss() {
    let mut store = TestStability::default();
    let (a, other) = (user(1, 1), user(2, 2));
    let mark = store.enter(NOW, &a);
    let began = store.epoch();
    write(&store, &mark);
    assert!(!flush(&mut store, &a, Flushed::Failed), "reported");
    mark.wrote(began);
    write(&store, &mark);
    assert!(!flush(&mut store, &other, Flushed::Failed), "reported to another one");
    let tickets = [store.begin(NOW, &a), store.begin(NOW, &a)];
    let results = [Flushed::NotRun, Flushed::Done];
    let reported: Vec<_> = tickets
        .into_iter()
        .zip(results)
        .map(|(t, flushed)| store.settle(NOW, t, flushed))
        .collect();
    assert_eq!(reported, [false, false]);
}
