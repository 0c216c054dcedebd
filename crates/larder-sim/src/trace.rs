//! Traces from files: one request after the other, whatever the format, in bounded memory.
//!
//! Owns: recognising compression by its first bytes, the formats' readers, and how far reading has come.
//! Does not: keep requests. Invariant: a damaged line or record is counted and told, never guessed at and
//! never the end of a run. Cost: one buffered pass; names are hashed once per request.

mod binary;
mod fields;
mod text;

use crate::Request;
use binary::{Compact, Oracle};
use std::{
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use text::{CommonLog, Csv, Line, SquidLog};

pub use binary::write_compact;

const BUFFER_BYTES: usize = 256 << 10;
/// A line longer than this is damaged.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// A trace file's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Squid's native access log.
    Squid,
    /// The common or combined log format of web servers.
    Common,
    /// Columns time, key and size (by name in a first line, else in this order), separated by commas,
    /// tabs or spaces.
    Csv,
    /// libCacheSim's oracleGeneral: records of 24 bytes.
    Oracle,
    /// Larder's own.
    Compact,
}

/// How far a trace was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the file, as stored.
    pub file_bytes: u64,
    /// Bytes of it that were read.
    pub read_bytes: u64,
    /// Requests found.
    pub requests: u64,
    /// Lines or records that are damaged.
    pub damaged: u64,
    /// Lines that are whole but no request that a cache would see (other methods, denied).
    pub left_out: u64,
    /// Number of the first damaged line or record, from 1, and what is wrong with it.
    pub first_damage: Option<(u64, &'static str)>,
}

/// Why a trace cannot be read.
#[derive(Debug)]
pub struct TraceError {
    path: PathBuf,
    what: String,
    source: Option<io::Error>,
}

/// A trace being read.
pub struct Trace {
    source: Source,
    path: PathBuf,
    read_bytes: Arc<AtomicU64>,
    progress: Progress,
    line: Vec<u8>,
    position: u64,
}

enum Source {
    Lines { input: Box<dyn BufRead + Send>, line: Box<dyn Line> },
    Oracle(Oracle),
    Compact(Compact),
}

/// What one line or record is.
enum Step {
    Request(Request),
    LeftOut,
    Damaged(&'static str),
}

impl Format {
    /// Every format with its name on the command line.
    pub const ALL: [(&'static str, Self); 5] = [
        ("squid", Self::Squid),
        ("common", Self::Common),
        ("csv", Self::Csv),
        ("oracle", Self::Oracle),
        ("larder", Self::Compact),
    ];

    /// The format of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|&(_, format)| format)
    }

    /// The format the first bytes of a (decompressed) file look like. Oracle files have no mark: they are
    /// what is no text.
    fn guess(first: &[u8]) -> Self {
        if first.starts_with(&binary::MAGIC) {
            return Self::Compact;
        }
        let line = first.split(|&byte| byte == b'\n').next().unwrap_or_default();
        if line.iter().any(|&byte| byte < b' ' && byte != b'\t' && byte != b'\r') {
            return Self::Oracle;
        }
        if line.contains(&b'[') && line.contains(&b'"') {
            return Self::Common;
        }
        let words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).count();
        if words >= 8 { Self::Squid } else { Self::Csv }
    }
}

impl Trace {
    /// Opens a trace, plain, gzip or zstd. Without a format it is told from the first bytes.
    ///
    /// # Errors
    /// When the file cannot be opened or its first bytes cannot be read.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Self, TraceError> {
        let failed = |what: &str, source| TraceError { path: path.to_owned(), what: what.to_owned(), source };
        let file = File::open(path).map_err(|error| failed("cannot open the trace", Some(error)))?;
        let file_bytes = file.metadata().map_err(|error| failed("cannot look at the trace", Some(error)))?.len();
        let read_bytes = Arc::new(AtomicU64::new(0));
        let counted = Counted { file, read_bytes: Arc::clone(&read_bytes) };
        let unreadable = |error| failed("cannot read the trace", Some(error));
        let mut input = decompressed(BufReader::with_capacity(BUFFER_BYTES, counted)).map_err(unreadable)?;
        let first = input.fill_buf().map_err(unreadable)?;
        let format = format.unwrap_or_else(|| Format::guess(first));
        let source = match format {
            Format::Squid => Source::Lines { input, line: Box::new(SquidLog) },
            Format::Common => Source::Lines { input, line: Box::new(CommonLog::default()) },
            Format::Csv => Source::Lines { input, line: Box::new(Csv::default()) },
            Format::Oracle => Source::Oracle(Oracle::new(input)),
            Format::Compact => match Compact::new(input) {
                Ok(compact) => Source::Compact(compact),
                Err(what) => return Err(failed(what, None)),
            },
        };
        let progress = Progress { file_bytes, ..Progress::default() };
        Ok(Self { source, path: path.to_owned(), read_bytes, progress, line: Vec::new(), position: 0 })
    }

    /// How far reading has come.
    pub fn progress(&self) -> Progress {
        Progress { read_bytes: self.read_bytes.load(Ordering::Relaxed), ..self.progress.clone() }
    }

    fn step(&mut self) -> io::Result<Option<Step>> {
        match &mut self.source {
            Source::Lines { input, line } => {
                self.line.clear();
                let limited = &mut input.take(LINE_BYTES_MAX);
                if limited.read_until(b'\n', &mut self.line)? == 0 {
                    return Ok(None);
                }
                if self.line.len() as u64 == LINE_BYTES_MAX && !self.line.ends_with(b"\n") {
                    input.skip_until(b'\n')?;
                    return Ok(Some(Step::Damaged("the line is longer than 64 KiB")));
                }
                Ok(Some(line.step(self.line.trim_ascii())))
            }
            Source::Oracle(oracle) => oracle.step(),
            Source::Compact(compact) => compact.step(),
        }
    }
}

impl Iterator for Trace {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let step = match self.step() {
                Ok(step) => step?,
                Err(source) => {
                    let what = format!("cannot read the trace behind request {}", self.progress.requests);
                    return Some(Err(TraceError { path: self.path.clone(), what, source: Some(source) }));
                }
            };
            self.position += 1;
            match step {
                Step::Request(request) => {
                    self.progress.requests += 1;
                    return Some(Ok(request));
                }
                Step::LeftOut => self.progress.left_out += 1,
                Step::Damaged(why) => {
                    self.progress.damaged += 1;
                    self.progress.first_damage.get_or_insert((self.position, why));
                }
            }
        }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.path.display())?;
        self.source.as_ref().map_or(Ok(()), |source| write!(f, ": {source}"))
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// A file that counts what is read of it.
struct Counted {
    file: File,
    read_bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(to)?;
        self.read_bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

fn decompressed(mut input: impl BufRead + Send + 'static) -> io::Result<Box<dyn BufRead + Send>> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    let first = input.fill_buf()?;
    if first.starts_with(&GZIP) {
        let inner = flate2::bufread::MultiGzDecoder::new(input);
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, inner)));
    }
    if first.starts_with(&ZSTD) {
        let inner = zstd::Decoder::with_buffer(input)?;
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, inner)));
    }
    Ok(Box::new(input))
}

#[cfg(test)]
mod tests;
