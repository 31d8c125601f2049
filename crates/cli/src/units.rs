//! Human-readable sizes, durations and core lists.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::time::Duration;

/// Parses a number of bytes: `512`, `4k`, `64KiB`, `1GiB`; k, M, G, T are powers of 1024. `GB` and `Gb` are refused, as
/// they may also mean powers of 1000, or bits.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = split_unit(text);
    let mut letters = unit.chars();
    let prefix = letters.next().map(|letter| letter.to_ascii_lowercase());
    let power = prefix.map_or(Some(0), |prefix| PREFIXES.iter().position(|one| *one == prefix));
    let power = match (power, letters.as_str()) {
        (Some(power), "") => power,
        // `B` alone is bytes, and no letter follows it.
        (Some(power @ 1..), rest) if rest.eq_ignore_ascii_case("ib") => power,
        (Some(power @ 1..), "B" | "b") => return Err(ambiguous(text, digits, unit, power)),
        _ => {
            return Err(format!("unknown unit '{unit}' in '{text}': write 512, 4k, 64KiB or 1GiB"));
        }
    };
    let count: u64 = digits
        .parse()
        .map_err(|_| format!("'{text}' is not a size: write 512, 4k, 64KiB or 1GiB"))?;
    let bytes = count.checked_mul(1 << (10 * power));
    bytes.ok_or_else(|| format!("'{text}' is larger than 16 EiB"))
}

/// Letters of units: bytes, and the powers of 1024 or of 1000 of them.
const PREFIXES: [char; 5] = ['b', 'k', 'm', 'g', 't'];

/// Returns the error for a unit that may mean a power of 1024 or of 1000, or bits.
fn ambiguous(text: &str, digits: &str, unit: &str, power: usize) -> String {
    let letter = PREFIXES[power].to_ascii_uppercase();
    let power = power as u32;
    let product = |factor: u64| {
        let product = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(factor));
        product.map_or_else(|| "more".to_owned(), |product| product.to_string())
    };
    let binary = format!("{digits}{letter}iB for {} bytes", product(1 << (10 * power)));
    match unit.ends_with('b') {
        true => {
            let bytes = product(1000u64.pow(power) / 8);
            format!(
                "'{text}' may mean bits or bytes: write {binary}, or {bytes} for {digits} {letter}bit"
            )
        }
        false => {
            let bytes = product(1000u64.pow(power));
            format!("'{text}' may mean powers of 1024 or of 1000: write {binary}, or {bytes}")
        }
    }
}

/// Parses a count: `20000`, `20k`, `1M`; k, M, G, T are powers of 1000.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let (digits, unit) = split_unit(text);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        "t" => 1_000_000_000_000,
        _ => return Err(format!("unknown unit '{unit}' in '{text}': write 20000, 20k or 1M")),
    };
    let count: u64 =
        digits.parse().map_err(|_| format!("'{text}' is not a number: write 20000, 20k or 1M"))?;
    count.checked_mul(factor).ok_or_else(|| format!("'{text}' is too large"))
}

/// Parses as [`parse_size`], for values that must fit 32 bits and not be zero (block and caravan sizes).
pub fn parse_size_u32(text: &str) -> Result<u32, String> {
    match parse_size(text)? {
        0 => Err("must not be 0".into()),
        bytes => u32::try_from(bytes).map_err(|_| format!("'{text}' is 4 GiB or more")),
    }
}

/// Parses as [`parse_size`], for the data of a caravan.
pub fn parse_caravan_bytes(text: &str) -> Result<u32, String> {
    match parse_size_u32(text)? {
        bytes @ 512..=0x4000_0000 => Ok(bytes),
        _ => Err("not in 512 to 1GiB".into()),
    }
}

/// Parses a duration: `50us`, `10ms`, `5s`, `2m`; a bare number is in seconds and may have a fraction.
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let (digits, unit) = split_unit(text);
    let scale = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unknown unit '{unit}' in '{text}': write 50us, 10ms, 5s or 2m")),
    };
    let count: f64 = digits
        .parse()
        .map_err(|_| format!("'{text}' is not a duration: write 50us, 10ms, 5s or 2m"))?;
    let seconds = count * scale;
    if !(0.0..=1e9).contains(&seconds) {
        return Err(format!("'{text}' is out of range"));
    }
    // Whole nanoseconds: 50 us must be 50,000 ns, not 49,999.
    Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
}

/// Parses a core list in the kernel's notation: `0`, `0-3`, `0-1,4`.
pub fn parse_cores(text: &str) -> Result<CoreList, String> {
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number =
            |s: &str| {
                s.trim().parse::<usize>().ok().filter(|n| *n < 4096).ok_or_else(|| {
                    format!("'{text}' is not a list of cores: write 0 or 0-3 or 0-1,4")
                })
            };
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("'{part}' runs backwards: write {last}-{first}"));
        }
        for core in first..=last {
            if cores.contains(&core) {
                return Err(format!("core {core} is listed twice in '{text}'"));
            }
            cores.push(core);
        }
    }
    Ok(CoreList(cores))
}

