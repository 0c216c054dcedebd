//! Guards against a benchmark that measures something other than the proxy, or leaves a proxy running.

use crate::{
    ports::free_address,
    process::{Larder, command, run},
};
use larder_bench::BenchResult;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Output, Stdio},
    thread,
};
use tempfile::TempDir;

/// Runs `larder bench` with these flags and a file for its result.
#[track_caller]
fn bench(home: &TempDir, flags: &[&str]) -> (BenchResult, String) {
    let json = home.path().join("result.json");
    let scratch = home.path().join("scratch");
    fs::create_dir_all(&scratch).unwrap();
    let json = json.to_str().unwrap();
    let shown = scratch.to_str().unwrap();
    let Output { status, stdout, stderr } =
        run(home, &[&["bench", "--json", json, "--scratch", shown], flags].concat());
    let said = String::from_utf8([stdout, stderr].concat()).unwrap();
    assert_eq!(status.code(), Some(0), "{flags:?}: {said}");
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0, "{flags:?} leaves something behind");
    (BenchResult::from_json(&fs::read_to_string(json).unwrap()).unwrap(), said)
}

#[test]
fn larder_itself_is_measured_in_a_scratch_folder() {
    let home = TempDir::new().unwrap();
    let small = ["--size", "64MiB", "--memory", "64MB"];
    let table = home.path().join("times.hgrm");
    let flags = ["--workload", "all-hit", "--rate", "300", "--time", "1s", "--hdr", table.to_str().unwrap()];
    let (result, said) = bench(&home, &[&small[..], &flags].concat());
    let counts = result.totals();
    assert!(counts.hit_ratio() > 0.9 && counts.failed + counts.wrong == 0, "{said}");
    let kernel = result.kernel_total().unwrap();
    assert!(kernel.resident_bytes > 1 << 20 && kernel.store_bytes >= 64 << 20, "{kernel:?}: {said}");
    let table = fs::read_to_string(table).unwrap();
    assert!(table.contains(&format!("Total count    = {:>12}]", counts.answered())), "{table}");
    let (result, said) = bench(&home, &[&small[..], &["--rate", "300", "--time", "2s"]].concat());
    let counts = result.totals();
    assert_eq!((counts.failed, counts.wrong, counts.outdated), (0, 0, 0), "{said}");
    assert!(counts.hits > 0 && counts.hit_ratio() <= counts.offered_ratio() * 1.3, "{said}");
    assert_eq!(result.phases.len(), 10, "{said}");
}

#[test]
fn a_signal_leaves_neither_a_process_nor_a_folder() {
    let home = TempDir::new().unwrap();
    let scratch = home.path().join("scratch");
    fs::create_dir(&scratch).unwrap();
    let shown = scratch.to_str().unwrap();
    let load = ["bench", "--scratch", shown, "--size", "64MiB", "--memory", "64MB", "--time", "10m"];
    let device = ["bench", "device", shown, "--size", "64MiB", "--time", "10m"];
    for (flags, signal) in [(&load[..], Signal::TERM), (&device[..], Signal::INT)] {
        let mut running = command(home.path()).args(flags).stderr(Stdio::piped()).spawn().unwrap();
        while fs::read_dir(&scratch).unwrap().count() == 0 {
            assert_eq!(running.try_wait().unwrap(), None, "it ended by itself");
            thread::yield_now();
        }
        kill_process(Pid::from_child(&running), signal).unwrap();
        assert_eq!(running.wait().unwrap().code(), Some(128 + signal.as_raw()), "{flags:?}");
        assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0, "{flags:?} leaves something behind");
    }
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let is_left = |line: &Vec<u8>| line.windows(shown.len()).any(|part| part == shown.as_bytes());
    assert_eq!(lines.filter(is_left).count(), 0, "a larder still runs");
}

/// Guards against an hour of figures, lost because the run is ended a second early.
#[test]
fn what_was_measured_until_a_signal_is_written() {
    let home = TempDir::new().unwrap();
    let json = home.path().join("result.json");
    let ways =
        [&["--rate", "100", "--time", "10m"][..], &["--users", "3", "--time", "10m"], &["--peak", "--step", "10m"]];
    for how in ways {
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = free_address().to_string();
        let url = format!("http://{}", proxy.local_addr().unwrap());
        let to = ["bench", "--workload", "zipf", "--reverse", &url, "--origin-listen", &origin, "--json"];
        let mut running = command(home.path());
        running.args(to).arg(&json).args(how).stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = running.spawn().unwrap();
        // The benchmark first probes the proxy. After that it is in the middle of a run, and no response ever arrives.
        let client = proxy.accept().unwrap().0;
        let origin = TcpStream::connect(&origin).unwrap();
        let mut asking = client.try_clone().unwrap();
        let mut asked = origin.try_clone().unwrap();
        let question = thread::spawn(move || io::copy(&mut asking, &mut asked));
        let answer = thread::spawn(move || io::copy(&mut &origin, &mut &client));
        let kept = proxy.accept().unwrap();
        kill_process(Pid::from_child(&running), Signal::INT).unwrap();
        assert_eq!(running.wait().unwrap().code(), Some(130), "{how:?}");
        let result = BenchResult::from_json(&fs::read_to_string(&json).unwrap()).unwrap();
        assert_eq!(result.ended_early, Some(130), "{how:?}");
        fs::remove_file(&json).unwrap();
        drop(kept);
        question.join().unwrap().unwrap_or_default();
        answer.join().unwrap().unwrap_or_default();
    }
}

