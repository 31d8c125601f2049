//! Logging: to stderr, as stdout belongs to results.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Starts logging at `level`, raised by `-v`, overridden by RUST_LOG.
pub(crate) fn start(level: &str, verbose: u8) {
    let level = match verbose {
        0 => level,
        1 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}
