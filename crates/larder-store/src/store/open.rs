//! Opening: from a path or a device to a superblock that can be trusted, and back when it changes.
//!
//! Invariant: nothing of an existing file is written before its superblock was accepted. A new file
//! gets its name only when it is whole.

use super::{Engine, Invalidation, keeper::block_on};
use crate::{
    Error, ErrorKind, Result, StoreOptions,
    device::{AlignedBuffer, Completion, Device, Unfinished, VolumeFile, open_device as device_of},
    format::{
        VolumeId,
        superblock::{Epochs, FORMAT_VERSION, Refusal, Superblock},
    },
    units::{Geometry, SECTOR_BYTES, SUPERBLOCK_BYTES, last_superblock_bytes},
};
use std::{
    io,
    path::Path,
    sync::{Arc, PoisonError},
    thread,
};

const SIZE_BYTES_MAX: u64 = 16 << 40;
const SEGMENT_BYTES_MIN: u64 = 256 << 10;
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
const MEAN_ENTRY_BYTES_MIN: u64 = SECTOR_BYTES;
const MEAN_ENTRY_BYTES_MAX: u64 = 1 << 20;

/// Opens or creates the file of `options`.
pub(super) fn open_file(options: &StoreOptions) -> Result<(Arc<dyn Device>, Superblock)> {
    let geometry = check(options)?;
    if options.path.exists() {
        let file = VolumeFile::open(&options.path)?;
        let device = device_of(file, options.io)?;
        let superblock = read_superblock(&device).map_err(|refusal| refused(refusal, &options.path))?;
        if superblock.geometry.size_bytes != options.size_bytes || device.len_bytes() != options.size_bytes {
            let place = format!(
                "{} is a store of {} bytes, but {} were asked for",
                options.path.display(),
                superblock.geometry.size_bytes,
                options.size_bytes
            );
            return Err(Error::new(ErrorKind::Invalid, place));
        }
        return Ok((device, superblock));
    }
    let (file, unfinished) = Unfinished::create(&options.path, options.size_bytes)?;
    let device = device_of(file, options.io)?;
    let superblock = format(&device, geometry)?;
    unfinished.finish()?;
    Ok((device, superblock))
}

/// Reads the superblock of `device`, or formats it where both superblocks are still zero.
pub(super) fn open_device(device: &Arc<dyn Device>, options: &StoreOptions) -> Result<Superblock> {
    let options = StoreOptions { size_bytes: device.len_bytes(), ..options.clone() };
    let geometry = check(&options)?;
    match read_superblock(device) {
        Ok(superblock) if superblock.geometry.size_bytes == device.len_bytes() => Ok(superblock),
        Ok(_) => Err(Error::new(ErrorKind::Invalid, "the store on this device is of another size")),
        Err(ReadRefusal::Format(Refusal::Foreign)) if is_blank(device)? => format(device, geometry),
        Err(refusal) => Err(refused(refusal, Path::new(device.name()))),
    }
}

/// Applies an invalidation: durable first, then in memory, so that no entry written before it can
/// carry the new epoch. Blocks a thread of its own; this is rare.
pub(super) async fn invalidate(engine: &Arc<Engine>, which: Invalidation) -> Result<()> {
    let (completion, pending) = Completion::pair();
    let engine = Arc::clone(engine);
    let work = move || completion.complete(invalidate_blocking(&engine, which));
    let spawned = thread::Builder::new().name("larder-invalidate".into()).spawn(work);
    let outcome = match spawned {
        Ok(_) => pending.await,
        Err(source) => Err(source),
    };
    outcome.map_err(|source| Error::io(ErrorKind::Unavailable, "cannot write the store's superblock", source))
}

fn invalidate_blocking(engine: &Engine, which: Invalidation) -> io::Result<()> {
    // Only one invalidation at a time; readers wait for none of this.
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut superblock = engine.superblock.read().unwrap_or_else(PoisonError::into_inner).clone();
    superblock.generation += 1;
    match which {
        Invalidation::All => superblock.epochs.invalidate_all(),
        Invalidation::Site(site) => superblock.epochs.invalidate_site(site),
    }
    write_superblock(&engine.device, &superblock)?;
    *engine.superblock.write().unwrap_or_else(PoisonError::into_inner) = superblock;
    Ok(())
}

