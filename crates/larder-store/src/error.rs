//! The engine's error: what kind it is (so that callers can act), where it happened, and its cause.
//!
//! A miss is not an error, and neither is a corrupt entry: that is a miss and a counter.

use std::{fmt, io, sync::Arc};

/// The engine's result.
pub type Result<T> = std::result::Result<T, Error>;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request itself is wrong (an option, a size, a foreign file): correct it.
    Invalid,
    /// The device or file does not answer or cannot be had now: go on without the cache.
    Unavailable,
    /// The store's own bytes are damaged beyond use: check or delete the store.
    Corrupt,
    /// No room now: the entry was not stored.
    Full,
    /// The store was closed.
    Closed,
}

/// An error with its kind, its place and its cause.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    place: String,
    /// Shared: several callers may be told of one failure.
    source: Option<Arc<io::Error>>,
}

impl Error {
    /// An error of `kind`; `place` says where and what, in lower case.
    pub fn new(kind: ErrorKind, place: impl Into<String>) -> Self {
        Self { kind, place: place.into(), source: None }
    }

    /// An error of `kind` caused by a failed system call or transfer.
    pub fn io(kind: ErrorKind, place: impl Into<String>, source: io::Error) -> Self {
        Self { kind, place: place.into(), source: Some(Arc::new(source)) }
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{}: {source}", self.place),
            None => f.write_str(&self.place),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
