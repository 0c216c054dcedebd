//! Reads and writes the file of the totals that are kept across restarts.
//!
//! Owns: its format, which is JSON with a version. Invariant: the returned totals are complete and within their limits.

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
};

use larder_device::replace_file;
use serde::{Deserialize, Serialize};

use super::{KeptHistory, TimeSeries};

#[derive(Serialize, Deserialize)]
struct WrittenHistory<K> {
    version: u32,
    figures: K,
}

/// Reads the totals from a file.
///
/// # Errors
/// The system's error, or `InvalidData` if the file has another format.
pub(super) fn read(path: &Path) -> io::Result<KeptHistory> {
    let mut text = Vec::new();
    fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let written: WrittenHistory<KeptHistory> =
        serde_json::from_slice(&text).map_err(|error| wrong(&error.to_string()))?;
    if written.version != VERSION {
        return Err(wrong("it is of another version"));
    }
    let KeptHistory { minutes, quarters, days, .. } = &written.figures;
    let is_like = |series: &TimeSeries, whole: TimeSeries| series.is_like(&whole);
    if !is_like(minutes, TimeSeries::minutes()) || !is_like(quarters, TimeSeries::quarters()) {
        return Err(wrong("its series are too long or too short"));
    }
    if !days.is_valid() {
        return Err(wrong("its days are in disorder or too many"));
    }
    Ok(written.figures)
}

/// Writes the totals to a file.
///
/// # Errors
/// The system's error.
pub(super) fn write(path: &Path, kept: &KeptHistory) -> io::Result<()> {
    let text = serde_json::to_vec(&WrittenHistory { version: VERSION, figures: kept })?;
    replace_file(path, &text)
}

const VERSION: u32 = 1;
/// Maximum length of a file that is read, in bytes. A valid one has at most 50 KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;
