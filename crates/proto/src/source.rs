//! Sources of connections, the unit of limits and shares.

use core::net::{IpAddr, Ipv6Addr};

/// Bits of an IPv6 address that its network assigns; the host chooses the others.
const IPV6_NETWORK_BITS: u32 = 64;

/// Returns the source of an address: an IPv4 address, or an IPv6 network of 64 bits, in which a host has any number of
/// addresses. Link-local addresses share one network: there the whole address counts.
#[must_use]
pub fn of(address: IpAddr) -> IpAddr {
    // A socket for both versions shows IPv4 addresses as IPv6.
    match address.to_canonical() {
        IpAddr::V6(ip) if !ip.is_unicast_link_local() && !ip.is_loopback() => {
            Ipv6Addr::from_bits(ip.to_bits() >> IPV6_NETWORK_BITS << IPV6_NETWORK_BITS).into()
        }
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_network_is_one_source() {
        let of = |text: &str| super::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_ne!(of("fe80::1"), of("fe80::2"));
    }
}
