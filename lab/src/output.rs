//! Files of results.

use anyhow::Context;
use serde::Serialize;
use serde_json::{Number, Value};
use std::fs;
use std::path::Path;

/// Writes a file whole or not at all, and makes the folder for it.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    fs::write(&unfinished, text)
        .and_then(|()| fs::rename(&unfinished, path))
        .with_context(|| format!("write {}", path.display()))
}

/// Writes JSON in one line, with the digits that mean something and without what is absent: thousands of runs have a
/// dozen figures each.
pub(crate) fn write_json(path: &Path, results: &impl Serialize) -> anyhow::Result<()> {
    let mut value = serde_json::to_value(results)?;
    shorten(&mut value);
    write(path, &(serde_json::to_string(&value)? + "\n"))
}

/// Rounds fractions to five significant digits; drops members that are null.
fn shorten(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(shorten),
        Value::Object(values) => {
            values.retain(|_, value| !value.is_null());
            values.values_mut().for_each(shorten);
        }
        Value::Number(number) if number.is_f64() => {
            let short = number.as_f64().and_then(|exact| format!("{exact:.4e}").parse().ok());
            if let Some(short) = short.and_then(Number::from_f64) {
                *number = short;
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fractions_are_short_and_the_rest_stays() {
        let mut value = json!({ "a": [123_456.789, 0.000_123_456_7, 1e9, null], "b": 123_456_789,
            "c": "x", "d": null });
        shorten(&mut value);
        let short =
            json!({ "a": [123_460.0, 0.000_123_46, 1e9, null], "b": 123_456_789, "c": "x" });
        assert_eq!(value, short);
    }
}
