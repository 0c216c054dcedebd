//! Rules about manifests: the allowed dependencies between crates, a reason for every dependency, and no unused ones.
//!
//! Owns: the direction of dependencies. TOML is not parsed in full. A manifest must consist of tables with one-line
//! entries; any other line is a finding.

use super::{Finding, source::Text};

/// Every crate, with the workspace's crates that it may depend on, including in tests.
const MAY_DEPEND: &[(&str, &[&str])] = &[
    ("larder-cache", &["larder-device", "larder-http", "larder-store"]),
    ("larder-device", &[]),
    ("larder-http", &[]),
    ("larder-reqwest", &["larder-cache", "larder-http", "larder-tower"]),
    ("larder-pingora", &["larder-cache"]),
    // This dependency is for tests. Cargo itself refuses every other dependency of a crate on itself.
    ("larder-store", &["larder-device", "larder-torture"]),
    ("larder-torture", &["larder-cache", "larder-device", "larder-http", "larder-store", "larder-tower"]),
    ("larder-evictions", &["larder-workload"]),
    ("larder-libraries", &["larder-cache", "larder-device", "larder-store"]),
    ("larder-fuzz", &["larder", "larder-http", "larder-proxy", "larder-store", "larder-torture"]),
    ("larder-oracle", &["larder-device", "larder-http", "larder-wire"]),
    ("larder-proxy", &["larder-cache", "larder-device", "larder-http", "larder-store", "larder-wire"]),
    ("larder-tower", &["larder-cache", "larder-http"]),
    ("larder-wire", &["larder-http"]),
    ("larder-workload", &["larder-store"]),
    ("larder-sim", &["larder-cache", "larder-device", "larder-http", "larder-store", "larder-workload"]),
    ("larder-bench", &["larder-device", "larder-sim", "larder-store", "larder-wire", "larder-workload"]),
    (
        "larder",
        &[
            "larder-cache",
            "larder-device",
            "larder-http",
            "larder-store",
            "larder-proxy",
            "larder-sim",
            "larder-bench",
            "larder-wire",
            "larder-workload",
        ],
    ),
    ("xtask", &[]),
];

/// Returns the dependencies that are not allowed, have no stated reason, or are unused.
pub(crate) fn check(manifests: &[Text]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = manifests.iter().flat_map(check_one).collect();
    findings.extend(manifests.iter().flat_map(|manifest| check_unused(manifest, manifests)));
    findings
}

/// Returns the dependencies of the workspace that no crate uses.
fn check_unused(workspace: &Text, manifests: &[Text]) -> Vec<Finding> {
    let mut in_table = false;
    let mut findings = Vec::new();
    for (position, line) in workspace.text.lines().enumerate() {
        if line.starts_with('[') {
            in_table = line.trim() == "[workspace.dependencies]";
            continue;
        }
        let Some((name, _)) = line.split_once(" = ").filter(|_| in_table && !line.starts_with('#')) else { continue };
        let forms = [format!("{name}.workspace"), format!("{name} = {{ workspace")];
        let mut lines = manifests.iter().flat_map(|manifest| manifest.text.lines());
        if !lines.any(|line| forms.iter().any(|form| line.starts_with(form))) {
            findings.push(Finding::new(&workspace.path, position + 1, format!("no crate takes `{name}`")));
        }
    }
    findings
}

/// Returns the dependencies of one manifest that are not allowed or have no stated reason.
fn check_one(manifest: &Text) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut table = String::new();
    let mut package = String::new();
    for (position, line) in manifest.text.lines().enumerate() {
        let line = line.trim();
        let mut add = |problem: String| findings.push(Finding::new(&manifest.path, position + 1, problem));
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with('[') {
            table = line.trim_matches(['[', ']']).to_owned();
            continue;
        }
        if !table.ends_with("dependencies") {
            if let (true, Some(name)) = (table == "package", line.strip_prefix("name = ")) {
                package = name.trim_matches('"').to_owned();
            }
            continue;
        }
        let name = line.split(['.', '=', ' ']).next().unwrap_or(line);
        if table == "workspace.dependencies" {
            if !line.contains("path = ") && !line.contains(" # ") {
                add(format!("`{name}` has no reason: say after ` # ` why it is taken and not written by hand"));
            }
            continue;
        }
        if !line.contains("workspace") {
            add(format!("`{name}` is not taken from the workspace: write `{name}.workspace = true`"));
        }
        // A crate may take itself for its tests, with features that its users do not need.
        let is_own_test = name == package && table == "dev-dependencies";
        if is_ours(name) && !is_own_test {
            match MAY_DEPEND.iter().find(|(of, _)| *of == package) {
                None => add(format!("crate `{package}` has no place in the house: add it to xtask's table")),
                Some((_, allowed)) if !allowed.contains(&name) => {
                    add(format!("`{package}` must not depend on `{name}`: dependencies point down only"));
                }
                Some(_) => {}
            }
        }
    }
    findings
}

fn is_ours(name: &str) -> bool {
    MAY_DEPEND.iter().any(|(ours, _)| *ours == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(text: &str) -> Vec<String> {
        let manifest = Text { path: "Cargo.toml".to_owned(), text: text.to_owned() };
        check(&[manifest]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn dependencies_point_down() {
        assert_eq!(
            check_text("[package]\nname = \"larder-proxy\"\n[dependencies]\nlarder-http.workspace = true\n").len(),
            0
        );
        let found = check_text("[package]\nname = \"larder-http\"\n[dependencies]\nlarder-store.workspace = true\n");
        assert!(found[0].contains("Cargo.toml:4: `larder-http` must not depend on `larder-store`"), "{found:?}");
        let found = check_text("[package]\nname = \"new\"\n[dev-dependencies]\nlarder-store = { workspace = true }\n");
        assert!(found[0].contains("crate `new` has no place"), "{found:?}");
    }

    #[test]
    fn dependencies_come_from_the_workspace() {
        let found = check_text("[package]\nname = \"larder\"\n[dependencies]\nbytes = \"1\"\n");
        assert!(found[0].contains("`bytes` is not taken from the workspace"), "{found:?}");
    }

    #[test]
    fn workspace_dependencies_have_a_reason() {
        let taken = "[dependencies]\nb.workspace = true\nc = { workspace = true }\n";
        let good = format!("[workspace.dependencies]\n# --- a\nb = \"1\" # why\nc = {{ path = \"c\" }}\n{taken}");
        assert_eq!(check_text(&good), Vec::<String>::new());
        let found = check_text("[workspace.dependencies]\nbytes = \"1\"\n");
        assert!(found[0].starts_with("Cargo.toml:2: `bytes` has no reason"), "{found:?}");
    }

    #[test]
    fn dependencies_that_nobody_takes_are_found() {
        let found = check_text("[workspace.dependencies]\nb = \"1\" # why\n[lints]\nc = \"1\"\n");
        assert_eq!(found, ["Cargo.toml:2: no crate takes `b`"]);
    }
}
