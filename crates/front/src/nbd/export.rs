//! What is exported: one namespace of the lane's controller.

use super::guard::Guards;
use roadtrain_engine::host::ControllerInfo;
use roadtrain_wire::identify::{oncs, vwc};
use roadtrain_wire::nbd::{STRING_BYTES_MAX, transmission_flag};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Largest block: a buffer holds two of them.
const LBA_BYTES_MAX: u32 = 512 << 10;

/// A namespace and how to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Name in the list of exports; a client may ask for any name and gets this one.
    pub name: String,
    /// Text for people.
    pub description: String,
    /// The namespace.
    pub nsid: u32,
    /// Size of the namespace in blocks.
    pub blocks: u64,
    /// Octets of a block, a power of two.
    pub lba_bytes: u32,
    /// Most octets that one Read or Write of the lane may move.
    pub max_transfer_bytes: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// The namespace has a volatile write cache: completed writes are durable after Flush only.
    pub flush: bool,
    /// Dataset Management (deallocate) is served.
    pub trim: bool,
    /// Write Zeroes is served.
    pub write_zeroes: bool,
}

impl ExportInfo {
    /// The namespace `nsid` of a connected controller, as it can be exported; `None` if it is not there.
    #[must_use]
    pub fn of(controller: &ControllerInfo, nsid: u32) -> Option<Self> {
        let namespace = controller.namespaces.iter().find(|namespace| namespace.nsid == nsid)?;
        let identify = &controller.identify;
        let serves = |command: u16| identify.oncs.get() & command != 0;
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).trim_end().to_owned();
        let (model, serial) = (text(&identify.mn), text(&identify.sn));
        Some(ExportInfo {
            name: nsid.to_string(),
            description: format!("namespace {nsid} of {model} {serial}").replace('\0', " "),
            nsid,
            blocks: namespace.blocks,
            lba_bytes: namespace.block_bytes,
            max_transfer_bytes: controller.transfer_bytes_max,
            read_only: namespace.read_only,
            flush: identify.vwc & vwc::PRESENT != 0,
            trim: serves(oncs::DATASET_MANAGEMENT),
            write_zeroes: serves(oncs::WRITE_ZEROES),
        })
    }
}

/// An export while it is served; shared by its lanes and by who watches the namespace.
#[derive(Debug)]
pub struct Export {
    info: ExportInfo,
    blocks: AtomicU64,
    removed: AtomicBool,
    guards: Guards,
}

impl Export {
    /// Checks `info`.
    ///
    /// # Errors
    /// `InvalidInput` for block sizes that make no sense and a name that NBD cannot carry.
    pub fn new(info: ExportInfo) -> io::Result<Self> {
        let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let lba = info.lba_bytes;
        if !lba.is_power_of_two() || !(512..=LBA_BYTES_MAX).contains(&lba) {
            return invalid(format!("{lba} octets is no block size"));
        }
        if info.max_transfer_bytes < lba {
            return invalid(format!(
                "a transfer of {} octets holds no block",
                info.max_transfer_bytes
            ));
        }
        if info.blocks.checked_mul(lba.into()).is_none() {
            return invalid(format!("{} blocks of {lba} octets is too large", info.blocks));
        }
        if [&info.name, &info.description]
            .iter()
            .any(|s| s.len() > STRING_BYTES_MAX || s.contains('\0'))
        {
            return invalid("a name must be at most 4096 octets without NUL".to_owned());
        }
        let (blocks, guards) = (AtomicU64::new(info.blocks), Guards::new(lba));
        Ok(Export { info, blocks, removed: AtomicBool::new(false), guards })
    }

    /// What was given to [`Export::new`]; its `blocks` is the first size, not the present one.
    pub fn info(&self) -> &ExportInfo {
        &self.info
    }

    /// The namespace has `blocks` blocks from now on. New connections see it; on old ones, requests
    /// beyond a smaller end fail, and those beyond the old end of a grown namespace succeed.
    pub fn resize(&self, blocks: u64) {
        let most = u64::MAX / u64::from(self.info.lba_bytes);
        self.blocks.store(blocks.min(most), Ordering::Relaxed);
    }

