//! PINoF (2022): CMD and Data freights, each with its own size, degree and timer, at both ends.

use super::{
    Backlog, BatchPolicy, Doorbell, DoorbellCause, Freight, I10_DOORBELL_DELAY, PduInfo, PduKind,
};
use super::{I10_BYTES_MAX, I10_COUNT_MAX};
use crate::caravan::CaravanLimits;
use crate::time::Instant;
use core::time::Duration;

/// Limits of a freight: it is sent at the first that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreightSettings {
    /// Maximum bytes of PDUs: the freight is sent before the one that does not fit.
    pub bytes_max: u32,
    /// Maximum number of PDUs, counted with their weights.
    pub degree: u32,
    /// Maximum time since the first PDU.
    pub delay: Duration,
}

/// PINoF's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinofSettings {
    /// Read commands; R2Ts and responses without data.
    pub cmd: FreightSettings,
    /// Write commands with data, H2CData; read responses.
    pub data: FreightSettings,
    /// Weight of an R2T in the degree: a whole write waits for it.
    pub r2t_weight: u32,
    /// Weight of a response without data.
    pub response_weight: u32,
}

impl PinofSettings {
    /// Published settings (the timers are those of the artifact: the paper prints ms).
    #[must_use]
    #[inline]
    pub const fn published() -> Self {
        let cmd = FreightSettings { bytes_max: 512, degree: 8, delay: Duration::from_micros(25) };
        let data =
            FreightSettings { bytes_max: 64 << 10, degree: 16, delay: Duration::from_micros(50) };
        PinofSettings { cmd, data, r2t_weight: 3, response_weight: 2 }
    }

    /// Ablation without priorities: both freights as i10's caravan, no weights.
    #[must_use]
    #[inline]
    pub const fn flat() -> Self {
        let freight = FreightSettings {
            bytes_max: I10_BYTES_MAX,
            degree: I10_COUNT_MAX,
            delay: I10_DOORBELL_DELAY,
        };
        PinofSettings { cmd: freight, data: freight, r2t_weight: 1, response_weight: 1 }
    }

    #[inline]
    fn of(&self, freight: Freight) -> &FreightSettings {
        if freight == Freight::Cmd { &self.cmd } else { &self.data }
    }

    #[inline]
    fn weight(&self, kind: PduKind) -> u32 {
        match kind {
            PduKind::R2t => self.r2t_weight,
            PduKind::Response => self.response_weight,
            _ => 1,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct PinofBacklog {
    weight: u32,
    bytes: u32,
    deadline: Instant,
}

/// Two freights; H2CData and urgent requests never wait.
#[derive(Clone, Copy, Debug)]
pub struct Pinof {
    settings: PinofSettings,
    cmd: PinofBacklog,
    data: PinofBacklog,
}

impl Pinof {
    /// The policy with `settings`.
    #[must_use]
    pub fn new(settings: PinofSettings) -> Self {
        Pinof { settings, cmd: PinofBacklog::default(), data: PinofBacklog::default() }
    }

    #[inline]
    fn waiting(&mut self, freight: Freight) -> &mut PinofBacklog {
        if freight == Freight::Cmd { &mut self.cmd } else { &mut self.data }
    }
}

impl BatchPolicy for Pinof {
    #[inline]
    fn freight(&self, pdu: &PduInfo) -> Freight {
        match pdu.kind {
            // ICResp leaves before the response to a command that came with ICReq.
            PduKind::Control | PduKind::Command | PduKind::R2t | PduKind::Response => Freight::Cmd,
            PduKind::CommandData | PduKind::H2cData | PduKind::ResponseData => Freight::Data,
        }
    }

    fn on_enqueue(&mut self, now: Instant, backlog: &Backlog, pdu: &PduInfo) -> Doorbell {
        let freight = self.freight(pdu);
        let settings = *self.settings.of(freight);
        let weight = self.settings.weight(pdu.kind);
        let waiting = self.waiting(freight);
        if backlog.requests == 1 {
            *waiting = PinofBacklog { weight: 0, bytes: 0, deadline: now + settings.delay };
        }
        waiting.weight = waiting.weight.saturating_add(weight);
        waiting.bytes = waiting.bytes.saturating_add(pdu.pdu_bytes());
        // The size of the next PDU is assumed to be that of this one: PDUs of a freight are mostly alike.
        let next = waiting.bytes.saturating_add(pdu.pdu_bytes());
        if pdu.is_urgent() {
            Doorbell::Ring(DoorbellCause::Urgent)
        } else if waiting.weight >= settings.degree || next > settings.bytes_max {
            Doorbell::Ring(DoorbellCause::Size)
        } else {
            Doorbell::ArmUntil(waiting.deadline)
        }
    }

    #[inline]
    fn on_drained(&mut self, freight: Freight, is_due: bool) -> Doorbell {
        match is_due {
            true => Doorbell::Ring(DoorbellCause::Timer),
            false => Doorbell::ArmUntil(self.waiting(freight).deadline),
        }
    }

    #[inline]
    fn limits(&self, freight: Freight, _: bool) -> CaravanLimits {
        let settings = self.settings.of(freight);
        CaravanLimits { count_max: settings.degree.max(1), bytes_max: settings.bytes_max }
    }
}
