//! Controller properties (NVMe Base 2.1, section 3.1.4): CAP, VS, CC, CSTS, CRTO.

use super::config::TargetLimits;
use super::kind::ControllerKind;
use roadtrain_proto::error::CommandError;
use roadtrain_wire::cross_reset::ControllerInstance;
use roadtrain_wire::fabrics::{Property, PropertySize, property};

/// NVMe 2.1.
pub(super) const VERSION: u32 = 0x0002_0100;

/// Longest time to become ready (CAP.TO, CRTO.CRWMT), in units of 500 ms; the target needs none.
const READY_TIMEOUT: u8 = 15;

/// Step between a controller's instance numbers: odd, so that none is repeated soon.
const CIRN_STEP: u32 = 0x9e37_79b9;

/// Offsets of CDW10 and CDW11 in a command.
const BYTE_ATTRIB: u8 = 40;
const BYTE_OFFSET: u8 = 44;

mod cap {
    /// Queues are contiguous: fabrics have no others.
    pub(super) const CONTIGUOUS: u64 = 1 << 16;
    /// NVM command set.
    pub(super) const CSS_NVM: u64 = 1 << 37;
    /// Command sets are chosen by the I/O Command Set Profile.
    pub(super) const CSS_PROFILES: u64 = 1 << 43;
    /// No I/O command set.
    pub(super) const CSS_NONE: u64 = 1 << 44;
    /// Ready with media (CRMS.CRWMS).
    pub(super) const READY_WITH_MEDIA: u64 = 1 << 59;
}

mod csts {
    pub(super) const READY: u32 = 1 << 0;
    pub(super) const FATAL: u32 = 1 << 1;
    pub(super) const SHUTDOWN_MASK: u32 = 3 << 2;
    pub(super) const SHUTDOWN_OCCURRING: u32 = 1 << 2;
    pub(super) const SHUTDOWN_COMPLETE: u32 = 2 << 2;
}

/// Controller Configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Cc(u32);

impl Cc {
    fn is_enabled(self) -> bool {
        self.0 & 1 != 0
    }

    fn wants_shutdown(self) -> bool {
        self.0 >> 14 & 3 != 0
    }

    /// True if the configuration is supported: pages of 4 KiB, round robin, entries of 64 and 16 bytes, a known command
    /// set.
    fn is_valid(self, kind: ControllerKind) -> bool {
        let field = |shift: u32, bits: u32| self.0 >> shift & ((1 << bits) - 1);
        let (css, mps, ams, iosqes, iocqes) =
            (field(4, 3), field(7, 4), field(11, 3), field(16, 4), field(20, 4));
        let fits = match kind {
            ControllerKind::Io => matches!(css, 0b000 | 0b110) && iosqes == 6 && iocqes == 4,
            // Without I/O queues their entry sizes do not matter.
            ControllerKind::Discovery => matches!(css, 0b000 | 0b110 | 0b111),
        };
        fits && mps == 0 && ams == 0
    }
}

/// Effect of setting CC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    /// Nothing more to do.
    None,
    /// The controller is being reset: end its I/O queues and outstanding commands, then call
    /// [`Properties::finish_reset`].
    Reset,
}

/// Common prefix of the Controller Instance Random Numbers of one target's controllers, different from those of other
/// processes. So a target recognizes its own numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Issuer(u32);

impl Issuer {
    pub(super) fn new(random: u64) -> Self {
        Issuer((random >> 32) as u32)
    }

    /// True if a controller with that number is, or was, one of this target.
    pub(super) fn has_issued(self, named: &ControllerInstance) -> bool {
        named.cirn >> 32 == u64::from(self.0)
    }
}

/// Properties of a controller.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Properties {
    cc: Cc,
    csts: u32,
    /// Instance of the controller, which begins when the host enables it.
    instance: ControllerInstance,
    /// True after the host has disabled the controller, while commands may still be in a store: CSTS changes only after
    /// them.
    resetting: bool,
}

impl Properties {
    /// Creates the properties of a controller with unpredictable instance numbers, except for the target's prefix.
    pub(super) fn new(cntlid: u16, random: u64, issuer: Issuer) -> Self {
        let cirn = u64::from(issuer.0) << 32 | u64::from(random as u32);
        let instance = ControllerInstance { cntlid, ciu: (random >> 56) as u8, cirn };
        Properties { instance, ..Properties::default() }
    }

    /// Returns the controller's current instance.
    pub(super) fn instance(&self) -> ControllerInstance {
        self.instance
    }

    /// True if the controller executes commands other than fabrics commands.
    pub(super) fn is_ready(&self) -> bool {
        let up = self.csts & (csts::READY | csts::FATAL | csts::SHUTDOWN_MASK) == csts::READY;
        up && !self.resetting
    }

    /// Records that a shutdown is in progress.
    pub(super) fn begin_shutdown(&mut self) {
        self.csts = self.csts & !csts::SHUTDOWN_MASK | csts::SHUTDOWN_OCCURRING;
    }

    /// Completes a reset, if there is one, once no command is in a store. Applies the CC that was written meanwhile.
    pub(super) fn finish_reset(&mut self, kind: ControllerKind) {
        if core::mem::take(&mut self.resetting) {
            self.csts = if self.cc.wants_shutdown() { csts::SHUTDOWN_COMPLETE } else { 0 };
            if self.cc.is_enabled() {
                self.enable(kind);
            }
        }
    }