    /// The namespace is gone: requests and new connections are refused until [`Export::restore`].
    pub fn remove(&self) {
        self.removed.store(true, Ordering::Relaxed);
    }

    /// The namespace is back.
    pub fn restore(&self) {
        self.removed.store(false, Ordering::Relaxed);
    }

    /// What a look at the namespace found: its size in blocks, or that it is gone.
    pub fn update(&self, blocks: Option<u64>) {
        match blocks {
            Some(blocks) => {
                self.resize(blocks);
                self.restore();
            }
            None => self.remove(),
        }
    }

    /// Whether the namespace is gone.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    /// Size in octets.
    pub fn bytes(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed) * u64::from(self.info.lba_bytes)
    }

    /// Transmission flags for a client with or without structured replies.
    pub(crate) fn transmission_flags(&self, structured: bool) -> u16 {
        use transmission_flag::*;
        let info = &self.info;
        let flag = |condition: bool, flag: u16| if condition { flag } else { 0 };
        // Flush and FUA are offered without a volatile cache too: they are true at once there, and a
        // client that misses them would warn of data at risk. Flush covers the whole namespace, from
        // whichever queue it comes, hence CAN_MULTI_CONN. FAST_ZERO is not offered: nothing in NVMe
        // tells beforehand whether Write Zeroes is fast.
        let writable = SEND_FLUSH
            | SEND_FUA
            | flag(info.trim, SEND_TRIM)
            | flag(info.write_zeroes, SEND_WRITE_ZEROES);
        HAS_FLAGS
            | CAN_MULTI_CONN
            | flag(structured, SEND_DF)
            | if info.read_only { READ_ONLY } else { writable }
    }

    pub(crate) fn guards(&self) -> &Guards {
        &self.guards
    }
}

#[cfg(test)]
pub(crate) fn test_info() -> ExportInfo {
    ExportInfo {
        name: "disk".into(),
        description: "a test disk".into(),
        nsid: 1,
        blocks: 2048,
        lba_bytes: 512,
        max_transfer_bytes: 128 << 10,
        read_only: false,
        flush: true,
        trim: true,
        write_zeroes: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        let refuse = |change: fn(&mut ExportInfo)| {
            let mut info = test_info();
            change(&mut info);
            assert!(Export::new(info).is_err());
        };
        assert!(Export::new(test_info()).is_ok());
        refuse(|info| info.lba_bytes = 0);
        refuse(|info| info.lba_bytes = 513);
        refuse(|info| info.max_transfer_bytes = 256);
        refuse(|info| info.blocks = u64::MAX);
        refuse(|info| info.name = "a\0b".into());
    }

    #[test]
    fn resize_is_seen_and_bounded() {
        let export = Export::new(test_info()).unwrap();
        assert_eq!(export.bytes(), 1 << 20);
        export.resize(4096);
        assert_eq!(export.bytes(), 2 << 20);
        export.resize(u64::MAX);
        assert_eq!(export.bytes(), u64::MAX - 511);
    }

    #[test]
    fn flags_say_what_is_there() {
        use transmission_flag::*;
        let mut info = test_info();
        let all = Export::new(info.clone()).unwrap().transmission_flags(true);
        assert_eq!(all & SEND_FAST_ZERO, 0);
        assert_ne!(all & SEND_TRIM, 0);
        assert_ne!(all & SEND_DF, 0);
        (info.trim, info.write_zeroes, info.flush) = (false, false, false);
        let few = Export::new(info.clone()).unwrap().transmission_flags(false);
        assert_eq!(few, HAS_FLAGS | CAN_MULTI_CONN | SEND_FLUSH | SEND_FUA);
        info.read_only = true;
        let none = Export::new(info).unwrap().transmission_flags(false);
        assert_eq!(none, HAS_FLAGS | CAN_MULTI_CONN | READ_ONLY);
    }
}
