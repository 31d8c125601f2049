//! Exercises files, block devices and file systems, and checks every byte against a model in memory.
//!
//! | command | like | what it is for |
//! |---|---|---|
//! | `ops FILE` | fsx | reads, writes, holes, truncations and mappings of one file or block device |
//! | `tree FOLDER` | fsstress | creates, renames, links and removes files in several threads |
//! | `synced FOLDER` | | checks after a crash that synced files are intact |
//! | `neighbours FILE` | | writers of neighbouring 512-byte blocks, and a check of them after a crash |
//! | `frames INTERFACE` | | sends replayed, cut, changed or forged frames at full speed |
//!
//! The same seed repeats a run. Exit status: 0 as expected, 1 not so, 2 wrong command line.

mod frames;
mod model;
mod neighbours;
mod ops;
mod synced;
mod tree;

use clap::Parser;

/// Exercise files, block devices and file systems, and check every byte
#[derive(Parser)]
#[command(version)]
enum ExerciseCommand {
    Ops(ops::OpsArgs),
    Tree(tree::TreeArgs),
    Synced(synced::SyncedArgs),
    Frames(frames::FramesArgs),
    Neighbours(neighbours::NeighboursArgs),
}

fn main() -> anyhow::Result<()> {
    match ExerciseCommand::parse() {
        ExerciseCommand::Ops(args) => ops::run(&args),
        ExerciseCommand::Tree(args) => tree::run(&args),
        ExerciseCommand::Synced(args) => synced::run(&args),
        ExerciseCommand::Frames(args) => frames::run(&args),
        ExerciseCommand::Neighbours(args) => neighbours::run(&args),
    }
}
