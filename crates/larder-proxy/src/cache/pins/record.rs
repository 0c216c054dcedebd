//! The record of pinned keys: a file with one line per key.
//!
//! Owns: the line format. Whether a key is still pinned is decided elsewhere. Invariants: an incomplete last line is
//! ignored and never appended to. If a sync fails, the system may have dropped what was written since the last good
//! one, and later syncs succeed nevertheless: the lines since then are written again, to another file. Without a path,
//! nothing is recorded.
//!
//! Cost: one line of the key's length per key, in memory until the next sync. The file is rewritten once it has grown
//! to four times its size after the last rewrite.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write},
    mem,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use crate::state_file::{create, new_path};

/// The record of pinned keys.
pub(super) struct PinRecord {
    path: Option<PathBuf>,
    /// The file, open for appending. `None` before the first line is appended, and without a path.
    file: Option<File>,
    len_bytes: u64,
    /// Length of the file when it was last rewritten.
    tidy_bytes: u64,
    is_unsynced: bool,
    /// Length of the part of the file that is durable, and the lines after it.
    durable_bytes: u64,
    unsynced: Vec<u8>,
    /// Whether a sync has failed since the last good one.
    may_have_lost: bool,
    has_failed: bool,
    /// Why a line could not be written or synced, since this was last taken.
    error: Option<String>,
}

/// A line of the record.
pub(super) struct PinLine {
    pub(super) key: Vec<u8>,
    /// Length of the entry's head and body.
    pub(super) len_bytes: u64,
}

/// A rewritten record that has not replaced the old one yet.
pub(super) struct RewrittenRecord {
    path: PathBuf,
    /// Length of the part of the old record that it replaces.
    read_bytes: u64,
}

impl PinRecord {
    pub(super) fn open(path: Option<PathBuf>) -> Self {
        let len_bytes = path.as_deref().and_then(|path| fs::metadata(path).ok()).map_or(0, |data| data.len());
        Self::of(path, len_bytes, len_bytes)
    }

    fn of(path: Option<PathBuf>, len_bytes: u64, tidy_bytes: u64) -> Self {
        Self {
            path,
            file: None,
            len_bytes,
            tidy_bytes,
            is_unsynced: false,
            durable_bytes: len_bytes,
            unsynced: Vec::new(),
            may_have_lost: false,
            has_failed: false,
            error: None,
        }
    }

    /// Returns whether the record has a path.
    pub(super) fn has_place(&self) -> bool {
        self.path.is_some()
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Returns a copy that reads the current content.
    pub(super) fn snapshot(&self) -> Self {
        Self::of(self.path.clone(), self.len_bytes, self.tidy_bytes)
    }

    /// Calls `tell` with every line, oldest first. The last line of a key counts.
    pub(super) fn each(&self, tell: &mut dyn FnMut(&PinLine)) {
        self.each_from(0, tell);
    }

    fn each_from(&self, start_bytes: u64, tell: &mut dyn FnMut(&PinLine)) {
        let Some(path) = &self.path else { return };
        let mut read = || -> io::Result<()> {
            let mut file = match File::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                opened => opened?,
            };
            file.seek(SeekFrom::Start(start_bytes))?;
            let mut reader = BufReader::new(file.take(self.len_bytes.saturating_sub(start_bytes)));
            let mut line = Vec::new();
            loop {
                line.clear();
                if (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
                    return Ok(());
                }
                if let Some(line) = line.strip_suffix(b"\n").and_then(parse) {
                    tell(&line);
                }
            }
        };
        if let Err(error) = read() {
            tracing::warn!(%error, path = %path.display(), "the record of pins cannot be read: some pins are lost");
        }
    }

    /// Adds a line.
    pub(super) fn append(&mut self, key: &[u8], len_bytes: u64) {
        let Some(path) = self.path.clone() else { return };
        let line = show(key, len_bytes);
        let written = self.file(&path).and_then(|mut file| file.write_all(&line));
        match written {
            Ok(()) => {
                self.len_bytes += line.len() as u64;
                self.unsynced.extend_from_slice(&line);
                self.is_unsynced = true;
                if self.unsynced.len() >= UNSYNCED_BYTES_MAX {
                    self.make_durable();
                }
            }
            Err(error) => {
                // Opened again, so that an incomplete line is cut off.
                self.file = None;
                if !mem::replace(&mut self.has_failed, true) {
                    tracing::warn!(%error, path = %path.display(), "a pin cannot be recorded: it lasts until the next start");
                }
                self.error = Some(format!("{error}: {}", path.display()));
            }
        }
    }

    /// Returns why a line could not be written or synced, since this was last called.
    pub(super) fn take_error(&mut self) -> Option<String> {
        self.error.take()
    }

