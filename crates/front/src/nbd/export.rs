//! An export: a disk under a name.

use crate::disk::{DiskInfo, LiveDisk};
use roadtrain_wire::nbd::{STRING_BYTES_MAX, transmission_flag};
use std::io;
use std::sync::Arc;

/// A namespace with its name and description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Name in the list of exports; a client may request any name and gets this one.
    pub name: String,
    /// Text for people.
    pub description: String,
    /// The namespace.
    pub disk: DiskInfo,
}

impl From<DiskInfo> for ExportInfo {
    /// Names the export after the NSID.
    fn from(disk: DiskInfo) -> Self {
        let DiskInfo { nsid, model, serial, .. } = &disk;
        let (name, description) =
            (nsid.to_string(), format!("namespace {nsid} of {model} {serial}"));
        ExportInfo { name, description, disk }
    }
}

/// An export while it is served; shared by its lanes.
#[derive(Debug)]
pub struct NbdExport {
    name: String,
    description: String,
    disk: Arc<LiveDisk>,
}

impl NbdExport {
    /// Makes an export after checks of `info`.
    ///
    /// # Errors
    /// Returns `InvalidInput` for invalid sizes and for a name that NBD cannot carry.
    pub fn new(info: ExportInfo) -> io::Result<Self> {
        let ExportInfo { name, description, disk } = info;
        if [&name, &description].iter().any(|s| s.len() > STRING_BYTES_MAX || s.contains('\0')) {
            let what = "a name must be at most 4096 bytes without NUL";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(NbdExport { name, description, disk: Arc::new(LiveDisk::new(disk)?) })
    }

    /// Name in the list of exports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Text for people.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the disk, which is updated when the namespace changes. New connections see its new size. On old ones,
    /// requests beyond a smaller end fail, and requests beyond the old end of a grown namespace succeed.
    pub fn disk(&self) -> &Arc<LiveDisk> {
        &self.disk
    }

    /// Returns the transmission flags for a client with or without structured replies.
    pub(crate) fn transmission_flags(&self, structured: bool) -> u16 {
        use transmission_flag::*;
        let info = self.disk.info();
        let flag = |condition: bool, flag: u16| if condition { flag } else { 0 };
        // Flush and FUA are offered without a volatile cache too: the next controller may have one, and a client
        // without them would warn of data at risk. Flush covers the whole namespace, from any queue, hence
        // CAN_MULTI_CONN. FAST_ZERO is not offered: NVMe does not report whether Write Zeroes is fast.
        let writable = SEND_FLUSH
            | SEND_FUA
            | flag(info.trim, SEND_TRIM)
            | flag(info.write_zeroes, SEND_WRITE_ZEROES);
        HAS_FLAGS
            | CAN_MULTI_CONN
            | flag(structured, SEND_DF)
            | if info.read_only { READ_ONLY } else { writable }
    }
}

#[cfg(test)]
pub(crate) fn test_info() -> ExportInfo {
    let (name, description) = ("disk".into(), "a test disk".into());
    ExportInfo { name, description, disk: crate::disk::test_info() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        assert!(NbdExport::new(test_info()).is_ok());
        assert!(NbdExport::new(ExportInfo { name: "a\0b".into(), ..test_info() }).is_err());
        let mut info = test_info();
        info.disk.lba_bytes = 0;
        assert!(NbdExport::new(info).is_err());
    }

    #[test]
    fn flags_say_what_is_there() {
        use transmission_flag::*;
        let mut info = test_info();
        let all = NbdExport::new(info.clone()).unwrap().transmission_flags(true);
        assert_eq!(all & SEND_FAST_ZERO, 0);
        assert_ne!(all & SEND_TRIM, 0);
        assert_ne!(all & SEND_DF, 0);
        let disk = &mut info.disk;
        (disk.trim, disk.write_zeroes) = (false, false);
        let few = NbdExport::new(info.clone()).unwrap().transmission_flags(false);
        assert_eq!(few, HAS_FLAGS | CAN_MULTI_CONN | SEND_FLUSH | SEND_FUA);
        info.disk.read_only = true;
        let none = NbdExport::new(info).unwrap().transmission_flags(false);
        assert_eq!(none, HAS_FLAGS | CAN_MULTI_CONN | READ_ONLY);
    }
}
