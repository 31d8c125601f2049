//! Addresses of listeners, as clients write them.

use crate::model::SavedListener;
use crate::rpc::{Rpc, RpcError};
use roadtrain_reactor::ip_address;
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::SocketAddr;

/// An address in request parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Address {
    trtype: String,
    traddr: String,
    trsvcid: Option<String>,
    adrfam: Option<String>,
}

/// Default port of NVMe/TCP.
const PORT: u16 = 4420;
/// Default port of discovery controllers.
const DISCOVERY_PORT: u16 = 8009;

impl Address {
    /// Returns the address as a listener of the model.
    ///
    /// # Errors
    /// The address is no TCP address.
    pub(super) fn listener(&self) -> Rpc<SavedListener> {
        self.listener_or(PORT)
    }

    /// Returns the address as that of a discovery controller.
    ///
    /// # Errors
    /// The address is no TCP address.
    pub(super) fn discovery(&self) -> Rpc<SocketAddr> {
        let listener = self.listener_or(DISCOVERY_PORT)?;
        listener.address().ok_or_else(|| RpcError::params("traddr"))
    }

    fn listener_or(&self, port: u16) -> Rpc<SavedListener> {
        let bad = |field: &str, value: &str| Err(RpcError::params(format!("{field} {value:?}")));
        if !self.trtype.eq_ignore_ascii_case("tcp") {
            return bad("trtype", &self.trtype);
        }
        let refused = |why| RpcError::params(format!("traddr {why}"));
        if ip_address::parse(&self.traddr, port).map_err(refused)?.is_none() {
            return bad("traddr", &self.traddr);
        }
        let own = if self.traddr.contains(':') { "ipv6" } else { "ipv4" };
        let family = self.adrfam.as_deref().unwrap_or(own);
        if !family.eq_ignore_ascii_case(own) {
            return bad("adrfam", family);
        }
        let port = match self.trsvcid.as_deref() {
            None => port,
            Some(text) => match text.parse() {
                Ok(port) if port > 0 => port,
                _ => return bad("trsvcid", text),
            },
        };
        let (address, ana) = (self.traddr.clone(), Default::default());
        Ok(SavedListener { address, port, ana, secure: false, groups: Vec::new() })
    }
}

/// Returns an address in the form of replies.
pub(super) fn show(address: SocketAddr) -> Value {
    show_as(&address.ip().to_string(), address)
}

/// Returns the address of a listener, with the text that its client wrote.
pub(super) fn show_listener(listener: &SavedListener) -> Value {
    listener.address().map_or(Value::Null, |address| show_as(&listener.address, address))
}

fn show_as(traddr: &str, address: SocketAddr) -> Value {
    let family = if address.is_ipv6() { "IPv6" } else { "IPv4" };
    json!({
        "trtype": "TCP", "adrfam": family, "traddr": traddr, "trsvcid": address.port().to_string(),
    })
}
