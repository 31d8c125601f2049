//! Features and asynchronous events (NVMe Base 2.1, sections 5.1.25 and 5.1.2).

use crate::sqe::{Sqe, opcode};

/// Feature identifiers.
pub mod fid {
    pub const ARBITRATION: u8 = 0x01;
    pub const POWER_MANAGEMENT: u8 = 0x02;
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    pub const ERROR_RECOVERY: u8 = 0x05;
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    pub const ASYNC_EVENT_CONFIG: u8 = 0x0b;
    pub const KEEP_ALIVE_TIMER: u8 = 0x0f;
    pub const HOST_BEHAVIOR: u8 = 0x16;
    pub const COMMAND_SET_PROFILE: u8 = 0x19;
    pub const HOST_IDENTIFIER: u8 = 0x81;
    /// See [`crate::reservation::Notification::mask_bit`].
    pub const RESERVATION_NOTIFICATION_MASK: u8 = 0x82;
    /// See [`crate::reservation::PTPL`].
    pub const RESERVATION_PERSISTENCE: u8 = 0x83;
}

/// Bytes of the Host Behavior Support data.
pub const HOST_BEHAVIOR_BYTES: usize = 512;
/// Bytes of an extended Host Identifier.
pub const HOST_IDENTIFIER_BYTES: usize = 16;

/// SEL of Get Features: the requested value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    Current,
    /// Value after a reset, when no other was saved.
    Default,
    Saved,
    /// Attributes of the feature: see [`capabilities`].
    Capabilities,
}

/// Bits of the result of Get Features with [`Select::Capabilities`].
pub mod capabilities {
    pub const CHANGEABLE: u32 = 1 << 2;
}

/// Fields of Get Features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetFeatures {
    pub fid: u8,
    /// `None` when the field is reserved.
    pub select: Option<Select>,
}

impl GetFeatures {
    /// Parses the fields of a Get Features `sqe`.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let cdw10 = sqe.cdw10.get();
        let select = match cdw10 >> 8 & 7 {
            0 => Some(Select::Current),
            1 => Some(Select::Default),
            2 => Some(Select::Saved),
            3 => Some(Select::Capabilities),
            _ => None,
        };
        GetFeatures { fid: cdw10 as u8, select }
    }
}

/// Fields of Set Features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetFeatures {
    pub fid: u8,
    /// SV: keep the value over power cycles.
    pub save: bool,
    /// CDW11, with a meaning that depends on the feature.
    pub value: u32,
}

impl SetFeatures {
    /// Parses the fields of a Set Features `sqe`.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let cdw10 = sqe.cdw10.get();
        SetFeatures { fid: cdw10 as u8, save: cdw10 >> 31 != 0, value: sqe.cdw11.get() }
    }

    /// Returns a Set Features command without data.
    #[must_use]
    pub fn emit(fid: u8, value: u32) -> Sqe {
        let mut sqe = Sqe::new(opcode::SET_FEATURES, 0);
        sqe.cdw10 = u32::from(fid).into();
        sqe.cdw11 = value.into();
        sqe
    }
}

/// Number of Queues (07h): counts from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberOfQueues {
    pub submission: u32,
    pub completion: u32,
}

impl NumberOfQueues {
    /// Parses CDW11 (requested) or DW0 (granted); `None` for the value FFFFh, which is not allowed.
    #[must_use]
    pub fn parse(dword: u32) -> Option<Self> {
        let (submission, completion) = (dword & 0xffff, dword >> 16);
        (submission != 0xffff && completion != 0xffff)
            .then_some(NumberOfQueues { submission: submission + 1, completion: completion + 1 })
    }

    /// Returns the dword; counts are 1..=65535.
    #[must_use]
    pub fn emit(&self) -> u32 {
        (self.submission.wrapping_sub(1) & 0xffff) | self.completion.wrapping_sub(1) << 16
    }
}

/// Direction of a Temperature Threshold (04h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdType {
    /// Upper threshold: warns when the temperature reaches it.
    Over,
    /// Lower threshold: warns when the temperature falls to it.
    Under,
}

/// CDW11 of Temperature Threshold (04h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemperatureThreshold {
    /// TMPTH: threshold in kelvins.
    pub kelvins: u16,
    /// TMPSEL: sensor, see [`TemperatureThreshold::COMPOSITE`].
    pub sensor: u8,
    /// THSEL; `None` when the field is reserved.
    pub kind: Option<ThresholdType>,
    /// TMPTHH: hysteresis, 0 for none.
    pub hysteresis: u8,
}

