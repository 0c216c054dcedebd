//! Opens a volume: from a path or a device to a verified superblock.
//!
//! Invariant: an existing file is not written before its superblock was accepted. A new file gets its name only when it
//! is complete.

use crate::{
    Error, ErrorKind, Policy, Result, SplitMix64, StoreOptions,
    device::{
        AlignedBuffer, Device, Directory, FilesDirectory, UnfinishedFile, VolumeFile, block_on,
        open_device as device_of,
    },
    families::shape_of,
    format::{
        VolumeId,
        superblock::{FORMAT_VERSION, RuleEpochs, Superblock, SuperblockRefusal, VolumeMembership, VolumeShape},
        written::WrittenSequences,
    },
    units::{SUPERBLOCK_BYTES, last_superblock_bytes, superblock_offsets},
    volume::{Volume, superblock_keeper},
};
use std::{fs, io, path::Path, sync::Arc};

const SIZE_BYTES_MAX: u64 = 16 << 40;
const MEAN_ENTRY_BYTES_MAX: u64 = 1 << 20;

/// Name of the file that holds everything but the entries, in the directory of a store that keeps entries in files.
pub(super) const VOLUME_NAME: &str = "larder.volume";

/// Opens or creates the volume of `options`: a file or a block device, or a directory if the policy keeps files. On an
/// empty block device, creates a store.
pub(super) fn open_file(options: &StoreOptions) -> Result<Volume> {
    let shape = check(options)?;
    if options.policy.layout.keeps_files() { open_directory(options, shape) } else { open_volume(options, shape) }
}

fn open_directory(options: &StoreOptions, mut shape: VolumeShape) -> Result<Volume> {
    let directory = FilesDirectory::open(&options.path, FilesDirectory::THREAD_COUNT_DEFAULT)?;
    let path = options.path.join(VOLUME_NAME);
    if let Ok(metadata) = fs::metadata(&path) {
        // The size of the index area was decided when the store was created.
        shape.size_bytes = metadata.len();
    }
    let inner = StoreOptions { path, size_bytes: shape.size_bytes, ..options.clone() };
    let volume = open_volume(&inner, shape)?.with_directory(Arc::new(directory), options);
    check_bound(&volume)?;
    Ok(volume)
}

/// Opens the store with entries in `directory` and its other data on `device`. Creates one if the device has only
/// zeros.
pub(super) fn open_device_and_directory(
    device: Arc<dyn Device>,
    directory: Arc<dyn Directory>,
    options: &StoreOptions,
) -> Result<Volume> {
    if !options.policy.layout.keeps_files() {
        return Err(Error::new(ErrorKind::Invalid, format!("policy {} keeps no files", options.policy)));
    }
    let shape = check(options)?;
    let index_end = shape.index_area().end;
    if index_end > last_superblock_bytes(device.len_bytes()) {
        let place =
            format!("the device has no room for an index area that ends at byte {index_end}: {}", device.len_bytes());
        return Err(Error::new(ErrorKind::Invalid, place));
    }
    let volume = open_shaped(device, options, shape)?.with_directory(directory, options);
    check_bound(&volume)?;
    Ok(volume)
}

/// Returns an error if a store that keeps entries in files was created for a size other than the requested one.
fn check_bound(volume: &Volume) -> Result<()> {
    let asked = check(&volume.options)?;
    if asked.files_bytes() == volume.shape.files_bytes() || volume.size_bytes() == volume.options.size_bytes {
        return Ok(());
    }
    let place = format!(
        "{} is a store of {} bytes, not of {}",
        volume.options.path.display(),
        volume.size_bytes(),
        volume.options.size_bytes
    );
    Err(Error::new(ErrorKind::Invalid, place))
}

