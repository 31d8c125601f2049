//! Values of features that hosts can change.

use roadtrain_wire::feature::ThresholdType;

/// Warning and critical composite temperature (WCTEMP, CCTEMP) in kelvins. They must not be 0: the first is the
/// recommendation of the specification, the second is above it. Nothing is measured, so neither is ever reached.
pub(super) const WARNING_KELVINS: u16 = 0x157;
pub(super) const CRITICAL_KELVINS: u16 = 0x161;

/// Thresholds of the Composite Temperature: stored for the host, never reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thresholds {
    pub(super) over: u16,
    pub(super) under: u16,
}

impl Thresholds {
    pub(super) const DEFAULT: Thresholds = Thresholds { over: WARNING_KELVINS, under: 0 };

    pub(super) fn get(&mut self, kind: ThresholdType) -> &mut u16 {
        match kind {
            ThresholdType::Over => &mut self.over,
            ThresholdType::Under => &mut self.under,
        }
    }
}

/// Feature values that are stored nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FeatureValues {
    pub(super) thresholds: Thresholds,
    pub(super) write_cache: bool,
    /// Advanced Command Retry Enable of Host Behavior Support: accepted, but the target never requests delays.
    pub(super) acre: u8,
}

impl Default for FeatureValues {
    fn default() -> Self {
        FeatureValues { thresholds: Thresholds::DEFAULT, write_cache: true, acre: 0 }
    }
}
