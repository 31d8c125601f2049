//! `roadtrain slow`, and what is recorded.

use super::local;
use crate::units::parse_seconds;
use clap::Args;
use clap_complete::ArgValueCandidates;
use roadtrain_proto::recorder::SlowOver;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Which requests are recorded as slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SlowOverName {
    /// Beyond the 99th percentile of late.
    #[default]
    P99,
    /// Nothing is recorded.
    Off,
    /// Longer than this.
    Time(Duration),
}

impl SlowOverName {
    /// Whether it is what holds when nothing is said.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == SlowOverName::default()
    }
}

impl FromStr for SlowOverName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "p99" => Ok(SlowOverName::P99),
            "off" => Ok(SlowOverName::Off),
            time => parse_seconds(time)
                .map(SlowOverName::Time)
                .map_err(|error| format!("{error}, p99 or off")),
        }
    }
}

impl fmt::Display for SlowOverName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SlowOverName::P99 => f.write_str("p99"),
            SlowOverName::Off => f.write_str("off"),
            SlowOverName::Time(time) => match time.as_nanos() {
                ns if ns % 1000 == 0 => write!(f, "{}us", ns / 1000),
                ns => write!(f, "{ns}ns"),
            },
        }
    }
}

impl TryFrom<String> for SlowOverName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<SlowOverName> for String {
    fn from(name: SlowOverName) -> String {
        name.to_string()
    }
}

impl From<SlowOverName> for SlowOver {
    fn from(name: SlowOverName) -> SlowOver {
        match name {
            SlowOverName::P99 => SlowOver::P99,
            SlowOverName::Off => SlowOver::Never,
            SlowOverName::Time(time) => SlowOver::Time(time),
        }
    }
}

const EXAMPLES: &str = "\
Shows the slowest requests of the last seconds, the slowest first: where each was, and for how
long in each stage, in microseconds. The longest stage has a star. A target or attachment keeps the
requests that took longer than 99 of 100, and some others (--slow-over). Where a host's request and
a target's command are one, and both run here, they are shown together.

Stages at a host: lane (waited for a slot), caravan (until it was sent), target (until the first of
the answer), data (until the last). At a target: buffer, data (waited for those), store, caravan
(answered, and not sent), send (until the socket had it).

Exit status: 0 when it was shown, 1 when something is not here or does not answer.

Examples:
  roadtrain slow
  roadtrain slow target0 --count 50
  roadtrain slow -a 192.0.2.7:4420 --json
  roadtrain ctl trace -o slow.json      # the same for https://ui.perfetto.dev";

/// Options of `roadtrain slow`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SlowArgs {
    /// Only these: the ID of a target or an attachment, a path, a device, an NQN [default: all that run here].
    #[arg(value_name = "ID|PATH|DEVICE|NQN", add = ArgValueCandidates::new(local::all_ids))]
    pub names: Vec<String>,
    /// Only targets that listen at that address, and attachments that lead there: ADDR or ADDR:PORT. Repeatable.
    #[arg(short = 'a', long, value_name = "ADDRESS")]
    pub traddr: Vec<String>,
    /// How many to show.
    #[arg(short = 'c', long, value_name = "N", default_value_t = 20)]
    pub count: usize,
    /// Show sampled requests, too, not only slow ones.
    #[arg(long)]
    pub sampled: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_words_or_times() {
        let read = |text: &str| text.parse::<SlowOverName>();
        assert_eq!(read("p99"), Ok(SlowOverName::P99));
        assert_eq!(read("off"), Ok(SlowOverName::Off));
        assert_eq!(read("500us"), Ok(SlowOverName::Time(Duration::from_micros(500))));
        assert!(read("p98").unwrap_err().contains("p99 or off"));
        for text in ["p99", "off", "500us", "1500us", "2s", "1ns"] {
            let name = read(text).unwrap();
            assert_eq!(read(&String::from(name)), Ok(name), "{text}");
            assert_eq!(read(&name.to_string()), Ok(name), "{text}");
        }
    }
}
