//! The error of opening and creating volumes and directories: its kind (so that callers can react), where it happened,
//! and its cause.
//!
//! Reads, writes and syncs deliver an [`io::Error`] instead, as the system returned it.

use std::{fmt, io};

/// A result with a [`DeviceError`].
///
/// ```
/// use larder_device::VolumeFile;
/// use std::path::Path;
///
/// fn size_of(path: &Path) -> larder_device::Result<u64> {
///     Ok(VolumeFile::open(path)?.len_bytes())
/// }
///
/// # let folder = tempfile::tempdir().expect("a folder");
/// # let path = folder.path().join("volume");
/// drop(VolumeFile::create(&path, 1 << 20)?);
/// assert_eq!(size_of(&path)?, 1 << 20);
/// # Ok::<(), larder_device::DeviceError>(())
/// ```
pub type Result<T> = std::result::Result<T, DeviceError>;

/// The reaction that an error demands of the caller: correct an argument, wait, or free space.
///
/// ```
/// use larder_device::{DeviceErrorKind, VolumeFile};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("volume");
/// let first = VolumeFile::create(&path, 1 << 20)?;
/// let error = VolumeFile::open(&path).unwrap_err();
/// assert_eq!(error.kind(), DeviceErrorKind::InUse);
/// drop(first);
/// assert!(VolumeFile::open(&path).is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceErrorKind {
    /// An argument is wrong, such as a path, a size or a file that is not a store. Correct it.
    Invalid,
    /// The device or file does not respond, or cannot be used now. Try again later.
    Unavailable,
    /// Another process, or another store of this process, uses the device or file. Wait until it is closed.
    InUse,
    /// The file system has no free space.
    Full,
}

/// The error of opening or creating a volume or a directory: its kind, a description of the place and the problem, and
/// its cause.
///
/// ```
/// use larder_device::{DeviceErrorKind, VolumeFile};
/// use std::path::Path;
///
/// let error = VolumeFile::open(Path::new("/dev/null/volume")).unwrap_err();
/// assert_eq!(error.kind(), DeviceErrorKind::Unavailable);
/// assert!(error.place().contains("/dev/null/volume"));
/// assert!(error.into_cause().is_some());
/// ```
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

    /// Returns the description of the place and the problem, without the cause.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns the failed system call or I/O operation, if there is one.
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
