//! Identifies the content of a path before anything is changed, and creates a store there on request.
//!
//! Owns: [`PathContent`]. Entries are not examined (see `survey`). Invariant: identifying changes nothing. Only
//! [`format`] destroys data, and only the content that its caller was shown. Cost: a few reads.

use super::open::{self, ReadRefusal};
use crate::{
    Error, ErrorKind, Policy, Result, StoreOptions,
    device::{Device, ThreadsDevice, VolumeFile},
    format::superblock::{Superblock, SuperblockRefusal},
    units::{SUPERBLOCK_BYTES, superblock_offsets},
};
use std::{
    fs::{self, File},
    io::{self, Seek, SeekFrom},
    num::NonZeroUsize,
    os::unix::fs::{FileExt, FileTypeExt},
    path::Path,
    sync::Arc,
};

/// The content of a path at which a store could be.
///
/// ```
/// use larder_store::{PathContent, StoreOptions};
///
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("example.larder");
/// assert_eq!(larder_store::inspect(&path)?, PathContent::Nothing);
/// larder_store::format(&StoreOptions::new(&path, 16 << 20))?;
/// let PathContent::Store(info) = larder_store::inspect(&path)? else { panic!("a store was just created") };
/// assert_eq!(info.size_bytes, 16 << 20);
/// # Ok::<(), larder_store::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathContent {
    /// There is no file or device at the path, or an empty directory.
    Nothing,
    /// An empty block device of this size in bytes.
    Blank(u64),
    /// A Larder store.
    Store(StoreInfo),
    /// A block device with other content, such as a file system.
    OtherDevice {
        /// Description of the content, such as `an XFS file system`.
        what: &'static str,
        /// Size of the device in bytes.
        size_bytes: u64,
    },
    /// A file that is not a store, or a non-empty directory that is not a store.
    OtherFile,
}

/// The description of a store, from its superblock.
///
/// ```
/// use larder_store::{Policy, Store, StoreInfo, StoreOptions};
///
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("example.larder");
/// let store = Store::open(StoreOptions::new(&path, 16 << 20))?;
/// let info: StoreInfo = larder_store::glance(&path)?.expect("a store, which may be in use");
/// assert_eq!((info.policy, info.size_bytes), (Some(Policy::default_policy()), 16 << 20));
/// println!("after kill -9 it keeps {}", info.kept_after_kill);
/// # Ok::<(), larder_store::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreInfo {
    /// The store's policy; `None` if this version of the engine does not know it.
    pub policy: Option<&'static Policy>,
    /// Size of the store in bytes.
    pub size_bytes: u64,
    /// Size of the store's segments in bytes; 0 in policies without segments.
    pub segment_size_bytes: u64,
    /// Version of the store's on-disk format.
    pub format: u32,
    /// Whether the store keeps new entries in segments of their own (probation) until they are requested again. Volumes
    /// of `log` with format 3 or later do.
    pub has_probation: bool,
    /// The store's random identity, in hexadecimal.
    pub identity: String,
    /// Number of times that the superblock was written.
    pub generation: u64,
    /// Description of the entries that remain after `kill -9`; empty if this engine does not know the policy.
    pub kept_after_kill: &'static str,
    /// Size of the store's file or device, in bytes. A store can be smaller than its device.
    pub volume_bytes: u64,
    /// Whether the store is on a block device.
    pub is_block_device: bool,
}

/// Returns the content of `path`, which is locked during this call.
///
/// # Errors
/// `Unavailable`: the path cannot be opened or read. `InUse`: another store has it. `Corrupt`: a store with both
/// superblocks damaged. `Invalid`: a directory, or a store of another format.
pub fn inspect(path: &Path) -> Result<PathContent> {
    look(path).map(|(content, _)| content)
}

/// Returns the description of the store at `path`, even if it is in use, without locking it. Returns `None` if no store
/// is recognized.
///
/// # Errors
/// `Unavailable`: the path cannot be read. `Invalid`: a store of another format.
pub fn glance(path: &Path) -> Result<Option<StoreInfo>> {
    let path = if path.is_dir() { path.join(open::VOLUME_NAME) } else { path.to_owned() };
    let unreadable = |error| Error::io(ErrorKind::Unavailable, format!("cannot read {}", path.display()), error);
    let mut file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(unreadable)?,
    };
    let is_block_device = file.metadata().map_err(unreadable)?.file_type().is_block_device();
    let volume_bytes = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
    let mut copy = vec![0; SUPERBLOCK_BYTES as usize];
    for offset_bytes in superblock_offsets(volume_bytes) {
        // At least one of the two copies is whole, even while the store writes one.
        if file.read_exact_at(&mut copy, offset_bytes).is_err() {
            continue;
        }
        match Superblock::decode(&copy) {
            Ok(superblock) => return Ok(Some(StoreInfo::of(&superblock, volume_bytes, is_block_device))),
            Err(refusal @ SuperblockRefusal::Version(_)) => {
                return Err(open::refused(ReadRefusal::Format(refusal), &path));
            }
            Err(_) => {}
        }
    }
    Ok(None)
}

