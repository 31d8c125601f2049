//! Tests of the checker: it rejects exactly the impossible results.

use super::*;

fn written(history: &mut History, id: u64, stamp: BlockStamp) {
    history.begin_write(id, 0..1, stamp, false);
    history.end(id, &[]).expect("begun");
}

fn read(history: &mut History, id: u64, stamp: BlockStamp) -> Result<(), String> {
    history.begin_read(id, 0..1, false);
    history.end(id, &[stamp])
}

#[test]
fn an_acknowledged_write_is_seen() {
    let mut history = History::new(1);
    written(&mut history, 1, 10);
    assert!(read(&mut history, 2, 0).is_err());
    assert!(read(&mut history, 3, 10).is_ok());
    assert!(read(&mut history, 4, 11).is_err(), "never written");
}

#[test]
fn a_write_may_happen_at_any_time_until_it_is_acknowledged() {
    let mut history = History::new(1);
    history.begin_write(1, 0..1, 10, false);
    assert!(read(&mut history, 2, 0).is_ok());
    assert!(read(&mut history, 3, 10).is_ok());
    assert!(read(&mut history, 4, 0).is_err(), "it was seen before");
    history.end(1, &[]).expect("begun");
    assert!(read(&mut history, 5, 10).is_ok());
}

#[test]
fn an_old_write_does_not_come_back() {
    let mut history = History::new(1);
    written(&mut history, 1, 10);
    written(&mut history, 2, 20);
    assert!(read(&mut history, 3, 10).is_err());
}

#[test]
fn concurrent_writes_end_in_either_order() {
    for last in [10, 20] {
        let mut history = History::new(1);
        history.begin_write(1, 0..1, 10, false);
        history.begin_write(2, 0..1, 20, false);
        history.end(1, &[]).expect("begun");
        history.end(2, &[]).expect("begun");
        assert!(read(&mut history, 3, last).is_ok());
        assert!(read(&mut history, 4, 30 - last).is_err(), "it is decided");
    }
}

#[test]
fn a_failed_write_may_happen_until_its_host_writes_again() {
    for (other, is_over) in [(1, true), (2, false)] {
        let mut history = History::new(1);
        history.belongs(1, 1);
        history.belongs(3, other);
        history.begin_write(1, 0..1, 10, false);
        history.fail(1);
        assert!(read(&mut history, 2, 0).is_ok());
        written(&mut history, 3, 20);
        assert!(read(&mut history, 4, 20).is_ok());
        assert_eq!(history.judge(0, 10).is_err(), is_over);
        assert_eq!(read(&mut history, 5, 10).is_err(), is_over);
    }
}

#[test]
fn a_write_of_a_killed_host_happens_before_its_successor_or_never() {
    let mut history = History::new(1);
    for id in [1, 2] {
        history.belongs(id, 7);
        history.begin_write(id, 0..1, id * 10, false);
        history.orphan(id);
    }
    assert!(read(&mut history, 3, 20).is_ok());
    assert!(read(&mut history, 4, 10).is_ok(), "the other one may come later");
    history.succeed(7);
    assert!(read(&mut history, 5, 20).is_ok());
    assert!(read(&mut history, 6, 10).is_err(), "but not behind its successor's back");
}

#[test]
fn a_mark_is_there_until_something_is_written() {
    let mut history = History::new(2);
    history.begin_write(1, 0..1, MARK, true);
    history.end(1, &[]).expect("begun");
    assert!(read(&mut history, 2, 0).is_err(), "it cannot be read");
    history.begin_read(3, 0..2, false);
    assert!(history.unreadable(3).is_ok());
    history.begin_read(4, 1..2, false);
    assert!(history.unreadable(4).is_err(), "it was never marked");
    history.begin_discard(5, 0..2);
    history.end(5, &[]).expect("begun");
    history.begin_read(6, 0..1, false);
    assert!(history.unreadable(6).is_ok(), "a discard leaves it");
    written(&mut history, 7, 70);
    history.begin_read(8, 0..1, false);
    assert!(history.unreadable(8).is_err(), "it was written");
}

#[test]
fn a_mark_that_has_failed_may_be_there_until_something_is_written() {
    let mut history = History::new(1);
    history.begin_write(1, 0..1, MARK, true);
    history.fail_mark(1);
    history.begin_read(2, 0..1, false);
    assert!(history.unreadable(2).is_ok());
    written(&mut history, 3, 30);
    history.begin_read(4, 0..1, false);
    assert!(history.unreadable(4).is_err(), "it comes behind what was written");
}

fn is_unreadable(history: &mut History, id: u64) -> bool {
    history.begin_read(id, 0..1, false);
    history.unreadable(id).is_ok()
}

