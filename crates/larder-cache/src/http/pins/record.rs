//! The record of pinned keys: a file with one line per key.
//!
//! Owns: the line format. Whether a key is still pinned is decided elsewhere. Without a path, nothing is recorded.
//!
//! Cost: one line of the key's length per key. The file is rewritten once it has grown to four times its size after the
//! last rewrite.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead as _, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _},
    mem,
    path::{Path, PathBuf},
};

use larder_device::{Journal, create_own_file, whole_lines};

/// The record of pinned keys, in a file.
pub(super) struct PinRecord {
    journal: Option<Journal>,
    has_failed: bool,
    /// The last error in writing or syncing the file. `None` if there was none, or if a caller has taken it.
    error: Option<String>,
}

/// A line of the record of pinned keys.
pub(super) struct PinLine {
    pub(super) key: Vec<u8>,
    /// Length of the entry's head and body together, in bytes.
    pub(super) len_bytes: u64,
}

/// A rewritten record in a file of its own, which has not replaced the old record yet.
pub(super) struct RewrittenRecord {
    path: PathBuf,
    file: File,
    /// Length in bytes of the part of the old record that the rewritten one replaces.
    read_bytes: u64,
}

impl PinRecord {
    pub(super) fn open(path: Option<PathBuf>) -> Self {
        let journal = path.map(|path| {
            let len_bytes = whole_len_bytes(&path);
            Journal::new(path, len_bytes)
        });
        Self { journal, has_failed: false, error: None }
    }

    /// Returns whether the record has a file.
    pub(super) fn has_place(&self) -> bool {
        self.journal.is_some()
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::len_bytes)
    }

    /// Returns a copy of the record for reading what it contains now.
    pub(super) fn snapshot(&self) -> Self {
        let journal = self.journal.as_ref().map(|journal| Journal::new(journal.path().to_owned(), journal.len_bytes()));
        Self { journal, has_failed: false, error: None }
    }

    /// Appends a line for a key.
    pub(super) fn append(&mut self, key: &[u8], len_bytes: u64) {
        let Some(journal) = &mut self.journal else { return };
        if let Err(error) = journal.append(&show(key, len_bytes)) {
            let path = journal.path().display();
            if !mem::replace(&mut self.has_failed, true) {
                tracing::warn!(%error, %path, "a pin cannot be recorded: it lasts until the next start");
            }
            self.error = Some(format!("{error}: {path}"));
        }
    }

    /// Returns the last error in writing or syncing the file since the last call. `None` if there was none.
    pub(super) fn take_error(&mut self) -> Option<String> {
        self.error.take()
    }

    /// Undoes appends: removes the lines behind the first `len_bytes` of the file, except for those for which `stays`
    /// returns `true`.
    pub(super) fn truncate(&mut self, len_bytes: u64, stays: &mut dyn FnMut(&PinLine) -> bool) {
        let mut kept = Vec::new();
        self.each_from(len_bytes, &mut |line| {
            if stays(line) {
                kept.extend_from_slice(&show(&line.key, line.len_bytes));
            }
        });
        let Some(journal) = &mut self.journal else { return };
        let path = journal.path().to_owned();
        let cut = journal.replace(&mut |file| {
            copy(&path, 0..len_bytes, file)?;
            file.write_all(&kept)
        });
        if let Err(error) = cut {
            tracing::warn!(%error, path = %path.display(), "the incomplete end of the record of pins cannot be removed");
        }
    }

    /// Makes the appended lines durable. Returns whether the record has grown so much that it should be rewritten.
    pub(super) fn sync(&mut self) -> bool {
        let Some(journal) = &mut self.journal else { return false };
        if let Err(error) = journal.sync() {
            tracing::warn!(%error, "the record of pins cannot be synced: a power loss may cost some pins");
            self.error = Some(error.to_string());
        }
        journal.has_grown(GROWN_BYTES_MIN)
    }

    /// Replaces the record with a rewritten one, to which it adds the lines that were appended meanwhile.
    pub(super) fn replace(&mut self, mut rewritten: RewrittenRecord) {
        let Some(journal) = &mut self.journal else { return };
        let appended = rewritten.read_bytes..journal.len_bytes();
        let copied = copy(journal.path(), appended, &mut rewritten.file);
        if let Err(error) = copied.and_then(|()| journal.put(&rewritten.path, rewritten.file)) {
            let path = journal.path().display();
            tracing::warn!(%error, %path, "the record of pins cannot be replaced");
        }
    }

    /// Calls `tell` with every line, oldest first. If a key has several lines, the last one counts.
    pub(super) fn each(&self, tell: &mut dyn FnMut(&PinLine)) {
        self.each_from(0, tell);
    }

    fn each_from(&self, start_bytes: u64, tell: &mut dyn FnMut(&PinLine)) {
        let Some(journal) = &self.journal else { return };
        let path = journal.path();
        let mut read = || -> io::Result<()> {
            let Some(file) = open(path)? else { return Ok(()) };
            let mut reader = BufReader::new(part(file, start_bytes..journal.len_bytes())?);
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

    /// Writes a new record that has each key once, and only the lines for which `stays` returns `true`. Returns `None`
    /// if that fails or is cancelled.
    pub(super) fn rewrite(
        &self,
        stays: &dyn Fn(&PinLine) -> bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Option<RewrittenRecord> {
        // While this is written, a failed sync may write the other new file.
        let path = self.journal.as_ref()?.path().with_added_extension("tidy");
        let mut last_len = HashMap::new();
        self.each(&mut |line| _ = last_len.insert(fingerprint(&line.key), line.len_bytes));
        let mut write = || -> io::Result<File> {
            let mut writer = BufWriter::new(create_own_file(&path)?);
            let mut outcome = Ok(());
            self.each(&mut |line| {
                if !goes_on() || outcome.is_err() {
                    return;
                }
                if let Some(len_bytes) = last_len.remove(&fingerprint(&line.key))
                    && stays(line)
                {
                    outcome = writer.write_all(&show(&line.key, len_bytes));
                }
            });
            outcome?;
            let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
            // Most of it is synced before the record is locked.
            file.sync_data().map(|()| file)
        };
        match write() {
            Ok(file) => goes_on().then(|| RewrittenRecord { path, file, read_bytes: self.len_bytes() }),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "the record of pins cannot be rewritten");
                None
            }
        }
    }
}

