//! A caravan kept in memory, for tests, the simulation and fuzzing.

use crate::caravan::Caravan;
use crc_fast::crc32_iscsi;

enum ManifestPart {
    Header(Vec<u8>),
    Payload { slot: u16, offset: u32, length: u32, digest: bool },
}

/// A caravan as a list of headers and payloads.
pub struct Manifest {
    parts: Vec<ManifestPart>,
    parts_max: usize,
}

impl Default for Manifest {
    fn default() -> Self {
        Manifest::with_capacity(usize::MAX)
    }
}

impl Manifest {
    /// An empty caravan that takes PDUs until it has `parts_max` parts (a PDU has one or two).
    #[must_use]
    pub fn with_capacity(parts_max: usize) -> Self {
        Manifest { parts: Vec::new(), parts_max }
    }

    /// Returns the bytes to send; `data` returns a slot's whole data.
    ///
    /// # Panics
    /// A payload lies outside of its slot's data.
    pub fn bytes<D: AsRef<[u8]>>(&self, mut data: impl FnMut(u16) -> D) -> Vec<u8> {
        let mut out = Vec::new();
        for part in &self.parts {
            match *part {
                ManifestPart::Header(ref header) => out.extend_from_slice(header),
                ManifestPart::Payload { slot, offset, length, digest } => {
                    let data = data(slot);
                    let payload = &data.as_ref()[offset as usize..][..length as usize];
                    out.extend_from_slice(payload);
                    if digest {
                        let crc = crc32_iscsi(payload);
                        out.extend_from_slice(&crc.to_le_bytes());
                    }
                }
            }
        }
        out
    }
}

impl Caravan for Manifest {
    fn has_capacity(&self) -> bool {
        self.parts.len() < self.parts_max
    }

    fn header(&mut self, length: usize) -> &mut [u8] {
        self.parts.push(ManifestPart::Header(vec![0; length]));
        match self.parts.last_mut() {
            Some(ManifestPart::Header(header)) => header,
            _ => unreachable!("a header was just pushed"),
        }
    }

    fn payload(&mut self, slot: u16, offset: u32, length: u32, digest: bool) {
        self.parts.push(ManifestPart::Payload { slot, offset, length, digest });
    }
}
