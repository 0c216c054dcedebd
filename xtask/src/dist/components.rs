//! Lists the crates in a release as CycloneDX 1.5 (JSON), from `cargo tree` and `Cargo.lock`.
//!
//! Owns: the form of the list. The crates are those that cargo compiles for the target, build scripts included. Each
//! has its license, its checksum and the crates that it depends on. The same sources give the same bytes.

use super::FEATURES;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::Path,
    process::Command,
};

/// A crate's name and version.
type Identity = (String, String);

/// A crate in `Cargo.lock`.
#[derive(Debug, Default, PartialEq, Eq)]
struct LockedCrate {
    checksum: Option<String>,
    dependencies: Vec<String>,
}

/// Returns the list of the crates in a release for `target`, as CycloneDX.
pub(super) fn list(root: &Path, target: &str) -> Result<String, String> {
    let lock = fs::read_to_string(root.join("Cargo.lock")).map_err(|error| format!("Cargo.lock: {error}"))?;
    let what = ["tree", "--locked", "-p", "larder", "--features", FEATURES, "--target", target, "-e", "normal,build"];
    let how = ["--prefix", "none", "--no-dedupe", "-f", "{p}|{l}"];
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo).args(what).args(how).current_dir(root).output();
    let tree = tree.map_err(|error| format!("cargo tree: {error}"))?;
    if !tree.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&tree.stderr)));
    }
    Ok(write(&compiled(&String::from_utf8_lossy(&tree.stdout)), &locked(&lock)))
}

/// Reads the output of `cargo tree`: lines such as `bytes v1.12.1|MIT`. Returns the license of each crate.
fn compiled(tree: &str) -> BTreeMap<Identity, String> {
    let read = |line: &str| {
        let (package, license) = line.split_once('|')?;
        let mut words = package.split_whitespace();
        let name = words.next()?;
        let version = words.next()?.strip_prefix('v')?;
        // The form with a slash is older than SPDX expressions.
        Some(((name.to_owned(), version.to_owned()), license.replace('/', " OR ")))
    };
    tree.lines().filter_map(read).collect()
}

/// Reads `Cargo.lock`.
fn locked(text: &str) -> BTreeMap<Identity, LockedCrate> {
    let mut found = BTreeMap::new();
    for block in text.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
            Some(line.trim_matches('"').to_owned())
        };
        let (Some(name), Some(version)) = (value("name"), value("version")) else { continue };
        let listed = block.lines().filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\","));
        let package = LockedCrate { checksum: value("checksum"), dependencies: listed.map(str::to_owned).collect() };
        found.insert((name, version), package);
    }
    found
}

/// Returns the dependencies of a crate that are among `compiled`. `Cargo.lock` names a version only if there are
/// several.
fn dependencies<'a>(
    package: &'a LockedCrate,
    compiled: &'a BTreeMap<Identity, String>,
) -> impl Iterator<Item = &'a Identity> {
    package.dependencies.iter().flat_map(move |dependency| {
        let mut words = dependency.split(' ');
        let name = words.next();
        let version = words.next();
        compiled.keys().filter(move |(found, has)| {
            Some(found.as_str()) == name && version.is_none_or(|version| version == has.as_str())
        })
    })
}

fn write(compiled: &BTreeMap<Identity, String>, locked: &BTreeMap<Identity, LockedCrate>) -> String {
    let program = compiled.keys().find(|(name, _)| name == "larder");
    let mut components = Vec::new();
    let mut relations = Vec::new();
    let mut own = String::new();
    for (identity, license) in compiled {
        let is_program = Some(identity) == program;
        let package = locked.get(identity);
        let text = component(identity, license, package, if is_program { "application" } else { "library" });
        if is_program {
            own = text
        } else {
            components.push(text)
        }
        let below: BTreeSet<String> =
            package.map(|package| dependencies(package, compiled)).into_iter().flatten().map(reference).collect();
        let below: Vec<String> = below.iter().map(|name| quoted(name)).collect();
        relations.push(format!("{{\"ref\":{},\"dependsOn\":[{}]}}", quoted(&reference(identity)), below.join(",")));
    }
    format!(
        "{{\"bomFormat\":\"CycloneDX\",\"specVersion\":\"1.5\",\"version\":1,\n\"metadata\":{{\"component\":{own}}},\n\
         \"components\":[\n{}\n],\n\"dependencies\":[\n{}\n]}}\n",
        components.join(",\n"),
        relations.join(",\n")
    )
}

fn component((name, version): &Identity, license: &str, package: Option<&LockedCrate>, kind: &str) -> String {
    let reference = quoted(&reference(&(name.clone(), version.clone())));
    let name = quoted(name);
    let version = quoted(version);
    let mut text = format!(
        "{{\"type\":\"{kind}\",\"bom-ref\":{reference},\"name\":{name},\"version\":{version},\"purl\":{reference}"
    );
    if let Some(checksum) = package.and_then(|package| package.checksum.as_deref()) {
        write!(text, ",\"hashes\":[{{\"alg\":\"SHA-256\",\"content\":{}}}]", quoted(checksum))
            .expect("a string takes all");
    }
    if !license.is_empty() {
        write!(text, ",\"licenses\":[{{\"expression\":{}}}]", quoted(license)).expect("a string takes all");
    }
    text + "}"
}

/// Returns a crate's package URL, which identifies the crate in the list of components.
fn reference((name, version): &Identity) -> String {
    format!("pkg:cargo/{name}@{version}")
}

/// Returns a JSON string. Names, versions and licenses have no other characters that need an escape.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "larder v0.1.0 (a/b)|MIT\nbytes v1.12.1|MIT\nsyn v2.0.1|MIT/Apache-2.0\nbytes v1.12.1|MIT\n";
    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"bytes\"\nversion = \"1.12.1\"\nchecksum = \"ab\"\n\n\
                        [[package]]\nname = \"larder\"\nversion = \"0.1.0\"\ndependencies = [\n \"bytes\",\n \"syn 2.0.1\",\n \
                        \"tempfile\",\n]\n\n[[package]]\nname = \"syn\"\nversion = \"2.0.1\"\n";

    #[test]
    fn every_compiled_crate_is_listed_once_with_license_checksum_and_relations() {
        let text = write(&compiled(TREE), &locked(LOCK));
        assert_eq!(text.matches("\"type\":\"library\"").count(), 2, "{text}");
        for part in [
            "\"component\":{\"type\":\"application\",\"bom-ref\":\"pkg:cargo/larder@0.1.0\"",
            "\"hashes\":[{\"alg\":\"SHA-256\",\"content\":\"ab\"}]",
            "\"licenses\":[{\"expression\":\"MIT OR Apache-2.0\"}]",
            "{\"ref\":\"pkg:cargo/larder@0.1.0\",\"dependsOn\":[\"pkg:cargo/bytes@1.12.1\",\"pkg:cargo/syn@2.0.1\"]}",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
