//! What each lane is to do: the options, fitted to the namespace.

use super::verify::Author;
use crate::args::{LoadArgs, ReadWrite};
use crate::units::show_bytes;
use roadtrain_engine::host::NamespaceInfo;
use std::ops::Range;

/// Octets of a request that fills or reads back.
const SWEEP_BYTES: u32 = 128 << 10;
/// Slots whose generations we keep in memory: 1 GiB of them.
const LEDGER_SLOTS_MAX: u64 = 1 << 28;

/// A measurement, the same for all lanes.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// What to do.
    pub rw: ReadWrite,
    /// Percentage of reads where that is a choice.
    pub mix: u8,
    /// Who writes.
    pub author: Author,
    /// Namespace.
    pub nsid: u32,
    /// Octets of a block.
    pub block_bytes: u32,
    /// Blocks of a request.
    pub slot_blocks: u32,
    /// First block of the region.
    pub first_lba: u64,
    /// Pieces of the region as long as a request.
    pub slots: u64,
    /// Lanes.
    pub lanes: u32,
    /// Requests in flight on each.
    pub depth: u32,
    /// Requests a second over all lanes.
    pub rate: Option<f64>,
    /// Requests over all lanes.
    pub ios: Option<u64>,
    /// Check the data.
    pub verify: bool,
    /// Write the region before.
    pub fill: bool,
    /// Slots of a request that fills or reads back.
    pub sweep_slots: u32,
}

impl Plan {
    /// Fits `load` to `namespace`, of which `transfer_bytes_max` may be moved at once.
    ///
    /// # Errors
    /// What does not fit, and what would.
    pub(super) fn new(
        load: &LoadArgs,
        lanes: u32,
        namespace: &NamespaceInfo,
        transfer_bytes_max: u32,
        run: u64,
    ) -> Result<Plan, String> {
        let block_bytes = namespace.block_bytes;
        if !load.bs.is_multiple_of(block_bytes) {
            return Err(format!(
                "--bs {} is not a multiple of the block size, {block_bytes}",
                load.bs
            ));
        }
        if load.bs > transfer_bytes_max {
            let most = show_bytes(transfer_bytes_max.into());
            return Err(format!("--bs {}: the target takes at most {most} at once", load.bs));
        }
        if namespace.read_only && load.rw.read_percent(load.rwmixread) < 100 {
            return Err(format!(
                "namespace {} is read-only: use --rw read or randread",
                namespace.nsid
            ));
        }
        let (first_lba, slots) = region(load, namespace)?;
        let plan = Plan {
            rw: load.rw,
            mix: load.rwmixread,
            author: Author { seed: load.seed, run },
            nsid: namespace.nsid,
            block_bytes,
            slot_blocks: load.bs / block_bytes,
            first_lba,
            slots,
            lanes,
            depth: load.depth,
            rate: load.rate,
            ios: load.ios,
            verify: load.verify,
            fill: false,
            sweep_slots: (SWEEP_BYTES.min(transfer_bytes_max) / load.bs).max(1),
        };
        if plan.parts_region() && slots < u64::from(lanes) {
            return Err(format!(
                "the region has {slots} pieces of --bs, too few for {lanes} lanes"
            ));
        }
        if plan.verify && slots > LEDGER_SLOTS_MAX {
            let most = show_bytes(LEDGER_SLOTS_MAX * u64::from(load.bs));
            return Err(format!("--verify keeps track of at most {most} here: add --size {most}"));
        }
        Ok(plan)
    }

    /// Octets of a request.
    #[must_use]
    pub(super) fn slot_bytes(&self) -> usize {
        (self.slot_blocks * self.block_bytes) as usize
    }

    /// Whether anything is written.
    #[must_use]
    pub(super) fn writes(&self) -> bool {
        self.rw.read_percent(self.mix) < 100
    }

    /// Whether each lane keeps to its own part of the region.
    #[must_use]
    pub(super) fn parts_region(&self) -> bool {
        self.verify || self.rw.is_sequential()
    }

    /// The slots that `lane` works on.
    #[must_use]
    pub(super) fn slots_of(&self, lane: u32) -> Range<u64> {
        if self.parts_region() { self.share_of(lane) } else { 0..self.slots }
    }

