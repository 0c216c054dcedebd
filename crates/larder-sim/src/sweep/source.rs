//! The source of a simulation's requests: a trace in a file, or a workload.
//!
//! Requests are not kept. Invariant: a source gives the same requests each time it is opened.

use super::SweepError;
use larder_workload::{Format, Trace};
use std::{fmt, path::PathBuf};

/// The source of the requests of a simulation.
#[derive(Clone, Debug)]
pub enum RequestSource {
    /// A trace file.
    Trace(TraceFile),
    /// A workload, with its name and seed.
    Workload(String, u64),
}

/// A trace file and how to read it.
#[derive(Clone, Debug)]
pub struct TraceFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Format of the file. `None`: guessed from its first bytes.
    pub format: Option<Format>,
    /// Name of the trace in reports.
    pub name: String,
}

impl TraceFile {
    /// Opens the trace.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn open(&self) -> Result<Trace, SweepError> {
        Trace::open(&self.path, self.format).map_err(SweepError::Trace)
    }
}

impl fmt::Display for RequestSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace(file) => write!(f, "trace {}", file.name),
            Self::Workload(name, seed) => write!(f, "workload {name}, seed {seed}"),
        }
    }
}
