//! Plan of each load: the options, fitted to the namespace.

use super::step::DepthWave;
use super::verify::Author;
use crate::args::{LaneChoice, LoadArgs, StreamSpec};
use crate::units::show_bytes;
use roadtrain_host_engine::NamespaceInfo;
use std::ops::Range;

/// Bytes of a request that fills or reads back.
const SWEEP_BYTES: u32 = 128 << 10;
/// Most slots whose generations are kept in memory: 1 GiB of them.
const LEDGER_SLOTS_MAX: u64 = 1 << 28;

/// Plan of the main load or a stream; the same for all its lanes.
#[derive(Clone, Debug)]
pub(super) struct LoadPlan {
    /// 0 for the main load; else the stream's number.
    pub number: usize,
    /// Specification of the load.
    pub load: StreamSpec,
    /// Author of the data.
    pub author: Author,
    /// Namespace ID.
    pub nsid: u32,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks of a request.
    pub slot_blocks: u32,
    /// First block of the region.
    pub first_lba: u64,
    /// Slots in the region; a slot is as long as a request.
    pub slots: u64,
    /// Lanes of the load.
    pub lanes: u32,
    /// Request count over all lanes (`--ios`).
    pub ios: Option<u64>,
    /// Changes of the depth (`--step`).
    pub wave: Option<DepthWave>,
    /// True to check the data.
    pub verify: bool,
    /// True to write the region before the measurement.
    pub fill: bool,
    /// Slots of a request that fills or reads back.
    pub sweep_slots: u32,
}

/// Lanes that the host has.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneTopology {
    /// Lanes of the main load.
    pub lanes: u32,
    /// Reactors of these lanes: a stream with lanes of its own has one on each.
    pub reactors: u32,
}

/// Namespace, and transfer limit of the target.
#[derive(Clone, Copy)]
pub(super) struct PlanLimits<'a> {
    pub namespace: &'a NamespaceInfo,
    /// Most bytes of one transfer.
    pub transfer_bytes_max: u32,
}

/// A part of the namespace, in bytes.
#[derive(Clone, Copy)]
struct LoadRegion {
    first: u64,
    bytes: u64,
}

/// Fits the main load and the streams to the namespace; `run` is a number that no other run has.
///
/// # Errors
/// The option that does not fit, and one that would.
pub(super) fn plans(
    args: &LoadArgs,
    topology: LaneTopology,
    place: PlanLimits<'_>,
    run: u64,
) -> Result<Vec<LoadPlan>, String> {
    let region = LoadRegion::of(args, place.namespace)?;
    let loads: Vec<StreamSpec> = args.loads().collect();
    let parts = if args.verify { region.split(&loads) } else { vec![region; loads.len()] };
    let wave = args.step.map(|step| DepthWave::new(step, args.measured())).transpose()?;
    let plan = |(number, (load, region)): (usize, (StreamSpec, LoadRegion))| {
        let base = LoadPlan {
            number,
            load,
            author: Author { seed: args.seed, run },
            nsid: place.namespace.nsid,
            block_bytes: place.namespace.block_bytes,
            slot_blocks: 0,
            first_lba: 0,
            slots: 0,
            lanes: match load.lane {
                LaneChoice::Shared => topology.lanes,
                LaneChoice::Own => topology.reactors,
            },
            ios: args.ios.filter(|_| number == 0),
            wave: wave.filter(|_| number == 0),
            verify: args.verify,
            fill: false,
            sweep_slots: 1,
        };
        let fitted = base.fit(place, region);
        fitted.map_err(|e| if number > 0 { format!("--stream {number}: {e}") } else { e })
    };
    loads.into_iter().zip(parts).enumerate().map(plan).collect()
}

