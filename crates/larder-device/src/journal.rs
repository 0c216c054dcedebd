//! A file of records that grows at its end, and is replaced as a whole when it has grown too long.
//!
//! Owns: the order of writing, syncing and renaming. Records are lines, or have a fixed length: [`whole_lines`] and
//! [`whole_records`] find those of a file. What they mean is decided elsewhere.
//!
//! Invariants:
//! - What follows the last whole record was never acknowledged. It is not read, and it is cut off before anything is
//!   appended.
//! - Records are durable once [`Journal::sync`] has returned. If a sync fails, the system may have dropped what was
//!   written since the last good one, and later syncs succeed nevertheless. So these records are written again, to a
//!   new file.
//! - A reader finds the old file or the complete new one. Only the file's owner can read either.
//!
//! Cost: the records since the last good sync are in memory, at most 1 MiB and those of one call.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    mem,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// A file of records that one writer appends to.
///
/// ```
/// use larder_device::Journal;
///
/// # fn main() -> std::io::Result<()> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("journal");
/// let mut journal = Journal::new(path.clone(), 0);
/// journal.append(b"one\n")?;
/// journal.sync()?; // the record survives a power loss
/// assert_eq!(std::fs::read(&path)?, b"one\n");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// The file, open for appending. `None` before the first write, and after a write that failed.
    file: Option<File>,
    /// Length in bytes of the records that are completely written.
    len_bytes: u64,
    /// Length of the file in bytes when it was last replaced.
    replaced_bytes: u64,
    /// Length in bytes of the durable records. `unsynced` has the records after them.
    durable_bytes: u64,
    unsynced: Vec<u8>,
    /// Whether a sync has failed since the file was last replaced, so that records may be lost.
    may_have_lost: bool,
}

impl Journal {
    /// Continues the file at `path` after its first `whole_bytes`, which are complete records. Does not access the file
    /// yet.
    pub fn new(path: PathBuf, whole_bytes: u64) -> Self {
        Self {
            path,
            file: None,
            len_bytes: whole_bytes,
            replaced_bytes: whole_bytes,
            durable_bytes: whole_bytes,
            unsynced: Vec::new(),
            may_have_lost: false,
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length of the records in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Returns whether the last write has succeeded.
    pub fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Returns whether the file should be replaced by a shorter one: it is longer than `usual_bytes`, and more than
    /// four times as long as after the last replacement.
    pub fn has_grown(&self, usual_bytes: u64) -> bool {
        self.len_bytes > usual_bytes.max(4 * self.replaced_bytes)
    }

    /// Appends `records` to the file. They are not durable until [`Self::sync`].
    ///
    /// # Errors
    /// The error of the system. The records are not part of the file.
    pub fn append(&mut self, records: &[u8]) -> io::Result<()> {
        if self.unsynced.len() >= UNSYNCED_BYTES_MAX {
            self.sync()?;
        }
        let written = self.open().and_then(|mut file| file.write_all(records));
        if written.is_err() {
            // Part of a record may be in the file. It is cut off when the file is opened again.
            self.file = None;
            return written;
        }
        self.len_bytes += records.len() as u64;
        self.unsynced.extend_from_slice(records);
        Ok(())
    }

    /// Makes the appended records durable.
    ///
    /// # Errors
    /// The error of the system. Some records may not be durable. The next call writes them again.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.unsynced.is_empty() && !self.may_have_lost {
            return Ok(());
        }
        if !self.may_have_lost {
            self.may_have_lost = self.open()?.sync_data().is_err();
        }
        if self.may_have_lost {
            return self.write_again();
        }
        self.durable_bytes = self.len_bytes;
        self.unsynced.clear();
        Ok(())
    }

    /// Replaces the file by a new one with the records that `write` writes. They are durable when this returns.
    ///
    /// # Errors
    /// The error of the system or of `write`. Either the old file is still in place, or the new one may not be durable.
    pub fn replace(&mut self, write: &mut dyn FnMut(&mut File) -> io::Result<()>) -> io::Result<()> {
        let new = self.path.with_added_extension("new");
        let mut file = create_own_file(&new)?;
        write(&mut file)?;
        self.put(&new, file)
    }

