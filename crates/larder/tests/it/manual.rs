//! Guards against a package with the manual of another version.

use crate::process::run;
use std::fs;
use tempfile::TempDir;

#[test]
fn manual_pages_and_completions_are_of_this_command_line() {
    let home = TempDir::new().unwrap();
    let folder = home.path().join("manual");
    assert!(run(&home, &["manual", folder.to_str().unwrap()]).status.success());
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{error}: {name}"));
    assert!(read("larder.1").contains("larder\\-run(1)"), "{}", read("larder.1"));
    for (name, text) in
        [("larder-run.1", "\\-\\-mirror"), ("larder-reload.1", "SIGHUP"), ("larder-store-info.1", "store")]
    {
        assert!(read(name).contains(text), "no {text} in {name}");
    }
    for name in ["larder.bash", "_larder", "larder.fish"] {
        assert!(read(name).contains("reload"), "{name}");
    }
    let printed = run(&home, &["completions", "bash"]);
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), read("larder.bash"));
    assert_eq!(run(&home, &["completions", "cmd"]).status.code(), Some(2));
    assert_eq!(run(&home, &["manual", "/dev/null/none"]).status.code(), Some(1));
}