impl LoadPlan {
    /// Fits the plan to `region`.
    fn fit(self, place: PlanLimits<'_>, region: LoadRegion) -> Result<LoadPlan, String> {
        let (load, block_bytes) = (self.load, self.block_bytes);
        if !load.bs.is_multiple_of(block_bytes) {
            return Err(format!(
                "bs {} is not a multiple of the block size, {block_bytes}",
                load.bs
            ));
        }
        if load.bs > place.transfer_bytes_max {
            let most = show_bytes(place.transfer_bytes_max.into());
            return Err(format!("bs {}: the target takes at most {most} at once", load.bs));
        }
        if place.namespace.read_only && self.writes() {
            let nsid = place.namespace.nsid;
            return Err(format!("namespace {nsid} is read-only: use rw read or randread"));
        }
        let slots = region.bytes / u64::from(load.bs);
        if slots == 0 {
            let bytes = region.bytes;
            return Err(format!(
                "its region has {bytes} bytes, less than one request of {}",
                load.bs
            ));
        }
        let plan = LoadPlan {
            slot_blocks: load.bs / block_bytes,
            first_lba: region.first / u64::from(block_bytes),
            slots,
            sweep_slots: (SWEEP_BYTES.min(place.transfer_bytes_max) / load.bs).max(1),
            ..self
        };
        if plan.parts_region() && slots < u64::from(plan.lanes) {
            let lanes = plan.lanes;
            return Err(format!("its region has {slots} pieces of bs, too few for {lanes} lanes"));
        }
        if plan.verify && slots > LEDGER_SLOTS_MAX {
            let most = show_bytes(LEDGER_SLOTS_MAX * u64::from(load.bs));
            return Err(format!("--verify keeps track of at most {most} here: add --size {most}"));
        }
        Ok(plan)
    }

    /// Returns the bytes of a request.
    #[must_use]
    pub(super) fn slot_bytes(&self) -> usize {
        (self.slot_blocks * self.block_bytes) as usize
    }

    /// True if the load writes.
    #[must_use]
    pub(super) fn writes(&self) -> bool {
        self.load.rw.read_percent(self.load.rwmixread) < 100
    }

    /// True if the load reads.
    #[must_use]
    pub(super) fn reads(&self) -> bool {
        self.load.rw.read_percent(self.load.rwmixread) > 0
    }

    /// True if the load reports its lanes' counters: a stream on the main load's lanes does not.
    #[must_use]
    pub(super) fn counts_lanes(&self) -> bool {
        self.number == 0 || self.load.lane == LaneChoice::Own
    }

    /// True if each lane keeps to its own part of the region.
    #[must_use]
    pub(super) fn parts_region(&self) -> bool {
        self.verify || self.load.rw.is_sequential()
    }

    /// Returns the slots that `lane` works on.
    #[must_use]
    pub(super) fn slots_of(&self, lane: u32) -> Range<u64> {
        if self.parts_region() { self.share_of(lane) } else { 0..self.slots }
    }

    /// Returns the lane's part of the region, which no other lane fills.
    #[must_use]
    pub(super) fn share_of(&self, lane: u32) -> Range<u64> {
        let bound =
            |lane: u32| (u128::from(self.slots) * u128::from(lane) / u128::from(self.lanes)) as u64;
        bound(lane)..bound(lane + 1)
    }

    /// Returns the lane's part of `--ios`.
    #[must_use]
    pub(super) fn ios_of(&self, lane: u32) -> Option<u64> {
        let (ios, lanes) = (self.ios?, u64::from(self.lanes));
        Some(ios / lanes + u64::from(u64::from(lane) < ios % lanes))
    }

    /// Returns the first block of a slot.
    #[must_use]
    pub(super) fn lba_of(&self, slot: u64) -> u64 {
        self.first_lba + slot * u64::from(self.slot_blocks)
    }
}

impl LoadRegion {
    /// Returns the region of `--offset` and `--size`.
    fn of(args: &LoadArgs, namespace: &NamespaceInfo) -> Result<LoadRegion, String> {
        let block = u64::from(namespace.block_bytes);
        let bytes = namespace.blocks.saturating_mul(block);
        if !args.offset.is_multiple_of(block) {
            return Err(format!(
                "--offset {} is not a multiple of the block size, {block}",
                args.offset
            ));
        }
        let left = bytes.saturating_sub(args.offset);
        let size = args.size.unwrap_or(left);
        if size > left {
            let (have, nsid) = (show_bytes(bytes), namespace.nsid);
            return Err(format!(
                "--offset and --size reach beyond namespace {nsid}, which has {have}"
            ));
        }
        Ok(LoadRegion { first: args.offset, bytes: size })
    }

