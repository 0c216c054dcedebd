//! Guards against a benchmark that accepts damaged responses, or figures of events that did not happen.

use larder_bench::{
    BenchJob, Load, Loop, Origin, OriginOptions, PeakSearch, Phase, PolyMixVersion, Target, WatchedProcesses, Workload,
    WorkloadOptions,
};
use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, mpsc},
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
            closes_connections: workload.polymix().is_some(),
            origin_abort_share: 0.0,
        },
        trace: Vec::new(),
        options,
        peak: None,
        watched: WatchedProcesses { pids: vec![std::process::id()], ..WatchedProcesses::default() },
    }
}

/// Without a proxy in between, no response can be a hit.
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

/// Forwards everything, but changes the bytes of responses after a number of unchanged ones.
fn damaging_proxy(origin: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut server = TcpStream::connect(origin).unwrap();
            let mut asking = client.try_clone().unwrap();
            let mut asked = server.try_clone().unwrap();
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
    assert_eq!(result.complaints.len(), 1, "one kind: {:?}", result.complaints);
    let complaint = &result.complaints[0];
    assert!(complaint.first.starts_with("/f/5000/") && complaint.count == result.totals().wrong, "{complaint:?}");
    assert!(result.failure().is_some_and(|why| why.contains("wrong")), "{:?}", result.failure());
}

/// Stores every response to every path, whatever its fields, and returns it for every later request to that path.
fn greedy_proxy(origin: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let kept: Arc<Mutex<HashMap<String, Vec<u8>>>> = Arc::default();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let kept = Arc::clone(&kept);
            thread::spawn(move || {
                let mut reader = BufReader::new(&client);
                let Some((path, request)) = whole_request(&mut reader) else { return };
                let known = kept.lock().unwrap().get(&path).cloned();
                let answer = known.unwrap_or_else(|| {
                    let mut server = TcpStream::connect(origin).unwrap();
                    let mut answer = Vec::new();
                    server.write_all(&request).unwrap();
                    server.read_to_end(&mut answer).unwrap();
                    answer
                });
                kept.lock().unwrap().insert(path, answer.clone());
                // The client may have disconnected, as the workload requires.
                let _ = (&client).write_all(&answer);
            });
        }
    });
    address
}

/// Reads the next request, and adds a field that closes the connection after it. Returns its path and bytes.
fn whole_request(reader: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let mut lines = Vec::new();
    let mut body_bytes = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            body_bytes = value.trim().parse().ok()?;
        }
        lines.push(line);
    }
    let mut body = vec![0; body_bytes];
    reader.read_exact(&mut body).ok()?;
    let path = lines[0].split(' ').nth(1)?.to_owned();
    lines.retain(|line| !line.to_lowercase().starts_with("connection:"));
    Some((path, [lines.concat().as_bytes(), b"connection: close\r\n\r\n", &body].concat()))
}

/// Guards against a hit ratio that a proxy gets by storing responses that it must not store.
#[test]
fn a_cache_that_keeps_what_it_may_not_is_not_credited_with_hits() {
    let origin = Origin::start(OriginOptions::default()).unwrap();
    let mut job =
        job(greedy_proxy(origin.address()), &origin, Workload::PolyMix(PolyMixVersion::Four), Loop::Closed(1));
    job.options.object_count = 200;
    job.load.phases = Phase::of(Workload::PolyMix(PolyMixVersion::Four), Duration::from_millis(1500));
    let result = job.run(&origin, &mut |_, _, _| {}).unwrap();
    let counts = result.totals();
    assert!(counts.forbidden > 10, "{counts:?}");
    // Otherwise, forbidden responses would count as hits too.
    assert!(counts.hits <= counts.offered + counts.forbidden / 2, "{counts:?}");
    for what in ["a response with no-store, from a cache", "a stored response to a request with no-cache"] {
        assert!(result.complaints.iter().any(|complaint| complaint.what == what), "{:?}", result.complaints);
    }
    assert!(result.failure().is_some());
}

