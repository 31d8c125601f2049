//! Streams that carry a connection, plain or secured.

/// Whom a stream was secured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecuredAs {
    /// The host.
    pub hostnqn: String,
    /// The subsystem that it wants to connect to.
    pub subnqn: String,
    /// The PSK was made by an authentication: nothing more is to be proved.
    pub by_generated: bool,
}

/// What carries a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel<'a> {
    /// A plain stream.
    Plain,
    /// The same, at a listener that takes TLS as well.
    Securable,
    /// One that is secured.
    Secured(&'a SecuredAs),
}
