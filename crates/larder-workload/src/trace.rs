//! Traces from files: one request after the other, in any known format, in bounded memory.
//!
//! Owns: recognizing compression by the first bytes, the formats' readers, and the position. Requests are not kept.
//! Invariant: a damaged line or record is counted and reported, never guessed at, and never ends a run. A file that
//! has too many of them is no trace ([`Progress::check`]). Cost: one buffered pass; names are hashed once per request.

mod binary;
mod fields;
mod published;
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
/// Maximum length of a line, in bytes. A longer line counts as damaged.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Number of lines or records at the start of a file: if all of them are damaged, the file is not a trace.
const FIRST_COUNT: u64 = 1000;
/// Number of damaged lines or records that every trace may have. Examples are a first line with names, and a last one
/// that was cut.
const DAMAGED_COUNT_FREE: u64 = 2;
/// One in this many lines or records may be damaged. If more are, the trace is refused.
const DAMAGED_DIVISOR: u64 = 10;
/// Largest size of an object in bytes, 256 TiB. A line or record with a larger one counts as damaged.
const SIZE_BYTES_MAX: u64 = 1 << 48;

/// The format of a trace file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Squid's native access log.
    Squid,
    /// The common or combined log format of web servers.
    Common,
    /// Columns for time, key and size, separated by commas, tabs or spaces. A first line may name them, otherwise they
    /// are in this order. Published collections with other known columns are recognized too.
    Csv,
    /// libCacheSim's oracleGeneral: records of 24 bytes.
    Oracle,
    /// Larder's own compact format.
    Compact,
}

/// The progress of reading a trace, and the number of its lines by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Length of the file in bytes, before decompression.
    pub file_bytes: u64,
    /// Bytes of the file that were read, before decompression.
    pub read_bytes: u64,
    /// Number of requests found.
    pub requests: u64,
    /// Number of damaged lines or records.
    pub damaged: u64,
    /// Number of valid lines that are not a request to a cache, such as those of other methods, or denied ones.
    pub left_out: u64,
    /// The first damaged line or record: its number, counted from 1, and what is wrong with it.
    pub first_damage: Option<(u64, &'static str)>,
}

/// The reason why a trace cannot be read.
#[derive(Debug)]
pub struct TraceError {
    path: PathBuf,
    what: String,
    source: Option<io::Error>,
}

/// A trace that is being read. As an iterator, it returns the requests.
pub struct Trace {
    source: Source,
    path: PathBuf,
    read_bytes: Arc<AtomicU64>,
    progress: Progress,
    line: Vec<u8>,
    position: u64,
}

enum Source {
    Lines {
        input: Box<dyn BufRead + Send>,
        line: Box<dyn Line>,
    },
    Oracle(Oracle),
    Compact(Compact),
    /// The trace has ended.
    Over,
}

/// The content of a line or record.
enum Step {
    Request(Request),
    LeftOut,
    /// No request: the line has column names or a comment, or is empty.
    Nothing,
    Damaged(&'static str),
}

impl Format {
    /// All formats, each with its name on the command line.
    pub const ALL: [(&'static str, Self); 5] = [
        ("squid", Self::Squid),
        ("common", Self::Common),
        ("csv", Self::Csv),
        ("oracle", Self::Oracle),
        ("larder", Self::Compact),
    ];

    /// Returns the format that has this name on the command line.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|&(_, format)| format)
    }

    /// Guesses the format from `first`, the first bytes of a file after decompression. Returns an error with the reason
    /// if it cannot. Files of oracleGeneral have no magic; they are recognized because they are binary and their times
    /// are in order.
    fn guess(first: &[u8]) -> Result<Self, String> {
        if first.starts_with(&binary::MAGIC) {
            return Ok(Self::Compact);
        }
        if let Some((_, packing)) = PACKINGS.iter().find(|(magic, _)| first.starts_with(magic)) {
            return Err(format!("only gzip and zstd are read directly, this is {packing}:"));
        }
        let line = first.split(|&byte| byte == b'\n').next().unwrap_or_default();
        if line.iter().any(|&byte| byte < b' ' && byte != b'\t' && byte != b'\r') {
            let is_likely = binary::looks_like_oracle(first);
            return is_likely
                .then_some(Self::Oracle)
                .ok_or_else(|| "this looks like no trace of a known format:".to_owned());
        }
        if line.contains(&b'[') && line.contains(&b'"') {
            return Ok(Self::Common);
        }
        let words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).count();
        Ok(if words >= 8 { Self::Squid } else { Self::Csv })
    }
}

/// The first bytes of files in compressions that are not supported, each with the name of the compression.
const PACKINGS: [(&[u8], &str); 5] = [
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"PK\x03\x04", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"\x04\x22\x4d\x18", "lz4"),
];

