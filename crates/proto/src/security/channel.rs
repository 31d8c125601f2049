//! Streams that carry a connection, plain or secured.

/// Identities that a stream was secured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecuredAs {
    /// The host.
    pub hostnqn: String,
    /// The subsystem that the host wants to connect to.
    pub subnqn: String,
    /// True if an authentication generated the PSK: no further proof is needed.
    pub by_generated: bool,
}

/// Kind of stream that carries a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionSecurity<'a> {
    /// A plain stream.
    Plain,
    /// A plain stream at a listener that also takes TLS.
    Securable,
    /// A secured stream.
    Secured(&'a SecuredAs),
}
