//! Guards against comparisons of policies that saw different requests, or under other conditions than stated.

use super::*;
use std::{
    io::Write,
    sync::atomic::{AtomicU64, Ordering},
};

fn sweep(source: RequestSource) -> Sweep {
    Sweep {
        policies: vec![Policy::named("log").unwrap(), Policy::named("hashcache-setmem").unwrap()],
        model: Model::open("ssd-sata").unwrap(),
        disk_bytes: 64 << 20,
        memory_bytes: 1 << 20,
        steps: Steps::Disk(vec![64 << 20, 128 << 20]),
        source,
        working_set_bytes: None,
        requests: Some(40_000),
        tuning: Tuning::default(),
        mean_entry_bytes: None,
        has_references: true,
        jobs: 2,
    }
}

#[test]
fn a_larger_store_hits_more_and_no_row_beats_the_future() {
    let report = sweep(RequestSource::Workload("zipf".to_owned(), 1)).run(&|_, _| {}).unwrap();
    let hits: Vec<f64> = report.tables[0].rows.iter().map(|(_, values)| values[1]).collect();
    assert!(hits[2] > hits[0] && hits[3] > hits[1], "{hits:?}");
    // Every published eviction and the optimum, at two sizes.
    assert_eq!(report.tables[1].rows.len(), 2 * (eviction_names().count() + 1));
    let of =
        |name: &str| report.tables[1].rows.iter().filter(|row| row.0 == name).map(|row| row.1[1]).collect::<Vec<_>>();
    for (at, belady) in of("belady").into_iter().enumerate() {
        assert!(
            belady > of("lru")[at] && hits[2 * at] < belady && hits[2 * at + 1] < belady,
            "{at}: {belady} {hits:?}"
        );
    }
    assert_eq!(report.figures.len(), MEASURES.len() + 1, "one of the published evictions");
    let error = sweep(RequestSource::Workload("zip".to_owned(), 1)).run(&|_, _| {}).unwrap_err();
    assert!(error.to_string().contains("polymix-4"), "{error}");
}

fn trace(path: &std::path::Path) -> RequestSource {
    RequestSource::Trace(TraceFile { path: path.to_owned(), format: None, name: "a trace".to_owned() })
}

/// Guards against a sweep that varies another parameter than stated.
#[test]
fn memory_and_utilization_are_varied_too() {
    let zipf = || sweep(RequestSource::Workload("zipf".to_owned(), 1));
    let memory = Sweep { steps: Steps::Memory(vec![1 << 20, 16 << 20]), ..zipf() }.run(&|_, _| {}).unwrap();
    let reads: Vec<f64> = memory.tables[0].rows.iter().map(|(_, values)| values[3]).collect();
    assert!(reads[2] > reads[0] && reads[3] > reads[1], "requests/s alone: {reads:?}");
    let steps = Steps::Utilization(vec![25, 75]);
    let used = Sweep { tuning: steps.tuning(), steps, ..zipf() };
    let report = Sweep { policies: Policy::all().iter().collect(), ..used }.run(&|_, _| {}).unwrap();
    let (few, many) = report.tables[0].rows.split_at(Policy::all().len());
    for ((name, few), (_, many)) in few.iter().zip(many) {
        assert!(few[0] == 25.0 && many[0] == 75.0 && few[1] + 5.0 < many[1], "{name}: {few:?} {many:?}");
    }
}

/// Guards against seeks beyond the end of the disk.
#[test]
fn a_store_larger_than_the_disk_is_told() {
    let sizes = vec![64 << 30, 2 << 40];
    let large = Sweep {
        steps: Steps::Disk(sizes),
        has_references: false,
        ..sweep(RequestSource::Workload("zipf".to_owned(), 1))
    };
    let report = large.run(&|_, _| {}).unwrap();
    assert!(report.remarks.iter().any(|remark| remark.contains("disk has 1000 GB")), "{:?}", report.remarks);
}

#[test]
fn progress_comes_to_what_there_is_to_do() {
    let done = AtomicU64::new(0);
    let all = AtomicU64::new(0);
    let progress = |count, of| {
        done.fetch_add(count, Ordering::Relaxed);
        all.store(of, Ordering::Relaxed);
    };
    sweep(RequestSource::Workload("zipf".to_owned(), 1)).run(&progress).unwrap();
    let done = done.into_inner();
    let all = all.into_inner();
    let runs = 4 + 2 * (eviction_names().count() as u64 + 1);
    assert_eq!(all, runs * 40_000);
    assert!(done <= all && done + runs * TOLD_EVERY > all, "{done} of {all}");
}

#[test]
fn a_trace_without_requests_is_refused_with_what_is_wrong() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"a,b,c\nd,e,f\n").unwrap();
    let error = sweep(trace(file.path())).run(&|_, _| {}).unwrap_err().to_string();
    assert!(error.contains("2 are damaged (line 1: the"), "{error}");
}

/// Guards against hours spent on one line of a trace.
#[test]
fn what_is_larger_than_the_store_is_a_miss_and_takes_no_time() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"1 7 281474976710656\n2 8 100\n3 7 281474976710656\n4 8 100\n").unwrap();
    let report = sweep(trace(file.path())).run(&|_, _| {}).unwrap();
    assert!(report.tables.iter().flat_map(|table| &table.rows).all(|(_, values)| values[1] == 25.0), "{report:?}");
}

#[test]
fn damaged_lines_of_a_trace_are_counted_and_the_rest_is_run() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"time,key,size\n1,7,100\nx,y\n2,7,100\n").unwrap();
    let report = sweep(trace(file.path())).run(&|_, _| {}).unwrap();
    let hits: Vec<f64> = report.tables[0].rows.iter().map(|(_, values)| values[1]).collect();
    assert_eq!(hits, [50.0; 4]);
    assert!(
        report.remarks.iter().any(|remark| remark.contains("damaged: 1, the first is number 3: the size")),
        "{:?}",
        report.remarks
    );
}
