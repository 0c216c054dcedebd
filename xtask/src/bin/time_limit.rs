//! Runs a test program, and ends it if one of its tests takes too long, so that a test that hangs fails with its name.
//!
//! Owns: the limits. `xtask/time_limit.sh` compiles this file by itself and starts it for every test program. The test
//! harness prints a line about each test that has run for a minute, and one about its result; both are read from its
//! output, which is passed on unchanged. If tests run one at a time or quietly, the harness prints less, so there is
//! also a limit for the whole program. Rejected: `timeout` alone, because it does not name the test; a thread in each
//! test program, because every crate would have to start one.

use std::{
    collections::HashMap,
    env, fs,
    io::{self, IsTerminal as _, Read as _, Write},
    process::{Child, ChildStdout, Command, ExitCode, ExitStatus, Stdio},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

/// Time limit of one test. The slowest takes about a minute.
const TEST_TIME_MAX: Duration = Duration::from_secs(300);
/// Time limit for all tests of one program together.
const PROGRAM_TIME_MAX: Duration = Duration::from_secs(1800);
/// Time after which the harness reports that a test still runs.
const REPORTED_AFTER: Duration = Duration::from_secs(60);
/// Interval of the checks, and longest wait for the last output of a program that has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Interval of the checks once a program has closed its output.
const END_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum number of bytes that are kept of an output line. The test harness writes shorter lines.
const LINE_BYTES_MAX: usize = 1024;
/// Exit code if the test program was stopped, the same as that of `timeout`.
const EXIT_CODE: u8 = 124;

/// The two time limits: for a test, counted from the harness's report that the test is slow; and for the whole program.
struct Limits {
    after_report: Duration,
    program: Duration,
}

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("usage: time_limit <test program> [argument..]");
        return ExitCode::from(2);
    };
    let mut command = Command::new(program);
    let is_quiet = env::args_os().any(|argument| argument == "--quiet" || argument == "-q");
    command.args(arguments);
    // The program would find no terminal, and print without colors.
    if io::stdout().is_terminal() {
        command.arg("--color=always");
    }
    // A quiet harness prints no results, so a report alone does not say that a test still runs.
    let test_time_max = if is_quiet { PROGRAM_TIME_MAX } else { TEST_TIME_MAX };
    let limits = Limits { after_report: test_time_max - REPORTED_AFTER, program: PROGRAM_TIME_MAX };
    match run(&mut command, &limits, io::stdout()) {
        Ok(Outcome::Ended(status)) => code_of(status),
        Ok(Outcome::Stopped(why)) => {
            eprintln!("\ntime limit: {why}: ended {}", command.get_program().display());
            ExitCode::from(EXIT_CODE)
        }
        Err(error) => {
            eprintln!("time limit: cannot run {}: {error}", command.get_program().display());
            ExitCode::FAILURE
        }
    }
}