    /// The lane's part of the region, which no other lane fills.
    #[must_use]
    pub(super) fn share_of(&self, lane: u32) -> Range<u64> {
        let bound =
            |lane: u32| (u128::from(self.slots) * u128::from(lane) / u128::from(self.lanes)) as u64;
        bound(lane)..bound(lane + 1)
    }

    /// The lane's part of `--ios`.
    #[must_use]
    pub(super) fn ios_of(&self, lane: u32) -> Option<u64> {
        let (ios, lanes) = (self.ios?, u64::from(self.lanes));
        Some(ios / lanes + u64::from(u64::from(lane) < ios % lanes))
    }

    /// First block of a slot.
    #[must_use]
    pub(super) fn lba_of(&self, slot: u64) -> u64 {
        self.first_lba + slot * u64::from(self.slot_blocks)
    }
}

/// First block and number of slots.
fn region(load: &LoadArgs, namespace: &NamespaceInfo) -> Result<(u64, u64), String> {
    let (block, bs) = (u64::from(namespace.block_bytes), u64::from(load.bs));
    let bytes = namespace.blocks.saturating_mul(block);
    if !load.offset.is_multiple_of(block) {
        return Err(format!(
            "--offset {} is not a multiple of the block size, {block}",
            load.offset
        ));
    }
    let left = bytes.saturating_sub(load.offset);
    let size = load.size.unwrap_or(left);
    if size > left {
        let (have, nsid) = (show_bytes(bytes), namespace.nsid);
        return Err(format!("--offset and --size reach beyond namespace {nsid}, which has {have}"));
    }
    match size / bs {
        0 => Err(format!("the region has {} octets, less than one request of {bs}", size)),
        slots => Ok((load.offset / block, slots)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    pub(crate) fn load(line: &str) -> LoadArgs {
        let words = ["roadtrain", "bench"].into_iter().chain(line.split_whitespace());
        let Command::Bench(args) = Cli::try_parse_from(words).unwrap().command else {
            unreachable!()
        };
        args.load
    }

    pub(crate) fn plan(line: &str, lanes: u32) -> Result<Plan, String> {
        let namespace = NamespaceInfo {
            nsid: 1,
            blocks: 2048,
            block_bytes: 512,
            read_only: false,
            nguid: [0; 16],
        };
        Plan::new(&load(line), lanes, &namespace, 256 << 10, 99)
    }

    #[test]
    fn region_is_cut_into_slots() {
        let plan = plan("--bs 4k --offset 64k --size 100k", 1).unwrap();
        assert_eq!((plan.slots, plan.slot_blocks, plan.first_lba), (25, 8, 128));
        assert_eq!(plan.lba_of(2), 144);
        assert_eq!(plan.sweep_slots, 32);
    }

    #[test]
    fn shares_cover_the_region_once() {
        for lanes in [1, 3, 7] {
            let plan = plan("--bs 4k --rw write", lanes).unwrap();
            let mut next = 0;
            for lane in 0..lanes {
                assert_eq!(plan.slots_of(lane).start, next);
                next = plan.slots_of(lane).end;
            }
            assert_eq!(next, plan.slots);
        }
        assert_eq!(plan("--rw randread", 3).unwrap().slots_of(1), 0..256);
        let plan = plan("--ios 10", 3).unwrap();
        assert_eq!((0..3).map(|lane| plan.ios_of(lane).unwrap()).collect::<Vec<_>>(), [4, 3, 3]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (line, why) in [
            ("--bs 1000", "block size"),
            ("--bs 512k", "at most"),
            ("--offset 100", "block size"),
            ("--offset 2m", "less than"),
            ("--size 2m", "beyond"),
            ("--size 512", "less than"),
            ("--bs 128k --rw write", "lanes"),
        ] {
            let error = plan(line, 9).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
        let read_only = NamespaceInfo {
            nsid: 1,
            blocks: 2048,
            block_bytes: 512,
            read_only: true,
            nguid: [0; 16],
        };
        assert!(Plan::new(&load("--rw randrw"), 1, &read_only, 1 << 20, 0).is_err());
        assert!(Plan::new(&load("--rw randread"), 1, &read_only, 1 << 20, 0).is_ok());
    }
}