/// Returns the length of a file without an incomplete last line, as far as the file can be read.
fn whole_len_bytes(path: &Path) -> u64 {
    let read = || -> io::Result<u64> {
        let Some(file) = open(path)? else { return Ok(0) };
        let len_bytes = file.metadata()?.len();
        let tail_start = len_bytes.saturating_sub(LINE_BYTES_MAX);
        let mut tail = Vec::new();
        part(file, tail_start..len_bytes)?.read_to_end(&mut tail)?;
        Ok(tail_start + whole_lines(&tail).len() as u64)
    };
    // An unreadable file is left as it is. Appending to it may spoil one line.
    read().unwrap_or_else(|_| path.metadata().map_or(0, |file| if file.is_file() { file.len() } else { 0 }))
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

fn part(mut file: File, octets: std::ops::Range<u64>) -> io::Result<io::Take<File>> {
    file.seek(SeekFrom::Start(octets.start))?;
    Ok(file.take(octets.end.saturating_sub(octets.start)))
}

fn copy(path: &Path, octets: std::ops::Range<u64>, to: &mut File) -> io::Result<()> {
    let Some(file) = open(path)? else { return Ok(()) };
    io::copy(&mut part(file, octets)?, to).map(drop)
}

/// Formats a line: the length, a space, and the key. Octets of the key that are not graphic are percent-encoded.
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

/// Maximum length of a line in bytes. A key has at most 16 KiB, and each octet takes up to three characters.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Size in bytes below which the record is not rewritten, however much it has grown.
const GROWN_BYTES_MIN: u64 = 1 << 20;

/// Returns a 64-bit fingerprint of a key.
pub fn fingerprint(key: &[u8]) -> u64 {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(key)
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

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
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"9 Phttp://cut").unwrap();
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
}
