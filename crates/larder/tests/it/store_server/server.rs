//! A running `larder store serve`, programs compiled with the C client, and a client of raw messages.

use super::{GONE, NOT_FOUND};
use crate::process::command;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// Maximum wait for a response. It is long, because the machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server. Killed when dropped.
pub(super) struct Server {
    child: Child,
    pub(super) socket: PathBuf,
    /// Its first lines.
    pub(super) start_lines: String,
}

impl Server {
    /// Starts a server for the store `values` in `home`.
    pub(super) fn start(home: &TempDir, flags: &[&str]) -> Self {
        let store = home.path().join("values");
        let mut child = command(home.path())
            .args(["store", "serve", store.to_str().unwrap()])
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut start_lines = String::new();
        while !start_lines.contains("  socket ") {
            assert_ne!(errors.read_line(&mut start_lines).unwrap(), 0, "it ended at once: {start_lines}");
        }
        Self { child, socket: store.join("larder.sock"), start_lines }
    }

    pub(super) fn connect(&self) -> Client {
        Client::connect(&self.socket)
    }

    /// Returns the memory that the process has.
    pub(super) fn resident_bytes(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Sends SIGTERM, and waits for the end. Returns the exit code.
    pub(super) fn stop(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }

    /// Sends SIGKILL, and waits for the end.
    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compiles a C program with the client. Returns its path.
pub(super) fn compile(home: &TempDir, source: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let client = root.join("clients/c");
    let program = home.path().join(Path::new(source).file_stem().unwrap());
    let output = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic", "-O1", "-I"])
        .arg(&client)
        .arg(root.join(source))
        .arg(client.join("larder.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// The example of the C client.
pub(super) struct ValueProgram {
    program: PathBuf,
}

impl ValueProgram {
    pub(super) fn new(home: &TempDir) -> Self {
        Self { program: compile(home, "clients/c/larder-value.c") }
    }

    pub(super) fn command(&self, server: &Server, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(&server.socket).args(arguments);
        command
    }

    /// Runs it with the bytes as standard input.
    pub(super) fn run(&self, server: &Server, arguments: &[&str], input: &[u8]) -> Output {
        let file = self.program.with_extension("input");
        fs::write(&file, input).unwrap();
        self.command(server, arguments).stdin(fs::File::open(&file).unwrap()).output().unwrap()
    }

    #[track_caller]
    pub(super) fn put(&self, server: &Server, key: &str, value: &[u8]) {
        let output = self.run(server, &["put", key], value);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Returns the value of `key`, or `None` if it has none.
    #[track_caller]
    pub(super) fn get(&self, server: &Server, key: &str) -> Option<Vec<u8>> {
        let output = self.run(server, &["get", key], b"");
        match output.status.code() {
            Some(0) => Some(output.stdout),
            Some(3) => None,
            code => panic!("{code:?}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

/// A client that sends messages as they are.
pub(super) struct Client {
    pub(super) stream: UnixStream,
}

/// A response: its status and its content.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u8,
    pub(super) content: Vec<u8>,
}

impl Client {
    pub(super) fn connect(socket: &Path) -> Self {
        let mut client = Self::connect_silently(socket);
        client.send(b"LARDER\x01\x00");
        assert_eq!(client.receive_bytes(8), b"LARDER\x01\x00");
        assert_eq!(client.receive().status, 0);
        client
    }

    /// Connects without the first message.
    pub(super) fn connect_silently(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(super) fn receive_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub(super) fn receive(&mut self) -> Response {
        let length = u32::from_le_bytes(self.receive_bytes(4).try_into().unwrap());
        let mut content = self.receive_bytes(length as usize);
        Response { status: content.remove(0), content }
    }

    /// Returns whether the server has ended the connection, after reading all that it sent.
    pub(super) fn is_ended(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    pub(super) fn send_request(&mut self, operation: u8, fields: &[&[u8]]) {
        let fields = fields.concat();
        let length = (fields.len() as u32 + 1).to_le_bytes();
        self.send(&[&length[..], &[operation], &fields].concat());
    }

    pub(super) fn ask(&mut self, operation: u8, fields: &[&[u8]]) -> Response {
        self.send_request(operation, fields);
        self.receive()
    }

    /// Opens a value to read. Returns its handle.
    #[track_caller]
    pub(super) fn open(&mut self, key: &str) -> u32 {
        let Response { status, content } = self.ask(1, &[key.as_bytes()]);
        assert_eq!(status, 0, "{}", String::from_utf8_lossy(&content));
        u32::from_le_bytes(*content.first_chunk().unwrap())
    }

    /// Opens a value to write, with a length that is not known yet. Returns its handle.
    #[track_caller]
    pub(super) fn create(&mut self, key: &str) -> u32 {
        let Response { status, content } = self.ask(2, &[&u64::MAX.to_le_bytes(), key.as_bytes()]);
        assert_eq!(status, 0, "{}", String::from_utf8_lossy(&content));
        u32::from_le_bytes(*content.first_chunk().unwrap())
    }

    pub(super) fn read(&mut self, handle: u32, offset: u64, count: u32) -> Response {
        self.ask(3, &[&handle.to_le_bytes(), &offset.to_le_bytes(), &count.to_le_bytes()])
    }

    pub(super) fn write(&mut self, handle: u32, bytes: &[u8]) -> Response {
        self.ask(4, &[&handle.to_le_bytes(), bytes])
    }

    pub(super) fn close(&mut self, handle: u32) -> Response {
        self.ask(5, &[&handle.to_le_bytes()])
    }

    /// Stores a value.
    #[track_caller]
    pub(super) fn put(&mut self, key: &str, value: &[u8]) {
        let handle = self.create(key);
        for piece in value.chunks(1 << 20) {
            assert_eq!(self.write(handle, piece).status, 0);
        }
        assert_eq!(self.close(handle).status, 0);
    }

    /// Reads a whole value. Returns the status of a read that fails.
    pub(super) fn read_all(&mut self, handle: u32) -> Result<Vec<u8>, u8> {
        let mut value = Vec::new();
        loop {
            match self.read(handle, value.len() as u64, u32::MAX) {
                Response { status: 0, content } if content.is_empty() => return Ok(value),
                Response { status: 0, content } => value.extend(content),
                Response { status, .. } => return Err(status),
            }
        }
    }

    /// Returns a value, or `None` if the store has lost it or a part of it.
    #[track_caller]
    pub(super) fn find(&mut self, key: &str) -> Option<Vec<u8>> {
        let opened = self.ask(1, &[key.as_bytes()]);
        if opened.status == NOT_FOUND {
            return None;
        }
        assert_eq!(opened.status, 0, "{}", String::from_utf8_lossy(&opened.content));
        let handle = u32::from_le_bytes(*opened.content.first_chunk().unwrap());
        let value = match self.read_all(handle) {
            Ok(value) => Some(value),
            Err(GONE) => None,
            Err(status) => panic!("status {status}"),
        };
        assert_eq!(self.close(handle).status, 0);
        value
    }

    #[track_caller]
    pub(super) fn get(&mut self, key: &str) -> Vec<u8> {
        let handle = self.open(key);
        let value = self.read_all(handle).unwrap();
        assert_eq!(self.close(handle).status, 0);
        value
    }
}

/// Returns bytes that differ by `seed`.
pub(super) fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut random = larder_store::SplitMix64::new(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