/// Cores to pin reactors to, in the order written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreList(pub Vec<usize>);

impl std::fmt::Display for CoreList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&parts.join(","))
    }
}

/// Formats bytes in the largest binary unit that keeps them exact or readable: `4 KiB`, `1.5 GiB`.
pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    let exact = value.fract() == 0.0;
    if exact {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// Formats bytes per second with three digits, in binary units: `950 B/s`, `12.3 MiB/s`, `1.25 GiB/s`.
pub fn show_bandwidth(bytes_per_second: f64) -> String {
    const UNITS: [&str; 6] = ["B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s", "PiB/s"];
    let (mut value, mut unit) = (bytes_per_second, 0);
    while value >= 999.5 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{value:.0} B/s"),
        unit => format!("{} {}", three_digits(value), UNITS[unit]),
    }
}

/// Formats a duration given in microseconds, with three digits: `9.84 us`, `12.3 ms`, `2.00 s`, `90.0 min`, `76.0 h`.
/// All text shows measured durations this way.
pub fn show_us(us: f64) -> String {
    // Each unit from this many microseconds on.
    const UNITS: [(f64, f64, &str); 5] = [
        (7170e6, 3600e6, "h"),
        (119.5e6, 60e6, "min"),
        (999.5e3, 1e6, "s"),
        (999.5, 1e3, "ms"),
        (f64::NEG_INFINITY, 1.0, "us"),
    ];
    let (_, scale, unit) = UNITS.into_iter().find(|(from, ..)| us >= *from).unwrap_or(UNITS[4]);
    if us == 0.0 { "0 us".into() } else { format!("{} {unit}", three_digits(us / scale)) }
}

/// Formats a duration given in seconds, as [`show_us`] does.
pub fn show_seconds(seconds: f64) -> String {
    show_us(seconds * 1e6)
}

/// Formats a value with three digits, as far as they are behind the point.
fn three_digits(value: f64) -> String {
    match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// Formats a count in thousands: `950`, `12.3 k`, `1.05 M`.
pub fn show_count(count: f64) -> String {
    match count {
        c if c < 1e3 => format!("{c:.0}"),
        c if c < 1e6 => format!("{:.1} k", c / 1e3),
        c => format!("{:.2} M", c / 1e6),
    }
}

/// (De)serializes seconds: a number, or a text as on the command line.
pub mod seconds_field {
    use super::parse_seconds;
    use serde::{Deserialize, Deserializer, Serializer, de};
    use std::time::Duration;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum SecondsText {
        Number(f64),
        Text(String),
    }

    /// # Errors
    /// The value is no number of seconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
        let text = match SecondsText::deserialize(d)? {
            SecondsText::Number(seconds) => seconds.to_string(),
            SecondsText::Text(text) => text,
        };
        parse_seconds(&text).map(Some).map_err(de::Error::custom)
    }

    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(seconds: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        match seconds {
            Some(seconds) => s.serialize_f64(seconds.as_secs_f64()),
            None => s.serialize_none(),
        }
    }
}

/// (De)serializes optional sizes as [`parse_size`] reads them, or as plain numbers.
pub mod size_field {
    use super::{parse_size, show_bytes};
    use serde::de::{self, Visitor};
    use serde::{Deserializer, Serializer};
    use std::fmt;

    struct SizeVisitor;

