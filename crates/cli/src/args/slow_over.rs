//! `--slow-over`: threshold of the requests that are recorded as slow.

use crate::units::parse_seconds;
use roadtrain_proto::recorder::SlowOver;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Threshold above which a request is recorded as slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SlowOverName {
    /// Beyond the 99th percentile of recent requests.
    #[default]
    P99,
    /// Nothing is recorded.
    Off,
    /// Longer than this.
    Time(Duration),
}

impl SlowOverName {
    /// True for the default.
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
