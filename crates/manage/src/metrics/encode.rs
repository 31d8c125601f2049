//! A snapshot as text for Prometheus.

use super::managed::ManagementSample;
use super::out::Out;
use super::{families, managed};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text, text};
use prometheus_client::registry::Registry;
use roadtrain_reactor::metrics::MetricsSnapshot;
use std::fmt;

/// Text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' own text format, version 0.0.4.
    Plain,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// Chooses the format by a client's Accept headers.
    pub(super) fn of<'a>(mut accepts: impl Iterator<Item = &'a str>) -> Format {
        match accepts.any(|accept| accept.contains("application/openmetrics-text")) {
            true => Format::OpenMetrics,
            false => Format::Plain,
        }
    }

    /// Returns its media type.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Format::Plain => prometheus_text::CONTENT_TYPE,
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Returns all metrics of a target, with those of its management if it is managed, or of an attachment.
#[must_use]
pub fn text(
    snapshot: &MetricsSnapshot,
    managed: Option<&ManagementSample>,
    format: Format,
) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(SnapshotCollector(snapshot.clone(), managed.cloned())));
    let mut out = String::new();
    let written = match format {
        Format::Plain => prometheus_text::encode(&mut out, &registry),
        Format::OpenMetrics => text::encode(&mut out, &registry),
    };
    debug_assert!(written.is_ok(), "a string takes everything");
    out
}

#[derive(Debug)]
struct SnapshotCollector(MetricsSnapshot, Option<ManagementSample>);

impl Collector for SnapshotCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Out(encoder);
        families::all(&self.0, &mut out)?;
        self.1.as_ref().map_or(Ok(()), |shown| managed::all(shown, &mut out))
    }
}
