//! Guards against a page that shows figures that were not measured, or none.

use super::*;
use crate::{
    bench::PeakStep,
    kernel::KernelCounts,
    load::{Complaint, PhaseFigures, RequestCounts, ResponseTimes, SecondFigures},
};

fn result(name: &str) -> BenchResult {
    let counts = RequestCounts {
        requests: 1000,
        hits: 500,
        misses: 498,
        offered: 550,
        body_bytes: 1 << 20,
        ..RequestCounts::default()
    };
    let histogram = serde_json::from_str("\"800*900 5000*89 9000*9\"").unwrap();
    let times = ResponseTimes { histogram, count: 998, ..ResponseTimes::default() };
    let phase = PhaseFigures {
        name: "top1".to_owned(),
        counts_as_result: true,
        lasted_s: 10.0,
        counts,
        per_second: 99.8,
        times: times.clone(),
        hit_times: times.clone(),
        miss_times: times,
        ..PhaseFigures::default()
    };
    let seconds =
        (0..10).map(|at_s| SecondFigures { at_s, wanted: 100.0, counts, answered: 998, median_us: 800, p99_us: 5000 });
    let kernel = (0..10).map(|at| KernelCounts {
        at_s: at as f64,
        cpu_s: at as f64 * 0.3,
        store_bytes: 123_000_000 + at,
        is_known: true,
        ..KernelCounts::default()
    });
    let step = |rate, p99_us, passed| PeakStep { rate, p99_us, passed, ..PeakStep::default() };
    BenchResult {
        name: name.to_owned(),
        phases: vec![phase],
        seconds: seconds.collect(),
        kernel: kernel.collect(),
        peak: vec![step(100.0, 900, true), step(200.0, 60_000, false)],
        peak_limit_us: 50_000,
        ..BenchResult::default()
    }
}

#[test]
fn a_page_has_every_proxy_every_plot_and_nothing_from_elsewhere() {
    let page = page("one <two>", &[result("larder"), result("<nginx>")]).unwrap();
    assert_eq!(page.matches("<svg").count(), 8);
    for text in [
        "one &lt;two&gt;",
        "larder",
        "&lt;nginx&gt;",
        "50.0%",
        "55.0%",
        "<b>100</b>",
        "0.80 / 5.00",
        "top1 *",
        "123 MB",
    ] {
        assert!(page.contains(text), "{text} is not in the page");
    }
    assert!(!page.contains("<nginx>") && !page.contains("<script") && !page.contains("src="), "{page}");
    let links = page.matches("http://").count() - page.matches("http://www.w3.org/").count();
    assert_eq!(links, 0, "only the name of SVG itself");
}

#[test]
fn a_page_says_how_each_was_asked_if_not_all_were_asked_alike() {
    let closed = BenchResult { load: "closed loop".to_owned(), users: 5, ..result("two") };
    let both = page("x", &[result("one"), closed]).unwrap();
    assert!(both.contains("two: , closed loop") && both.contains("sent in a closed one"), "{both}");
    assert!(!page("x", &[result("one")]).unwrap().contains("closed"));
}

#[test]
fn what_went_wrong_is_told_by_kinds_with_what_the_benchmark_itself_did() {
    let mut one = result("larder");
    one.complaints.push(Complaint { what: "status 500".to_owned(), first: "/i/<1>".to_owned(), count: 7 });
    one.busy = (0.97, 0.2);
    one.ended_early = Some(130);
    let page = page("x", &[one]).unwrap();
    for text in ["status 500, 7 times, first /i/&lt;1&gt;", "the clients were busy for 97%", "a signal ended it"] {
        assert!(page.contains(text), "{text} is not in the page");
    }
}

#[test]
fn doubt_is_told_only_where_there_is_a_reason() {
    let one = result("larder");
    assert_eq!(one.doubt(), None);
    let mut late = one.clone();
    late.peak[1].late_us = 40_000;
    assert!(late.doubt().is_some_and(|why| why.contains("the limit may be")), "{:?}", late.doubt());
    let mut warm = one;
    warm.phases[0].counts.offered = 100;
    assert!(warm.doubt().is_some_and(|why| why.contains("more hits than possible")), "{:?}", warm.doubt());
}

#[test]
fn results_survive_their_file() {
    let one = result("larder");
    let two = BenchResult::from_json(&crate::to_json(&one)).unwrap();
    assert_eq!(two.peak_rate(), Some(100.0));
    assert_eq!((two.phases, two.seconds), (one.phases, one.seconds));
    assert!(BenchResult::from_json("{}").is_err());
}
