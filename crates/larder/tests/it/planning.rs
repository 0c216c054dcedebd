//! Guards against a plan that does not describe what is run, or a measurement that leaves files behind.

use crate::{
    origin::Origin,
    process::{Larder, run},
};
use std::{fs, process::Output};
use tempfile::TempDir;

#[track_caller]
fn check(home: &TempDir, arguments: &[&str], code: i32) -> String {
    let Output { status, stdout, stderr } = run(home, arguments);
    let said = String::from_utf8(stdout).unwrap();
    let errors = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(code), "{arguments:?}: {said}{errors}");
    said + &errors
}

#[test]
fn a_measured_disk_is_planned_with_and_left_as_it_was() {
    let home = TempDir::new().unwrap();
    let disk = home.path().join("disk");
    let figures = home.path().join("disk.json");
    fs::create_dir(&disk).unwrap();
    let disk = disk.to_str().unwrap();
    let figures = figures.to_str().unwrap();
    let said = check(&home, &["bench", "device", disk, "--size", "16MiB", "--time", "300ms", "--json", figures], 0);
    assert!(said.contains("random reads per second") && said.contains("in place of others"), "{said}");
    assert_eq!(fs::read_dir(disk).unwrap().count(), 0);
    let said = check(&home, &["plan", "--size", "2TB", "--memory", "256MB", "--device", figures], 0);
    for policy in larder_store::Policy::all() {
        assert!(said.contains(policy.name), "{policy} is not in {said}");
    }
    assert!(said.contains(&format!("rates of {disk}")) && said.contains("\nuse "), "{said}");
    let said = check(&home, &["plan", "--size", "2TB", "--memory", "256MB", "--json"], 0);
    assert!(said.contains("\"recommended\"") && said.contains("\"reads_per_miss\""), "{said}");
}

/// Guards against a plan that fits a memory with which the proxy does not start, or that promises a smaller index.
#[test]
fn plan_is_of_the_proxy_that_runs() {
    let home = TempDir::new().unwrap();
    let store = home.path().join("store.larder");
    let sizes = ["--size", "64MiB", "--memory", "256MB"];
    let larder = Larder::start(&home, &[&["--disk", store.to_str().unwrap()], &sizes[..]].concat());
    let (before, _) = larder.start_lines.split_once(" index").unwrap();
    let index = before.rsplit(", ").next().unwrap().to_owned();
    assert_eq!(larder.stop(), Some(0));
    let said = check(&home, &[&["plan"], &sizes[..]].concat(), 0);
    let log = said.lines().find(|line| line.trim_start_matches('*').trim_start().starts_with("log ")).unwrap();
    assert!(log.contains(&index), "{index} is not in {log}");
    let said = check(&home, &["plan", "--size", "1TB", "--memory", "1MB"], 2);
    assert!(said.contains("1 MB of --memory is too little for the whole process"), "{said}");
}

#[test]
fn a_trace_gives_its_sizes_and_its_hits() {
    let home = TempDir::new().unwrap();
    let trace = home.path().join("trace.csv");
    fs::write(&trace, "time,key,size\n1,a,20000\n2,b,40000\n3,a,20000\n4,a,20000\n").unwrap();
    let trace = trace.to_str().unwrap();
    let said = check(&home, &["plan", "--size", "1GB", "--memory", "64MB", "--trace", trace], 0);
    assert!(said.contains("entries of 30 kB on average, 50% hits"), "{said}");
    fs::write(trace, "").unwrap();
    check(&home, &["plan", "--size", "1GB", "--memory", "64MB", "--trace", trace], 1);
}

#[test]
fn what_cannot_be_planned_says_why() {
    let home = TempDir::new().unwrap();
    let letter = home.path().join("letter");
    fs::write(&letter, "dear").unwrap();
    let letter = letter.to_str().unwrap();
    let said = check(&home, &["plan", "--size", "2TB", "--memory", "1GB", "--device", letter], 2);
    assert!(said.contains("not figures of a device"), "{said}");
    let said = check(&home, &["bench", "device", letter], 1);
    assert!(said.contains("existing files are not overwritten"), "{said}");
    let said = check(&home, &["plan", "--size", "1MB", "--memory", "1GB"], 2);
    assert!(said.contains("size out of range"), "{said}");
}

#[test]
fn auto_says_what_it_chose_and_keeps_to_it() {
    let home = TempDir::new().unwrap();
    let origin = Origin::start();
    let store = home.path().join("store.larder");
    let address = format!("http://{}", origin.address);
    let flags = ["--policy", "auto", "--memory", "64MB", "--origin", &address, "--disk", store.to_str().unwrap()];
    let larder = Larder::start(&home, &[&flags[..], &["--size", "200MB"]].concat());
    assert!(larder.start_lines.contains("  policy   auto: log, about "), "{}", larder.start_lines);
    assert!(larder.start_lines.contains(", policy log\n"), "{}", larder.start_lines);
    assert_eq!(larder.get("/a").status, 200);
    assert_eq!(larder.stop(), Some(0));
    let larder = Larder::start(&home, &flags);
    let said = &larder.start_lines;
    assert!(said.contains("  policy   auto: log, the policy of the existing store\n"), "{said}");
    assert_eq!(larder.stop(), Some(0));
}

/// Guards against constants that are planned with and then refused, or not used.
#[test]
fn chosen_constants_are_flags_that_a_store_takes() {
    let home = TempDir::new().unwrap();
    let said = check(&home, &["plan", "--size", "1TB", "--memory", "160MB", "--spinning"], 0);
    let (_, chosen) = said.split_once("constants chosen").unwrap_or_else(|| panic!("none are chosen: {said}"));
    let flags = |policy: &str| -> Vec<&str> {
        let line = chosen.lines().find(|line| line.split_whitespace().next() == Some(policy));
        line.unwrap_or_else(|| panic!("none for {policy}: {said}")).split_whitespace().skip(1).collect()
    };
    for policy in ["hashcache-basic", "hashcache-set", "hashcache-setmem", "hashcache-setmem-lru"] {
        let store = home.path().join(policy);
        let format = ["store", "format", store.to_str().unwrap(), "--size", "256MiB", "--policy", policy];
        assert!(flags(policy).iter().any(|flag| flag.starts_with("hashcache_bin_bytes=")), "{said}");
        check(&home, &[&format[..], &flags(policy)].concat(), 0);
    }
    let kept = ["plan", "--size", "1TB", "--memory", "160MB", "--spinning", "--tune", "hashcache_bin_bytes=16KiB"];
    assert!(!check(&home, &kept, 0).contains("--tune hashcache_bin_bytes"), "a constant that was given was changed");
}