/// The save has failed, or its host was killed before the response.
#[test]
fn a_mark_that_has_failed_comes_when_the_target_starts_or_never() {
    for is_killed in [false, true] {
        let mark = || {
            let mut history = History::new(1);
            history.belongs(1, 1);
            history.begin_write(1, 0..1, MARK, true);
            if is_killed {
                history.orphan(1);
                history.succeed(1);
            } else {
                history.fail_mark(1);
            }
            assert!(read(&mut history, 2, 0).is_ok(), "it is not in force");
            history
        };
        let mut history = mark();
        history.begin_flush(3);
        history.end(3, &[]).expect("begun");
        history.begin_read(4, 0..1, false);
        history.start_target();
        assert!(is_unreadable(&mut history, 5), "the start has found it");
        history.end(4, &[0]).expect("read before the start");
        assert!(is_unreadable(&mut history, 6), "as before");
        assert!(read(&mut history, 7, 0).is_err(), "it stays");

        let mut history = mark();
        history.start_target();
        assert!(read(&mut history, 3, 0).is_ok(), "the start has not found it");
        history.start_target();
        assert!(!is_unreadable(&mut history, 4), "nor does a later one");

        let mut history = mark();
        written(&mut history, 3, 30);
        history.start_target();
        assert!(!is_unreadable(&mut history, 4), "it was written");
    }
}

/// Returns the history of a marked block with a failed write. With `is_killed` its host was killed before the response.
fn failed_write(is_killed: bool, discard: Option<u64>) -> History {
    let mut history = History::new(1);
    let discard_now = |history: &mut History, id| {
        history.begin_discard(id, 0..1);
        history.end(id, &[]).expect("begun");
    };
    history.begin_write(1, 0..1, MARK, true);
    history.end(1, &[]).expect("begun");
    discard.filter(|&id| id < 3).into_iter().for_each(|id| discard_now(&mut history, id));
    history.belongs(3, 1);
    history.begin_write(3, 0..1, 30, false);
    if is_killed {
        history.orphan(3);
        history.succeed(1);
    } else {
        history.fail(3);
    }
    discard.filter(|&id| id > 3).into_iter().for_each(|id| discard_now(&mut history, id));
    assert!(is_unreadable(&mut history, 5), "the mark is in force");
    history
}

#[test]
fn a_failed_write_clears_a_mark_when_the_target_starts_or_never() {
    for is_killed in [false, true] {
        let mut history = failed_write(is_killed, None);
        history.start_target();
        assert!(read(&mut history, 6, 30).is_ok(), "the start has found it cleared");
        assert!(!is_unreadable(&mut history, 7), "for good");

        let mut history = failed_write(is_killed, None);
        history.start_target();
        assert!(is_unreadable(&mut history, 6), "the start has found the mark");
        assert!(!is_killed || read(&mut history, 7, 30).is_err(), "no host writes any more");
    }
}

#[test]
fn a_discard_behind_a_failed_write_is_under_the_mark() {
    for is_killed in [false, true] {
        for (discard, may_show) in [(2, false), (4, true)] {
            let mut history = failed_write(is_killed, Some(discard));
            history.start_target();
            assert_eq!(read(&mut history, 6, 0).is_ok(), may_show, "{discard}");
            let mut history = failed_write(is_killed, Some(discard));
            history.start_target();
            assert!(is_unreadable(&mut history, 6), "the start has found the mark");
            assert!(read(&mut history, 7, 0).is_err(), "nothing clears it by itself");
        }
    }
}

#[test]
fn power_loss_spares_what_was_flushed() {
    let mut history = History::new(1);
    written(&mut history, 1, 10);
    history.begin_flush(2);
    history.end(2, &[]).expect("begun");
    written(&mut history, 3, 30);
    history.lose_power();
    let mut other = history
        .pending
        .is_empty()
        .then(|| History { registers: history.registers.clone(), ..History::new(1) })
        .expect("nothing pending");
    other.tick = history.tick;
    assert!(read(&mut history, 4, 0).is_err(), "flushed after");
    assert!(read(&mut history, 5, 10).is_ok(), "the last may be lost");
    assert!(read(&mut other, 4, 30).is_ok(), "or not");
}

/// Host 1's write is read before its response, and a failed flush that is reported to another host takes it back.
#[test]
fn a_flush_does_not_speak_for_a_write_that_is_not_answered() {
    for is_answered in [false, true] {
        let mut history = History::new(1);
        history.expect_losses();
        [1, 2, 4].into_iter().for_each(|id| history.belongs(id, 1));
        written(&mut history, 1, 10);
        history.begin_write(2, 0..1, 20, false);
        assert!(read(&mut history, 3, 20).is_ok());
        if is_answered {
            history.end(2, &[]).expect("begun");
        }
        history.begin_flush(4);
        history.end(4, &[]).expect("begun");
        history.lose_power();
        assert_eq!(read(&mut history, 5, 10).is_err(), is_answered);
    }
}

