//! Chores of the workspace: `cargo xtask layers`, `size`, `conformance`, `docs`, `dependencies`, `instructions`,
//! `sbom`, `seeds`.

#[path = "../../crates/wire/tests/wire/recorded/capture.rs"]
mod capture;
mod conformance;
mod dependencies;
mod docs;
#[path = "../../fuzz/src/inputs.rs"]
mod inputs;
mod instructions;
mod layers;
mod modules;
mod sbom;
mod seeds;
mod size;
mod source;

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask layers | size | conformance | docs | dependencies | instructions | sbom | seeds
  layers       check which crate may use which, and that wire and proto touch neither system nor clock
  size         check the length of functions and files against xtask/oversize.txt
  conformance  check that the files and tests named in docs/reference/conformance.md exist
  docs         check that links and paths in the documents lead somewhere, and the length of lines
  dependencies check licences, origin and C code of all crates, and known faults if cargo-audit has its database
  instructions count what a request costs under callgrind, against xtask/instructions.txt (--write: into it)
  sbom         write what the product is built of to target/sbom, as CycloneDX has it
  seeds        write the fuzz targets' first inputs, most of them cut from the recordings in tests/traces, to fuzz/corpus";

fn main() -> ExitCode {
    match run(std::env::args().nth(1).as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Option<&str>) -> Result<()> {
    match chore {
        Some("layers") => layers::check(&root()),
        Some("conformance") => conformance::check(&root()),
        Some("docs") => docs::check(&root()),
        Some("dependencies") => dependencies::check(&root()),
        Some("size") => size::check(&root()),
        Some("instructions") => {
            instructions::check(&root(), std::env::args().nth(2).as_deref() == Some("--write"))
        }
        Some("sbom") => sbom::write(&root()),
        Some("seeds") => seeds::write(&root()),
        _ => bail!(USAGE),
    }
}

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").into()
}
