//! A waiting PDU as a policy sees it: kind, urgency, size; and the freight that carries it.

use roadtrain_wire::fabrics::cattr;
use roadtrain_wire::pdu;

/// Kind of a PDU (with the data that travels inside it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PduKind {
    /// Initialisation and termination of the connection.
    Control,
    /// A command capsule without data.
    Command,
    /// A command capsule with in-capsule data.
    CommandData,
    /// Data requested by an R2T.
    H2cData,
    /// A request for data.
    R2t,
    /// A response without data.
    Response,
    /// A read's data with its response.
    ResponseData,
}

/// Urgency of a PDU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// A bulk request: others may pass it.
    Bulk,
    /// May wait for company.
    #[default]
    Normal,
    /// Uses i10's no-delay path, in order: admin, Flush, FUA, requests marked urgent.
    Urgent,
    /// A latency-critical request: does not wait, and passes others where the policy has classes.
    Critical,
}

/// Service class of a request. The command's own class counts first, then its namespace's, then its connection's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// Latency-critical: passes others inside a lane.
    Latency,
    /// Neither latency-critical nor bulk.
    #[default]
    Normal,
    /// Bulk: others pass it.
    Bulk,
}

impl Class {
    /// Access Latency in the DSM field of Read and Write (CDW13 bits 05:04; NVM Command Set 1.0, figure 52):
    /// smallest possible, none given, idle (longer latency acceptable).
    #[must_use]
    #[inline]
    pub fn to_dsm(self) -> u32 {
        match self {
            Class::Latency => 3 << 4,
            Class::Normal => 0,
            Class::Bulk => 1 << 4,
        }
    }

    /// Returns the class in a DSM field; `None` if the field gives none.
    #[must_use]
    #[inline]
    pub fn from_dsm(cdw13: u32) -> Option<Self> {
        match cdw13 >> 4 & 3 {
            0 => None,
            1 => Some(Class::Bulk),
            2 => Some(Class::Normal),
            _ => Some(Class::Latency),
        }
    }

    /// Priority class in CATTR of Connect. Hosts that know no classes send 0, urgent: it cannot mean latency, which
    /// only single commands can request.
    #[must_use]
    #[inline]
    pub fn to_cattr(self) -> u8 {
        if self == Class::Bulk { cattr::PRIORITY_LOW } else { 0 }
    }

    /// Returns the class of an I/O queue's commands, from CATTR of its Connect.
    #[must_use]
    #[inline]
    pub fn from_cattr(cattr: u8) -> Self {
        let is_low = cattr & cattr::PRIORITY_CLASS == cattr::PRIORITY_LOW;
        if is_low { Class::Bulk } else { Class::Normal }
    }

    /// Returns the urgency of the class's PDUs.
    #[must_use]
    #[inline]
    pub fn urgency(self) -> Urgency {
        match self {
            Class::Latency => Urgency::Critical,
            Class::Normal => Urgency::Normal,
            Class::Bulk => Urgency::Bulk,
        }
    }
}

/// A PDU as a policy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PduInfo {
    pub kind: PduKind,
    pub urgency: Urgency,
    /// Bytes of data in the PDU.
    pub data_bytes: u32,
    /// Bytes of data of the whole request, in either direction.
    pub request_bytes: u32,
}

impl PduInfo {
    /// A PDU of initialisation or termination: sent at once.
    #[must_use]
    #[inline]
    pub const fn control() -> Self {
        PduInfo {
            kind: PduKind::Control,
            urgency: Urgency::Urgent,
            data_bytes: 0,
            request_bytes: 0,
        }
    }

    /// True if the PDU takes the no-delay path. A whole write waits for its H2CData: no second doorbell for that.
    #[must_use]
    #[inline]
    pub fn is_urgent(&self) -> bool {
        self.kind == PduKind::H2cData || self.urgency >= Urgency::Urgent
    }

    /// Returns the bytes of the whole PDU, without digests and padding.
    #[must_use]
    pub fn pdu_bytes(&self) -> u32 {
        let header = match self.kind {
            PduKind::Control => size_of::<pdu::IcReq>(),
            PduKind::Command | PduKind::CommandData => size_of::<pdu::CapsuleCmd>(),
            PduKind::H2cData => size_of::<pdu::H2cData>(),
            PduKind::R2t => size_of::<pdu::R2t>(),
            PduKind::Response => size_of::<pdu::CapsuleResp>(),
            PduKind::ResponseData => size_of::<pdu::C2hData>(),
        };
        self.data_bytes.saturating_add(header as u32)
    }
}

/// Containers of a queue pair and direction, in the order in which they leave (PINoF, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freight {
    /// PDUs that pass all others.
    Express,
    /// Small PDUs: commands, R2Ts, responses.
    Cmd,
    /// PDUs with data; all PDUs, for policies that make no difference.
    Data,
}

impl Freight {
    /// All freights, first to leave first.
    pub const ALL: [Freight; 3] = [Freight::Express, Freight::Cmd, Freight::Data];
}

/// A set of freights; as an iterator, first to leave first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freights(u8);

impl Freights {
    /// Adds a freight.
    #[inline]
    pub fn insert(&mut self, freight: Freight) {
        self.0 |= 1 << freight as u8;
    }

    /// Removes a freight.
    #[inline]
    pub fn remove(&mut self, freight: Freight) {
        self.0 &= !(1 << freight as u8);
    }

    /// True if `freight` is in the set.
    #[inline]
    #[must_use]
    pub fn has(self, freight: Freight) -> bool {
        self.0 & 1 << freight as u8 != 0
    }

    /// True if the set is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if `freight` is the only one in the set.
    #[inline]
    #[must_use]
    pub fn is_only(self, freight: Freight) -> bool {
        self.0 == 1 << freight as u8
    }
}

impl Iterator for Freights {
    type Item = Freight;

    #[inline]
    fn next(&mut self) -> Option<Freight> {
        let freight = *Freight::ALL.get(self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1; // clears the lowest bit
        Some(freight)
    }
}
