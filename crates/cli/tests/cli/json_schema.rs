//! docs/reference/json-output.schema.json: its definitions, and checks of values against it.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

const TEXT: &str = include_str!("../../../../docs/reference/json-output.schema.json");
const PAGE: &str = include_str!("../../../../docs/reference/json.md");
/// Prefix of references to definitions.
const DEFINITIONS: &str = "#/$defs/";
/// Prefix of the names of outputs.
pub const OUTPUT: &str = "output:";
/// Keywords that do not restrict a value.
const ANNOTATIONS: [&str; 5] = ["$schema", "$defs", "title", "description", "unit"];

/// The schema, and the keys that checked values had.
pub struct Schema {
    root: Value,
    pub seen: BTreeSet<String>,
}

impl Schema {
    pub fn read() -> Schema {
        Schema { root: serde_json::from_str(TEXT).unwrap(), seen: BTreeSet::new() }
    }

    fn definitions(&self) -> &serde_json::Map<String, Value> {
        self.root["$defs"].as_object().unwrap()
    }

    /// Returns the definitions of keys: they begin with a small letter, objects with a capital.
    pub fn keys(&self) -> BTreeMap<&str, &Value> {
        let is_key = |name: &str| {
            name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.starts_with(OUTPUT)
        };
        let all = self.definitions().iter().filter(|(name, _)| is_key(name));
        all.map(|(name, definition)| (name.as_str(), definition)).collect()
    }

    fn objects(&self) -> impl Iterator<Item = (&str, &Value)> {
        let all = self.definitions().iter().filter(|(_, one)| one["properties"].is_object());
        all.map(|(name, definition)| (name.as_str(), definition))
    }

    /// Returns the words of the commands that have an output.
    pub fn outputs(&self) -> impl Iterator<Item = &str> {
        self.definitions().keys().filter_map(|name| name.strip_prefix(OUTPUT))
    }

    /// Checks the output of a command, and records its keys.
    ///
    /// # Errors
    /// Place and reason of the first difference.
    pub fn check(&mut self, output: &str, value: &Value) -> Result<(), String> {
        let name = format!("{OUTPUT}{output}");
        let schema = self.definitions().get(&name).ok_or(format!("no {name}"))?;
        self.fits(schema, value, output)?;
        note_keys(value, &mut self.seen);
        Ok(())
    }

    fn resolve(&self, reference: &Value) -> Result<&Value, String> {
        let name = reference.as_str().and_then(|text| text.strip_prefix(DEFINITIONS));
        let name = name.ok_or(format!("{reference} is no reference"))?.replace("%20", " ");
        self.definitions().get(&name).ok_or(format!("there is no definition {name}"))
    }

    fn fits(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        let schema = schema.as_object().ok_or(format!("{at}: no schema"))?;
        for (keyword, wanted) in schema {
            match keyword.as_str() {
                "$ref" => self.fits(self.resolve(wanted)?, value, at)?,
                "type" => has_type(wanted, value).map_err(|error| format!("{at}: {error}"))?,
                "anyOf" => self.fits_any(wanted, value, at)?,
                "allOf" => {
                    list(wanted).iter().try_for_each(|one| self.fits(one, value, at))?;
                }
                "items" => {
                    let items = value.as_array().into_iter().flatten().enumerate();
                    for (number, item) in items {
                        self.fits(wanted, item, &format!("{at}[{number}]"))?;
                    }
                }
                "required" => {
                    let names = list(wanted).iter().filter_map(Value::as_str);
                    if let Some(name) = names.into_iter().find(|name| value.get(name).is_none()) {
                        return Err(format!("{at}: no {name} in {value}"));
                    }
                }
                "properties" => {
                    for (name, schema) in wanted.as_object().into_iter().flatten() {
                        let Some(value) = value.get(name) else { continue };
                        self.fits(schema, value, &format!("{at}.{name}"))?;
                    }
                }
                "additionalProperties" => {
                    let known = schema.get("properties");
                    let is_known =
                        |name: &str| known.is_some_and(|known| known.get(name).is_some());
                    for (name, value) in value.as_object().into_iter().flatten() {
                        match wanted {
                            _ if is_known(name) => {}
                            Value::Bool(false) => {
                                return Err(format!("{at}: {name} is not in the schema"));
                            }
                            schema => self.fits(schema, value, &format!("{at}.{name}"))?,
                        }
                    }
                }
                other if ANNOTATIONS.contains(&other) => {}
                other => return Err(format!("{at}: this test does not know the keyword {other}")),
            }
        }
        Ok(())
    }

    fn fits_any(&self, schemas: &Value, value: &Value, at: &str) -> Result<(), String> {
        let mut errors = Vec::new();
        for schema in list(schemas) {
            match self.fits(schema, value, at) {
                Ok(()) => return Ok(()),
                Err(error) => errors.push(error),
            }
        }
        Err(errors.join(", or "))
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn has_type(wanted: &Value, value: &Value) -> Result<(), String> {
    let is_one = |name: &Value| match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_u64() || value.is_i64(),
        _ => false,
    };
    let is_so = wanted.as_array().map_or_else(|| is_one(wanted), |all| all.iter().any(is_one));
    if is_so { Ok(()) } else { Err(format!("{value} is not of type {wanted}")) }
}

fn note_keys(value: &Value, seen: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            seen.insert(name.clone());
            note_keys(value, seen);
        }),
        Value::Array(items) => items.iter().for_each(|item| note_keys(item, seen)),
        _ => {}
    }
}