    /// Removes the lines appended after `len_bytes`, except those for which `stays` returns `true`.
    pub(super) fn truncate(&mut self, len_bytes: u64, stays: &mut dyn FnMut(&PinLine) -> bool) {
        let mut kept = Vec::new();
        self.each_from(len_bytes, &mut |line| {
            if stays(line) {
                kept.extend_from_slice(&show(&line.key, line.len_bytes));
            }
        });
        let Some(path) = self.path.clone() else { return };
        let cut = |file: &File| file.set_len(len_bytes);
        let truncated = self.file(&path).and_then(|mut file| cut(file).and_then(|()| file.write_all(&kept)));
        if let Err(error) = truncated {
            tracing::warn!(%error, path = %path.display(), "the incomplete end of the record of pins cannot be removed");
        }
        self.len_bytes = fs::metadata(&path).map_or(len_bytes, |data| data.len());
        // The rest of the old lines may still be on the disk, so what is kept is written again if the sync fails.
        let unsynced_bytes = len_bytes.saturating_sub(self.durable_bytes);
        self.unsynced.truncate(usize::try_from(unsynced_bytes).unwrap_or(usize::MAX));
        self.unsynced.extend_from_slice(&kept);
        self.durable_bytes = self.durable_bytes.min(len_bytes);
        self.is_unsynced = true;
    }

    /// Makes the appended lines durable. Returns whether the record has grown enough to be rewritten.
    pub(super) fn sync(&mut self) -> bool {
        if self.is_unsynced {
            self.make_durable();
        }
        self.len_bytes > GROWN_BYTES_MIN.max(4 * self.tidy_bytes)
    }

    fn make_durable(&mut self) {
        let synced = self.file.as_ref().map_or(Ok(()), File::sync_data);
        self.may_have_lost |= synced.is_err();
        let outcome = if self.may_have_lost { self.write_again() } else { Ok(()) };
        match outcome {
            Ok(()) => {
                self.durable_bytes = self.len_bytes;
                self.unsynced.clear();
                self.is_unsynced = false;
                self.may_have_lost = false;
            }
            Err(error) => {
                tracing::warn!(%error, "the record of pins cannot be synced: a power loss may cost some pins");
                self.error = Some(error.to_string());
            }
        }
    }

