//! IP addresses as users write them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// Parses the IP address of a socket; `None`: the text is not an IP address, perhaps a name. An IPv4 address written as
/// an IPv6 one (`::ffff:192.0.2.1`) is the IPv4 address. A link-local address names its interface, as in
/// `fe80::1%eth0`.
///
/// # Errors
/// The interface is missing, or does not exist.
pub fn parse(text: &str, port: u16) -> Result<Option<SocketAddr>, String> {
    if let Some((ip, interface)) = with_interface(text) {
        let named = format!("{ip}%{interface}");
        let found = (&named[..], port).to_socket_addrs().ok().and_then(|mut found| found.next());
        return found.map(Some).ok_or_else(|| format!("{text}: there is no interface {interface}"));
    }
    match text.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(IpAddr::V6(ip)) if ip.is_unicast_link_local() => Err(format!(
            "{text}: a link-local address needs the name of its interface, as in {ip}%eth0"
        )),
        Ok(ip) => Ok(Some(SocketAddr::new(ip, port))),
        Err(_) => Ok(None),
    }
}

/// Returns the usual spelling of an IPv6 address with an interface, which need not exist; `None`: the text is not one.
#[must_use]
pub fn spelling(text: &str) -> Option<String> {
    with_interface(text).map(|(ip, interface)| format!("{ip}%{interface}"))
}

fn with_interface(text: &str) -> Option<(Ipv6Addr, &str)> {
    let (ip, interface) = text.split_once('%')?;
    Some((ip.parse().ok()?, interface))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_one_form() {
        let at = |text: &str| parse(text, 1).unwrap().map(|address| address.to_string());
        for (text, address) in [
            ("192.0.2.1", "192.0.2.1:1"),
            ("::ffff:192.0.2.1", "192.0.2.1:1"),
            ("2001:db8:0:0::1", "[2001:db8::1]:1"),
            ("::", "[::]:1"),
        ] {
            assert_eq!(at(text).as_deref(), Some(address), "{text}");
        }
        assert_eq!(at("disk.example.org"), None);
        assert_eq!(spelling("fe80:0:0:0::1%eth0").as_deref(), Some("fe80::1%eth0"));
        assert_eq!((spelling("fe80::1"), spelling("a%b")), (None, None));
    }

    #[test]
    fn a_link_local_address_has_an_interface() {
        let loopback = parse("fe80:0::1%lo", 1).unwrap().unwrap();
        assert!(matches!(loopback, SocketAddr::V6(address) if address.scope_id() != 0));
        for (text, why) in [
            ("fe80::1", "needs the name of its interface, as in fe80::1%eth0"),
            ("fe80::1%roadtrain-none", "there is no interface roadtrain-none"),
        ] {
            let error = parse(text, 1).unwrap_err();
            assert!(error.starts_with(text) && error.ends_with(why), "{error}");
        }
    }
}
