//! Short formats of figures.

use crate::units::show_us;

/// Formats a count: `950`, `12.3k`, `1.25M`.
pub(super) fn count(value: f64) -> String {
    match value {
        value if value < 999.5 => format!("{value:.0}"),
        value if value < 99_950.0 => format!("{:.1}k", value / 1e3),
        value if value < 999_500.0 => format!("{:.0}k", value / 1e3),
        value if value < 99_950_000.0 => format!("{:.2}M", value / 1e6),
        value => format!("{:.0}M", value / 1e6),
    }
}

/// Formats microseconds; a dash for no value.
pub(super) fn time(us: Option<f64>) -> String {
    us.map_or_else(|| "-".into(), show_us)
}

/// Formats the requests of a caravan.
pub(super) fn per_caravan(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.1}"))
}

/// Formats the last `width` values as a line of bars.
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
        assert_eq!([None, Some(85.2)].map(time), ["-", "85.2 us"]);
    }

    #[test]
    fn bars_are_of_the_last_values_and_the_greatest_is_full() {
        assert_eq!(bars([9.0, 1.0, 4.0, 8.0].into_iter(), 3), "▁▄█");
        assert_eq!(bars([0.0, 8.0].into_iter(), 4), "   █");
        assert_eq!(bars([0.0; 3].into_iter(), 3), "   ");
    }
}
