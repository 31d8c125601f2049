//! Messages of other threads to a server, which its reactor watches for.

use roadtrain_host_engine::{FrontTurn, Interest};
use roadtrain_system::mailbox::{MailboxReceiver, MailboxSender, mailbox};
use std::io;

/// A mailbox, with a flag for its watch.
pub(super) struct WatchedMailbox<T> {
    inbox: MailboxReceiver<T>,
    is_watched: bool,
}

impl<T> WatchedMailbox<T> {
    /// Makes an empty mailbox; returns its sending end, too.
    ///
    /// # Errors
    /// Fails if the system has no descriptor left.
    pub(super) fn new() -> io::Result<(MailboxSender<T>, Self)> {
        let (outbox, inbox) = mailbox()?;
        Ok((outbox, WatchedMailbox { inbox, is_watched: false }))
    }

    /// Takes the messages that have arrived, after the watch fired.
    pub(super) fn take(&mut self) -> impl Iterator<Item = T> {
        self.is_watched = false;
        self.inbox.acknowledge();
        std::iter::from_fn(|| self.inbox.take())
    }

    pub(super) fn watch(&mut self, turn: &mut dyn FrontTurn, key: u64) {
        if !std::mem::replace(&mut self.is_watched, true) {
            turn.watch(self.inbox.fd(), Interest::Readable, key);
        }
    }

    pub(super) fn unwatch(&mut self, turn: &mut dyn FrontTurn, key: u64) {
        if std::mem::take(&mut self.is_watched) {
            turn.unwatch(key);
        }
    }
}