    /// Replaces the file by `file`, which is at the path `new`. Its records are durable when this returns.
    ///
    /// # Errors
    /// The error of the system. Either the old file is still in place, or the new one may not be durable.
    pub fn put(&mut self, new: &Path, file: File) -> io::Result<()> {
        file.sync_data()?;
        let len_bytes = file.metadata()?.len();
        fs::rename(new, &self.path)?;
        self.len_bytes = len_bytes;
        self.replaced_bytes = self.len_bytes;
        self.durable_bytes = self.len_bytes;
        self.unsynced.clear();
        self.file = Some(file);
        // The file's name must be durable, too.
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let named = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
        self.may_have_lost = named.is_err();
        named
    }

    /// Writes the durable records, and the records since the last successful sync, to a new file, which then replaces
    /// the present one.
    fn write_again(&mut self) -> io::Result<()> {
        let replaced_bytes = self.replaced_bytes;
        let durable_bytes = self.durable_bytes;
        let path = self.path.clone();
        let unsynced = mem::take(&mut self.unsynced);
        let written = self.replace(&mut |file| {
            io::copy(&mut File::open(&path)?.take(durable_bytes), file)?;
            file.write_all(&unsynced)
        });
        self.replaced_bytes = replaced_bytes;
        if self.durable_bytes == durable_bytes {
            self.unsynced = unsynced;
        }
        written
    }

    /// Returns the open file. If it is not open, opens it, and removes anything behind the complete records.
    fn open(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            match OpenOptions::new().append(true).open(&self.path) {
                Ok(file) => {
                    file.set_len(self.len_bytes)?;
                    self.file = Some(file);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.len_bytes == 0 => {
                    self.replace(&mut |_| Ok(()))?;
                }
                Err(error) => return Err(error),
            }
        }
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Replaces the file at `path` by one with `content` that only its owner can read. Blocks until it is durable.
///
/// # Errors
/// The error of the system. Either the old file is still in place, or the new one may not be durable.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    Journal::new(path.to_owned(), 0).replace(&mut |file| file.write_all(content))
}

/// Creates an empty file that only its owner can read. Removes a file with this name that an earlier attempt left,
/// because it may have other permissions.
///
/// # Errors
/// The error of the system.
pub fn create_own_file(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => OpenOptions::new().append(true).create_new(true).mode(0o600).open(path),
    }
}

/// Returns the part of a file that has whole lines. A line that a crash has cut is not part of it.
pub fn whole_lines(octets: &[u8]) -> &[u8] {
    &octets[..octets.iter().rposition(|octet| *octet == b'\n').map_or(0, |end| end + 1)]
}

/// Returns the whole records of a file in which each record has `LEN` octets. Zeros at the end are not records, because
/// a power loss can leave them where records were being written.
pub fn whole_records<const LEN: usize>(octets: &[u8]) -> &[[u8; LEN]] {
    let (records, _) = octets.as_chunks();
    let count = records.iter().rposition(|record| *record != [0; LEN]).map_or(0, |last| last + 1);
    &records[..count]
}

