//! Chores of the workspace: `cargo xtask layers`, `circles`, `size`, `names`, `conformance`, `docs`, `suites`,
//! `affected`, `instructions`, `sbom`, `seeds`, `lab`.

mod affected;
#[path = "../../crates/wire/tests/wire/recorded/capture.rs"]
mod capture;
mod circles;
mod conformance;
mod docs;
mod imports;
#[path = "../../fuzz/src/inputs.rs"]
mod inputs;
mod instructions;
mod layers;
mod names;
mod sbom;
mod seeds;
mod size;
mod source;

use anyhow::{Result, bail};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "usage: cargo xtask layers | circles | size | names | conformance | docs | suites | affected BASE |
       instructions | sbom | seeds | lab ARGUMENT...
  layers       check which crate may use which, and that wire and proto touch neither system nor clock
  circles      check that no files of a crate import each other in a circle
  size         check the length of functions and files against xtask/oversize.txt
  names        count shared type names, private jargon and long sentences against xtask/names.txt (--write: into it, if
               they are fewer; --list PATH: name them)
  conformance  check that the files and tests named in docs/reference/conformance.md exist
  docs         check that links and paths in the documents lead somewhere, and the length of lines
  suites       check that xtask/affected.txt has a row for each file, and names parts of scripts/test.sh
  affected     print the parts of scripts/test.sh that changes since the commit BASE touch
  instructions count what a request costs under callgrind, against xtask/instructions.txt (--write: into it)
  sbom         write what the product is built of to target/sbom, as CycloneDX has it
  seeds        write the fuzz targets' first inputs, most of them cut from the recordings in tests/traces, to fuzz/corpus
  lab          build the laboratory, a workspace of its own, and run it (`cargo lab` for short)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    match *arguments {
        ["layers"] => layers::check(&root()),
        ["circles"] => circles::check(&root()),
        ["conformance"] => conformance::check(&root()),
        ["docs"] => docs::check(&root()),
        ["size"] => size::check(&root()),
        ["names"] => names::check(&root(), false),
        ["names", "--write"] => names::check(&root(), true),
        ["names", "--list", path] => names::list(&root(), path),
        ["suites"] => affected::check(&root()),
        ["affected", base] => affected::print(&root(), base),
        ["instructions"] => instructions::check(&root(), false),
        ["instructions", "--write"] => instructions::check(&root(), true),
        ["sbom"] => sbom::write(&root()),
        ["seeds"] => seeds::write(&root()),
        ["lab", ref arguments @ ..] => lab(arguments),
        _ => bail!(USAGE),
    }
}

/// Builds the laboratory and runs it in the current folder.
fn lab(arguments: &[&str]) -> Result<()> {
    let manifest = root().join("lab/Cargo.toml");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--release", "--manifest-path"]).arg(manifest).arg("--").args(arguments);
    // No child process: signals and the exit status are the laboratory's own.
    Err(command.exec().into())
}

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").into()
}
