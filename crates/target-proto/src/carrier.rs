//! Protection of a queue's stream, and how the queue was let in over it.

use roadtrain_proto::security::Channel;

/// Protection of a queue's stream, as far as its admission depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Carrier {
    #[default]
    Plain,
    /// Plain, at a listener that takes TLS as well.
    Securable,
    /// TLS with a configured PSK.
    Configured,
    /// TLS with a PSK that an authentication has made.
    Generated,
}

impl From<Channel<'_>> for Carrier {
    fn from(channel: Channel<'_>) -> Self {
        match channel {
            Channel::Plain => Carrier::Plain,
            Channel::Securable => Carrier::Securable,
            Channel::Secured(by) if by.by_generated => Carrier::Generated,
            Channel::Secured(_) => Carrier::Configured,
        }
    }
}

impl Carrier {
    pub(super) fn is_secured(self) -> bool {
        matches!(self, Carrier::Configured | Carrier::Generated)
    }
}

/// Way in which a queue was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admission {
    pub(super) carrier: Carrier,
    /// Its host was authenticated on it.
    pub(super) is_authenticated: bool,
}

impl Admission {
    /// The host has proved who it is, by this or by TLS.
    pub(super) fn is_proof(self) -> bool {
        self.is_authenticated || self.carrier.is_secured()
    }
}