fn open_volume(options: &StoreOptions, shape: VolumeShape) -> Result<Volume> {
    if !options.path.exists() {
        let (device, superblock) = create_file(options, shape)?;
        return Ok(Volume::new(device, superblock, options.policy, options).made_now(true));
    }
    let mut file = VolumeFile::open(&options.path)?;
    let holds = if file.is_block_device() { Some(file.foreign_content()?) } else { None };
    let is_block_device = file.is_block_device();
    shorten_to_store(&mut file, options)?;
    let device = device_of(file, options.io)?;
    let (superblock, is_new) = match (read_superblock(&device), holds) {
        (Ok(superblock), _) => (superblock, false),
        (Err(ReadRefusal::Format(SuperblockRefusal::Foreign)), Some(None)) => {
            (format(&device, shape, options.identity_seed)?, true)
        }
        (Err(ReadRefusal::Format(SuperblockRefusal::Foreign)), Some(Some(what))) => {
            return Err(holds_other(&options.path, what));
        }
        (Err(refusal), _) => return Err(refused(refusal, &options.path)),
    };
    let policy = check_row(&superblock, options)?;
    if device.len_bytes() != superblock.shape.size_bytes && !is_block_device {
        let place = format!(
            "{} was created as a store of {} bytes, but the file now has {}",
            options.path.display(),
            superblock.shape.size_bytes,
            device.len_bytes()
        );
        return Err(Error::new(ErrorKind::Corrupt, place));
    }
    if superblock.shape.size_bytes != options.size_bytes || device.len_bytes() != options.size_bytes {
        let place = format!(
            "{} is a store of {} bytes, not of {}",
            options.path.display(),
            superblock.shape.size_bytes,
            options.size_bytes
        );
        return Err(Error::new(ErrorKind::Invalid, place));
    }
    Ok(Volume::new(device, superblock, policy, options).made_now(is_new))
}

/// Creates an empty store at the options' path, and destroys what is there.
pub(super) fn format_file(options: &StoreOptions) -> Result<()> {
    let shape = check(options)?;
    if options.policy.layout.keeps_files() {
        return format_directory(options, shape);
    }
    if options.path.exists() {
        let mut file = VolumeFile::open(&options.path)?;
        if file.is_block_device() {
            file.wipe_ends()?;
            shorten_to_store(&mut file, options)?;
            return format(&device_of(file, options.io)?, shape, options.identity_seed).map(drop);
        }
        let failed =
            |source| Error::io(ErrorKind::Unavailable, format!("cannot remove {}", options.path.display()), source);
        fs::remove_file(&options.path).map_err(failed)?;
    }
    create_file(options, shape).map(drop)
}

fn format_directory(options: &StoreOptions, shape: VolumeShape) -> Result<()> {
    let directory: Arc<dyn Directory> =
        Arc::new(FilesDirectory::open(&options.path, FilesDirectory::THREAD_COUNT_DEFAULT)?);
    let inner = StoreOptions { path: options.path.join(VOLUME_NAME), size_bytes: shape.size_bytes, ..options.clone() };
    let failed = |source| Error::io(ErrorKind::Unavailable, format!("cannot empty {}", options.path.display()), source);
    match fs::remove_file(&inner.path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => block_on(directory.clear()).map_err(failed)?,
    }
    create_file(&inner, shape).map(drop)
}

fn create_file(options: &StoreOptions, shape: VolumeShape) -> Result<(Arc<dyn Device>, Superblock)> {
    let (file, unfinished) = UnfinishedFile::create(&options.path, options.size_bytes, options.is_sparse)?;
    let device = device_of(file, options.io)?;
    let superblock = format(&device, shape, options.identity_seed)?;
    unfinished.finish()?;
    Ok((device, superblock))
}

/// Limits `file` to the requested size if it is a block device, so that nothing beyond the store is used. The device
/// itself is not changed.
///
/// # Errors
/// `Invalid` if the device is smaller than requested.
fn shorten_to_store(file: &mut VolumeFile, options: &StoreOptions) -> Result<()> {
    if !file.is_block_device() {
        return Ok(());
    }
    if file.len_bytes() < options.size_bytes {
        let place = format!(
            "the device {} has {} bytes, fewer than the requested {}",
            options.path.display(),
            file.len_bytes(),
            options.size_bytes
        );
        return Err(Error::new(ErrorKind::Invalid, place));
    }
    file.shorten_to(options.size_bytes);
    Ok(())
}

fn holds_other(path: &Path, what: &str) -> Error {
    let place = format!("{} contains {what}; it was not changed", path.display());
    Error::new(ErrorKind::Invalid, place)
}

/// Opens the store on `device`. Creates one if both places for superblocks contain only zeros.
pub(super) fn open_device(device: Arc<dyn Device>, options: &StoreOptions) -> Result<Volume> {
    let options = StoreOptions { size_bytes: device.len_bytes(), ..options.clone() };
    if options.policy.layout.keeps_files() {
        let place = format!("policy {} keeps entries in files and needs a directory", options.policy);
        return Err(Error::new(ErrorKind::Invalid, place));
    }
    let shape = check(&options)?;
    open_shaped(device, &options, shape)
}

