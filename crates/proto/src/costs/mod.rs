//! What its machine costs an end of a lane, as it finds out by itself.
//!
//! | figure | from | read by |
//! |---|---|---|
//! | [`SleepCost`]: CPU time of a sleep and its wake-up | the thread's CPU time around some of its sleeps | how it waits: the bound of a spin |
//! | [`IdleShare`]: for what share of its time it waits | when it begins to wait and when it wakes up, which it knows anyway | `auto`: whether there is time for more sends |
//! | [`Awake`]: its pace with little in flight | its turns, its sleeps, what a request takes | `auto`: in how many parts few requests go round |
//!
//! No clock and no thread: both are told the time, and what was counted.

mod awake;
mod idle;
mod sleep;

pub use awake::{Awake, Pace, Used};
pub use idle::IdleShare;
pub use sleep::SleepCost;

/// What one reactor has found out.
#[derive(Debug)]
pub struct Costs {
    pub sleep: SleepCost,
    pub idle: IdleShare,
    pub awake: Awake,
}

impl Costs {
    /// Nothing yet. `leads`: whether it is a host.
    #[must_use]
    pub fn new(leads: bool) -> Self {
        let (sleep, idle) = (SleepCost::default(), IdleShare::default());
        Costs { sleep, idle, awake: Awake::new(leads) }
    }
}
