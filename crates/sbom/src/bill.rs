//! From cargo's metadata to a bill of materials.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// The bill of the packages `roots`. Packages that only tests use are left out.
///
/// **Errors:** a text: a package that is not there, or metadata in another shape.
pub fn of(metadata: &Value, lock: &str, roots: &[&str]) -> Result<Value, String> {
    let list =
        |value: &Value, what: &str| value.as_array().cloned().ok_or_else(|| format!("cargo metadata has no {what}"));
    let packages = list(&metadata["packages"], "packages")?;
    let nodes = list(&metadata["resolve"]["nodes"], "resolve.nodes")?;
    let by_id: BTreeMap<&str, &Value> = packages.iter().filter_map(|p| Some((p["id"].as_str()?, p))).collect();
    let needs: BTreeMap<&str, Vec<&str>> = nodes.iter().filter_map(|n| Some((n["id"].as_str()?, needed(n)))).collect();

    let mut wanted = Vec::new();
    for root in roots {
        // Names of the workspace are its own: nothing from a registry may stand in for one.
        let own = |p: &&Value| p["name"] == *root && p["source"].is_null();
        let package = packages.iter().find(own).ok_or_else(|| format!("there is no package {root}"))?;
        wanted.extend(package["id"].as_str());
    }
    let mut found: BTreeSet<&str> = BTreeSet::new();
    while let Some(id) = wanted.pop() {
        if found.insert(id) {
            wanted.extend(needs.get(id).into_iter().flatten());
        }
    }

    let sums = checksums(lock);
    let mut components = vec![system_library("openssl", "libssl and libcrypto, loaded from the system")];
    let mut dependencies = Vec::new();
    for id in &found {
        let package = by_id.get(id).ok_or_else(|| format!("there is no package {id}"))?;
        components.push(component(package, &sums)?);
        let mut on: Vec<String> =
            needs.get(id).into_iter().flatten().filter_map(|id| Some(reference(by_id.get(id)?))).collect();
        on.sort();
        dependencies.push(json!({ "ref": reference(package), "dependsOn": on }));
    }
    let version = roots
        .first()
        .and_then(|root| packages.iter().find(|p| p["name"] == *root))
        .map_or(Value::Null, |p| p["version"].clone());
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": { "type": "application", "bom-ref": "trireme", "name": "trireme", "version": version,
                           "licenses": [{ "expression": "GPL-2.0-or-later" }] },
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// The packages that a package is built with: not those of its tests.
fn needed(node: &Value) -> Vec<&str> {
    let deps = node["deps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let counts =
        |dep: &&Value| dep["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k["kind"] != "dev"));
    deps.iter().filter(counts).filter_map(|dep| dep["pkg"].as_str()).collect()
}

fn reference(package: &Value) -> String {
    let text = |name: &str| package[name].as_str().unwrap_or_default();
    format!("pkg:cargo/{}@{}", text("name"), text("version"))
}

fn component(package: &Value, sums: &BTreeMap<(String, String), String>) -> Result<Value, String> {
    let text =
        |name: &str| package[name].as_str().map(str::to_owned).ok_or_else(|| format!("a package without {name}"));
    let (name, version) = (text("name")?, text("version")?);
    let mut out = json!({ "type": "library", "bom-ref": reference(package), "name": name, "version": version,
                          "purl": reference(package) });
    if let Some(license) = package["license"].as_str() {
        // The way crates wrote it before there were expressions.
        out["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    match sums.get(&(name.clone(), version.clone())) {
        Some(sum) => out["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]),
        None if package["source"].is_null() => {}
        None => return Err(format!("Cargo.lock has no checksum of {name} {version}")),
    }
    Ok(out)
}

fn system_library(name: &str, what: &str) -> Value {
    json!({ "type": "library", "bom-ref": format!("system:{name}"), "name": name, "description": what, "scope": "required",
            "licenses": [{ "expression": "Apache-2.0" }] })
}

/// SHA-256 of each package from a registry, by name and version. The file is made by cargo, a line for each fact.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut sums = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
            line.and_then(|rest| rest.strip_suffix('"')).map(str::to_owned)
        };
        if let (Some(name), Some(version), Some(sum)) = (field("name"), field("version"), field("checksum")) {
            sums.insert((name, version), sum);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Value {
        let package = |name: &str, source: Option<&str>, license: &str| json!({ "id": name, "name": name, "version": "1.0.0", "source": source, "license": license });
        let needs = |id: &str, on: &[(&str, Option<&str>)]| {
            let deps: Vec<Value> =
                on.iter().map(|(pkg, kind)| json!({ "pkg": pkg, "dep_kinds": [{ "kind": kind }] })).collect();
            json!({ "id": id, "deps": deps })
        };
        json!({
            "packages": [
                package("ours", None, "GPL-2.0-or-later"),
                package("used", Some("registry"), "MIT/Apache-2.0"),
                package("deep", Some("registry"), "Zlib"),
                package("tests", Some("registry"), "MIT"),
            ],
            "resolve": { "nodes": [
                needs("ours", &[("used", None), ("tests", Some("dev"))]),
                needs("used", &[("deep", Some("build"))]),
                needs("deep", &[]),
                needs("tests", &[]),
            ]},
        })
    }

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"used\"\nversion = \"1.0.0\"\nchecksum = \"aa\"\n\n\
                        [[package]]\nname = \"deep\"\nversion = \"1.0.0\"\nchecksum = \"bb\"\n\n[[package]]\nname = \"ours\"\nversion = \"1.0.0\"\n";

    #[test]
    fn what_is_built_in_is_there_and_what_tests_use_is_not() {
        let bill = of(&metadata(), LOCK, &["ours"]).unwrap();
        let names: Vec<&str> =
            bill["components"].as_array().unwrap().iter().filter_map(|c| c["name"].as_str()).collect();
        assert_eq!(names, ["openssl", "deep", "ours", "used"]);
        let used = &bill["components"][3];
        assert_eq!(used["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(used["hashes"][0]["content"], "aa");
        assert_eq!(
            bill["dependencies"][1],
            json!({ "ref": "pkg:cargo/ours@1.0.0", "dependsOn": ["pkg:cargo/used@1.0.0"] })
        );
    }

    #[test]
    fn a_package_without_a_checksum_or_a_root_that_is_not_ours_is_an_error() {
        assert!(of(&metadata(), "", &["ours"]).unwrap_err().contains("checksum"));
        assert!(of(&metadata(), LOCK, &["used"]).unwrap_err().contains("used"));
    }
}
