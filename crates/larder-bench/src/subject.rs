//! Larder as a process, started for a run and stopped after it.
//!
//! Owns: the process and the folder of its store. Larder's code does not run in this process, so the measured program
//! is the one that users run. Invariant: the process and the folder are removed in any case.

use crate::undo::Undo;
use std::{
    ffi::OsString,
    fs,
    io::{self, BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

/// A Larder that runs as a process of its own, and the folder of its store.
pub struct LarderProcess {
    child: Child,
    /// Kills the process when dropped. `Drop` drops it first, so that the folder is removed after the process has
    /// ended.
    running: Option<Undo>,
    _removed: Undo,
    folder: PathBuf,
    address: SocketAddr,
}

/// The settings of a Larder that the benchmark starts.
#[derive(Clone, Debug)]
pub struct LarderOptions {
    /// Path of the program to start.
    pub program: PathBuf,
    /// The folder in which a temporary folder for the store is created.
    pub scratch: PathBuf,
    /// Size of the store, in bytes.
    pub size_bytes: u64,
    /// Memory for the whole process, in bytes.
    pub memory_bytes: u64,
    /// Further flags for `larder run`.
    pub flags: Vec<OsString>,
}

impl LarderProcess {
    /// Starts a Larder in front of `origin`, and waits until it listens.
    ///
    /// # Errors
    /// The folder cannot be created, or the program does not start. The error contains the program's output.
    pub fn start(options: &LarderOptions, origin: SocketAddr) -> io::Result<Self> {
        let folder = options.scratch.join(format!("larder-bench.{}", std::process::id()));
        let made = Undo::removes(folder.clone());
        fs::create_dir(&folder)?;
        let mut command = Command::new(&options.program);
        command
            .args(["run", "--listen", "127.0.0.1:0", "--origin"])
            .arg(format!("http://{origin}"))
            .arg("--disk")
            .arg(folder.join("store"))
            .args(["--size", &options.size_bytes.to_string(), "--memory", &options.memory_bytes.to_string()])
            .args(&options.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let (mut child, running) = Undo::starts(&mut command)?;
        let mut said = String::new();
        let mut errors = BufReader::new(child.stderr.take().expect("it was asked for"));
        let address = loop {
            let begin = said.len();
            if errors.read_line(&mut said)? == 0 {
                drop(running);
                let _ = child.wait();
                return Err(io::Error::other(format!("larder did not start: {}", said.trim())));
            }
            let line = &said[begin..];
            if let Some((_, rest)) = line.split_once("listen   http://") {
                let address = rest.split_whitespace().next().unwrap_or(rest);
                break address.parse().map_err(io::Error::other)?;
            }
        };
        // The program's later output is read and dropped, so that a full pipe does not block the program.
        thread::spawn(move || io::copy(&mut errors, &mut io::sink()));
        Ok(Self { child, running: Some(running), _removed: made, folder, address })
    }

    /// Returns the address on which the Larder listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the folder of the Larder's store.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the number of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for LarderProcess {
    fn drop(&mut self) {
        // The process is killed without a chance to finish its work, because its store is removed anyway.
        self.running = None;
        let _ = self.child.wait();
    }
}
