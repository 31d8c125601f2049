//! A software bill of materials of the product, in CycloneDX's JSON.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Path of the bill.
const PLACE: &str = "target/sbom/roadtrain.cdx.json";
/// Package that the bill describes, with all its dependencies.
const PRODUCT: &str = "roadtrain";

/// Writes the bill. The same Cargo.lock results in the same bytes.
pub(crate) fn write(root: &Path) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let arguments = [
        "metadata",
        "--format-version=1",
        "--locked",
        "--filter-platform",
        "x86_64-unknown-linux-gnu",
    ];
    let out = Command::new(cargo).args(arguments).current_dir(root).output()?;
    if !out.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr));
    }
    let bill = bill(&serde_json::from_slice(&out.stdout)?, &checksums(root)?)?;
    let place = root.join(PLACE);
    std::fs::create_dir_all(place.parent().context("a folder")?)?;
    std::fs::write(&place, serde_json::to_string_pretty(&bill)? + "\n")?;
    let components = bill["components"].as_array().map_or(0, Vec::len);
    println!("sbom: {PLACE}, {components} components");
    Ok(())
}

/// Returns the bill of a workspace's metadata.
fn bill(metadata: &Value, checksums: &BTreeMap<(String, String), String>) -> Result<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = list(&metadata["packages"]);
    let packages: BTreeMap<String, &Value> =
        packages.iter().map(|package| (text(&package["id"]), package)).collect();
    let mut uses: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        let is_built_in =
            |kinds: &Value| list(kinds).iter().any(|kind| kind["kind"].as_str() != Some("dev"));
        let deps = list(&node["deps"]);
        let deps = deps.iter().filter(|dep| is_built_in(&dep["dep_kinds"]));
        uses.insert(text(&node["id"]), deps.map(|dep| text(&dep["pkg"])).collect());
    }
    let product = packages.iter().find(|(_, package)| package["name"] == PRODUCT);
    let (product, described) = product.context("the product is no package")?;
    let (mut reached, mut ahead) = (BTreeSet::new(), vec![product.clone()]);
    while let Some(id) = ahead.pop() {
        if reached.insert(id.clone()) {
            ahead.extend(uses.get(&id).into_iter().flatten().cloned());
        }
    }
    let reference = |id: &String| packages.get(id).map(|package| url(package)).unwrap_or_default();
    let others = reached.iter().filter(|id| *id != product).filter_map(|id| packages.get(id));
    let mut components: Vec<Value> =
        others.map(|package| component(package, "library", checksums)).collect();
    components.sort_by_key(|component| component["bom-ref"].as_str().map(str::to_owned));
    let mut dependencies: Vec<Value> = reached
        .iter()
        .map(|id| {
            let mut on: Vec<String> = uses.get(id).into_iter().flatten().map(reference).collect();
            on.sort();
            json!({"ref": reference(id), "dependsOn": on})
        })
        .collect();
    dependencies.sort_by_key(|one| one["ref"].as_str().map(str::to_owned));
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(described, "application", checksums)},
        "components": components,
        "dependencies": dependencies,
    }))
}

fn component(package: &Value, kind: &str, checksums: &BTreeMap<(String, String), String>) -> Value {
    let mut value = json!({
        "type": kind,
        "bom-ref": url(package),
        "name": package["name"],
        "version": package["version"],
        "purl": url(package),
        "licenses": [{"expression": package["license"].as_str().unwrap_or_default().replace('/', " OR ")}],
    });
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    if let Some(sum) = checksums.get(&(text("name"), text("version"))) {
        value["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    value
}

/// Returns a package URL.
fn url(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    format!("pkg:cargo/{}@{}", text("name"), text("version"))
}

/// Returns the checksums of archives in Cargo.lock, by name and version.
fn checksums(root: &Path) -> Result<BTreeMap<(String, String), String>> {
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
    let entries = lock.split("[[package]]").skip(1).filter_map(|entry| {
        let value = |key: &str| {
            let line = entry.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.trim_start_matches(" = ").trim_matches('"').to_owned())
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    });
    Ok(entries.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_is_named_and_tests_are_not() {
        let package = |name: &str| json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0"});
        let dep =
            |name: &str, kind: Option<&str>| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("roadtrain"), package("used"), package("below"), package("tests"), package("other")],
            "resolve": {"nodes": [
                {"id": "roadtrain", "deps": [dep("used", None), dep("tests", Some("dev"))]},
                {"id": "used", "deps": [dep("below", Some("build"))]},
                {"id": "below", "deps": []},
                {"id": "other", "deps": [dep("used", None)]},
            ]},
        });
        let sums = BTreeMap::from([(("used".into(), "1.0.0".into()), "abc".to_owned())]);
        let bill = bill(&metadata, &sums).unwrap();
        let names: Vec<&str> = bill["components"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["name"].as_str())
            .collect();
        assert_eq!(names, ["below", "used"]);
        assert_eq!(bill["components"][1]["hashes"][0]["content"], "abc");
        assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["metadata"]["component"]["purl"], "pkg:cargo/roadtrain@1.0.0");
        assert_eq!(bill["dependencies"].as_array().unwrap().len(), 3);
    }
}
