//! Packs in a folder, which can be on another disk or a network file system.
//!
//! Nothing that is read here is trusted. Invariant: a pack has its name only once it is complete. Cost: one write for a
//! pack, one read for an entry.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use larder_device::create_own_file;
use tokio::task::spawn_blocking;

use super::{
    index::{PackName, RecordPlace},
    names,
};

/// The packs (files with many entries) of one tier, in a folder.
pub(super) struct PackFolder(Arc<PathBuf>);

impl PackFolder {
    /// Returns the packs of the tier with the name `tier`, in a folder of its own within `folder`. Reads and writes
    /// nothing yet.
    pub(super) fn new(folder: &Path, tier: u64) -> Self {
        Self(Arc::new(folder.join(names::folder_of(tier))))
    }

    /// Stores a pack under its name.
    pub(super) async fn put(&self, name: PackName, bytes: Bytes) -> io::Result<()> {
        let path = self.path(name);
        run(move || {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            // Not synced: a pack that a power loss damages is a miss.
            let new = path.with_added_extension("new");
            create_own_file(&new)?.write_all(&bytes)?;
            fs::rename(&new, &path)
        })
        .await
    }

    /// Reads the record of an entry from its pack.
    ///
    /// # Errors
    /// `NotFound` if the pack does not exist. Any other kind if the folder cannot be read, or does not exist.
    pub(super) async fn read(&self, place: RecordPlace) -> io::Result<Bytes> {
        let path = self.path(place.pack);
        let folder = Arc::clone(&self.0);
        run(move || {
            let file = File::open(path).map_err(|error| unless_away(error, &folder))?;
            let mut bytes = vec![0; place.len as usize];
            file.read_exact_at(&mut bytes, place.offset.into())?;
            Ok(bytes.into())
        })
        .await
    }

    /// Removes a pack from the folder.
    pub(super) async fn remove(&self, name: PackName) -> io::Result<()> {
        let path = self.path(name);
        run(move || fs::remove_file(path)).await
    }

    /// Removes packs that the tier does not know, because they were stored just before a kill: those with a number
    /// below `end` that are not among `known`. Other files stay.
    pub(super) async fn remove_others(&self, known: HashSet<PackName>, end: u32) -> io::Result<()> {
        let folder = Arc::clone(&self.0);
        run(move || {
            for entry in fs::read_dir(&*folder)? {
                let entry = entry?;
                let name = entry.file_name().to_str().and_then(names::parse);
                if name.is_some_and(|name| name.number < end && !known.contains(&name)) {
                    fs::remove_file(entry.path())?;
                }
            }
            Ok(())
        })
        .await
    }

    fn path(&self, name: PackName) -> PathBuf {
        self.0.join(names::file_of(name))
    }
}

/// Returns the error, but with a kind other than `NotFound` if the whole folder is missing.
///
/// The folder's file system may only be unmounted, and return with all packs. So the pack must not count as gone.
fn unless_away(error: io::Error, folder: &Path) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound if !folder.is_dir() => {
            io::Error::new(io::ErrorKind::NotConnected, format!("{} is not there", folder.display()))
        }
        _ => error,
    }
}

async fn run<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
    }

    /// Guards against removing other files from the folder, and packs that are stored meanwhile.
    #[test]
    fn only_old_packs_that_nobody_knows_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let storage = PackFolder::new(home.path(), 1);
        let name = |number, salt| PackName { number, salt };
        let place = |pack| RecordPlace { pack, offset: 1, len: 2 };
        block_on(async {
            let away = storage.read(place(name(1, 1))).await.unwrap_err();
            assert_eq!(away.kind(), io::ErrorKind::NotConnected, "{away}");
            for pack in [name(1, 1), name(2, 2), name(2, 3), name(7, 4)] {
                storage.put(pack, Bytes::from_static(b"abc")).await.unwrap();
            }
            fs::write(storage.0.join("letter"), "not ours").unwrap();
            fs::write(storage.0.join(format!("{:08x}-{:016x}.pack.new", 1, 9)), "half").unwrap();
            storage.remove_others([name(2, 3)].into(), 5).await.unwrap();
            let gone = storage.read(place(name(1, 1))).await.unwrap_err();
            assert_eq!(gone.kind(), io::ErrorKind::NotFound);
            assert_eq!(storage.read(place(name(2, 3))).await.unwrap(), "bc");
            assert_eq!(fs::read_dir(&*storage.0).unwrap().count(), 3);
            // A place beyond the end of a pack is an error, and no part of one.
            let far = RecordPlace { pack: name(2, 3), offset: 2, len: 2 };
            assert_eq!(storage.read(far).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        });
    }
}
