//! `roadtrain ctl bitmap`

use clap::Subcommand;

/// Operations on the dirty bitmaps of an attachment, which --id names.
#[derive(Clone, Debug, Subcommand)]
pub enum BitmapCommand {
    /// List the bitmaps, each with its state.
    List,
    /// Start a backup: print its number, and whether it has to be full. Clients then copy what qemu:dirty-bitmap:NAME
    /// shows.
    Start {
        /// Name of the bitmap.
        name: String,
    },
    /// Finish a backup that has copied everything: only later changes are dirty from now on.
    Finish {
        /// Name of the bitmap.
        name: String,
        /// Number of the backup, from its start.
        backup: u64,
    },
}
