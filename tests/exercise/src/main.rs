//! Exercises files, block devices and file systems, and checks every octet against a model in memory.
//!
//! | command | like | what it is for |
//! |---|---|---|
//! | `ops FILE` | fsx | reads, writes, holes, truncations and mappings of one file or block device |
//! | `tree FOLDER` | fsstress | creates, renames, links and removes files in several threads |
//! | `synced FOLDER` | | what was synced before a crash is there after it |
//! | `frames INTERFACE` | | sends frames that were seen, cut, changed or made up, as fast as it can |
//!
//! The same seed does the same again. Exit status: 0 as expected, 1 not so, 2 wrong command line.

mod frames;
mod model;
mod ops;
mod synced;
mod tree;

use clap::Parser;

/// Exercise files, block devices and file systems, and check every octet
#[derive(Parser)]
#[command(version)]
enum Command {
    Ops(ops::Args),
    Tree(tree::Args),
    Synced(synced::Args),
    Frames(frames::Args),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Ops(args) => ops::run(&args),
        Command::Tree(args) => tree::run(&args),
        Command::Synced(args) => synced::run(&args),
        Command::Frames(args) => frames::run(&args),
    }
}