fn open_shaped(device: Arc<dyn Device>, options: &StoreOptions, mut shape: VolumeShape) -> Result<Volume> {
    shape.size_bytes = device.len_bytes();
    let (superblock, is_new) = match read_superblock(&device) {
        Ok(superblock) if superblock.shape.size_bytes == device.len_bytes() => (superblock, false),
        Ok(_) => return Err(Error::new(ErrorKind::Invalid, "the store on this device is of another size")),
        Err(ReadRefusal::Format(SuperblockRefusal::Foreign)) if is_blank(&device)? => {
            (format(&device, shape, options.identity_seed)?, true)
        }
        Err(refusal) => return Err(refused(refusal, Path::new(device.name()))),
    };
    let policy = check_row(&superblock, options)?;
    Ok(Volume::new(device, superblock, policy, options).made_now(is_new))
}

/// Returns the policy of an existing store.
///
/// # Errors
/// `Invalid` if it is not the policy that the options request.
fn check_row(superblock: &Superblock, options: &StoreOptions) -> Result<&'static Policy> {
    let asked = options.policy;
    let place = match Policy::of_code(superblock.shape.row) {
        Some(found) if found == asked => return Ok(found),
        Some(found) => format!("the store has policy {found}, not {asked}"),
        None => format!("the store has a policy unknown to this version, number {}", superblock.shape.row),
    };
    Err(Error::new(ErrorKind::Invalid, place))
}

/// Checks the options, and returns the layout that the policy derives from them.
///
/// # Errors
/// `Invalid` names the first invalid option.
pub(super) fn check(options: &StoreOptions) -> Result<VolumeShape> {
    let invalid = |place: String| Err(Error::new(ErrorKind::Invalid, place));
    let StoreOptions { size_bytes, mean_entry_bytes: mean, .. } = *options;
    let least = options.policy.mean_entry_bytes_min();
    if !(least..=MEAN_ENTRY_BYTES_MAX).contains(&mean) {
        return invalid(format!("mean entry size must be from {least} bytes to 1 MiB: {mean}"));
    }
    if size_bytes > SIZE_BYTES_MAX {
        return invalid(format!("store size must be at most 16 TiB: {size_bytes}"));
    }
    options.tuning.check()?;
    shape_of(options)
}

pub(super) enum ReadRefusal {
    Format(SuperblockRefusal),
    Io(io::Error),
}

/// Returns the volume of an existing store on `device`.
pub(super) fn existing(device: Arc<dyn Device>, options: &StoreOptions) -> Result<Volume> {
    let superblock = read_superblock(&device).map_err(|refusal| refused(refusal, &options.path))?;
    let policy = check_row(&superblock, options)?;
    let volume = Volume::new(device, superblock, policy, options);
    if !policy.layout.keeps_files() {
        return Ok(volume);
    }
    let directory = FilesDirectory::open(&options.path, FilesDirectory::THREAD_COUNT_DEFAULT)?;
    Ok(volume.with_directory(Arc::new(directory), options))
}

/// Returns the superblock at the start of `file`, or `None` if it is unreadable or damaged.
pub(super) fn first_superblock(file: &VolumeFile) -> Option<Superblock> {
    let mut block = AlignedBuffer::with_len(SUPERBLOCK_BYTES as usize);
    file.read_exact_at(&mut block, 0).ok()?;
    Superblock::decode(block.as_slice()).ok()
}

/// Returns the offsets of damaged copies of the superblock.
pub(super) fn damaged_superblocks(device: &Arc<dyn Device>) -> Vec<u64> {
    let mut places = superblock_offsets(device.len_bytes()).to_vec();
    places.retain(|offset_bytes| {
        let read = block_on(device.read(*offset_bytes, SUPERBLOCK_BYTES as usize));
        !read.is_ok_and(|block| Superblock::decode(block.as_slice()).is_ok())
    });
    places
}

/// Number of attempts to read a copy of the superblock while it is damaged or unreadable.
const COPY_READ_COUNT: u32 = 3;