/// A JSON text in which no object has a name twice.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unique, D::Error> {
        deserializer.deserialize_any(Unique)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = Unique;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON without a name twice")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Unique, A::Error> {
        while items.next_element::<Unique>()?.is_some() {}
        Ok(Unique)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Unique, A::Error> {
        let mut names = BTreeSet::new();
        while let Some((name, _)) = members.next_entry::<String, Unique>()? {
            if !names.insert(name.clone()) {
                return Err(serde::de::Error::custom(format!("{name} is given twice")));
            }
        }
        Ok(Unique)
    }
}

#[test]
fn every_key_is_defined_once() {
    serde_json::from_str::<Unique>(TEXT).unwrap();
    assert!(serde_json::from_str::<Unique>(r#"{"a": [{"b": true, "b": true}]}"#).is_err());
    let schema = Schema::read();
    let mut used = BTreeSet::new();
    for (name, object) in schema.objects() {
        assert_eq!(object["additionalProperties"], false, "{name}");
        for (key, definition) in object["properties"].as_object().unwrap() {
            assert_eq!(definition["$ref"], format!("{DEFINITIONS}{key}"), "{name}");
            used.insert(key.as_str());
        }
        for key in list(&object["required"]) {
            assert!(object["properties"].get(key.as_str().unwrap()).is_some(), "{name}: {key}");
        }
    }
    let keys: BTreeSet<&str> = schema.keys().into_keys().collect();
    assert_eq!(keys, used, "keys that are defined, and keys of objects");
}

/// Units are part of a name, so that a number is not read in another unit.
#[test]
fn names_of_keys_have_their_units() {
    let units = [
        ("_bytes", "bytes"),
        ("_us", "us"),
        ("_ms", "ms"),
        ("_seconds", "s"),
        ("bytes_per_second", "bytes/s"),
    ];
    for (name, definition) in Schema::read().keys() {
        let about = definition["description"].as_str().unwrap();
        assert!(!about.ends_with('.') && about.chars().count() <= 100, "{name}: {about}");
        for (ending, unit) in units {
            if name.ends_with(ending) {
                assert_eq!(definition["unit"], unit, "{name}");
            }
        }
        let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.chars().all(lower), "{name}");
    }
}

#[test]
fn every_object_belongs_to_an_output() {
    let schema = Schema::read();
    let mut left: Vec<&Value> = list(&schema.root["anyOf"]).iter().collect();
    assert_eq!(left.len(), schema.outputs().count(), "outputs of the whole schema");
    let mut reached = BTreeSet::new();
    while let Some(part) = left.pop() {
        if let Some(name) = part["$ref"].as_str() {
            let definition = schema.resolve(&part["$ref"]).unwrap();
            if reached.insert(name.replace("%20", " ")) {
                left.push(definition);
            }
        }
        match part {
            Value::Object(members) => left.extend(members.values()),
            Value::Array(items) => left.extend(items),
            _ => {}
        }
    }
    let all = schema.definitions().keys().map(|name| format!("{DEFINITIONS}{name}"));
    assert_eq!(all.collect::<BTreeSet<_>>(), reached);
}

/// Returns the table of the page, generated from the schema.
fn table(schema: &Schema) -> String {
    let mut table = "| key | type | unit | meaning |\n|---|---|---|---|\n".to_owned();
    for (name, definition) in schema.keys() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let types = match &definition["type"] {
            Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(", "),
            one => text(one),
        };
        let (unit, about) = (text(&definition["unit"]), text(&definition["description"]));
        table += &format!("| `{name}` | {types} | {unit} | {about} |\n");
    }
    table
}

#[test]
fn the_page_has_the_table_of_the_schema() {
    let wanted = table(&Schema::read());
    if !PAGE.contains(&wanted) {
        let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/json.md");
        std::fs::write(file, wanted).unwrap();
        panic!(
            "docs/reference/json.md has another table than the schema: it should be that of {file}"
        );
    }
}

#[test]
fn a_value_that_does_not_fit_is_found() {
    let mut schema = Schema::read();
    let good = serde_json::json!({"host_nqn": "nqn.x:y", "host_id": "a"});
    assert_eq!(schema.check("hostnqn", &good), Ok(()));
    for (key, value) in [("host_id", Value::Null), ("hostid", "a".into())] {
        let mut bad = good.clone();
        bad[key] = value;
        assert!(schema.check("hostnqn", &bad).is_err(), "{bad}");
    }
    assert!(schema.check("hostnqn", &serde_json::json!({"host_nqn": "nqn.x:y"})).is_err());
    assert!(schema.check("list", &serde_json::json!([good])).is_err());
    assert!(schema.check("nothing", &good).is_err());
}
