//! `roadtrain ctl volume`

use super::super::completion;
use crate::units::parse_size;
use clap::Subcommand;
use clap_complete::ArgValueCandidates;

/// Operations on volumes. STORE/NAME may also be a UUID.
#[derive(Clone, Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a volume.
    Create {
        /// STORE/NAME, such as vols/disk.
        volume: String,
        /// Its size, rounded up to 4 MiB.
        #[arg(value_parser = parse_size)]
        size: u64,
        /// Take space when it is written, not at once.
        #[arg(long)]
        thin: bool,
    },
    /// Make a read-only volume with the present data of a volume.
    Snapshot {
        /// STORE/NAME.
        #[arg(add = ArgValueCandidates::new(completion::volumes))]
        volume: String,
        /// Name of the snapshot.
        name: String,
    },
    /// Make a volume that begins as a snapshot.
    Clone {
        /// STORE/NAME of the snapshot.
        #[arg(add = ArgValueCandidates::new(completion::volumes))]
        snapshot: String,
        /// Name of the volume.
        name: String,
    },
    /// Give a volume all its space, and cut it from its snapshot.
    Inflate {
        /// STORE/NAME.
        #[arg(add = ArgValueCandidates::new(completion::volumes))]
        volume: String,
    },
    /// Make a volume larger; hosts are notified.
    Resize {
        /// STORE/NAME.
        #[arg(add = ArgValueCandidates::new(completion::volumes))]
        volume: String,
        /// Its new size, rounded up to 4 MiB.
        #[arg(value_parser = parse_size)]
        size: u64,
    },
    /// Give a volume another name.
    Rename {
        /// STORE/NAME.
        #[arg(add = ArgValueCandidates::new(completion::volumes))]
        volume: String,
        /// New name, without the store's.
        name: String,
    },
    /// Delete a volume, its namespace first; one that a host uses only by force.
    Delete {
        /// STORE/NAME.
        #[arg(add = ArgValueCandidates::new(completion::volumes))]
        volume: String,
        /// Also while a host uses a volume.
        #[arg(long)]
        force: bool,
    },
    /// List volumes.
    List {
        /// Name of a store [default: all].
        #[arg(add = ArgValueCandidates::new(completion::stores))]
        store: Option<String>,
    },
}

/// `roadtrain ctl store`
#[derive(Clone, Debug, Subcommand)]
pub enum StoreCommand {
    /// Make a store of volumes in a folder, or of a device of memory.
    Create {
        /// Its name.
        name: String,
        /// A folder, by its absolute path, or the name of a device of memory.
        #[arg(value_name = "FOLDER|DEVICE", add = ArgValueCandidates::new(completion::devices))]
        place: String,
    },
    /// Delete a store with all its volumes; one that a host uses only by force.
    Delete {
        /// Its name.
        #[arg(add = ArgValueCandidates::new(completion::stores))]
        name: String,
        /// Also while a host uses a volume.
        #[arg(long)]
        force: bool,
    },
    /// List stores, and what is free.
    List,
}
