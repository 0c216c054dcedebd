//! Guards against a user's file or disk overwritten by a measurement, or meaningless figures.

use larder_bench::{DeviceJob, figures_from_json, measure_device, to_json};
use larder_store::{
    IoChoice,
    plan::{READ_BYTES, READ_DEPTHS},
};
use std::{fs, path::Path, time::Duration};
use tempfile::TempDir;

fn job(path: &Path) -> DeviceJob {
    let span_bytes = 16 << 20;
    let time = Duration::from_millis(400);
    DeviceJob { path: path.to_owned(), span_bytes, time, io: IoChoice::Auto }
}

#[test]
fn a_file_system_is_measured_and_left_as_it_was() {
    let scratch = TempDir::new().unwrap();
    let mut shares = Vec::new();
    let figures = measure_device(&job(scratch.path()), &mut |_, share| shares.push(share)).unwrap();
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    assert_eq!(figures.reads.len(), READ_BYTES.len() * READ_DEPTHS.len());
    // With one operation at a time, the mean time follows from the rate, which shows whether the histogram cuts off
    // long times. On a busy machine the thread also waits between reads.
    let alone = figures.reads.iter().filter(|read| read.depth == 1);
    let shares_in_reads: Vec<_> = alone.map(|read| read.mean_us * read.per_second / 1e6).collect();
    assert!(shares_in_reads.iter().all(|share| *share < 1.2), "{:?}", figures.reads);
    assert!(shares_in_reads.iter().any(|share| *share > 0.2), "{:?}", figures.reads);
    let files = figures.files.clone().expect("it is a file system");
    let rates = [files.replace_per_second, files.read_per_second];
    assert!(rates.iter().all(|rate| *rate > 1.0), "{files:?}");
    assert!(figures.sequential_write > 1e6 && figures.sequential_read > 1e6, "{figures:?}");
    assert_eq!(figures_from_json(&to_json(&figures)).unwrap().reads.len(), figures.reads.len());
    assert!(shares.is_sorted() && shares.last() == Some(&1.0), "{shares:?}");
}

#[test]
fn what_is_there_is_not_touched() {
    let scratch = TempDir::new().unwrap();
    let letter = scratch.path().join("letter");
    fs::write(&letter, "dear").unwrap();
    let error = measure_device(&job(&letter), &mut |_, _| {}).unwrap_err().to_string();
    assert!(error.starts_with("existing files are not overwritten"), "{error}");
    assert_eq!(fs::read(&letter).unwrap(), b"dear");
    let left = scratch.path().join("larder-bench.scratch");
    fs::write(&left, "mine").unwrap();
    assert!(measure_device(&job(scratch.path()), &mut |_, _| {}).is_err());
    assert_eq!(fs::read(&left).unwrap(), b"mine");
    let nowhere = scratch.path().join("gone/x");
    assert!(measure_device(&job(&nowhere), &mut |_, _| {}).is_err());
    let small = DeviceJob { span_bytes: 4096, ..job(scratch.path()) };
    assert!(measure_device(&small, &mut |_, _| {}).unwrap_err().to_string().contains("too few bytes"));
}
