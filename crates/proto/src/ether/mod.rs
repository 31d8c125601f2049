//! Lanes straight on Ethernet (docs/ETHERNET.md): what TCP does for a connection, done for frames over
//! several links.
//!
//! | layer | type |
//! |---|---|
//! | a lane's part of one link: numbers, acknowledgement, loss, congestion | [`channel::Channel`] |
//! | a lane's channels: which link a frame takes | [`links::Links`] |

pub mod channel;
pub mod links;
