//! The report as text.

use super::{BenchReport, Instruments};
use crate::args::ClassName;
use crate::bench::latency::LatencySummary;
use crate::bench::step::StepReport;
use crate::output::columns;
use crate::units::{show_bandwidth, show_bytes, show_count, show_seconds, show_us};

impl BenchReport {
    /// Formats the report for people.
    #[must_use]
    pub(in crate::bench) fn text(&self) -> String {
        let mut text = self.directions();
        let cpu = |seconds: f64| {
            format!("{} ({:.2} cores)", show_seconds(seconds), seconds / self.seconds.max(1e-9))
        };
        let mut lines = Vec::new();
        if let Some(threads) = self.settings.manner.threads {
            lines.push(("threads", format!("{threads}, {} mode", self.settings.manner.mode)));
        }
        if let Some(step) = &self.step {
            lines.push(("load step", step.text()));
        }
        lines.push(("host CPU", cpu(self.host_cpu_seconds)));
        if let Some(seconds) = self.target_cpu_seconds {
            lines.push(("target CPU", cpu(seconds)));
        }
        lines.push(("CPU per request", show_us(self.cpu_ns_per_io / 1e3)));
        lines.push(("host sends", self.host.text()));
        if let Some(target) = &self.target {
            lines.push(("target sends", target.text()));
        }
        if self.reconnects > 0 {
            lines.push(("reconnects", self.reconnects.to_string()));
        }
        if self.settings.verify {
            lines.push(("blocks checked", self.blocks_checked.to_string()));
        }
        if self.unsent * 1000 > self.requests {
            lines.push((
                "due, not sent",
                format!("{}: the rate is beyond what is possible", self.unsent),
            ));
        }
        if self.errors > 0 {
            lines.push(("errors", self.errors.to_string()));
        }
        text.push('\n');
        for (name, value) in lines {
            text.push_str(&format!("{name:<16} {value}\n"));
        }
        for error in &self.error_texts {
            text.push_str(&format!("  {error}\n"));
        }
        text
    }

    fn directions(&self) -> String {
        let row = |name: &str, iops: f64, bytes: f64, l: &LatencySummary| {
            let mut row = vec![name.to_owned(), show_count(iops), show_bandwidth(bytes)];
            row.extend([l.mean_us, l.p50_us, l.p99_us, l.p999_us, l.max_us].map(show_us));
            row
        };
        let mut rows = Vec::new();
        for (name, d) in [("read", &self.read), ("write", &self.write)] {
            if d.requests > 0 {
                rows.push(row(name, d.iops, d.bytes_per_second, &d.latency));
            }
        }
        if rows.len() != 1 {
            rows.push(row("all", self.iops, self.bytes_per_second, &self.latency));
        }
        for (index, s) in self.streams.iter().enumerate() {
            let mut name = format!("stream {}: {} {}", index + 1, s.rw, show_bytes(s.bs as u64));
            if s.class != ClassName::default().to_string() {
                name = format!("{name} {}", s.class);
            }
            rows.push(row(&name, s.iops, s.bytes_per_second, &s.latency));
        }
        columns(&["", "IOPS", "bandwidth", "mean", "p50", "p99", "p99.9", "max"], &rows)
    }
}

impl Instruments {
    fn text(&self) -> String {
        let d = &self.doorbells;
        format!(
            "{:.1} requests a caravan, {} a send; doorbells {} size, {} timer, {} urgent, {} drained; \
             {:.2} syscalls and {:.3} switches ({:.3} voluntary) a request",
            self.requests_per_caravan,
            show_bytes(self.bytes_per_send as u64),
            d.size,
            d.timer,
            d.urgent,
            d.drained,
            self.syscalls_per_io,
            self.context_switches_per_io,
            self.voluntary_switches_per_io,
        )
    }
}

impl StepReport {
    fn text(&self) -> String {
        format!(
            "{} IOPS at depth {}, {} at {}; settles in {} (up {}, down {})",
            show_count(self.low_iops),
            self.low_depth,
            show_count(self.high_iops),
            self.high_depth,
            show_us(self.settle_ms * 1e3),
            show_us(self.settle_up_ms * 1e3),
            show_us(self.settle_down_ms * 1e3),
        )
    }
}
