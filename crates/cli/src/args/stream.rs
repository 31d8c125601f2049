//! Streams: loads that run together with the main one, each written as one word of the command line.

use super::{ClassName, named};
use crate::units::parse_size_u32;
use clap::ValueEnum;
use std::str::FromStr;

/// Order and direction of requests, with fio's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReadWrite {
    /// Read in order.
    Read,
    /// Write in order.
    Write,
    /// Read at random.
    Randread,
    /// Write at random.
    Randwrite,
    /// Read and write at random.
    Randrw,
    /// Read and write in order.
    #[value(alias = "readwrite")]
    Rw,
}

const EXAMPLE: &str = "write rw=randwrite,bs=128k,depth=8,class=bulk,lane=own";

/// Connections that a stream uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LaneChoice {
    /// The main load's.
    #[default]
    Shared,
    /// One more on each core used.
    Own,
}

/// Specification of one load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamSpec {
    /// Order and direction of the requests.
    pub rw: ReadWrite,
    /// Percentage of reads in randrw and rw.
    pub rwmixread: u8,
    /// Bytes of a request.
    pub bs: u32,
    /// Requests in flight on each of its lanes.
    pub depth: u32,
    /// Priority class of its requests.
    pub class: ClassName,
    /// The lanes that it uses.
    pub lane: LaneChoice,
    /// Requests a second over all its lanes.
    pub rate: Option<f64>,
}

impl Default for StreamSpec {
    fn default() -> Self {
        StreamSpec {
            rw: ReadWrite::Randread,
            rwmixread: 50,
            bs: 4096,
            depth: 32,
            class: ClassName::default(),
            lane: LaneChoice::default(),
            rate: None,
        }
    }
}

impl StreamSpec {
    fn set(&mut self, option: &str) -> Result<(), String> {
        let (key, value) =
            option.split_once('=').ok_or_else(|| format!("'{option}': {EXAMPLE}"))?;
        match key {
            "rw" => self.rw = named(key, value)?,
            "rwmixread" => self.rwmixread = number(key, value, 0, 100)?,
            "bs" => self.bs = parse_size_u32(value)?,
            "depth" | "iodepth" => self.depth = number(key, value, 1, 1023)?,
            "class" => self.class = named(key, value)?,
            "lane" => self.lane = named(key, value)?,
            "rate" => self.rate = Some(parse_rate(value)?),
            _ => return Err(format!("unknown option '{key}': {EXAMPLE}")),
        }
        Ok(())
    }
}

impl FromStr for StreamSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut spec = StreamSpec::default();
        text.split(',').try_for_each(|option| spec.set(option))?;
        Ok(spec)
    }
}

fn number<T: TryFrom<u64>>(key: &str, value: &str, least: u64, most: u64) -> Result<T, String> {
    let found = value.parse().ok().filter(|n| (least..=most).contains(n));
    found
        .and_then(|n| T::try_from(n).ok())
        .ok_or_else(|| format!("{key}={value}: use {least} to {most}"))
}

/// Two depths between which the main load changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSpec {
    /// The first and smaller one.
    pub low: u32,
    /// The other.
    pub high: u32,
    /// Duration of a period with both depths, in milliseconds.
    pub period_ms: u32,
}

impl FromStr for StepSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let advice = || format!("'{text}': write depth=1:128,period-ms=200");
        let mut spec = StepSpec { low: 0, high: 0, period_ms: 200 };
        for option in text.split(',') {
            match option.split_once('=').ok_or_else(advice)? {
                ("depth", depths) => {
                    let (low, high) = depths.split_once(':').ok_or_else(advice)?;
                    spec.low = number("depth", low, 1, 1023)?;
                    spec.high = number("depth", high, 1, 1023)?;
                }
                ("period-ms", ms) => spec.period_ms = number("period-ms", ms, 20, 60_000)?,
                _ => return Err(advice()),
            }
        }
        if spec.low >= spec.high {
            return Err(format!("{}: the first depth must be the smaller one", advice()));
        }
        if !spec.period_ms.is_multiple_of(2) {
            return Err(format!("period-ms={}: use an even number", spec.period_ms));
        }
        Ok(spec)
    }
}

pub(super) fn parse_rate(text: &str) -> Result<f64, String> {
    let advice =
        || format!("'{text}' is not a rate: write requests a second, such as 100000 or 100k");
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => match text.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 1e6),
            None => (text, 1.0),
        },
    };
    let rate = digits.parse::<f64>().map_err(|_| advice())? * factor;
    if (1e-3..=1e9).contains(&rate) { Ok(rate) } else { Err(advice()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_parse() {
        let text = "rw=randrw,rwmixread=70,bs=128k,depth=8,class=bulk,lane=own,rate=10k";
        let all = StreamSpec {
            rw: ReadWrite::Randrw,
            rwmixread: 70,
            bs: 131_072,
            depth: 8,
            class: ClassName::Bulk,
            lane: LaneChoice::Own,
            rate: Some(10_000.0),
        };
        assert_eq!(text.parse(), Ok(all));
        let write = StreamSpec { rw: ReadWrite::Write, ..StreamSpec::default() };
        assert_eq!("rw=write".parse(), Ok(write));
    }

    #[test]
    fn streams_that_do_not_say_why() {
        for (text, why) in [
            ("", "write rw="),
            ("randwrite", "write rw="),
            ("rw=sometimes", "randread, randwrite"),
            ("bs=0", "0"),
            ("depth=0", "1 to 1023"),
            ("depth=1024", "1 to 1023"),
            ("rwmixread=101", "0 to 100"),
            ("class=urgent", "latency, normal, bulk"),
            ("lane=mine", "shared, own"),
            ("rate=0", "not a rate"),
            ("colour=red", "unknown option 'colour'"),
        ] {
            let error = text.parse::<StreamSpec>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn steps() {
        let step = StepSpec { low: 1, high: 128, period_ms: 100 };
        assert_eq!("depth=1:128,period-ms=100".parse(), Ok(step));
        assert_eq!("depth=1:128".parse(), Ok(StepSpec { period_ms: 200, ..step }));
        for text in [
            "",
            "depth=128",
            "depth=128:1",
            "depth=1:1",
            "depth=0:1",
            "depth=1:1024",
            "period-ms=200",
            "depth=1:2,period-ms=19",
            "depth=1:2,period-ms=21",
        ] {
            text.parse::<StepSpec>().expect_err(text);
        }
    }
}