/// Maximum bytes of records that are kept in memory until they are synced.
const UNSYNCED_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn line_that_was_cut_at_any_octet_is_left_out_and_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let line = b"the last line\n";
        for cut in 0..line.len() {
            fs::write(&path, [b"one\n", &line[..cut]].concat()).unwrap();
            let whole = whole_lines(&fs::read(&path).unwrap()).to_vec();
            assert_eq!(whole, b"one\n", "{cut}");
            let mut journal = Journal::new(path.clone(), whole.len() as u64);
            journal.append(b"2\n").unwrap();
            journal.sync().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"one\n2\n", "{cut}");
        }
    }

    #[test]
    fn record_that_was_cut_at_any_octet_and_zeros_are_left_out() {
        let whole = [[7; 4], [0; 4], [9; 4]];
        for tail in [&[][..], &[1], &[1, 2], &[1, 2, 3], &[0], &[0; 4], &[0; 9]] {
            assert_eq!(whole_records(&[whole.as_flattened(), tail].concat()), whole, "{tail:?}");
        }
        assert!(whole_records::<4>(&[0; 9]).is_empty() && whole_lines(&[0; 9]).is_empty());
    }

    #[test]
    fn file_is_created_and_replaced_for_its_owner_only_whatever_was_left_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let left = folder.path().join("journal.new");
        let mut journal = Journal::new(path.clone(), 0);
        for text in ["a", "b"] {
            fs::write(&left, "what an earlier attempt left").unwrap();
            fs::set_permissions(&left, Permissions::from_mode(0o644)).unwrap();
            match text {
                "a" => journal.append(b"a").unwrap(),
                _ => journal.replace(&mut |file| file.write_all(b"b")).unwrap(),
            }
            assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path), left.exists()), (text, 0o600, false));
        }
        journal.append(b"c").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"bc");
    }

    /// Guards against acknowledged records that a failed sync has lost, and that no later sync makes durable.
    #[test]
    fn records_that_a_failed_sync_lost_are_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::new(path.clone(), 0);
        journal.append(b"1").unwrap();
        journal.sync().unwrap();
        journal.append(b"2").unwrap();
        lose(&mut journal);
        journal.sync().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"12");
        journal.append(b"3").unwrap();
        journal.sync().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"123");
        // The second attempt fails, too. A later good sync is not believed.
        journal.append(b"4").unwrap();
        lose(&mut journal);
        let obstacle = folder.path().join("journal.new");
        fs::create_dir(&obstacle).unwrap();
        assert!(journal.sync().is_err() && journal.sync().is_err());
        journal.append(b"5").unwrap();
        assert!(journal.sync().is_err());
        fs::remove_dir(&obstacle).unwrap();
        journal.sync().unwrap();
        assert_eq!((fs::read(&path).unwrap(), journal.len_bytes()), (b"12345".to_vec(), 5));
    }

    /// Makes the next sync fail, and removes what was written since the last good one.
    fn lose(journal: &mut Journal) {
        journal.file = Some(OpenOptions::new().write(true).open("/dev/null").unwrap());
        let file = OpenOptions::new().write(true).open(&journal.path).unwrap();
        file.set_len(journal.durable_bytes).unwrap();
        file.set_len(journal.len_bytes).unwrap();
    }

    #[test]
    fn full_disk_takes_nothing_and_costs_nothing_that_was_written_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::new(path.clone(), 0);
        journal.append(b"one\n").unwrap();
        journal.file = Some(OpenOptions::new().write(true).open("/dev/full").unwrap());
        assert_eq!(journal.append(b"two\n").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(!journal.is_open() && journal.len_bytes() == 4);
        // Part of it was written.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"tw").unwrap();
        journal.append(b"three\n").unwrap();
        journal.sync().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\nthree\n");
    }

    #[test]
    fn failed_replacement_leaves_the_old_file_and_growth_is_relative_to_the_last_good_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::new(path.clone(), 0);
        journal.replace(&mut |file| file.write_all(&[b'x'; 10])).unwrap();
        assert!(journal.replace(&mut |_| Err(io::ErrorKind::StorageFull.into())).is_err());
        assert_eq!(fs::read(&path).unwrap(), [b'x'; 10]);
        journal.append(&[b'y'; 30]).unwrap();
        assert!(!journal.has_grown(0));
        journal.append(b"z").unwrap();
        assert!(journal.has_grown(40) && !journal.has_grown(41));
    }

    #[test]
    fn records_that_are_not_synced_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(folder.path().join("journal"), 0);
        for _ in 0..40 {
            journal.append(&[b'x'; UNSYNCED_BYTES_MAX / 10]).unwrap();
            assert!(journal.unsynced.len() <= UNSYNCED_BYTES_MAX + UNSYNCED_BYTES_MAX / 10);
        }
    }
}
