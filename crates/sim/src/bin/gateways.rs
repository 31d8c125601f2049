//! Prints the tables of docs/internals/gateways.md: `cargo run -p roadtrain-sim --bin gateways`.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let tables = roadtrain_sim::gateways::tables();
    match std::io::stdout().lock().write_all(tables.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
