//! What a policy sees of a PDU that waits: its kind, its urgency, its size; and which freight carries it.

use roadtrain_wire::fabrics::cattr;
use roadtrain_wire::pdu;

/// Kind of a PDU (with the data that travels inside it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Initialisation and termination of the connection.
    Control,
    /// A command capsule without data.
    Command,
    /// A command capsule with in-capsule data.
    CommandData,
    /// Data that an R2T asked for.
    H2cData,
    /// A request for data.
    R2t,
    /// A response without data.
    Response,
    /// A read's data with its response.
    ResponseData,
}

/// How urgent a PDU is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Of a bulk request: others may pass it.
    Bulk,
    /// May wait for company.
    #[default]
    Normal,
    /// Takes i10's no-delay path, in its place: admin, flush, FUA, requests marked urgent.
    Urgent,
    /// Of a latency-critical request: does not wait, and passes others where the policy has classes.
    Critical,
}

/// How a request is treated beside others. What the command says counts first, then its namespace, then its
/// connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// Latency-critical: passes others inside a lane.
    Latency,
    /// Neither.
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

    /// The class that a DSM field asks for; `None` when it says nothing.
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

    /// Priority class in CATTR of Connect. Hosts that know no classes send 0, urgent: it cannot mean latency,
    /// which only commands can ask for.
    #[must_use]
    #[inline]
    pub fn to_cattr(self) -> u8 {
        if self == Class::Bulk { cattr::PRIORITY_LOW } else { 0 }
    }

    /// The class of an I/O queue's commands, from CATTR of its Connect.
    #[must_use]
    #[inline]
    pub fn from_cattr(cattr: u8) -> Self {
        let is_low = cattr & cattr::PRIORITY_CLASS == cattr::PRIORITY_LOW;
        if is_low { Class::Bulk } else { Class::Normal }
    }

    /// The urgency of its PDUs.
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
pub struct Parcel {
    pub kind: Kind,
    /// How urgent it is.
    pub urgency: Urgency,
    /// Octets of data in it.
    pub data_bytes: u32,
    /// Octets of data of its whole request, whichever way they go.
    pub request_bytes: u32,
}

impl Parcel {
    /// Initialisation or termination: at once.
    #[must_use]
    #[inline]
    pub const fn control() -> Self {
        Parcel { kind: Kind::Control, urgency: Urgency::Urgent, data_bytes: 0, request_bytes: 0 }
    }

    /// Whether it takes the no-delay path. A whole write waits for its H2CData: no second doorbell for that.
    #[must_use]
    #[inline]
    pub fn is_urgent(&self) -> bool {
        self.kind == Kind::H2cData || self.urgency >= Urgency::Urgent
    }

    /// Octets of the whole PDU, without digests and padding.
    #[must_use]
    pub fn pdu_bytes(&self) -> u32 {
        let header = match self.kind {
            Kind::Control => size_of::<pdu::IcReq>(),
            Kind::Command | Kind::CommandData => size_of::<pdu::CapsuleCmd>(),
            Kind::H2cData => size_of::<pdu::H2cData>(),
            Kind::R2t => size_of::<pdu::R2t>(),
            Kind::Response => size_of::<pdu::CapsuleResp>(),
            Kind::ResponseData => size_of::<pdu::C2hData>(),
        };
        self.data_bytes.saturating_add(header as u32)
    }
}

/// Containers of a queue pair and direction, in the order in which they leave (PINoF, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freight {
    /// What passes everything else.
    Express,
    /// Small PDUs: commands, R2Ts, responses.
    Cmd,
    /// PDUs with data; everything, for policies that make no difference.
    Data,
}

impl Freight {
    /// All of them, first to leave first.
    pub const ALL: [Freight; 3] = [Freight::Express, Freight::Cmd, Freight::Data];
}

/// Some of the freights; as an iterator, first to leave first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freights(u8);

impl Freights {
    /// One more.
    #[inline]
    pub fn insert(&mut self, freight: Freight) {
        self.0 |= 1 << freight as u8;
    }

    /// One less.
    #[inline]
    pub fn remove(&mut self, freight: Freight) {
        self.0 &= !(1 << freight as u8);
    }

    /// Whether it is one of them.
    #[inline]
    #[must_use]
    pub fn has(self, freight: Freight) -> bool {
        self.0 & 1 << freight as u8 != 0
    }

    /// True if there is none.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it is the only one.
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
        self.0 &= self.0 - 1; // without the lowest bit
        Some(freight)
    }
}
