//! nbdkit at the target, fio with libnbd at the host.

use super::{EVERYWHERE, Wired};
use crate::command;
use crate::links;
use crate::measure::Measure;
use crate::product::Timing;
use crate::service::Service;
use crate::workload::{self, Load};
use anyhow::{Context, ensure};
use serde_json::Value;
use std::net::TcpStream;
use std::process::Command;

const PORT: u16 = 10809;

impl Wired {
    /// nbdkit with a disk in memory, ready.
    pub(super) fn nbdkit(&self, timing: &Timing) -> anyhow::Result<Service> {
        ensure!(command::find("nbdkit").is_some(), "nbdkit is not installed");
        let line =
            format!("taskset -c 1 nbdkit -f -i {EVERYWHERE} -p {PORT} memory {}M", timing.mib);
        let mut command = command::words(&line);
        let log = self.scratch.path().join("nbdkit");
        let mut service = Service::start(self.links.target.enter(&mut command), &log)?;
        let [_, address] = links::addresses(0);
        let connect = || Ok(TcpStream::connect((address.as_str(), PORT)).map(drop)?);
        service.until(|| self.links.host.run(connect).ok())?;
        Ok(service)
    }

    /// fio with a job, and a connection, for each link.
    pub(super) fn fio(&self, load: &Load, timing: &Timing) -> anyhow::Result<Command> {
        ensure!(command::find("fio").is_some(), "fio is not installed");
        let rw = workload::direction(load.direction().context("one direction only")?);
        let depth = (load.depth / self.wire.links).max(1);
        let mut line = format!(
            "fio --output-format=json --ioengine=nbd --rw={rw} --bs={} --iodepth={depth} --size={}M \
             --time_based --runtime={} --ramp_time={}ms --cpus_allowed=0 --group_reporting --thread",
            load.bs,
            timing.mib,
            timing.seconds.ceil(),
            (timing.ramp_seconds * 1e3) as u64,
        );
        for link in 0..self.wire.links {
            line += &format!(" --name=link{link} --uri=nbd://{}:{PORT}", links::addresses(link)[1]);
        }
        let mut command = command::words(&line);
        self.links.host.enter(&mut command);
        Ok(command)
    }
}

/// Reads fio's JSON.
pub(super) fn measure(said: &str) -> anyhow::Result<Measure> {
    let begin = said.find('{').context("fio's JSON")?;
    let json: Value = serde_json::from_str(&said[begin..]).context("fio's JSON")?;
    let job = json.pointer("/jobs/0").context("a job of fio")?;
    ensure!(job["error"] == 0, "fio: error {}", job["error"]);
    let number = |direction: &str, path: &str| job[direction].pointer(path).and_then(Value::as_f64);
    let direction = ["read", "write"]
        .into_iter()
        .find(|direction| number(direction, "/iops").is_some_and(|iops| iops > 0.0))
        .context("fio has done nothing")?;
    let figure = |path| number(direction, path).with_context(|| format!("no {path} of fio"));
    Ok(Measure {
        iops: figure("/iops")?,
        bytes_per_second: figure("/bw_bytes")?,
        latency_us_mean: figure("/lat_ns/mean")? / 1e3,
        latency_us_p50: figure("/clat_ns/percentile/50.000000")? / 1e3,
        latency_us_p99: figure("/clat_ns/percentile/99.000000")? / 1e3,
        ..Measure::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_direction_that_ran_is_read() {
        let said = r#"note
            {"jobs": [{"error": 0, "read": {"iops": 0.0}, "write": {"iops": 10.5, "bw_bytes": 43008,
             "lat_ns": {"mean": 2000.0}, "clat_ns": {"percentile": {"50.000000": 1500, "99.000000": 9000}}}}]}"#;
        let measure = measure(said).expect("complete");
        assert_eq!((measure.iops, measure.latency_us_mean), (10.5, 2.0));
        assert_eq!((measure.latency_us_p50, measure.latency_us_p99), (1.5, 9.0));
    }

    #[test]
    fn failures_are_no_figures() {
        assert!(super::measure(r#"{"jobs": [{"error": 5}]}"#).is_err());
        assert!(super::measure(r#"{"jobs": [{"error": 0, "read": {"iops": 0.0}}]}"#).is_err());
        assert!(super::measure("fio: no such engine").is_err());
    }
}