/// Identifies the content like [`inspect`]. If it is a store, also returns its device, limited to the store's length.
pub(super) fn look(path: &Path) -> Result<(PathContent, Option<Arc<dyn Device>>)> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((PathContent::Nothing, None)),
        _ => {}
    }
    if path.is_dir() {
        return look_into_directory(path);
    }
    let mut file = VolumeFile::open(path)?;
    let is_block_device = file.is_block_device();
    let volume_bytes = file.len_bytes();
    let holds = if is_block_device { file.foreign_content()? } else { None };
    if let Some(size_bytes) = open::first_superblock(&file).map(|superblock| superblock.shape.size_bytes) {
        file.shorten_to(size_bytes);
    }
    let device = plain_device(file)?;
    let content = match open::read_superblock(&device) {
        Ok(superblock) => PathContent::Store(StoreInfo::of(&superblock, volume_bytes, is_block_device)),
        Err(ReadRefusal::Format(SuperblockRefusal::Foreign)) if !is_block_device => PathContent::OtherFile,
        Err(ReadRefusal::Format(SuperblockRefusal::Foreign)) => {
            holds.map_or(PathContent::Blank(volume_bytes), |what| PathContent::OtherDevice {
                what,
                size_bytes: volume_bytes,
            })
        }
        Err(refusal) => return Err(open::refused(refusal, path)),
    };
    Ok((content, Some(device)))
}

/// Identifies the content of a directory, which can be the store of a policy that keeps entries in files. Such a store
/// has one file in the directory for all its other data.
fn look_into_directory(path: &Path) -> Result<(PathContent, Option<Arc<dyn Device>>)> {
    let volume = path.join(open::VOLUME_NAME);
    if volume.is_file() {
        return look(&volume);
    }
    let unreadable = |error| Error::io(ErrorKind::Unavailable, format!("cannot inspect {}", path.display()), error);
    // A new file system contains this directory from the start.
    let is_own =
        |entry: &io::Result<fs::DirEntry>| !entry.as_ref().is_ok_and(|entry| entry.file_name() == "lost+found");
    let is_empty = fs::read_dir(path).map_err(unreadable)?.find(is_own).is_none();
    Ok((if is_empty { PathContent::Nothing } else { PathContent::OtherFile }, None))
}

/// Creates an empty store at the options' path and destroys what is there. Show the user the result of [`inspect`]
/// first.
///
/// # Errors
/// As [`crate::Store::open`].
pub fn format(options: &StoreOptions) -> Result<()> {
    open::format_file(options)
}

impl StoreOptions {
    /// Checks whether a store can be created with these options. Changes nothing.
    ///
    /// # Errors
    /// `Invalid` names the option and the reason.
    pub fn check(&self) -> Result<()> {
        open::check(self).map(drop)
    }
}

impl StoreInfo {
    fn of(superblock: &Superblock, volume_bytes: u64, is_block_device: bool) -> Self {
        let policy = Policy::of_code(superblock.shape.row);
        let shape = &superblock.shape;
        let keeps_files = policy.is_some_and(|policy| policy.layout.keeps_files());
        Self {
            policy,
            size_bytes: shape.size_bytes + if keeps_files { shape.files_bytes() } else { 0 },
            segment_size_bytes: superblock.shape.segment_bytes,
            format: shape.format_version(),
            has_probation: shape.has_probation(),
            identity: superblock.id.0.iter().map(|byte| format!("{byte:02x}")).collect(),
            generation: superblock.generation,
            kept_after_kill: policy.map_or("", |policy| policy.kept_after_kill(shape.journal_pages > 0)),
            volume_bytes,
            is_block_device,
        }
    }
}

/// Returns a device on `file` with a single thread, for a few reads.
fn plain_device(file: VolumeFile) -> Result<Arc<dyn Device>> {
    match ThreadsDevice::new(Arc::new(file), NonZeroUsize::MIN) {
        Ok(device) => Ok(Arc::new(device)),
        Err(error) => Err(Error::io(ErrorKind::Unavailable, "cannot start a thread", error)),
    }
}
