//! Logging: to stderr, as stdout belongs to results, or to a file.

mod budget;

use self::budget::Budget;
use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, OnceLock};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layered, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

/// Starts logging to stderr at `level`, raised by `-v`, overridden by RUST_LOG.
pub(crate) fn start(level: &str, verbose: u8) {
    let (levels, handle) = reload::Layer::new(filter(level, verbose));
    keep(handle);
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    if is_journal() {
        init(lines.with_ansi(false).event_format(Journal), levels);
    } else {
        let ansi = io::stderr().is_terminal();
        init(lines.with_target(false).with_ansi(ansi), levels);
    }
}

/// Writes lines of these levels from now on, within their budget.
fn init<F>(lines: impl Layer<Registry> + Send + Sync, levels: F)
where
    F: Layer<Layered<Box<dyn Layer<Registry> + Send + Sync>, Registry>> + Send + Sync,
{
    tracing_subscriber::registry().with(lines.boxed()).with(levels).with(Budget::default()).init();
}

/// Sets another level.
type SetLevel = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;
/// Sets the level, where this process logs to stderr: logs begin once in a process.
static SET_LEVEL: OnceLock<SetLevel> = OnceLock::new();

fn keep<S: 'static>(handle: reload::Handle<Targets, S>) {
    let set = move |level: &str| {
        let new: Targets = level.parse().map_err(|error: ParseError| error.to_string())?;
        handle.reload(new).map_err(|error| error.to_string())
    };
    let _ = SET_LEVEL.set(Box::new(set));
}

/// Logs what is of that level or above from now on, whatever was asked for at the start.
///
/// # Errors
/// This process cannot.
pub(crate) fn set_level(level: &str) -> Result<(), String> {
    let set = SET_LEVEL.get().ok_or("this process does not log to stderr")?;
    set(level)
}

/// As [`start`], but to a file.
pub(crate) fn start_file(level: &str, verbose: u8, file: File) {
    let lines = tracing_subscriber::fmt::layer().with_writer(Arc::new(file));
    init(lines.with_target(false).with_ansi(false), filter(level, verbose));
}

/// Levels by module: RUST_LOG if it can be read, else one level for all.
fn filter(level: &str, verbose: u8) -> Targets {
    let level = match verbose {
        0 => level,
        1 => "debug",
        _ => "trace",
    };
    let from_environment = std::env::var("RUST_LOG").ok().and_then(|text| text.parse().ok());
    let from_level = || level.parse().expect("a level");
    from_environment.unwrap_or_else(from_level)
}

/// Whether stderr is the journal, as JOURNAL_STREAM says: device and inode.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let stderr = std::fs::metadata("/proc/self/fd/2");
    stderr.is_ok_and(|file| stream == format!("{}:{}", file.dev(), file.ino()))
}

/// The journal has the time itself, and takes the level from the line's beginning.
struct Journal;

impl<S, N> FormatEvent<S, N> for Journal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// syslog's number of a level.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}