fn check(options: &StoreOptions) -> Result<Geometry> {
    let invalid = |place: String| Err(Error::new(ErrorKind::Invalid, place));
    let StoreOptions { size_bytes, segment_size_bytes: segment, mean_entry_size_bytes: mean, .. } = *options;
    if !segment.is_power_of_two() || !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment) {
        return invalid(format!("segment size is not a power of two from 256 KiB to 64 MiB: {segment}"));
    }
    if !(MEAN_ENTRY_BYTES_MIN..=MEAN_ENTRY_BYTES_MAX).contains(&mean) {
        return invalid(format!("mean entry size is not from 512 bytes to 1 MiB: {mean}"));
    }
    if size_bytes > SIZE_BYTES_MAX {
        return invalid(format!("store size is over 16 TiB: {size_bytes}"));
    }
    match Geometry::new(size_bytes, segment) {
        Some(geometry) => Ok(geometry),
        None => invalid(format!("store size has no room for eight segments of {segment} bytes: {size_bytes}")),
    }
}

enum ReadRefusal {
    Format(Refusal),
    Io(io::Error),
}

/// The newer of the two copies that are whole.
fn read_superblock(device: &Arc<dyn Device>) -> std::result::Result<Superblock, ReadRefusal> {
    if device.len_bytes() < 2 * SUPERBLOCK_BYTES {
        return Err(ReadRefusal::Format(Refusal::Foreign));
    }
    let mut best: Option<Superblock> = None;
    let mut refusal = Refusal::Foreign;
    let mut error = None;
    for offset_bytes in [0, last_superblock_bytes(device.len_bytes())] {
        match block_on(device.read(offset_bytes, SUPERBLOCK_BYTES as usize)) {
            Err(source) => error = Some(source),
            Ok(block) => match Superblock::decode(block.as_slice()) {
                Ok(found) if best.as_ref().is_none_or(|best| found.generation > best.generation) => best = Some(found),
                Ok(_) => {}
                Err(Refusal::Foreign) => {}
                Err(other) => refusal = other,
            },
        }
    }
    match (best, error) {
        (Some(best), _) => Ok(best),
        (None, Some(source)) => Err(ReadRefusal::Io(source)),
        (None, None) => Err(ReadRefusal::Format(refusal)),
    }
}

fn refused(refusal: ReadRefusal, path: &Path) -> Error {
    let path = path.display();
    match refusal {
        ReadRefusal::Io(source) => {
            Error::io(ErrorKind::Unavailable, format!("cannot read the superblock of {path}"), source)
        }
        ReadRefusal::Format(Refusal::Foreign) => {
            Error::new(ErrorKind::Invalid, format!("{path} is not a larder store, and is left as it is"))
        }
        ReadRefusal::Format(Refusal::Version(version)) => Error::new(
            ErrorKind::Invalid,
            format!("{path} has store format {version}, but this larder reads format {FORMAT_VERSION}"),
        ),
        ReadRefusal::Format(Refusal::Damaged) => {
            Error::new(ErrorKind::Corrupt, format!("both superblocks of {path} are damaged, and are left as they are"))
        }
    }
}

/// Writes the superblocks of a new volume.
fn format(device: &Arc<dyn Device>, geometry: Geometry) -> Result<Superblock> {
    let (mut id, mut hash_key) = ([0; 16], [0; 16]);
    for secret in [&mut id, &mut hash_key] {
        getrandom::fill(secret).map_err(|error| {
            Error::io(ErrorKind::Unavailable, "cannot draw random bytes", io::Error::other(error.to_string()))
        })?;
    }
    let superblock = Superblock { id: VolumeId(id), hash_key, geometry, generation: 1, epochs: Epochs::default() };
    let written = write_superblock(device, &superblock);
    written.map_err(|source| Error::io(ErrorKind::Unavailable, "cannot write the new store's superblock", source))?;
    Ok(superblock)
}

/// One copy after the other, so that one of them is always whole.
fn write_superblock(device: &Arc<dyn Device>, superblock: &Superblock) -> io::Result<()> {
    let mut block = AlignedBuffer::with_len(SUPERBLOCK_BYTES as usize);
    superblock.encode(block.as_mut_slice());
    let block = Arc::new(block);
    for offset_bytes in [0, superblock.geometry.last_superblock_bytes()] {
        block_on(device.write(offset_bytes, Arc::clone(&block)))?;
        block_on(device.sync())?;
    }
    Ok(())
}

fn is_blank(device: &Arc<dyn Device>) -> Result<bool> {
    for offset_bytes in [0, last_superblock_bytes(device.len_bytes())] {
        let block = block_on(device.read(offset_bytes, SUPERBLOCK_BYTES as usize))
            .map_err(|source| Error::io(ErrorKind::Unavailable, "cannot read the device", source))?;
        if block.as_slice().iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}
