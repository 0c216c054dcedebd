//! At stake: a benchmark that takes damage for an answer, or figures that say what did not happen.

use larder_bench::{
    BenchJob, Load, Loop, Origin, OriginOptions, PeakSearch, Phase, Target, Watched, Workload, WorkloadOptions,
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

fn job(address: SocketAddr, origin: &Origin, workload: Workload, loop_kind: Loop) -> BenchJob {
    let mut options = WorkloadOptions::new(workload);
    options.object_count = options.object_count.min(20);
    options.object_bytes = options.object_bytes.min(300_000);
    BenchJob {
        name: "nobody".to_owned(),
        load: Load {
            target: Target { address, origin: origin.address().to_string(), is_forward: false },
            workload,
            loop_kind,
            phases: Phase::of(workload, Duration::from_millis(400)),
            fill_bytes: None,
            closes_connections: workload == Workload::PolyMix4,
            origin_abort_share: 0.0,
        },
        options,
        peak: None,
        watched: Watched { pids: vec![std::process::id()], disk: None },
    }
}

/// Straight to the origin, nothing can be a hit.
#[test]
fn without_a_cache_every_workload_is_answered_and_nothing_is_hit() {
    let origin = Origin::start(OriginOptions::default()).unwrap();
    for (name, workload) in Workload::ALL {
        for loop_kind in [Loop::Open(400.0), Loop::Closed(4)] {
            let result = job(origin.address(), &origin, workload, loop_kind).run(&origin, &mut |_, _, _| {}).unwrap();
            let counts = result.totals();
            assert_eq!(counts.hits, 0, "{name}: {counts:?}");
            assert_eq!((counts.failed, counts.wrong, counts.outdated), (0, 0, 0), "{name}: {:?}", result.complaints);
            assert!(counts.misses > 3 && counts.body_bytes > 1000, "{name}: {counts:?}");
            assert!(result.origin_requests >= counts.misses, "{name}");
            assert!(result.kernel_total().is_some_and(|kernel| kernel.is_known));
        }
    }
}

/// Passes everything on, and changes the answers' bytes behind the first so many.
fn damaging_proxy(origin: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(origin).unwrap());
            let (mut asking, mut asked) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut asking, &mut asked));
            thread::spawn(move || {
                let mut piece = [0; 4096];
                let mut at = 0;
                while let Ok(count @ 1..) = server.read(&mut piece) {
                    let range = (at..at + count).contains(&2000);
                    if range {
                        piece[2000 - at] ^= 1;
                    }
                    at += count;
                    if client.write_all(&piece[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn one_changed_bit_is_seen() {
    let origin = Origin::start(OriginOptions::default()).unwrap();
    let address = damaging_proxy(origin.address());
    let mut job = job(address, &origin, Workload::AllMiss, Loop::Closed(2));
    job.options.object_bytes = 5000;
    let result = job.run(&origin, &mut |_, _, _| {}).unwrap();
    assert!(result.totals().wrong > 0, "{:?}", result.totals());
    assert!(result.complaints.iter().any(|complaint| complaint.contains("/f/5000/")), "{:?}", result.complaints);
}

/// At stake: response times that leave out what was not asked because the proxy stood still.
#[test]
fn an_open_loop_charges_a_slow_proxy_for_all_who_came() {
    let think = (Duration::from_millis(200), Duration::ZERO);
    let origin = Origin::start(OriginOptions { think, ..OriginOptions::default() }).unwrap();
    let job = job(origin.address(), &origin, Workload::AllMiss, Loop::Open(300.0));
    let result = job.run(&origin, &mut |_, _, _| {}).unwrap();
    let phase = &result.phases[0];
    assert!((70..=170).contains(&phase.counts.requests), "as many came as were due: {:?}", phase.counts);
    assert!(phase.times.quantile_us(0.01) >= 199_000, "{:?}", phase.times);
}

#[test]
fn what_the_origin_breaks_off_is_told_from_failures() {
    let abort_share = 0.2;
    let origin = Origin::start(OriginOptions { abort_share, ..OriginOptions::default() }).unwrap();
    let mut job = job(origin.address(), &origin, Workload::AllMiss, Loop::Open(500.0));
    job.load.origin_abort_share = abort_share;
    let result = job.run(&origin, &mut |_, _, _| {}).unwrap();
    let counts = result.totals();
    assert!(counts.broken_off > 10 && counts.failed == 0, "{counts:?}: {:?}", result.complaints);
    assert_eq!(origin.counts().aborted, counts.broken_off);
}

#[test]
fn a_peak_is_searched_until_a_rate_is_too_much() {
    let think = (Duration::from_millis(30), Duration::ZERO);
    let origin = Origin::start(OriginOptions { think, ..OriginOptions::default() }).unwrap();
    let mut job = job(origin.address(), &origin, Workload::AllMiss, Loop::Open(1.0));
    let search = |limit| PeakSearch {
        limit: Duration::from_millis(limit),
        first: 50.0,
        step: Duration::from_millis(100),
        bits: 1,
    };
    job.peak = Some(search(5));
    let result = job.run(&origin, &mut |_, _, _| {}).unwrap();
    assert_eq!((result.peak.len(), result.peak_rate()), (1, None), "{:?}", result.peak);
    assert!(result.peak[0].p99_us >= 29_000);
}

#[test]
fn a_proxy_that_is_not_there_is_an_error_or_failed_requests() {
    let origin = Origin::start(OriginOptions::default()).unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = job(gone, &origin, Workload::AllHit, Loop::Closed(1)).run(&origin, &mut |_, _, _| {}).unwrap_err();
    assert!(error.to_string().contains("cannot connect"), "{error}");
    let result = job(gone, &origin, Workload::AllMiss, Loop::Open(50.0)).run(&origin, &mut |_, _, _| {}).unwrap();
    assert!(result.totals().failed > 0 && result.totals().misses == 0);
}
