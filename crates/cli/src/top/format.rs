//! Figures as short as they can be read.

/// A count: `950`, `12.3k`, `1.25M`.
pub(super) fn count(value: f64) -> String {
    match value {
        value if value < 999.5 => format!("{value:.0}"),
        value if value < 99_950.0 => format!("{:.1}k", value / 1e3),
        value if value < 999_500.0 => format!("{:.0}k", value / 1e3),
        value if value < 99_950_000.0 => format!("{:.2}M", value / 1e6),
        value => format!("{:.0}M", value / 1e6),
    }
}

/// Octets in a second: `950 B/s`, `12.3 kB/s`, `1.25 GB/s`.
pub(super) fn bandwidth(value: f64) -> String {
    match value {
        value if value < 1e3 => format!("{value:.0} B/s"),
        value if value < 1e5 => format!("{:.1} kB/s", value / 1e3),
        value if value < 1e6 => format!("{:.0} kB/s", value / 1e3),
        value if value < 1e8 => format!("{:.1} MB/s", value / 1e6),
        value if value < 1e9 => format!("{:.0} MB/s", value / 1e6),
        value => format!("{:.2} GB/s", value / 1e9),
    }
}

/// Microseconds: `85us`, `1.2ms`, `3.4s`.
pub(super) fn time(us: Option<f64>) -> String {
    match us {
        None => "-".into(),
        Some(us) if us < 9.95 => format!("{us:.1}us"),
        Some(us) if us < 999.5 => format!("{us:.0}us"),
        Some(us) if us < 99_950.0 => format!("{:.1}ms", us / 1e3),
        Some(us) if us < 999_500.0 => format!("{:.0}ms", us / 1e3),
        Some(us) => format!("{:.1}s", us / 1e6),
    }
}

/// Requests of a caravan.
pub(super) fn per_caravan(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.1}"))
}

/// How long it has run: `12s`, `5m03s`, `4h02m`, `3d04h`.
pub(super) fn uptime(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, ..) => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// The last `width` values as a line of bars.
pub(super) fn bars(values: impl DoubleEndedIterator<Item = f64>, width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let mut values: Vec<f64> = values.rev().take(width).collect();
    values.reverse();
    let most = values.iter().copied().fold(0.0, f64::max);
    let bar = |value: &f64| match most {
        most if most > 0.0 && *value > 0.0 => {
            BARS[((value / most * 8.0).ceil() as usize).clamp(1, 8) - 1]
        }
        _ => ' ',
    };
    let empty = std::iter::repeat_n(' ', width - values.len());
    empty.chain(values.iter().map(bar)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let counts = [0.4, 999.0, 1000.0, 12_345.0, 99_960.0, 512_000.0, 1_250_000.0].map(count);
        assert_eq!(counts, ["0", "999", "1.0k", "12.3k", "100k", "512k", "1.25M"]);
        let rates = [512.0, 4_096_000.0, 250e6, 2.1e9].map(bandwidth);
        assert_eq!(rates, ["512 B/s", "4.1 MB/s", "250 MB/s", "2.10 GB/s"]);
        let times = [None, Some(4.0), Some(85.2), Some(1234.0), Some(2_500_000.0)].map(time);
        assert_eq!(times, ["-", "4.0us", "85us", "1.2ms", "2.5s"]);
        let up = [12.9, 303.0, 14_520.0, 273_600.0].map(uptime);
        assert_eq!(up, ["12s", "5m03s", "4h02m", "3d04h"]);
    }

    #[test]
    fn bars_are_of_the_last_values_and_the_greatest_is_full() {
        assert_eq!(bars([9.0, 1.0, 4.0, 8.0].into_iter(), 3), "▁▄█");
        assert_eq!(bars([0.0, 8.0].into_iter(), 4), "   █");
        assert_eq!(bars([0.0; 3].into_iter(), 3), "   ");
    }
}