    /// Splits the region into equal parts of whole requests, so that no load writes what another one checks.
    fn split(self, loads: &[StreamSpec]) -> Vec<LoadRegion> {
        let grain = loads.iter().map(|load| u64::from(load.bs)).max().unwrap_or(1);
        let bytes = self.bytes / loads.len() as u64 / grain * grain;
        let part = |index| LoadRegion { first: self.first + index * bytes, bytes };
        (0..loads.len() as u64).map(part).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::args::{CommandLine, RoadtrainCommand};
    use clap::Parser;

    pub(crate) fn load(line: &str) -> LoadArgs {
        let words = ["roadtrain", "bench"].into_iter().chain(line.split_whitespace());
        let RoadtrainCommand::Bench(args) = CommandLine::try_parse_from(words).unwrap().command
        else {
            unreachable!()
        };
        args.load
    }

    fn namespace(read_only: bool) -> NamespaceInfo {
        NamespaceInfo {
            nsid: 1,
            blocks: 2048,
            block_bytes: 512,
            read_only,
            ..NamespaceInfo::default()
        }
    }

    fn plans_for(
        line: &str,
        lanes: u32,
        namespace: &NamespaceInfo,
    ) -> Result<Vec<LoadPlan>, String> {
        let place = PlanLimits { namespace, transfer_bytes_max: 256 << 10 };
        super::plans(&load(line), LaneTopology { lanes, reactors: 1 }, place, 99)
    }

    /// For `lanes` lanes on one reactor.
    pub(crate) fn plans(line: &str, lanes: u32) -> Result<Vec<LoadPlan>, String> {
        plans_for(line, lanes, &namespace(false))
    }

    pub(crate) fn plan(line: &str, lanes: u32) -> Result<LoadPlan, String> {
        plans(line, lanes).map(|mut plans| plans.swap_remove(0))
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
        let read_only = namespace(true);
        assert!(plans_for("--rw randrw", 1, &read_only).is_err());
        assert!(plans_for("--rw randread --stream rw=write", 1, &read_only).is_err());
        assert!(plans_for("--rw randread --stream rw=read", 1, &read_only).is_ok());
    }

    #[test]
    fn streams_that_do_not_fit_are_named() {
        for (line, why) in [
            ("--stream bs=1000", "--stream 1: bs 1000"),
            ("--stream bs=8k --stream bs=512k", "--stream 2: bs 524288"),
            ("--stream bs=128k --size 192k --verify", "less than one request"),
            ("--stream rw=write,bs=128k --size 512k", "--stream 1: its region has 4"),
            ("--step depth=1:2,period-ms=200 --seconds 0.1", "--step"),
        ] {
            let error = plans(line, 9).expect_err(line);
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn streams_share_the_region_unless_it_is_verified() {
        let line = "--offset 64k --size 900k --bs 4k --stream bs=128k,lane=own --stream bs=12k";
        let shared = plans(line, 2).unwrap();
        assert!(shared.iter().all(|plan| plan.first_lba == 128));
        assert_eq!(shared.iter().map(|plan| plan.slots).collect::<Vec<_>>(), [225, 7, 75]);
        assert_eq!(shared.iter().map(|plan| plan.lanes).collect::<Vec<_>>(), [2, 1, 2]);
        let apart = plans(&format!("{line} --verify"), 2).unwrap();
        let ranges = apart.iter().map(|plan| plan.first_lba..plan.lba_of(plan.slots));
        // 256 KiB each; the last one's requests leave some over.
        assert_eq!(ranges.collect::<Vec<_>>(), [128..640, 640..1152, 1152..1656]);
    }

    #[test]
    fn only_the_main_load_ends_by_ios_and_steps() {
        let plans = plans("--ios 10 --stream depth=1", 1).unwrap();
        assert_eq!((plans[0].ios, plans[1].ios), (Some(10), None));
        let stepped = super::tests::plans("--step depth=1:64 --stream depth=1", 1).unwrap();
        assert!(stepped[0].wave.is_some() && stepped[1].wave.is_none());
        assert_eq!(stepped[0].load.depth, 64);
    }
}
