//! Gateways of a group: which of them are alive, and which one serves an image.
//!
//! Each gateway decides this by itself, from state that all of them see in the cluster, without messages to others. A
//! gateway writes a *heartbeat* that differs each time, and then reads those of all, once in a round
//! ([`Members::round`]). A gateway that has not written for some rounds is away. Of the living ones, the one with the
//! highest weight for an image is *preferred* ([`preferred`]). So a gateway that leaves or joins moves only its own
//! share.

use roadtrain_proto::digest::digest;
use std::collections::{BTreeMap, BTreeSet};

/// Rounds without a heartbeat after which a gateway is away.
pub const ROUNDS_MAX: u32 = 6;
/// Consecutive rounds with a heartbeat before a gateway that was away counts again.
pub const ROUNDS_TO_RETURN: u32 = 3;

/// Returns the one of `members` that is to serve an image; `None`: there are none. Their order does not matter.
#[must_use]
pub fn preferred<'a>(image: &str, members: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let weight = |member: &&str| digest(&[member.as_bytes(), b"\0", image.as_bytes()]);
    members.into_iter().max_by_key(|member| (weight(member), *member))
}

/// State of one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GatewayHeartbeat {
    heartbeat: u64,
    /// Rounds since the last change of the heartbeat.
    silent: u32,
    /// Rounds with a heartbeat since it was away; `None`: it is alive.
    back: Option<u32>,
}

/// Living gateways, as one gateway sees them.
///
/// Only rounds count, not time: in a round this gateway has written its own heartbeat, so the others could have, too.
/// While the cluster accepts no writes, no gateway becomes away.
///
/// ```
/// use roadtrain_target_proto::gateways::{Members, ROUNDS_MAX};
///
/// let mut members = Members::default();
/// members.round([("a", 1), ("b", 1)]);
/// for heartbeat in 2..=ROUNDS_MAX as u64 + 1 {
///     members.round([("a", heartbeat), ("b", 1)]);
/// }
/// assert!(members.living().eq(["a"]));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    seen: BTreeMap<String, GatewayHeartbeat>,
}

impl Members {
    /// Takes all heartbeats, after this gateway's own was written. Returns true if the set of living gateways has
    /// changed.
    pub fn round<'a>(&mut self, heartbeats: impl IntoIterator<Item = (&'a str, u64)>) -> bool {
        let before: BTreeSet<String> = self.living().map(str::to_owned).collect();
        let mut seen = BTreeMap::new();
        for (member, heartbeat) in heartbeats {
            // A new gateway is alive: no other one takes over its images before it is known to be away.
            let next = self
                .seen
                .get(member)
                .map_or(GatewayHeartbeat { heartbeat, silent: 0, back: None }, |old| {
                    old.next(heartbeat)
                });
            seen.insert(member.to_owned(), next);
        }
        self.seen = seen;
        !self.living().eq(before.iter().map(String::as_str))
    }

    /// Returns the names of the living gateways.
    pub fn living(&self) -> impl Iterator<Item = &str> {
        self.seen.iter().filter(|(_, seen)| seen.back.is_none()).map(|(member, _)| member.as_str())
    }

    /// True if the gateway is alive.
    #[must_use]
    pub fn lives(&self, member: &str) -> bool {
        self.seen.get(member).is_some_and(|seen| seen.back.is_none())
    }
}

impl GatewayHeartbeat {
    fn next(self, heartbeat: u64) -> GatewayHeartbeat {
        let silent = if heartbeat == self.heartbeat { self.silent + 1 } else { 0 };
        let back = match self.back {
            None if silent >= ROUNDS_MAX => Some(0),
            None => None,
            Some(_) if silent > 0 => Some(0),
            Some(rounds) if rounds + 1 >= ROUNDS_TO_RETURN => None,
            Some(rounds) => Some(rounds + 1),
        };
        GatewayHeartbeat { heartbeat, silent, back }
    }
}

/// Gateways of a group, at most: each has a *slot* of its own.
pub const SLOTS_MAX: u16 = 32;
/// Controller identifiers per slot.
const SLOT_CNTLIDS: u16 = 2047;

