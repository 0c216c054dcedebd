//! The measured place: a scratch file in a directory, or a block device without content.
//!
//! Owns: creating, filling and removing it. Measuring is elsewhere. Invariant: an existing file is not changed. A block
//! device is used only if it is blank, and its ends are blank again afterwards. The place is filled with incompressible
//! bytes without zeros, because thin and compressing storage returns zeros without reading.

use super::DeviceError;
use crate::undo::Undo;
use larder_device::{AlignedBuffer, Completion, Device, Transfer, VolumeFile, open_device};
use larder_store::{IoChoice, PathContent, inspect};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
};

const FILL_BYTES: u64 = 1 << 20;
const FILL_DEPTH: usize = 8;
const FILE_NAME: &str = "larder-bench.scratch";

/// A scratch file or a blank block device, filled with data, on which operations are measured.
pub(super) struct ScratchSpace {
    pub(super) device: Arc<dyn Device>,
    pub(super) is_direct: bool,
    /// The directory for measurements of files. `None` for a block device, which has no file system.
    pub(super) directory: Option<PathBuf>,
    _undo: Undo,
}

impl ScratchSpace {
    /// Creates a scratch file, or opens a blank block device, and fills `span_bytes` of it.
    pub(super) fn open(path: &Path, span_bytes: u64, io: IoChoice) -> Result<Self, DeviceError> {
        let (file, made, directory) = match inspect(path) {
            Ok(PathContent::Blank(_)) => {
                let mut file = VolumeFile::open(path).map_err(|error| DeviceError::of("cannot open", path, error))?;
                file.shorten_to(span_bytes / FILL_BYTES * FILL_BYTES);
                (file, None, None)
            }
            Ok(PathContent::OtherDevice { what, .. }) => {
                return Err(DeviceError::new(format!("it contains {what}, so nothing is written to it"), path));
            }
            Ok(PathContent::Store(info)) if info.is_block_device => {
                return Err(DeviceError::new("it contains a larder store, so nothing is written to it", path));
            }
            _ => {
                let place = place(path)?;
                let size_bytes = span_bytes / FILL_BYTES * FILL_BYTES;
                let made = Undo::removes(place.clone());
                let file = VolumeFile::create(&place, size_bytes)
                    .map_err(|error| DeviceError::of("cannot create a scratch file", &place, error))?;
                let directory = place.parent().map(Path::to_owned);
                (file, Some(made), directory)
            }
        };
        let is_direct = file.is_direct();
        let device = open_device(file, io).map_err(|error| DeviceError::of("cannot use", path, error))?;
        let undo = made.unwrap_or_else(|| {
            let device = Arc::clone(&device);
            let path = path.to_owned();
            Undo::by(move || blank(device, &path))
        });
        fill(&*device).map_err(|error| DeviceError::of("cannot fill", path, error))?;
        Ok(Self { device, is_direct, directory, _undo: undo })
    }
}

/// Makes a block device blank again.
///
/// First overwrites its ends through the open device, because a device cannot be opened again while a signal ends the
/// process. Then wipes it completely. If that fails, the device contains noise that nothing recognizes.
fn blank(device: Arc<dyn Device>, path: &Path) {
    let mut buffer = AlignedBuffer::with_len(FILL_BYTES as usize);
    buffer.as_mut_slice().fill(0);
    let buffer = Arc::new(buffer);
    let (sender, wiped) = mpsc::channel();
    for offset_bytes in [0, device.len_bytes().saturating_sub(FILL_BYTES)] {
        let sender = sender.clone();
        let completion = Completion::callback(move |_| {
            let _ = sender.send(());
        });
        device.submit(Transfer::Write { offset_bytes, buffer: Arc::clone(&buffer), completion });
    }
    drop(sender);
    // The loop ends when all writes have dropped their senders.
    while wiped.recv().is_ok() {}
    drop(device);
    let _ = VolumeFile::open(path).and_then(|file| file.wipe_ends());
}

/// Returns a path for the scratch file, at which nothing exists yet.
fn place(path: &Path) -> Result<PathBuf, DeviceError> {
    if path.is_dir() {
        let place = path.join(FILE_NAME);
        return if place.exists() {
            Err(DeviceError::new("a scratch file is left from another measurement; remove it", &place))
        } else {
            Ok(place)
        };
    }
    if path.exists() {
        return Err(DeviceError::new("existing files are not overwritten; give a directory", path));
    }
    Ok(path.to_owned())
}

fn fill(device: &dyn Device) -> std::io::Result<()> {
    let mut buffer = AlignedBuffer::with_len(FILL_BYTES as usize);
    noise(buffer.as_mut_slice());
    let buffer = Arc::new(buffer);
    let offsets: Vec<u64> = (0..device.len_bytes() / FILL_BYTES).map(|number| number * FILL_BYTES).collect();
    for batch in offsets.chunks(FILL_DEPTH) {
        let (sender, written) = mpsc::channel();
        for &offset_bytes in batch {
            let sender = sender.clone();
            let completion = Completion::callback(move |outcome| drop(sender.send(outcome)));
            let buffer = Arc::clone(&buffer);
            device.submit(Transfer::Write { offset_bytes, buffer, completion });
        }
        drop(sender);
        written.iter().collect::<Result<(), _>>()?;
    }
    Ok(())
}

/// Fills `bytes` with pseudo-random data that storage cannot compress.
pub(super) fn noise(bytes: &mut [u8]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for word in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
}