    fn enable(&mut self, kind: ControllerKind) {
        // A reader that does not know the previous number cannot derive this one.
        let (issuer, number) = (self.instance.cirn >> 32 << 32, self.instance.cirn as u32);
        self.instance.cirn = issuer | u64::from(number.wrapping_add(CIRN_STEP));
        self.instance.ciu = self.instance.ciu.checked_add(1).unwrap_or(1);
        self.csts = if self.cc.is_valid(kind) { csts::READY } else { csts::FATAL };
    }

    /// Executes Property Get.
    pub(super) fn get(
        &self,
        get: &Property,
        kind: ControllerKind,
        limits: &TargetLimits,
    ) -> Result<u64, CommandError> {
        let (value, size) = match get.offset {
            property::CAP => (capabilities(kind, limits), PropertySize::Eight),
            property::VS => (VERSION.into(), PropertySize::Four),
            property::CC => (self.cc.0.into(), PropertySize::Four),
            property::CSTS => (self.csts.into(), PropertySize::Four),
            property::CRTO => (READY_TIMEOUT.into(), PropertySize::Four),
            _ => return Err(CommandError::field(BYTE_OFFSET)),
        };
        if get.size != Some(size) {
            return Err(CommandError::field(BYTE_ATTRIB));
        }
        Ok(value)
    }

    /// Executes Property Set: only CC can be set.
    pub(super) fn set(
        &mut self,
        set: &Property,
        kind: ControllerKind,
    ) -> Result<Transition, CommandError> {
        if set.offset != property::CC {
            return Err(CommandError::field(BYTE_OFFSET));
        }
        if set.size != Some(PropertySize::Four) {
            return Err(CommandError::field(BYTE_ATTRIB));
        }
        Ok(self.set_cc(Cc(set.value as u32), kind))
    }

    fn set_cc(&mut self, new: Cc, kind: ControllerKind) -> Transition {
        let old = core::mem::replace(&mut self.cc, new);
        if !new.is_enabled() && old.is_enabled() {
            self.resetting = true;
            return Transition::Reset;
        }
        if self.resetting {
            return Transition::None; // applied at the end of the reset
        }
        if new.is_enabled() && !old.is_enabled() {
            self.enable(kind);
        }
        if new.wants_shutdown() {
            self.csts = self.csts & !csts::SHUTDOWN_MASK | csts::SHUTDOWN_COMPLETE;
        }
        Transition::None
    }
}

fn capabilities(kind: ControllerKind, limits: &TargetLimits) -> u64 {
    let command_sets = match kind {
        ControllerKind::Io => cap::CSS_NVM | cap::CSS_PROFILES,
        ControllerKind::Discovery => cap::CSS_NONE,
    };
    let mqes = u64::from(limits.queue_entries_max - 1);
    let timeout = u64::from(READY_TIMEOUT) << 24;
    mqes | timeout | cap::CONTIGUOUS | command_sets | cap::READY_WITH_MEDIA
}

#[cfg(test)]
mod tests {
    use super::*;

    const IO: ControllerKind = ControllerKind::Io;

    fn set(properties: &mut Properties, cc: u32) -> Transition {
        let set = Property::parse(&Property::set(property::CC, cc));
        let transition = properties.set(&set, IO).unwrap();
        properties.finish_reset(IO);
        transition
    }

    #[test]
    fn impossible_configurations_are_fatal() {
        // Command set 001b, page size, arbitration, entry sizes.
        for cc in [0x0046_0011, 0x0046_00e1, 0x0046_0861, 0x0047_0061, 0x0056_0061, 0x0000_0001] {
            let mut properties = Properties::default();
            set(&mut properties, cc);
            assert_eq!((properties.csts, properties.is_ready()), (csts::FATAL, false), "{cc:#x}");
            set(&mut properties, 0);
            set(&mut properties, 0x0046_0001);
            assert!(properties.is_ready(), "a reset clears the fatal status");
        }
    }

    #[test]
    fn only_known_properties_of_the_right_size_are_there() {
        let properties = Properties::default();
        let limits = TargetLimits::default();
        let get = |offset, size| {
            properties.get(&Property::parse(&Property::get(offset, size)), IO, &limits)
        };
        // 1024 entries, contiguous, 7.5 s, NVM and profiles, ready with media.
        assert_eq!(get(property::CAP, PropertySize::Eight), Ok(0x0800_0820_0f01_03ff));
        assert_eq!(get(property::VS, PropertySize::Four), Ok(0x0002_0100));
        assert_eq!(get(property::CAP, PropertySize::Four), Err(CommandError::field(40)));
        assert_eq!(get(property::CC, PropertySize::Eight), Err(CommandError::field(40)));
        assert_eq!(get(property::NSSR, PropertySize::Four), Err(CommandError::field(44)));
        assert_eq!(get(3, PropertySize::Four), Err(CommandError::field(44)));
        let mut sqe = Property::get(property::VS, PropertySize::Four);
        sqe.cdw10 = 7.into();
        assert!(properties.get(&Property::parse(&sqe), IO, &limits).is_err());
    }

    #[test]
    fn only_cc_can_be_set() {
        let mut properties = Properties::default();
        for offset in [property::CAP, property::VS, property::CSTS, property::NSSR, 0xffff] {
            let set = Property::parse(&Property::set(offset, 1));
            assert_eq!(properties.set(&set, IO), Err(CommandError::field(44)));
        }
        let mut sqe = Property::set(property::CC, 1);
        sqe.cdw10 = 1.into();
        assert_eq!(properties.set(&Property::parse(&sqe), IO), Err(CommandError::field(40)));
    }
}
