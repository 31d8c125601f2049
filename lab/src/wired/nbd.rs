//! nbdkit at the target, fio with libnbd at the host.

use super::{EVERYWHERE, Wired};
use crate::command;
use crate::links;
use crate::product::LoadTiming;
use crate::service::Service;
use crate::workload::{self, LabLoad};
use anyhow::{Context, ensure};
use std::net::TcpStream;
use std::process::Command;

const PORT: u16 = 10809;

impl Wired {
    /// nbdkit with a disk in memory, ready.
    pub(super) fn nbdkit(&self, timing: &LoadTiming) -> anyhow::Result<Service> {
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
    pub(super) fn fio(&self, load: &LabLoad, timing: &LoadTiming) -> anyhow::Result<Command> {
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