/// Reads the copy of the superblock at `offset_bytes`. Retries if it is damaged or unreadable, because the other copy
/// may be older: opening with that one would undo the last invalidation.
fn read_copy(device: &Arc<dyn Device>, offset_bytes: u64) -> std::result::Result<Superblock, ReadRefusal> {
    let read = || {
        let block = block_on(device.read(offset_bytes, SUPERBLOCK_BYTES as usize)).map_err(ReadRefusal::Io)?;
        Superblock::decode(block.as_slice()).map_err(ReadRefusal::Format)
    };
    let mut outcome = read();
    for _ in 1..COPY_READ_COUNT {
        if outcome.is_err() {
            outcome = read();
        }
    }
    outcome
}

/// Reads both copies of the superblock, and returns the newer of the valid ones.
pub(super) fn read_superblock(device: &Arc<dyn Device>) -> std::result::Result<Superblock, ReadRefusal> {
    if device.len_bytes() < 2 * SUPERBLOCK_BYTES {
        return Err(ReadRefusal::Format(SuperblockRefusal::Foreign));
    }
    let mut best: Option<Superblock> = None;
    let mut refusal = SuperblockRefusal::Foreign;
    let mut error = None;
    for offset_bytes in superblock_offsets(device.len_bytes()) {
        match read_copy(device, offset_bytes) {
            Ok(found) if best.as_ref().is_none_or(|best| found.generation > best.generation) => best = Some(found),
            Ok(_) | Err(ReadRefusal::Format(SuperblockRefusal::Foreign)) => {}
            Err(ReadRefusal::Format(other)) => refusal = other,
            Err(ReadRefusal::Io(source)) => error = Some(source),
        }
    }
    match (best, error) {
        (Some(best), _) => Ok(best),
        (None, Some(source)) => Err(ReadRefusal::Io(source)),
        (None, None) => Err(ReadRefusal::Format(refusal)),
    }
}

pub(super) fn refused(refusal: ReadRefusal, path: &Path) -> Error {
    let path = path.display();
    match refusal {
        ReadRefusal::Io(source) => {
            Error::io(ErrorKind::Unavailable, format!("cannot read the superblock of {path}"), source)
        }
        ReadRefusal::Format(SuperblockRefusal::Foreign) => {
            Error::new(ErrorKind::Invalid, format!("{path} is not a larder store; it was not changed"))
        }
        ReadRefusal::Format(SuperblockRefusal::Version(version)) => Error::new(
            ErrorKind::Invalid,
            format!("{path} has store format {version}, but this version reads format {FORMAT_VERSION}"),
        ),
        ReadRefusal::Format(SuperblockRefusal::Damaged) => {
            Error::new(ErrorKind::Corrupt, format!("both superblocks of {path} are damaged; they were not changed"))
        }
    }
}

/// Writes both superblocks of a new volume.
fn format(device: &Arc<dyn Device>, shape: VolumeShape, identity_seed: Option<u64>) -> Result<Superblock> {
    let mut id = [0; 16];
    let mut hash_key = [0; 16];
    let mut random = identity_seed.map(SplitMix64::new);
    for secret in [&mut id, &mut hash_key] {
        match &mut random {
            Some(random) => {
                secret.as_chunks_mut().0.iter_mut().for_each(|word| *word = random.next_u64().to_le_bytes())
            }
            None => getrandom::fill(secret).map_err(|error| {
                Error::io(
                    ErrorKind::Unavailable,
                    "cannot get random bytes from the system",
                    io::Error::other(error.to_string()),
                )
            })?,
        }
    }
    let superblock = Superblock {
        id: VolumeId(id),
        hash_key,
        shape,
        generation: 1,
        epochs: RuleEpochs::default(),
        membership: VolumeMembership::default(),
        prepared: VolumeMembership::default(),
        is_doubtful: false,
        sequence_floor: 0,
        label: 0,
        written: WrittenSequences::default(),
    };
    let written = block_on(superblock_keeper::write(device, &superblock));
    written.map_err(|source| Error::io(ErrorKind::Unavailable, "cannot write the new store's superblock", source))?;
    Ok(superblock)
}

fn is_blank(device: &Arc<dyn Device>) -> Result<bool> {
    for offset_bytes in superblock_offsets(device.len_bytes()) {
        let block = block_on(device.read(offset_bytes, SUPERBLOCK_BYTES as usize))
            .map_err(|source| Error::io(ErrorKind::Unavailable, "cannot read the device", source))?;
        if block.as_slice().iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}