/// Returns the lowest and the highest controller identifier of the gateway in a slot: hosts must not find one twice in
/// a subsystem, whichever gateways they connect to. `None`: there is no such slot.
#[must_use]
pub fn cntlids(slot: u16) -> Option<(u16, u16)> {
    (slot < SLOTS_MAX).then(|| (slot * SLOT_CNTLIDS + 1, (slot + 1) * SLOT_CNTLIDS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group(size: usize) -> Vec<String> {
        (0..size).map(|n| format!("gate{n}")).collect()
    }

    fn place(image: usize, members: &[String]) -> &str {
        preferred(&format!("disks/image{image}"), members.iter().map(String::as_str)).unwrap()
    }

    #[test]
    fn slots_have_identifiers_of_their_own() {
        let all: Vec<_> = (0..SLOTS_MAX).filter_map(cntlids).collect();
        assert_eq!((all.len(), all[0], cntlids(SLOTS_MAX)), (32, (1, 2047), None));
        assert!(all.is_sorted_by(|one, next| one.1 < next.0));
        assert!(all[31].1 <= 0xffef, "reserved beyond");
    }

    #[test]
    fn an_empty_group_prefers_no_gateway() {
        assert_eq!(preferred("disks/a", []), None);
    }

    /// Each member gets about its share: of 1,000 images within five standard deviations. The images are fixed, because
    /// random ones would sometimes lie outside.
    #[test]
    fn shares_are_alike() {
        for (size, first) in (2..33).flat_map(|size| [(size, 0), (size, 250_000), (size, 999_000)])
        {
            let members = group(size);
            let mut shares = BTreeMap::<&str, f64>::new();
            for image in first..first + 1_000 {
                *shares.entry(place(image, &members)).or_default() += 1.0;
            }
            let share = 1_000.0 / size as f64;
            let most = 5.0 * (share * (1.0 - 1.0 / size as f64)).sqrt();
            for member in &members {
                let count = shares.get(member.as_str()).copied().unwrap_or(0.0);
                assert!((count - share).abs() <= most, "{member} has {count} of {share}");
            }
        }
    }

    proptest! {
        /// A gateway that leaves moves its own images and no others. The same holds for one that joins.
        #[test]
        fn only_the_departed_ones_images_move(
            size in 2_usize..33, leaves in any::<prop::sample::Index>(), first in 0_usize..1_000_000
        ) {
            let all = group(size);
            let mut rest = all.clone();
            let gone = rest.remove(leaves.index(size));
            for image in first..first + 200 {
                let (before, after) = (place(image, &all), place(image, &rest));
                prop_assert!(before == after || before == gone);
            }
        }

        /// All gateways reach the same result, whatever the order of the members.
        #[test]
        fn order_does_not_matter(mut members in prop::collection::vec("[a-z0-9.-]{1,12}", 1..33), image in 0_usize..1000) {
            let one = place(image, &members).to_owned();
            members.reverse();
            prop_assert_eq!(one, place(image, &members));
        }

        /// A gateway that writes at least once in so many rounds is never away, and one that never writes always is
        /// after them.
        #[test]
        fn who_writes_is_there(pauses in prop::collection::vec(0..ROUNDS_MAX, 1..40)) {
            let mut members = Members::default();
            let (mut round, mut heartbeat) = (0, 0);
            members.round([("me", round), ("it", heartbeat), ("dead", 7)]);
            for pause in &pauses {
                heartbeat += 1;
                for _ in 0..=*pause {
                    round += 1;
                    members.round([("me", round), ("it", heartbeat), ("dead", 7)]);
                    prop_assert!(members.lives("it") && members.lives("me"));
                    prop_assert_eq!(members.lives("dead"), round < u64::from(ROUNDS_MAX));
                }
            }
        }
    }

    #[test]
    fn one_that_was_away_has_to_stay_to_count_again() {
        let mut members = Members::default();
        let mut round = 0;
        let mut see = |heartbeat| {
            round += 1;
            let changed = members.round([("me", round), ("it", heartbeat)]);
            (changed, members.lives("it"))
        };
        see(1);
        for _ in 1..ROUNDS_MAX {
            assert_eq!(see(1), (false, true));
        }
        assert_eq!(see(1), (true, false));
        // Occasional heartbeats are not enough.
        for heartbeat in 2..10 {
            assert_eq!(see(heartbeat), (false, false));
            assert_eq!(see(heartbeat), (false, false));
        }
        for heartbeat in 10..10 + u64::from(ROUNDS_TO_RETURN) - 1 {
            assert_eq!(see(heartbeat), (false, false));
        }
        assert_eq!(see(20), (true, true));
    }

    /// A gateway that leaves in order is away at once.
    #[test]
    fn one_that_leaves_is_away() {
        let mut members = Members::default();
        assert!(members.round([("a", 1), ("b", 1)]));
        assert!(members.round([("a", 2)]));
        assert!(members.living().eq(["a"]));
    }
}