/// Forwards everything, but pauses once after a number of pieces.
fn pausing_proxy(origin: SocketAddr, pieces: usize, pause: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let passed = Arc::new(Mutex::new(0));
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let mut client = client;
            let mut server = TcpStream::connect(origin).unwrap();
            let mut asking = client.try_clone().unwrap();
            let mut asked = server.try_clone().unwrap();
            thread::spawn(move || std::io::copy(&mut asking, &mut asked));
            let passed = Arc::clone(&passed);
            thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(count @ 1..) = server.read(&mut piece) {
                    // All connections wait for this lock, as if the process were stopped.
                    let mut passed = passed.lock().unwrap();
                    *passed += 1;
                    if *passed == pieces {
                        let (_never, silence) = mpsc::channel::<()>();
                        assert_eq!(silence.recv_timeout(pause), Err(mpsc::RecvTimeoutError::Timeout));
                    }
                    drop(passed);
                    if client.write_all(&piece[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Guards against coordinated omission. A pause of 0.4 s in a run of 1 s delays 40% of the requests of an open loop,
/// but only one request of each user of a closed one.
#[test]
fn a_pause_is_charged_to_all_who_come_meanwhile() {
    let pause = Duration::from_millis(400);
    let shares = [Loop::Open(300.0), Loop::Closed(2)].map(|loop_kind| {
        let origin = Origin::start(OriginOptions::default()).unwrap();
        let address = pausing_proxy(origin.address(), 60, pause);
        let mut job = job(address, &origin, Workload::AllMiss, loop_kind);
        (job.options.object_bytes, job.load.phases) = (500, Phase::of(Workload::AllMiss, Duration::from_secs(1)));
        let result = job.run(&origin, &mut |_, _, _| {}).unwrap();
        let phase = &result.phases[0];
        assert_eq!(phase.counts.answered(), phase.counts.requests, "{:?}", result.complaints);
        assert!(phase.times.quantile_us(1.0) >= 399_000, "{:?}", phase.times);
        let quantiles = &phase.times.quantiles_us;
        quantiles.iter().find(|(_, time_us)| *time_us >= 100_000).map(|(share, _)| 1.0 - share)
    });
    assert!(shares[0].is_some_and(|slow| slow >= 0.1), "{shares:?}");
    assert!(shares[1].is_none_or(|slow| slow <= 0.05), "{shares:?}");
}

/// Guards against response times that leave out requests which were never sent because the proxy had stalled.
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
    assert_eq!((result.peak.len(), result.peak_rate()), (2, None), "{:?}", result.peak);
    assert!(result.peak[0].p99_us >= 29_000);
}

#[test]
fn a_proxy_that_is_not_there_is_an_error() {
    let origin = Origin::start(OriginOptions::default()).unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = job(gone, &origin, Workload::AllMiss, Loop::Open(50.0)).run(&origin, &mut |_, _, _| {}).unwrap_err();
    assert!(error.to_string().contains("cannot connect"), "{error}");
}

/// Guards against a run that never ends. Time must pass even if the proxy refuses every request at once.
#[test]
fn a_proxy_that_goes_away_fails_requests_until_the_time_is_over() {
    let origin = Origin::start(OriginOptions::default()).unwrap();
    for loop_kind in [Loop::Open(200.0), Loop::Closed(50)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = origin.address();
        // It serves a single connection.
        let proxy = thread::spawn(move || {
            let client = listener.accept().unwrap().0;
            let server = TcpStream::connect(server).unwrap();
            drop(listener);
            let mut asking = client.try_clone().unwrap();
            let mut asked = server.try_clone().unwrap();
            thread::spawn(move || {
                std::io::copy(&mut asking, &mut asked).unwrap_or_default();
                asked.shutdown(Shutdown::Write).unwrap_or_default();
            });
            std::io::copy(&mut &server, &mut &client)
        });
        let result = job(address, &origin, Workload::Zipf, loop_kind).run(&origin, &mut |_, _, _| {}).unwrap();
        assert!(result.totals().failed > 0 && result.totals().misses == 0, "{:?}", result.totals());
        assert!(result.failure().is_some_and(|why| why.contains("no request got a response")));
        proxy.join().unwrap().unwrap_or_default();
    }
}
