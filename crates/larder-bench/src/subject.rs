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

/// A running Larder.
pub struct LarderProcess {
    child: Child,
    /// Taken when the process is killed, which happens before its folder is removed.
    running: Option<Undo>,
    _removed: Undo,
    folder: PathBuf,
    address: SocketAddr,
}

/// The options with which Larder is started.
#[derive(Clone, Debug)]
pub struct LarderOptions {
    /// The program.
    pub program: PathBuf,
    /// The folder in which a folder for its store is created.
    pub scratch: PathBuf,
    /// Size of its store.
    pub size_bytes: u64,
    /// Size of its memory cache.
    pub memory_bytes: u64,
    /// Further flags of `larder run`.
    pub flags: Vec<OsString>,
}

impl LarderProcess {
    /// Starts Larder in front of `origin`, and waits until it listens.
    ///
    /// # Errors
    /// If the folder cannot be created, or the program does not start; contains its output.
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
        // Its later output must not block it on a full pipe.
        thread::spawn(move || io::copy(&mut errors, &mut io::sink()));
        Ok(Self { child, running: Some(running), _removed: made, folder, address })
    }

    /// Returns the listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the folder of its store.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for LarderProcess {
    fn drop(&mut self) {
        // Its store is removed, so there is nothing to finish.
        self.running = None;
        let _ = self.child.wait();
    }
}
