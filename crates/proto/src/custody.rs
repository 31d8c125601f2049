//! Blocks that several targets reach and one of them serves: who that is, where a third party (a cluster) says it.
//!
//! ```text
//!   owner     --- beat: "I live" --->  cluster  <--- look ---  who stands by
//!   [Owner]   <-- confirmed, or ----                           [Observer]
//!                 refused
//! ```
//!
//! Whoever has the blocks beats regularly. If the cluster does not confirm that for `gives_up`, the owner says itself
//! that it has no way to the blocks. If who stands by sees no new beat for `takes` though it could look all the time,
//! the owner is gone, and it may have the cluster fence the owner. While nobody reaches the cluster nothing changes
//! hands.
//!
//! Clocks are compared with nothing but themselves. An owner that runs has given up before it is fenced, as long as
//! clocks run alike within the margin between the two times. One that was frozen has not: the fence is what protects
//! the blocks. Whoever was cut off serves again only when it has seen that the blocks are still its own.

use crate::time::Instant;
use core::time::Duration;

/// How long is waited for what.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Between the beginnings of two beats.
    pub beat: Duration,
    /// Between two looks.
    pub look: Duration,
    /// Without a confirmed beat the owner does not serve any more.
    pub gives_up: Duration,
    /// Without a new beat the owner is fenced. Longer than `gives_up`.
    pub takes: Duration,
    /// An owner that never beats and does not have the blocks open for so long is fenced. Much longer than `takes`: a
    /// client that lives may lose what says that it has them open, and gets it back when it reaches the cluster.
    pub buries: Duration,
    /// Who could not look for so long has not seen that there was no beat.
    pub blind: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            beat: Duration::from_secs(1),
            look: Duration::from_millis(500),
            gives_up: Duration::from_secs(4),
            takes: Duration::from_secs(5),
            buries: Duration::from_secs(30),
            blind: Duration::from_secs(2),
        }
    }
}

/// How it stands with blocks that a target has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It serves them.
    Serves,
    /// It has no way to them, or is too slow: another one may be about to take them.
    CutOff,
    /// Another one has taken them: for ever.
    Fenced,
}

/// Of the target that has the blocks.
#[derive(Clone, Debug)]
pub struct Owner {
    timing: Timing,
    /// When the newest beat began that was confirmed.
    confirmed: Instant,
    /// After it was cut off: when it serves again. Who stands by may have looked before the beat that came through, and
    /// hear of it only now. An answer to a look that takes longer than `blind` counts for nothing.
    resumes: Instant,
    /// It was cut off, and has not seen since then whose the blocks are. A beat says nothing of that: the cluster takes
    /// one from whoever reaches it, and a fence may have ended.
    is_in_doubt: bool,
    is_fenced: bool,
}

impl Owner {
    /// It has got them by what it has begun at `begun`.
    #[must_use]
    pub fn new(timing: Timing, begun: Instant) -> Owner {
        Owner {
            timing,
            confirmed: begun,
            resumes: Instant::default(),
            is_in_doubt: false,
            is_fenced: false,
        }
    }

    /// The cluster has confirmed the beat that began at `begun`, as is heard `now`. Whether it is to be looked whose the
    /// blocks are ([`Owner::looked`]): it serves nothing before that.
    #[must_use]
    pub fn confirmed(&mut self, begun: Instant, now: Instant) -> bool {
        self.is_in_doubt |= now.since(self.confirmed) >= self.timing.gives_up;
        self.confirmed = self.confirmed.max(begun);
        self.is_in_doubt
    }

    /// A look that was begun after the newest beat has shown `now` whether the blocks are still its own.
    pub fn looked(&mut self, is_ours: bool, now: Instant) {
        if !is_ours {
            self.fenced();
        } else if core::mem::take(&mut self.is_in_doubt) {
            self.resumes = now + self.timing.blind;
        }
    }

    /// The cluster refuses what comes from here.
    pub fn fenced(&mut self) {
        self.is_fenced = true;
    }

    /// How it stands.
    #[must_use]
    pub fn standing(&self, now: Instant) -> Standing {
        let is_heard = now.since(self.confirmed) < self.timing.gives_up;
        match is_heard && !self.is_in_doubt && now >= self.resumes {
            _ if self.is_fenced => Standing::Fenced,
            true => Standing::Serves,
            false => Standing::CutOff,
        }
    }
}

/// What a look has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nobody has the blocks.
    Nobody,
    /// The newest beat of their owner: another owner's is another number.
    Beat(u64),
    /// An owner that does not beat, and has them open: it has just come, or is no target.
    Stranger,
    /// An owner that does not beat, and does not have them open either: another owner's is another number.
    Absent(u64),
}

/// What follows from looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They are another one's.
    Wait,
    /// They can be had.
    Free,
    /// Their owner is gone, and is to be fenced before they can be had.
    Fence,
}

/// Of a target that stands by.
#[derive(Clone, Debug)]
pub struct Observer {
    timing: Timing,
    /// What could mean that the owner is gone, and since when nothing else was seen, as far as that was looked for.
    silence: Option<(Seen, Instant)>,
    /// When the last look was answered.
    answered: Instant,
}

impl Observer {
    /// Has seen nothing yet.
    #[must_use]
    pub fn new(timing: Timing) -> Observer {
        Observer { timing, silence: None, answered: Instant::default() }
    }

    /// A look that was `asked` for and `answered` then has shown `seen`.
    pub fn looked(&mut self, asked: Instant, answered: Instant, seen: Seen) -> Verdict {
        let was_blind = answered.since(self.answered) > self.timing.blind;
        self.answered = answered;
        let patience = match seen {
            Seen::Beat(_) => self.timing.takes,
            Seen::Absent(_) => self.timing.buries,
            Seen::Nobody | Seen::Stranger => {
                self.silence = None;
                return if seen == Seen::Nobody { Verdict::Free } else { Verdict::Wait };
            }
        };
        match self.silence {
            Some((known, since)) if known == seen && !was_blind => {
                match asked.since(since) >= patience {
                    true => Verdict::Fence,
                    false => Verdict::Wait,
                }
            }
            _ => {
                self.silence = Some((seen, answered));
                Verdict::Wait
            }
        }
    }
}

/// Whose blocks are, as looks show it, and whether somebody has told to take them from that one. It is told of the owner
/// that was seen last: who has them after that one may be this very target.
#[derive(Clone, Debug)]
pub struct Claim<T> {
    owner: Option<T>,
    wanted: Option<T>,
}

impl<T: Clone + PartialEq> Claim<T> {
    /// They are `owner`'s, or nobody's.
    #[must_use]
    pub fn new(owner: Option<T>) -> Self {
        Claim { owner, wanted: None }
    }

    /// Whether nobody was seen to have them.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.owner.is_none()
    }

    /// They are to be taken from their owner.
    pub fn seize(&mut self) {
        self.wanted.clone_from(&self.owner);
    }

    /// A look has shown whose they are. Whether they are to be taken from that one.
    pub fn looked(&mut self, owner: Option<&T>) -> bool {
        self.owner = owner.cloned();
        self.wanted.take_if(|wanted| Some(&*wanted) != owner);
        self.wanted.is_some()
    }

    /// Nothing of their owner is executed any more: they can be had.
    pub fn fenced(&mut self) {
        (self.owner, self.wanted) = (None, None);
    }
}