    impl Visitor<'_> for SizeVisitor {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a size such as 4096 or \"64KiB\"")
        }

        fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<u64, E> {
            u64::try_from(bytes).map_err(|_| E::custom("a size cannot be negative"))
        }

        fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<u64, E> {
            Ok(bytes)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
            parse_size(text).map_err(E::custom)
        }
    }

    /// For `#[serde(with)]`; a missing field needs `#[serde(default)]` as well.
    pub fn deserialize<'de, D: Deserializer<'de>, N: TryFrom<u64>>(
        d: D,
    ) -> Result<Option<N>, D::Error> {
        let bytes = d.deserialize_any(SizeVisitor)?;
        let bytes =
            N::try_from(bytes).map_err(|_| de::Error::custom("the size is too large here"))?;
        Ok(Some(bytes))
    }

    /// For `#[serde(with)]`.
    pub fn serialize<S: Serializer, N: Copy + Into<u64>>(
        size: &Option<N>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        match size {
            None => s.serialize_none(),
            Some(bytes) => s.serialize_str(&show_exact((*bytes).into())),
        }
    }

    fn show_exact(bytes: u64) -> String {
        let shown = show_bytes(bytes).replace(' ', "");
        if parse_size(&shown) == Ok(bytes) { shown } else { bytes.to_string() }
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

impl Serialize for CoreList {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CoreList {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        parse_cores(&String::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_parse() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("64KiB", 65536),
            ("64 KiB", 65536),
            ("1Mib", 1 << 20),
            ("1GiB", 1 << 30),
            ("512B", 512),
            ("2t", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn sizes_that_do_not() {
        for text in
            ["", "k", "-1", "4x", "1.5.5g", "1.5g", "99999999999T", "0x10", "4kk", "4bb", "4biB"]
        {
            let error = parse_size(text).expect_err(text);
            assert!(!error.is_empty());
        }
        assert!(parse_size_u32("0").is_err());
        assert!(parse_size_u32("4GiB").is_err());
        assert_eq!(parse_size_u32("128k"), Ok(131072));
    }

    #[test]
    fn units_with_two_readings_are_refused_with_both() {
        for (text, readings) in [
            ("1GB", ["1GiB for 1073741824 bytes", "or 1000000000"]),
            ("2 kB", ["2KiB for 2048 bytes", "or 2000"]),
            ("1gB", ["1GiB for 1073741824 bytes", "or 1000000000"]),
            ("1Gb", ["1GiB for 1073741824 bytes", "or 125000000 for 1 Gbit"]),
            ("8mb", ["8MiB for 8388608 bytes", "or 1000000 for 8 Mbit"]),
            ("99999999999TB", ["for more bytes", "or more"]),
        ] {
            let error = parse_size(text).expect_err(text);
            assert!(readings.iter().all(|reading| error.contains(reading)), "{error}");
            assert!(error.starts_with(&format!("'{text}' may mean")), "{error}");
        }
    }

    #[test]
    fn counts_are_decimal() {
        for (text, count) in [("7", 7), ("20k", 20_000), ("20K", 20_000), ("1M", 1_000_000)] {
            assert_eq!(parse_count(text), Ok(count), "{text}");
        }
        for text in ["", "k", "20KiB", "1.5k", "20kB", "-1", "99999999999999999999", "99999999999T"]
        {
            assert!(!parse_count(text).expect_err(text).is_empty());
        }
    }

    #[test]
    fn durations_are_exact_to_the_nanosecond() {
        for (text, ns) in [
            ("50us", 50_000),
            ("25us", 25_000),
            ("10ms", 10_000_000),
            ("5", 5_000_000_000),
            ("5s", 5_000_000_000),
            ("0.5", 500_000_000),
            ("2m", 120_000_000_000),
            ("7ns", 7),
        ] {
            assert_eq!(parse_seconds(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for text in ["", "us", "-5", "5d", "1e9s", "99999999999999s", "nan", "inf"] {
            parse_seconds(text).expect_err(text);
        }
    }

    #[test]
    fn core_lists() {
        assert_eq!(parse_cores("0-1,3").unwrap().0, vec![0, 1, 3]);
        assert_eq!(parse_cores("2").unwrap().0, vec![2]);
        assert_eq!(parse_cores("3,1").unwrap().0, vec![3, 1]);
        assert_eq!(parse_cores("0-1,3").unwrap().to_string(), "0,1,3");
        for text in ["", "a", "1-", "3-1", "0,0", "0-2,1", "99999999", "-1"] {
            parse_cores(text).expect_err(text);
        }
    }

    #[test]
    fn human_forms() {
        assert_eq!(show_bytes(512), "512 B");
        assert_eq!(show_bytes(1 << 30), "1 GiB");
        assert_eq!(show_bytes(3 << 29), "1.5 GiB");
        assert_eq!(show_count(1_050_000.0), "1.05 M");
    }

    #[test]
    fn durations_have_three_digits_a_space_and_a_unit() {
        for (us, text) in [
            (0.0, "0 us"),
            (0.5, "0.50 us"),
            (9.84, "9.84 us"),
            (12.34, "12.3 us"),
            (999.4, "999 us"),
            (999.6, "1.00 ms"),
            (5000.0, "5.00 ms"),
            (99_960.0, "100 ms"),
            (999_600.0, "1.00 s"),
            (119e6, "119 s"),
            (120e6, "2.00 min"),
            (5400e6, "90.0 min"),
            (7200e6, "2.00 h"),
            (273_600e6, "76.0 h"),
            (3.6e12, "1000 h"),
        ] {
            assert_eq!(show_us(us), text);
        }
        assert_eq!(show_seconds(0.25), "250 ms");
        assert_eq!(show_us(f64::NAN), "NaN us");
    }

    #[test]
    fn bandwidths_are_binary_with_three_digits() {
        for (rate, text) in [
            (0.0, "0 B/s"),
            (950.0, "950 B/s"),
            (1000.0, "0.98 KiB/s"),
            (4096.0, "4.00 KiB/s"),
            (12.34 * 1024.0 * 1024.0, "12.3 MiB/s"),
            (262_144_000.0, "250 MiB/s"),
            (2.1e9, "1.96 GiB/s"),
        ] {
            assert_eq!(show_bandwidth(rate), text);
        }
    }
}
