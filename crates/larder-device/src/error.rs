//! The error of opening and creating volumes and directories: its kind (so that callers can react), where it happened,
//! and its cause.
//!
//! Reads, writes and syncs deliver an [`io::Error`] instead, as the system returned it.

use std::{fmt, io};

/// The result of opening or creating a volume or directory.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// The kind of an error. Each kind calls for a different reaction of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceErrorKind {
    /// The request itself is wrong (a path, a size, a foreign file): correct it.
    Invalid,
    /// The device or file does not respond or is not available now: try again later.
    Unavailable,
    /// Another process or store uses the device or file: wait until it ends.
    InUse,
    /// The file system has no room.
    Full,
}

/// An error with its kind, its place and its cause.
#[derive(Debug)]
pub struct DeviceError {
    kind: DeviceErrorKind,
    place: String,
    source: Option<io::Error>,
}

impl DeviceError {
    pub(crate) fn new(kind: DeviceErrorKind, place: impl Into<String>) -> Self {
        Self { kind, place: place.into(), source: None }
    }

    pub(crate) fn io(kind: DeviceErrorKind, place: impl Into<String>, source: io::Error) -> Self {
        Self { kind, place: place.into(), source: Some(source) }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> DeviceErrorKind {
        self.kind
    }

    /// Returns the place and the problem, without the cause.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns the cause, if a system call or an operation failed.
    pub fn into_cause(self) -> Option<io::Error> {
        self.source
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{}: {source}", self.place),
            None => f.write_str(&self.place),
        }
    }
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
