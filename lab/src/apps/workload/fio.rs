//! fio: 4 KiB random reads past the page cache, the basis of all others. Latencies begin before the submission, in
//! which some file systems do most of the work.

use super::AppMeter;
use crate::measure::Measure;
use crate::{command, fio};
use std::path::Path;

/// Bytes that are read: far beyond the caches.
pub(in crate::apps) const BYTES: u64 = 256 << 20;

/// Reads for the time of a turn.
pub(in crate::apps) fn run(file: &Path, depth: usize, meter: &AppMeter) -> anyhow::Result<Measure> {
    let line = format!(
        "fio --name=apps --filename={} --rw=randread --bs=4k --direct=1 --ioengine=libaio \
         --iodepth={depth} --size={BYTES} --norandommap --time_based \
         --runtime={} --thread --readonly --clat_percentiles=0 --lat_percentiles=1 \
         --output-format=json",
        file.display(),
        meter.seconds
    );
    let (printed, usage) = meter.metered(&mut command::words(&line))?;
    Ok(Measure { usage: Some(usage), ..fio::parse(&printed)?.0 })
}