impl Progress {
    /// Checks a trace that was read to its end. Refuses it if it has no usable request, or if more than a tenth of it
    /// is damaged. `name` is the name of its file, for the error.
    ///
    /// # Errors
    /// The trace is refused. The message names the known formats and the first damaged line.
    pub fn check(&self, name: &str) -> Result<(), TraceError> {
        let Self { requests, damaged, left_out, .. } = self;
        let count = requests + left_out + damaged;
        if *damaged > DAMAGED_COUNT_FREE && damaged.saturating_mul(DAMAGED_DIVISOR) > count {
            return Err(TraceError::no_trace(Path::new(name), self));
        }
        if *requests == 0 { Err(TraceError::no_request(name, self)) } else { Ok(()) }
    }

    /// Returns the number of the first damaged line and what is wrong with it, as text for a message.
    fn first_shown(&self) -> String {
        self.first_damage.map_or_else(String::new, |(at, why)| format!(" (line {at}: {why})"))
    }
}

impl Trace {
    /// Opens a trace file, which may be compressed by gzip or zstd. Guesses the format from the first bytes if `format`
    /// is `None`.
    ///
    /// # Errors
    /// The file cannot be opened, or its first bytes cannot be read.
    pub fn open(path: &Path, format: Option<Format>) -> Result<Self, TraceError> {
        let failed = |what: &str, source| TraceError::new(what, path, source);
        let file = File::open(path).map_err(|error| failed("cannot open the trace", Some(error)))?;
        let file_bytes = file.metadata().map_err(|error| failed("cannot look at the trace", Some(error)))?.len();
        let read_bytes = Arc::new(AtomicU64::new(0));
        let counted = CountedFile { file, read_bytes: Arc::clone(&read_bytes) };
        let unreadable = |error| failed("cannot read the trace", Some(error));
        let mut input = decompressed(BufReader::with_capacity(BUFFER_BYTES, counted)).map_err(unreadable)?;
        let first = input.fill_buf().map_err(unreadable)?;
        let format = format.map_or_else(|| Format::guess(first), Ok).map_err(|what| failed(&what, None))?;
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

    /// Returns how much of the trace was read, and what was found in it.
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
            Source::Over => Ok(None),
        }
    }

    /// Handles a read error. If the compressed data ends too early, the file was cut, and what was read until then
    /// counts as the trace.
    fn unreadable(&mut self, error: io::Error) -> Result<Step, TraceError> {
        self.source = Source::Over;
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Ok(Step::Damaged("the file ends within its compressed data"));
        }
        let what = format!("behind request {} nothing can be read of the trace", self.progress.requests);
        Err(TraceError::new(&what, &self.path, Some(error)))
    }
}

impl Iterator for Trace {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let step = match self.step() {
                Ok(step) => step?,
                Err(error) => match self.unreadable(error) {
                    Ok(step) => step,
                    Err(error) => return Some(Err(error)),
                },
            };
            self.position += 1;
            match step {
                Step::Request(request) if request.size_bytes > SIZE_BYTES_MAX => {
                    self.progress.damaged += 1;
                    self.progress.first_damage.get_or_insert((self.position, "the size is over 256 TiB"));
                }
                Step::Request(request) => {
                    self.progress.requests += 1;
                    return Some(Ok(request));
                }
                Step::LeftOut => self.progress.left_out += 1,
                Step::Nothing => {}
                Step::Damaged(why) => {
                    self.progress.damaged += 1;
                    self.progress.first_damage.get_or_insert((self.position, why));
                }
            }
            if self.progress.damaged == FIRST_COUNT && self.progress.requests + self.progress.left_out == 0 {
                self.source = Source::Over;
                return Some(Err(TraceError::no_trace(&self.path, &self.progress)));
            }
        }
    }
}

impl TraceError {
    fn new(what: &str, path: &Path, source: Option<io::Error>) -> Self {
        Self { path: path.to_owned(), what: what.to_owned(), source }
    }

    /// Creates the error for a valid trace without a usable request.
    pub fn no_request(name: &str, progress: &Progress) -> Self {
        let Progress { left_out, damaged, .. } = progress;
        let first = progress.first_shown();
        let what = format!("no request can be used, {damaged} are damaged{first}, {left_out} left out, of the trace");
        Self::new(&what, Path::new(name), None)
    }

    /// Creates the error for a file that is not a trace.
    fn no_trace(path: &Path, progress: &Progress) -> Self {
        let Progress { requests, left_out, damaged, .. } = progress;
        let first = progress.first_shown();
        let formats = Format::ALL.map(|(name, _)| name).join(", ");
        let count = requests + left_out + damaged;
        let what =
            format!("this is no trace of a known format ({formats}): {damaged} of {count} lines are damaged{first}:");
        Self::new(&what, path, None)
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

/// A file that counts the bytes read from it.
struct CountedFile {
    file: File,
    read_bytes: Arc<AtomicU64>,
}

impl Read for CountedFile {
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