/// Guards against a script that continues with the figures of a proxy that did not work.
#[test]
fn a_proxy_that_answers_nothing_or_lies_ends_in_failure() {
    let home = TempDir::new().unwrap();
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = free_address().to_string();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    thread::spawn(move || {
        for client in proxy.incoming().map_while(Result::ok) {
            let mut request = [0; 2000];
            let count = (&client).read(&mut request).unwrap_or_default();
            let answer: &[u8] = match request[..count].starts_with(b"GET /f/") {
                true => b"HTTP/1.1 200 OK\r\nx-bench-version: 0\r\ncontent-length: 5\r\n\r\nhello",
                false => b"not HTTP\r\n\r\n",
            };
            // The client may have disconnected.
            let _ = (&client).write_all(answer);
        }
    });
    for (workload, said) in [("zipf", "no request got a response"), ("all-miss", "wrong responses")] {
        let to = ["bench", "--reverse", &url, "--origin-listen", &origin, "--time", "300ms", "--workload", workload];
        let Output { status, stderr, .. } = run(&home, &to);
        let stderr = String::from_utf8(stderr).unwrap();
        assert!(status.code() == Some(1) && stderr.contains(said), "{workload}: {stderr}");
    }
}

#[test]
fn a_running_proxy_is_measured_forward_and_reverse_and_put_on_one_page() {
    let home = TempDir::new().unwrap();
    let listen = free_address();
    let shown = listen.to_string();
    let origin = format!("http://{listen}");
    let reverse = Larder::start(&home, &["--disk", "none", "--origin", &origin]);
    let forward = Larder::start(&home, &["--disk", "none", "--allow-target", "127.0.0.0/8"]);
    let page = home.path().join("page.html");
    let mut results = Vec::new();
    for (flag, proxy, name) in [("--reverse", reverse.address, "reverse"), ("--proxy", forward.address, "forward")] {
        let url = format!("http://{proxy}");
        let flags = [flag, &url, "--name", name, "--origin-listen", &shown, "--workload", "ranges", "--objects", "2"];
        let more = ["--object-size", "300KB", "--users", "2", "--time", "500ms"];
        let (result, said) = bench(&home, &[&flags[..], &more].concat());
        assert!(result.totals().hits > 0 && result.totals().wrong == 0, "{said}");
        let copy = home.path().join(name);
        fs::rename(home.path().join("result.json"), &copy).unwrap();
        results.push(copy.to_str().unwrap().to_owned());
    }
    let done = run(&home, &["bench", "report", &results[0], &results[1], "--html", page.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("reverse") && page.contains("forward") && page.contains("<svg"), "{page}");
}

#[test]
fn flags_of_the_benchmark_that_make_no_sense_are_refused() {
    let home = TempDir::new().unwrap();
    for flags in [
        &["--workload", "polymix-5"][..],
        &["--rate", "0"],
        &["--proxy", "nowhere"],
        &["--users", "1", "--peak"],
        &["--users", "0"],
        &["--limit", "10ms"],
        &["--step", "1s"],
        &["--peak", "--time", "1s"],
        &["--time", "0s"],
        &["--fill", "1MB", "--workload", "zipf"],
        &["--alpha", "1", "--workload", "big"],
        &["--workload", "zipf", "--alpha=-1"],
        &["--workload", "zipf", "--objects", "0"],
        &["--workload", "all-hit", "--objects", "1000000000"],
        &["--workload", "all-miss", "--objects", "10"],
        &["--workload", "big", "--object-size", "5GB"],
        &["--object-size", "10KB"],
        &["--proxy", "http://127.0.0.1:1", "--size", "1GB"],
        &["--reverse", "http://127.0.0.1:1"],
        &["--count-disk", "nowhere"],
        &["--pid", "4194305"],
        &["--store", "nowhere"],
        &["store", home.path().to_str().unwrap()],
        &["report", "--html", "x"],
    ] {
        let Output { status, stderr, .. } = run(&home, &[&["bench"], flags].concat());
        assert_eq!(status.code(), Some(2), "{flags:?}: {}", String::from_utf8_lossy(&stderr));
    }
}
