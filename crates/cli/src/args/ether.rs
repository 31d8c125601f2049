//! Ethernet options: frames without TCP and IP. A program that was built without Ethernet hides them, and refuses uses
//! of them.

use super::word;
use clap::{Args, ValueEnum};
use roadtrain_ether_port::port::{PortConfig, PortKind};
use roadtrain_ether_proto::Packing;
use roadtrain_host_engine::EtherAddress;
use roadtrain_proto::security::SealUse;
use roadtrain_target_engine::EtherConfig;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Error of a program that was built without Ethernet.
const WITHOUT_ETHERNET: &str = "this program was built without Ethernet";
const IS_BUILT: bool = cfg!(feature = "ether");

/// Socket types of ports at interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortKindName {
    /// AF_XDP where the interface's driver works without copies and one reactor is enough, else AF_PACKET.
    #[default]
    Auto,
    /// A packet socket (AF_PACKET): works at every interface.
    Packet,
    /// An express data path socket (AF_XDP): one reactor only, and no --vlan.
    Xdp,
}

impl From<PortKindName> for PortKind {
    fn from(name: PortKindName) -> PortKind {
        match name {
            PortKindName::Auto => PortKind::Auto,
            PortKindName::Packet => PortKind::Packet,
            PortKindName::Xdp => PortKind::Xdp,
        }
    }
}

impl fmt::Display for PortKindName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&word(self))
    }
}

/// Use of frame encryption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SealMode {
    /// Never.
    Off,
    /// Sealed where the host authenticates.
    #[default]
    Allowed,
    /// Always sealed: a peer that cannot do it is refused.
    Required,
}

impl From<SealMode> for SealUse {
    fn from(when: SealMode) -> SealUse {
        match when {
            SealMode::Off => SealUse::Off,
            SealMode::Allowed => SealUse::Allowed,
            SealMode::Required => SealUse::Required,
        }
    }
}

/// Format of frames, and the sockets that carry them.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[command(next_help_heading = "Ethernet (-t ether)")]
pub struct EtherArgs {
    /// EtherType of the frames, the same at both ends [default: 0x88b5].
    #[arg(long, hide = !IS_BUILT, value_name = "N", value_parser = parse_ethertype)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<u16>,
    /// VLAN that the frames are tagged with [default: none].
    #[arg(long, hide = !IS_BUILT, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4094))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Use of encryption: frames are sealed with keys of the authentication (AES-GCM), so that no other station can
    /// read, alter or repeat them.
    #[arg(long, hide = !IS_BUILT, value_name = "WHEN", default_value = "allowed")]
    pub seal: SealMode,
    /// Socket type for frames.
    #[arg(long, hide = !IS_BUILT, value_name = "KIND", default_value_t)]
    pub port_kind: PortKindName,
    /// One request (or answer) a frame, for measurements.
    #[arg(long, hide = !IS_BUILT)]
    pub no_request_batching: bool,
    /// One piece of data a frame, for measurements.
    #[arg(long, hide = !IS_BUILT)]
    pub no_data_batching: bool,
}

impl EtherArgs {
    /// Returns the address of a target behind these interfaces.
    ///
    /// # Errors
    /// An invalid option.
    pub fn address(&self, interfaces: Vec<String>) -> Result<EtherAddress, String> {
        self.check()?;
        Ok(EtherAddress {
            port: self.port(),
            packing: self.packing(),
            seals: self.seal.into(),
            ..EtherAddress::new(interfaces)
        })
    }

    /// Returns the configuration of a target that listens on these interfaces.
    ///
    /// # Errors
    /// An invalid option.
    pub fn listen(&self, interfaces: Vec<String>) -> Result<EtherConfig, String> {
        self.check()?;
        let (port, packing, seals) = (self.port(), self.packing(), self.seal.into());
        Ok(EtherConfig { port, packing, seals, interfaces })
    }

    /// True if frames have to be sealed.
    #[must_use]
    pub fn requires_seal(&self) -> bool {
        self.seal == SealMode::Required
    }

    /// Returns the configuration of the ports.
    #[must_use]
    pub fn port(&self) -> PortConfig {
        let usual = PortConfig::default();
        PortConfig {
            kind: self.port_kind.into(),
            ethertype: self.ethertype.unwrap_or(usual.ethertype),
            vlan: self.vlan,
            ..usual
        }
    }

    /// Returns the packing of requests and data into frames.
    #[must_use]
    pub fn packing(&self) -> Packing {
        Packing { requests: !self.no_request_batching, pieces: !self.no_data_batching }
    }

    /// Checks for a configuration file what clap checks on the command line.
    ///
    /// # Errors
    /// An invalid option.
    pub fn check(&self) -> Result<(), String> {
        if !IS_BUILT {
            return Err(WITHOUT_ETHERNET.into());
        }
        if self.vlan.is_some_and(|vlan| !(1..=4094).contains(&vlan)) {
            return Err("vlan is not in 1 to 4094".into());
        }
        if self.vlan.is_some() && self.port_kind == PortKindName::Xdp {
            return Err("port-kind xdp does not go with vlan: make a VLAN interface".into());
        }
        self.ethertype.map_or(Ok(()), check_ethertype)
    }
}

fn parse_ethertype(text: &str) -> Result<u16, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let ethertype = number.map_err(|e| e.to_string())?;
    check_ethertype(ethertype).map(|()| ethertype)
}

/// EtherTypes whose frames the kernel of either end takes.
const TAKEN: [(u16, &str); 5] = [
    (0x0800, "IPv4"),
    (0x0806, "ARP"),
    (0x86dd, "IPv6"),
    (0x8100, "VLAN tags"),
    (0x88a8, "VLAN tags"),
];

fn check_ethertype(ethertype: u16) -> Result<(), String> {
    if ethertype < 0x600 {
        return Err("an EtherType is 0x600 to 0xffff".into()); // smaller values are lengths
    }
    match TAKEN.iter().find(|(taken, _)| *taken == ethertype) {
        Some((_, whose)) => Err(format!("the EtherType of {whose}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethertypes_are_numbers_of_either_kind() {
        assert_eq!(parse_ethertype("0x88b6"), Ok(0x88b6));
        assert_eq!(parse_ethertype("34998"), Ok(0x88b6));
        for bad in ["", "0x", "0x5ff", "0x800", "0x8100", "65536", "ip"] {
            assert!(parse_ethertype(bad).is_err(), "{bad}");
        }
    }

    #[test]
    #[cfg_attr(not(feature = "ether"), ignore = "there is no Ethernet")]
    fn xdp_and_tags_do_not_go_together() {
        let args = EtherArgs { vlan: Some(7), port_kind: PortKindName::Xdp, ..Default::default() };
        assert!(args.check().is_err());
        assert_eq!(EtherArgs { port_kind: PortKindName::Packet, ..args }.check(), Ok(()));
    }
}