/// Returns the exit code that a shell would report.
fn code_of(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// The way in which a test program ended.
#[derive(Debug)]
enum Outcome {
    Ended(ExitStatus),
    /// The program was stopped for this reason.
    Stopped(String),
}

/// Runs a test program within these limits.
fn run(command: &mut Command, limits: &Limits, stdout: impl Write + Send + 'static) -> io::Result<Outcome> {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || pass_on(output, stdout, &sender));
    let mut slow = SlowTests::default();
    loop {
        match lines.recv_timeout(CHECK_INTERVAL) {
            Ok(line) => slow.note(&line, Instant::now()),
            Err(RecvTimeoutError::Timeout) => {}
            // The program has closed its output, and is about to end.
            Err(RecvTimeoutError::Disconnected) => thread::park_timeout(END_INTERVAL),
        }
        if let Some(status) = child.try_wait()? {
            // The last lines may still be on their way. A process that a test left behind may keep the output open.
            while lines.recv_timeout(CHECK_INTERVAL).is_ok() {}
            return Ok(Outcome::Ended(status));
        }
        let why = if let Some(name) = slow.overdue(limits.after_report) {
            format!("{name} runs for more than {} s", (REPORTED_AFTER + limits.after_report).as_secs())
        } else if start.elapsed() > limits.program {
            format!("its tests run for more than {} s", limits.program.as_secs())
        } else {
            continue;
        };
        stop(&mut child)?;
        return Ok(Outcome::Stopped(why));
    }
}

/// Copies `output` to `stdout` as it arrives, and sends each of its lines to `lines`.
fn pass_on(mut output: ChildStdout, mut stdout: impl Write, lines: &Sender<String>) {
    let mut buffer = [0; 8192];
    let mut line = Vec::new();
    while let Ok(count @ 1..) = output.read(&mut buffer) {
        // If nobody reads the output, the tests run to their end all the same.
        let _ = stdout.write_all(&buffer[..count]).and_then(|()| stdout.flush());
        for octet in &buffer[..count] {
            if *octet == b'\n' {
                let _ = lines.send(String::from_utf8_lossy(&line).into_owned());
                line.clear();
            } else if line.len() < LINE_BYTES_MAX {
                line.push(*octet);
            }
        }
    }
}

/// The running tests that the harness has reported to be slow, with the time of the report.
#[derive(Default)]
struct SlowTests(HashMap<String, Instant>);

impl SlowTests {
    /// Notes which test a line of the harness reports as slow or as finished.
    fn note(&mut self, line: &str, now: Instant) {
        let Some(line) = line.strip_prefix("test ") else { return };
        if let Some((name, _)) = line.split_once(" has been running for over ") {
            self.0.insert(name.to_owned(), now);
        } else if let Some((name, _)) = line.split_once(" ... ") {
            self.0.remove(name);
        }
    }

    /// Returns the name of a test that still runs `after_report` after the harness reported it as slow.
    fn overdue(&self, after_report: Duration) -> Option<&str> {
        let mut tests = self.0.iter();
        tests.find(|(_, reported)| reported.elapsed() >= after_report).map(|(name, _)| name.as_str())
    }
}

/// Ends a test program and the processes that its tests started.
fn stop(child: &mut Child) -> io::Result<()> {
    let descendants = descendants_of(child.id());
    child.kill()?;
    for process in descendants {
        let _ = Command::new("kill").args(["-KILL", &process.to_string()]).status();
    }
    child.wait().map(drop)
}

/// Returns the children of a process, their children, and so on.
fn descendants_of(process: u32) -> Vec<u32> {
    let mut found = vec![process];
    let mut next = 0;
    while let Some(process) = found.get(next) {
        // Each thread has its own list.
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        let children: Vec<u32> =
            lists.flat_map(|list| list.split_whitespace().map(str::parse).collect::<Vec<_>>()).flatten().collect();
        found.extend(children);
        next += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a shell script instead of a test program. The script can hang by reading its input, which stays open.
    fn run_script(script: &str, limits: &Limits) -> Outcome {
        let (input, _open) = io::pipe().unwrap();
        run(Command::new("sh").args(["-c", script]).stdin(input), limits, io::sink()).unwrap()
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn test_that_hangs_is_ended_and_named() {
        let limits = Limits { after_report: Duration::ZERO, program: LONG };
        let script = "echo 'test a::b has been running for over 60 seconds'; cat";
        let Outcome::Stopped(why) = run_script(script, &limits) else { panic!("it ended by itself") };
        assert_eq!(why, "a::b runs for more than 60 s");
    }

    #[test]
    fn program_that_reports_nothing_is_ended_too() {
        let limits = Limits { after_report: LONG, program: Duration::ZERO };
        let Outcome::Stopped(why) = run_script("cat", &limits) else { panic!("it ended by itself") };
        assert_eq!(why, "its tests run for more than 0 s");
    }

    #[test]
    fn program_that_ends_keeps_its_exit_code() {
        let limits = Limits { after_report: LONG, program: LONG };
        let Outcome::Ended(status) = run_script("echo x; exit 7", &limits) else { panic!("it was stopped") };
        assert_eq!(code_of(status), ExitCode::from(7));
    }

    #[test]
    fn slow_test_with_a_result_is_not_overdue() {
        let mut slow = SlowTests::default();
        slow.note("test a has been running for over 60 seconds", Instant::now());
        slow.note("test b ... ok", Instant::now());
        assert_eq!(slow.overdue(Duration::ZERO), Some("a"));
        assert_eq!(slow.overdue(LONG), None);
        slow.note("test a ... FAILED", Instant::now());
        assert_eq!(slow.overdue(Duration::ZERO), None);
    }
}
