//! The source of a simulation's requests: a trace in a file, or a workload.
//!
//! Requests are not kept. Invariant: a source gives the same requests each time it is opened.

use super::SweepError;
use larder_workload::{Format, Trace};
use std::{fmt, path::PathBuf};

/// The source of requests.
#[derive(Clone, Debug)]
pub enum RequestSource {
    /// A trace file.
    Trace(TraceFile),
    /// A workload by name and seed.
    Workload(String, u64),
}

/// A trace file.
#[derive(Clone, Debug)]
pub struct TraceFile {
    /// The file.
    pub path: PathBuf,
    /// The format; guessed from the first bytes if `None`.
    pub format: Option<Format>,
    /// The name in reports.
    pub name: String,
}

impl TraceFile {
    /// Opens the trace.
    ///
    /// # Errors
    /// If it cannot be read.
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
