//! The engine's error: its kind (so that callers can react), where it happened, and its cause.
//!
//! A miss is not an error. A corrupt entry is not one either: it counts as a miss and increments a counter.

use larder_device::{DeviceError, DeviceErrorKind};
use std::{fmt, io, sync::Arc};

/// A result with the store's [`Error`].
///
/// ```
/// use larder_store::{Store, StoreOptions};
///
/// fn entry_count(options: StoreOptions) -> larder_store::Result<u64> {
///     Ok(Store::open(options)?.stats().entries)
/// }
///
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("example.larder");
/// assert_eq!(entry_count(StoreOptions::new(path, 16 << 20))?, 0);
/// # Ok::<(), larder_store::Error>(())
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of an error. It tells the caller how to react.
///
/// ```
/// use larder_store::{ErrorKind, Store, StoreOptions};
///
/// let opened = Store::open(StoreOptions::new("/no/such/directory/example.larder", 1 << 30));
/// let store = match opened {
///     Ok(store) => Some(store),
///     // The program can work without its cache.
///     Err(error) if error.kind() == ErrorKind::Unavailable => None,
///     Err(error) => panic!("{error}"),
/// };
/// assert!(store.is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is wrong, such as an option, a length or a path to a file that is not a store. Correct it.
    Invalid,
    /// The device or file does not respond, or cannot be used now. Continue without the cache.
    Unavailable,
    /// Another process, or another store of this process, uses the device or file. Wait until it is closed.
    InUse,
    /// The store is too damaged to be opened. Check or delete it.
    Corrupt,
    /// There is no free space now, so the entry was not stored.
    Full,
    /// The store was closed.
    Closed,
}

/// An error with its kind, a description of the place and the problem, and its cause.
///
/// ```
/// use larder_store::{ErrorKind, Store, StoreOptions};
/// use std::error::Error;
///
/// let error = Store::open(StoreOptions::new("/no/such/directory/example.larder", 1 << 30)).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Unavailable);
/// assert!(error.to_string().contains("/no/such/directory"));
/// let cause = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
/// assert_eq!(cause.map(std::io::Error::kind), Some(std::io::ErrorKind::NotFound));
/// ```
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    place: String,
    /// The failed system call, if there is one. Shared, because several callers can get the same error.
    source: Option<Arc<io::Error>>,
}

impl Error {
    /// Creates an error of `kind`. `place` says where and what the problem is, in lower case.
    pub fn new(kind: ErrorKind, place: impl Into<String>) -> Self {
        Self { kind, place: place.into(), source: None }
    }

    /// Creates an error of `kind` with its cause: `source`, the error of a system call or of I/O.
    pub fn io(kind: ErrorKind, place: impl Into<String>, source: io::Error) -> Self {
        Self { kind, place: place.into(), source: Some(Arc::new(source)) }
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        let kind = match error.kind() {
            DeviceErrorKind::Invalid => ErrorKind::Invalid,
            DeviceErrorKind::Unavailable => ErrorKind::Unavailable,
            DeviceErrorKind::InUse => ErrorKind::InUse,
            DeviceErrorKind::Full => ErrorKind::Full,
        };
        let place = error.place().to_owned();
        Self { kind, place, source: error.into_cause().map(Arc::new) }
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
        self.source.as_deref().map(|source| source as _)
    }
}