    /// Writes the lines since the last good sync again, after those before it, to a file that replaces the record.
    fn write_again(&mut self) -> io::Result<()> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        let new = new_path(&path);
        let mut file = create(&new)?;
        io::copy(&mut File::open(&path)?.take(self.durable_bytes), &mut file)?;
        file.write_all(&self.unsynced)?;
        file.sync_data()?;
        fs::rename(&new, &path)?;
        let file = OpenOptions::new().read(true).append(true).open(&path)?;
        self.len_bytes = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    /// Rewrites the record with each key once, keeping the lines for which `stays` returns `true`. Returns `None` if
    /// that fails or is cancelled.
    pub(super) fn rewrite(
        &self,
        stays: &dyn Fn(&PinLine) -> bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Option<RewrittenRecord> {
        let path = new_path(self.path.as_ref()?);
        let mut last_len = HashMap::new();
        self.each(&mut |line| _ = last_len.insert(fingerprint(&line.key), line.len_bytes));
        let mut write = || -> io::Result<()> {
            let mut file = BufWriter::new(create(&path)?);
            let mut outcome = Ok(());
            self.each(&mut |line| {
                if !goes_on() || outcome.is_err() {
                    return;
                }
                if let Some(len_bytes) = last_len.remove(&fingerprint(&line.key))
                    && stays(line)
                {
                    outcome = file.write_all(&show(&line.key, len_bytes));
                }
            });
            outcome?;
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()
        };
        match write() {
            Ok(()) if goes_on() => Some(RewrittenRecord { path, read_bytes: self.len_bytes }),
            Ok(()) => None,
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "the record of pins cannot be rewritten");
                None
            }
        }
    }

    /// Puts the rewritten record in place, with the lines that were appended in the meantime.
    pub(super) fn replace(&mut self, rewritten: RewrittenRecord) {
        let Some(path) = self.path.clone() else { return };
        let swap = || -> io::Result<File> {
            let mut new = OpenOptions::new().append(true).open(&rewritten.path)?;
            if let Ok(mut old) = File::open(&path) {
                old.seek(SeekFrom::Start(rewritten.read_bytes))?;
                io::copy(&mut old, &mut new)?;
            }
            new.sync_data()?;
            fs::rename(&rewritten.path, &path)?;
            Ok(new)
        };
        match swap() {
            Ok(file) => {
                self.len_bytes = file.metadata().map_or(0, |data| data.len());
                (self.tidy_bytes, self.file) = (self.len_bytes, Some(file));
                self.durable_bytes = self.len_bytes;
                self.unsynced.clear();
                self.is_unsynced = false;
                self.may_have_lost = false;
            }
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "the record of pins cannot be replaced")
            }
        }
    }

    /// Opens the file for appending, and cuts off an incomplete last line.
    fn file(&mut self, path: &Path) -> io::Result<&File> {
        if self.file.is_none() {
            let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
            let len_bytes = file.metadata()?.len();
            let tail_start = len_bytes.saturating_sub(LINE_BYTES_MAX);
            file.seek(SeekFrom::Start(tail_start))?;
            let mut tail = Vec::new();
            file.read_to_end(&mut tail)?;
            let whole = tail.iter().rposition(|octet| *octet == b'\n').map_or(0, |at| at + 1);
            file.set_len(tail_start + whole as u64)?;
            self.len_bytes = file.metadata()?.len();
            self.file = Some(file);
        }
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Formats a line: the length, a space, and the key, in which non-graphic octets are percent-encoded.
fn show(key: &[u8], len_bytes: u64) -> Vec<u8> {
    let mut line = format!("{len_bytes} ").into_bytes();
    for &octet in key {
        match octet {
            b'%' | ..=b' ' | 0x7f.. => line.extend_from_slice(format!("%{octet:02X}").as_bytes()),
            _ => line.push(octet),
        }
    }
    line.push(b'\n');
    line
}

fn parse(line: &[u8]) -> Option<PinLine> {
    let space = line.iter().position(|octet| *octet == b' ')?;
    let len_bytes = std::str::from_utf8(&line[..space]).ok()?.parse().ok()?;
    let mut key = Vec::new();
    let mut rest = &line[space + 1..];
    while let Some((&octet, after)) = rest.split_first() {
        rest = after;
        if octet == b'%' {
            let (digits, after) = rest.split_at_checked(2)?;
            key.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = after;
        } else {
            key.push(octet);
        }
    }
    Some(PinLine { key, len_bytes })
}

/// A key has at most 16 KiB, and each octet takes up to three characters.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Lines that are kept in memory at most until they are synced.
const UNSYNCED_BYTES_MAX: usize = 1 << 20;
/// A record shorter than this is not rewritten because of growth.
const GROWN_BYTES_MIN: u64 = 1 << 20;

/// Returns a 64-bit fingerprint of a key.
pub(crate) fn fingerprint(key: &[u8]) -> u64 {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(record: &PinRecord) -> Vec<(Vec<u8>, u64)> {
        let mut keys = Vec::new();
        record.each(&mut |line| keys.push((line.key.clone(), line.len_bytes)));
        keys
    }

    #[test]
    fn keys_of_any_octets_are_on_record_after_a_restart_and_a_cut_off_line_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pinned");
        let every_octet: Vec<u8> = (0..=255).collect();
        let mut record = PinRecord::open(Some(path.clone()));
        record.append(b"Phttp://a.example/%41", 7);
        record.append(&every_octet, 8);
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"9 Phttp://cut").unwrap();
        let mut record = PinRecord::open(Some(path.clone()));
        assert_eq!(keys(&record), [(b"Phttp://a.example/%41".to_vec(), 7), (every_octet.clone(), 8)]);
        record.append(b"Pnext", 10);
        let expected = [(b"Phttp://a.example/%41".to_vec(), 7), (every_octet, 8), (b"Pnext".to_vec(), 10)];
        assert_eq!(keys(&PinRecord::open(Some(path.clone()))), expected);
        for text in ["", "x", "12", "x y", "-1 y", "1 %4", "1 %zz"] {
            assert!(parse(text.as_bytes()).is_none_or(|line| text == "12 " && line.key.is_empty()), "{text}");
        }
    }

    #[test]
    fn it_is_cut_and_written_anew_without_losing_what_is_added_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pinned");
        let mut record = PinRecord::open(Some(path.clone()));
        record.append(b"a", 1);
        let before = record.len_bytes();
        (0..3).for_each(|number| record.append(&[b'b', number], 2));
        record.truncate(before, &mut |line| line.key == [b'b', 1]);
        assert_eq!(keys(&record), [(b"a".to_vec(), 1), (vec![b'b', 1], 2)]);
        record.append(b"a", 3);
        let snapshot = record.snapshot();
        record.append(b"c", 4);
        let rewritten = snapshot.rewrite(&|line| line.key == b"a", &|| true).unwrap();
        record.append(b"d", 5);
        record.replace(rewritten);
        record.append(b"e", 6);
        let expected = [(b"a".to_vec(), 3), (b"c".to_vec(), 4), (b"d".to_vec(), 5), (b"e".to_vec(), 6)];
        assert_eq!(keys(&record), expected);
        assert_eq!(keys(&PinRecord::open(Some(path))), expected);
        assert!(!record.sync() && record.snapshot().rewrite(&|_| true, &|| false).is_none());
    }
    /// At stake: pins that were recorded after the last good sync, which no later sync brings back.
    #[test]
    fn lines_that_a_failed_sync_lost_are_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pinned");
        let mut record = PinRecord::open(Some(path.clone()));
        record.append(b"a", 1);
        record.sync();
        let durable_bytes = record.len_bytes();
        record.append(b"b", 2);
        record.append(b"c", 3);
        // The sync of this file fails, and the lines are gone.
        record.file = Some(File::open("/dev/null").unwrap());
        OpenOptions::new().write(true).open(&path).unwrap().set_len(durable_bytes).unwrap();
        record.sync();
        assert_eq!(record.take_error(), None, "they are durable now");
        record.append(b"d", 4);
        record.sync();
        let expected = [(b"a".to_vec(), 1), (b"b".to_vec(), 2), (b"c".to_vec(), 3), (b"d".to_vec(), 4)];
        assert_eq!(keys(&record), expected);
        assert_eq!(keys(&PinRecord::open(Some(path))), expected);
    }
}
