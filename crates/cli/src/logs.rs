//! Logging to stderr, as stdout is for results, or to a file.

mod budget;

use self::budget::LogLineBudget;
use roadtrain_wire::text::{Printable, is_printable};
use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
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
    let ansi = !is_journal() && io::stderr().is_terminal();
    let lines =
        tracing_subscriber::fmt::layer().with_writer(move || OneLineWriter(io::stderr(), ansi));
    if is_journal() {
        init(lines.with_ansi(false).event_format(Journal), levels);
    } else {
        init(lines.with_target(false).with_ansi(ansi), levels);
    }
}

/// Writes an event in one line, even if a peer's text contains line breaks. With colours, the formatter leaves escapes
/// in peers' text, so they are filtered here.
struct OneLineWriter<W>(W, bool);

impl<W: Write> Write for OneLineWriter<W> {
    /// Writes one event.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        self.0.write_all(one_line(&text, self.1).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Escapes characters of an event's text that are not printable. Its last character is the line's end.
fn one_line(event: &str, has_colours: bool) -> Cow<'_, str> {
    let text = event.strip_suffix('\n').unwrap_or(event);
    if text.chars().all(is_printable) {
        return event.into();
    }
    let mut line = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c| !is_printable(c)) {
        line.push_str(&rest[..at]);
        let colour = if has_colours { colour(&rest[at..]) } else { 0 };
        let length = rest[at..].chars().next().map_or(0, char::len_utf8).max(colour);
        let piece = &rest[at..at + length];
        line += &if colour > 0 { piece.to_owned() } else { Printable(piece).to_string() };
        rest = &rest[at + length..];
    }
    (line + rest + &event[text.len()..]).into()
}

/// Returns the length of a colour escape at the beginning of a text: `ESC [ NUMBERS m`.
fn colour(text: &str) -> usize {
    let Some(numbers) = text.strip_prefix("\u{1b}[") else { return 0 };
    match numbers.find(|c: char| !c.is_ascii_digit() && c != ';') {
        Some(end) if numbers[end..].starts_with('m') => text.len() - numbers.len() + end + 1,
        _ => 0,
    }
}

/// Installs a subscriber for these levels, within the budget of lines.
fn init<F>(lines: impl Layer<Registry> + Send + Sync, levels: F)
where
    F: Layer<Layered<Box<dyn Layer<Registry> + Send + Sync>, Registry>> + Send + Sync,
{
    tracing_subscriber::registry()
        .with(lines.boxed())
        .with(levels)
        .with(LogLineBudget::default())
        .init();
}

/// Function that changes the level.
type SetLevel = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;
/// Changes the level, if this process logs to stderr: logging starts once in a process.
static SET_LEVEL: OnceLock<SetLevel> = OnceLock::new();

fn keep<S: 'static>(handle: reload::Handle<Targets, S>) {
    let set = move |level: &str| {
        let new: Targets = level.parse().map_err(|error: ParseError| error.to_string())?;
        handle.reload(new).map_err(|error| error.to_string())
    };
    let _ = SET_LEVEL.set(Box::new(set));
}

/// Changes the level, in place of the one from the start.
///
/// # Errors
/// This process does not log to stderr.
pub(crate) fn set_level(level: &str) -> Result<(), String> {
    let set = SET_LEVEL.get().ok_or("this process does not log to stderr")?;
    set(level)
}

/// Starts logging to a file, otherwise as [`start`].
pub(crate) fn start_file(level: &str, verbose: u8, file: File) {
    let file = Arc::new(file);
    let lines =
        tracing_subscriber::fmt::layer().with_writer(move || OneLineWriter(file.clone(), false));
    init(lines.with_target(false).with_ansi(false), filter(level, verbose));
}

/// Returns the levels by module: RUST_LOG if valid, else one level for all.
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

/// True if stderr is the journal: JOURNAL_STREAM has its device and inode.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let stderr = std::fs::metadata("/proc/self/fd/2");
    stderr.is_ok_and(|file| stream == format!("{}:{}", file.dev(), file.ino()))
}

/// Format for the journal, which has the time itself, and takes the level from the line's beginning.
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

/// Returns syslog's number of a level.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_a_peer_has_put_into_it() {
        for (event, has_colours, line) in [
            ("2026 INFO plain text\n", false, "2026 INFO plain text\n"),
            ("a\nERROR forged\n", false, "a\\nERROR forged\n"),
            ("a\u{1b}[2Jb\r\n", false, "a\\u{1b}[2Jb\\r\n"),
            (
                "\u{1b}[32m INFO\u{1b}[0m x\u{1b}[2J\n",
                true,
                "\u{1b}[32m INFO\u{1b}[0m x\\u{1b}[2J\n",
            ),
            ("\u{1b}[32m INFO\n", false, "\\u{1b}[32m INFO\n"),
            ("\u{1b}[", true, "\\u{1b}["),
        ] {
            assert_eq!(one_line(event, has_colours), line);
        }
    }

    /// Tests the formatter itself, with colours.
    #[test]
    fn fields_of_peers_bring_no_escapes() {
        let written = Arc::new(std::sync::Mutex::new(Vec::new()));
        struct To(Arc<std::sync::Mutex<Vec<u8>>>);
        impl Write for To {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().unwrap().extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let to = written.clone();
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(move || OneLineWriter(To(to.clone()), true));
        let subscriber = tracing_subscriber::registry().with(lines.with_ansi(true));
        tracing::subscriber::with_default(subscriber, || {
            let evil = "x\u{1b}[31m\u{1b}[2J\ny";
            tracing::warn!(host = evil, peer = %evil, other = ?evil, "{evil}");
        });
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert!(!text.contains("\u{1b}[2J") && !text.contains("\u{1b}[31mx"), "{text:?}");
    }
}
