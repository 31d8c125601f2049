//! The `roadtrain` program; everything lives in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    roadtrain_cli::main()
}