impl TemperatureThreshold {
    /// TMPSEL of the Composite Temperature.
    pub const COMPOSITE: u8 = 0;
    /// TMPSEL of all temperatures of a controller, for Set Features alone.
    pub const ALL: u8 = 0xf;

    /// Parses the fields of `cdw11`.
    #[must_use]
    pub fn parse(cdw11: u32) -> Self {
        let kind = match cdw11 >> 20 & 3 {
            0 => Some(ThresholdType::Over),
            1 => Some(ThresholdType::Under),
            _ => None,
        };
        let (sensor, hysteresis) = ((cdw11 >> 16 & 0xf) as u8, (cdw11 >> 22 & 7) as u8);
        TemperatureThreshold { kelvins: cdw11 as u16, sensor, kind, hysteresis }
    }
}

/// Asynchronous event types.
pub mod event_type {
    /// Error status.
    pub const ERROR: u8 = 0;
    /// SMART / health status.
    pub const SMART: u8 = 1;
    pub const NOTICE: u8 = 2;
    /// I/O command set specific status.
    pub const COMMAND_SET: u8 = 6;
}

/// Asynchronous event information of notices.
pub mod notice {
    pub const NAMESPACE_ATTRIBUTE: u8 = 0x00;
    pub const ANA_CHANGE: u8 = 0x03;
    pub const DISCOVERY_LOG: u8 = 0xf0;
    pub const CROSS_CONTROLLER_RESET: u8 = 0xf4;
}

/// Asynchronous event information of I/O command set specific status: a Reservation Notification log page is available.
pub const RESERVATION_LOG_AVAILABLE: u8 = 0x00;

/// DW0 of a completed Asynchronous Event Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    pub event_type: u8,
    /// Event information, by type: see [`notice`].
    pub information: u8,
    /// Log page with details; reading it lets the controller report the event again.
    pub lid: u8,
}

impl AsyncEvent {
    /// Parses DW0.
    #[must_use]
    pub fn parse(dword: u32) -> Self {
        AsyncEvent {
            event_type: (dword & 7) as u8,
            information: (dword >> 8) as u8,
            lid: (dword >> 16) as u8,
        }
    }

    /// Returns DW0.
    #[must_use]
    pub fn emit(&self) -> u32 {
        u32::from(self.event_type & 7)
            | u32::from(self.information) << 8
            | u32::from(self.lid) << 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_what_linux_sends() {
        let changed = AsyncEvent {
            event_type: event_type::NOTICE,
            information: notice::NAMESPACE_ATTRIBUTE,
            lid: 0x04,
        };
        assert_eq!(changed.emit(), 0x0004_0002);
        let reservation = AsyncEvent {
            event_type: event_type::COMMAND_SET,
            information: RESERVATION_LOG_AVAILABLE,
            lid: 0x80,
        };
        assert_eq!(reservation.emit(), 0x0080_0006);
        assert_eq!(AsyncEvent::parse(0x0070_f002).information, notice::DISCOVERY_LOG);
        let ana = AsyncEvent { information: notice::ANA_CHANGE, lid: 0x0c, ..changed };
        assert_eq!(ana.emit(), 0x000c_0302);
    }

    #[test]
    fn queue_counts_are_zero_based_on_the_wire() {
        let queues = NumberOfQueues { submission: 128, completion: 128 };
        assert_eq!(queues.emit(), 0x007f_007f);
        assert_eq!(NumberOfQueues::parse(0x007f_007f), Some(queues));
        assert_eq!(NumberOfQueues::parse(0xffff_0000), None);
        assert_eq!(NumberOfQueues::parse(0x0000_ffff), None);
    }

    #[test]
    fn select_and_save_parse() {
        let mut sqe = SetFeatures::emit(fid::KEEP_ALIVE_TIMER, 5000);
        sqe.cdw10 = (0x8000_030f).into();
        assert!(SetFeatures::parse(&sqe).save);
        assert_eq!(GetFeatures::parse(&sqe).select, Some(Select::Capabilities));
        sqe.cdw10 = 0x40f.into();
        assert_eq!(GetFeatures::parse(&sqe).select, None);
    }
}