/// The first process has detached before the power failed, or after.
#[test]
fn a_process_reports_only_what_it_has_written_itself() {
    for (ends_before, ends_after) in [(false, false), (true, false), (false, true)] {
        let mut history = History::new(1);
        [1, 2].into_iter().for_each(|id| history.belongs(id, 7));
        written(&mut history, 1, 10);
        if ends_before {
            history.end_process(7);
        }
        history.lose_power();
        if ends_after {
            history.end_process(7);
        }
        history.begin_flush(2);
        assert_eq!(history.end(2, &[]).is_ok(), ends_before || ends_after);
    }
}

#[test]
fn fua_survives_power_loss() {
    let mut history = History::new(1);
    history.begin_write(1, 0..1, 10, true);
    history.end(1, &[]).expect("begun");
    history.lose_power();
    assert!(read(&mut history, 2, 0).is_err());
    assert!(read(&mut history, 3, 10).is_ok());
}

#[test]
fn a_forced_read_makes_stable_what_it_shows() {
    for fua in [false, true] {
        let mut history = History::new(1);
        written(&mut history, 1, 10);
        history.begin_read(2, 0..1, fua);
        history.end(2, &[10]).expect("begun");
        history.lose_power();
        assert_eq!(read(&mut history, 3, 0).is_err(), fua);
    }
}

/// A host has paths 0 and 1: path 0 is connected when the power fails, path 1 reports the loss.
#[test]
fn a_path_that_seems_live_may_report_the_loss_later() {
    for (is_lost_before, is_lost_after) in [(true, false), (false, true), (false, false)] {
        let mut history = History::new(1);
        [1, 2, 3].into_iter().for_each(|id| history.belongs(id, 7));
        history.path_connected(7, 0);
        history.path_connected(7, 1);
        history.path_lost(7, 1);
        written(&mut history, 1, 10);
        history.lose_power();
        if is_lost_before {
            history.path_lost(7, 0);
        }
        history.path_connected(7, 1);
        if is_lost_after {
            history.path_lost(7, 0);
        }
        history.begin_flush(2);
        assert_eq!(history.end(2, &[]).is_err(), is_lost_before, "no path seems live");
        history.path_connected(7, 0);
        history.begin_flush(3);
        assert!(history.end(3, &[]).is_err(), "every path knows");
    }
}

#[test]
fn a_flush_over_one_machine_counts_for_others() {
    let mut history = History::new(1);
    history.expect_machines();
    [1, 2, 3].into_iter().for_each(|id| history.belongs(id, 7));
    history.path_connected(7, 0);
    written(&mut history, 1, 10);
    history.lose_power();
    history.path_connected(7, 1);
    history.begin_flush(2);
    assert!(history.end(2, &[]).is_ok());
    history.path_connected(7, 0);
    history.begin_flush(3);
    assert!(history.end(3, &[]).is_ok());
}

/// Returns a history with write 1, and Compare and Write 2 that expects it.
fn swapping() -> History {
    let mut history = History::new(1);
    written(&mut history, 1, 10);
    let contents = history.contents(0);
    assert_eq!(contents.len(), 1, "zeroes are not expected: any discard writes the same");
    history.begin_swap(2, 0, 20, (false, contents[0].1));
    history
}

#[test]
fn a_write_beside_compare_and_write_comes_after_it() {
    for swap_first in [true, false] {
        let mut history = swapping();
        history.begin_write(3, 0..1, 30, false);
        let [first, second] = if swap_first { [2, 3] } else { [3, 2] };
        history.end(first, &[]).expect("begun");
        history.end(second, &[]).expect("begun");
        assert!(read(&mut history, 4, 20).is_err(), "it has not found write 3");
        assert!(read(&mut history, 5, 30).is_ok());
    }
}

#[test]
fn a_write_before_the_expected_one_may_end_in_either_order() {
    let mut history = History::new(1);
    history.begin_write(3, 0..1, 30, false);
    written(&mut history, 1, 10);
    history.begin_swap(2, 0, 20, (false, history.contents(0)[0].1));
    history.end(2, &[]).expect("begun");
    history.end(3, &[]).expect("begun");
    assert!(read(&mut history, 4, 20).is_ok());
}

#[test]
fn compare_and_write_that_was_refused_has_no_effect() {
    let mut history = swapping();
    history.refuse(2);
    assert!(read(&mut history, 3, 20).is_err());
    assert!(history.judge(0, 20).is_err());
}

#[test]
fn one_content_is_found_once() {
    let mut history = swapping();
    history.begin_swap(3, 0, 30, (false, history.contents(0)[0].1));
    history.end(2, &[]).expect("begun");
    assert!(history.end(3, &[]).is_err());
}

/// A power loss takes a write that is acknowledged after it: older content is found again.
#[test]
fn after_a_power_loss_older_content_may_be_found() {
    let mut history = History::new(1);
    written(&mut history, 1, 10);
    let since = history.contents(0)[0].1;
    history.begin_write(3, 0..1, 30, false);
    history.lose_power();
    history.begin_swap(2, 0, 20, (false, since));
    history.end(3, &[]).expect("begun");
    history.end(2, &[]).expect("begun");
    assert!(read(&mut history, 4, 20).is_ok());
}
