//! What every reactor is made of, at the host and at the target.
//!
//! | file | purpose |
//! |---|---|
//! | `table` | its lanes: their uses, their polls, the lists of those that have something to do |
//! | `event` | what completes in its ring |
//! | `turns` | the inbox, spinning, sleeping: everything between two turns |
//! | `waits` | what its decisions to spin or sleep are made from |

pub(crate) mod event;
mod table;
mod turns;
mod waits;

pub(crate) use table::{List, Pollable, Table};
pub(crate) use turns::{Core, Reactor, RxBuffers, finish, run};
#[cfg(test)]
pub(crate) use turns::{begin, step};
#[cfg(test)]
pub(crate) use waits::Waits;
