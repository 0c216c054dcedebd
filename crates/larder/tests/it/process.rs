//! Runs the real binary as a child process, and sends it requests over plain sockets.

use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, ChildStderr, Command, Output, Stdio},
    thread,
};
use tempfile::TempDir;

/// Runs larder to its end with a home of its own.
pub(crate) fn run(home: &TempDir, arguments: &[&str]) -> Output {
    command(home.path()).args(arguments).output().unwrap()
}

/// Returns a command's standard error.
pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command that must succeed. Returns its standard output.
pub(crate) fn said(home: &TempDir, arguments: &[&str]) -> String {
    let output = run(home, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail with this exit code. Returns its standard error.
pub(crate) fn refused(home: &TempDir, arguments: &[&str], code: i32) -> String {
    let output = run(home, arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", errors(&output));
    let told = errors(&output);
    assert!(told.contains("help: "), "{told}");
    told
}

/// A running proxy. Killed when dropped.
pub(crate) struct Larder {
    child: Child,
    /// Its standard error, unless nothing reads it.
    errors: Option<BufReader<ChildStderr>>,
    /// The lines of standard error up to the one with the command to try.
    pub(crate) start_lines: String,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Larder {
    /// Starts `larder run` on a free port with these flags.
    pub(crate) fn start(home: &TempDir, flags: &[&str]) -> Self {
        Self::start_in(home, &[], flags)
    }

    /// As [`Larder::start`], with additional variables in its environment.
    pub(crate) fn start_in(home: &TempDir, environment: &[(&str, &str)], flags: &[&str]) -> Self {
        let mut larder = command(home.path());
        larder.envs(environment.iter().copied());
        Self::start_by(larder, flags)
    }

    /// As [`Larder::start`], in a process that may open `file_count_max` files.
    pub(crate) fn start_with_files(home: &TempDir, file_count_max: u32, flags: &[&str]) -> Self {
        let larder = command(home.path());
        let mut shell = Command::new("/bin/sh");
        let variables = larder.get_envs().filter_map(|(name, value)| Some((name, value?)));
        shell.env_clear().envs(variables).current_dir(home.path());
        shell.args(["-c", &format!("ulimit -n {file_count_max} && exec \"$0\" \"$@\"")]).arg(larder.get_program());
        Self::start_by(shell, flags)
    }

    fn start_by(mut larder: Command, flags: &[&str]) -> Self {
        let mut child = larder
            .args(["run", "--listen", "127.0.0.1:0"])
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let start_lines = read_until(&mut errors, "  try ");
        let listen = start_lines.lines().find(|line| line.starts_with("  listen ")).expect("it says where it listens");
        let (_, rest) = listen.split_once("http://").unwrap();
        let address = rest.split(' ').next().unwrap().parse().unwrap();
        Self { child, errors: Some(errors), start_lines, address }
    }

    /// Starts a proxy in front of `origin`, with a store of 64 MiB in `home`.
    pub(crate) fn start_reverse(home: &TempDir, origin: SocketAddr) -> Self {
        let store = home.path().join("store.larder");
        let origin = format!("http://{origin}");
        let flags =
            ["--disk", store.to_str().unwrap(), "--size", "64MiB", "--memory-cache", "1MB", "--origin", &origin];
        Self::start(home, &flags)
    }

    /// Reads standard error up to a line that contains `text`. Returns everything read.
    pub(crate) fn wait_for_line(&mut self, text: &str) -> String {
        read_until(self.errors.as_mut().expect("somebody reads it"), text)
    }

    /// Closes our end of its standard error.
    pub(crate) fn close_errors(&mut self) {
        self.errors = None;
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Sends SIGTERM and waits for the end; gives the exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Sends a signal until the end, because those within a second count as one; gives the exit code.
    pub(crate) fn signal_until_end(&mut self, signal: Signal) -> Option<i32> {
        while self.child.try_wait().unwrap().is_none() {
            self.signal(signal);
            thread::yield_now();
        }
        self.wait()
    }

    /// Waits for the end; gives the exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let mut rest = String::new();
        if let Some(errors) = &mut self.errors {
            errors.read_to_string(&mut rest).unwrap();
        }
        let code = self.child.wait().unwrap().code();
        let is_read = self.errors.is_some();
        assert!(code == Some(0) || !is_read || !rest.is_empty(), "it ended with {code:?} and did not say why");
        code
    }

    /// Sends a GET on its own connection.
    pub(crate) fn get(&self, path: &str) -> Response {
        Response::get(self.address, path)
    }

    /// Sends `request` and reads the response to the end of the connection.
    pub(crate) fn send(&self, request: &str) -> Response {
        Response::to(self.address, request)
    }
}

impl Drop for Larder {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A response that ended with its connection.
pub(crate) struct Response {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Response {
    /// Sends a GET on its own connection.
    pub(crate) fn get(address: SocketAddr, path: &str) -> Self {
        Self::to(address, &format!("GET {path} HTTP/1.1\r\nHost: www.example.test\r\nConnection: close\r\n\r\n"))
    }

    /// As [`Response::get`], but for an admin listener, with its own address as the Host.
    pub(crate) fn get_admin(address: SocketAddr, path: &str) -> Self {
        Self::to(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
    }

    /// Sends `request`, and reads the response to the end of the connection.
    fn to(address: SocketAddr, request: &str) -> Self {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        connection.read_to_end(&mut bytes).unwrap();
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    /// Returns the value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Returns whether Cache-Status says that the response came from the cache (RFC 9211 2.1).
    pub(crate) fn is_hit(&self) -> bool {
        self.head.lines().any(|line| line.starts_with("cache-status:") && line.contains("; hit"))
    }
}

pub(crate) fn command(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.env_clear().env("HOME", home).env("XDG_CACHE_HOME", home.join("cache")).stdin(Stdio::null());
    command
}

fn read_until(errors: &mut BufReader<ChildStderr>, text: &str) -> String {
    let mut lines = String::new();
    loop {
        let begin = lines.len();
        let count = errors.read_line(&mut lines).unwrap();
        assert_ne!(count, 0, "it ended before it said {text:?}: {lines}");
        if lines[begin..].contains(text) {
            return lines;
        }
    }
}
