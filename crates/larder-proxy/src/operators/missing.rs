//! Resources that were requested while their origin could not be contacted, and were not cached. They can be fetched
//! when the uplink is back.
//!
//! Owns: the list, in memory and in a file next to the store. Fetching is done elsewhere. Invariants: the list is
//! limited in URLs and bytes. The file is readable by its owner only, because URLs are private. A request with
//! credentials is not listed, because nobody else could fetch it. If the file cannot be read or written, this is
//! logged, and only the list is lost. Cost: one lock per 504.

use larder_device::{IgnorePoison, replace_file};
use std::{
    collections::HashMap,
    fs,
    io::{self, BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use http::{HeaderMap, HeaderName, header};
use serde::{Deserialize, Serialize};

/// The list of resources that were requested while offline and were not cached.
pub(crate) struct MissingList {
    list: Mutex<MissingEntries>,
    is_changed: AtomicBool,
    path: Option<PathBuf>,
}

/// A resource that was requested while offline and was not cached, as `larder missing --json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingResource {
    /// The URL of the resource.
    pub url: String,
    /// Number of requests for the resource.
    pub count: u64,
    /// Time of the first request for the resource, in seconds of Unix time.
    pub first: i64,
    /// Time of the last request for the resource, in seconds of Unix time.
    pub last: i64,
    /// Fields of the first request for the resource that can influence which variant the origin selects, with their
    /// values.
    #[serde(default)]
    pub fields: Vec<(String, String)>,
}

#[derive(Default)]
struct MissingEntries {
    by_url: HashMap<String, MissingResource>,
    bytes: usize,
    /// Number of requests that were not listed because the list was full.
    unlisted_count: u64,
}

impl MissingList {
    /// Opens the list in a file, or creates one that is kept only in memory if `path` is `None`.
    pub(crate) fn open(path: Option<PathBuf>) -> Self {
        let mut list = MissingEntries::default();
        if let Some(path) = &path
            && let Err(error) = list.load(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %path.display(), "the list of missing URLs cannot be read; it starts empty");
        }
        Self { list: Mutex::new(list), is_changed: AtomicBool::new(false), path }
    }

    /// Records a request that was answered with 504. Requests with credentials (Authorization) are not listed.
    pub(crate) fn note(&self, url: &str, request_fields: &HeaderMap, now_s: i64) {
        if request_fields.contains_key(header::AUTHORIZATION) {
            return;
        }
        self.list().note(url, request_fields, now_s);
        self.is_changed.store(true, Relaxed);
    }

    /// Removes a URL from the list, because it was fetched or an operator ordered it. Returns whether the list
    /// contained it.
    pub(crate) fn remove(&self, url: &str) -> bool {
        let was_there = self.list().remove(url);
        self.is_changed.fetch_or(was_there, Relaxed);
        was_there
    }

    /// Empties the list.
    pub(crate) fn clear(&self) {
        *self.list() = MissingEntries::default();
        self.is_changed.store(true, Relaxed);
    }

    /// Returns all entries, most requested first, and the number of requests that were not listed because the list was
    /// full.
    pub(crate) fn all(&self) -> (Vec<MissingResource>, u64) {
        let list = self.list();
        (list.in_order(), list.unlisted_count)
    }

    /// Returns the number of URLs on the list.
    pub(crate) fn count(&self) -> usize {
        self.list().by_url.len()
    }

    /// Writes the list to its file, if it has changed. Blocks the thread.
    pub(crate) fn save(&self) {
        let Some(path) = self.path.as_deref().filter(|_| self.is_changed.swap(false, Relaxed)) else { return };
        let (all, _) = self.all();
        if let Err(error) = write(path, &all) {
            tracing::warn!(%error, path = %path.display(), "the list of missing URLs cannot be written");
        }
    }

    fn list(&self) -> MutexGuard<'_, MissingEntries> {
        self.list.lock().ignore_poison()
    }
}

impl MissingEntries {
    /// Returns all entries, most requested first.
    fn in_order(&self) -> Vec<MissingResource> {
        let mut all: Vec<MissingResource> = self.by_url.values().cloned().collect();
        all.sort_by(|one, other| (other.count, &one.url).cmp(&(one.count, &other.url)));
        all
    }

    fn load(&mut self, path: &Path) -> io::Result<()> {
        for line in BufReader::new(fs::File::open(path)?.take(FILE_BYTES_MAX)).lines() {
            let missed: MissingResource = serde_json::from_str(&line?)?;
            self.insert(missed);
        }
        Ok(())
    }

    fn note(&mut self, url: &str, request_fields: &HeaderMap, now_s: i64) {
        if let Some(known) = self.by_url.get_mut(url) {
            (known.count, known.last) = (known.count.saturating_add(1), now_s);
            return;
        }
        let chosen_by = |name: &HeaderName| {
            let value = request_fields.get(name)?.to_str().ok().filter(|value| value.len() <= VALUE_BYTES_MAX)?;
            Some((name.to_string(), value.to_owned()))
        };
        let fields = CHOOSING_FIELDS.iter().filter_map(chosen_by).collect();
        let missed = MissingResource { url: url.to_owned(), count: 1, first: now_s, last: now_s, fields };
        if !self.insert(missed) {
            self.unlisted_count += 1;
        }
    }

    /// Adds an entry, unless the list is full. Returns whether it was added.
    fn insert(&mut self, missed: MissingResource) -> bool {
        let bytes = weight(&missed);
        let has_room = self.by_url.len() < URL_COUNT_MAX && self.bytes + bytes <= BYTES_MAX;
        if has_room && self.by_url.insert(missed.url.clone(), missed).is_none() {
            self.bytes += bytes;
        }
        assert!(self.by_url.len() <= URL_COUNT_MAX, "the list has a bound");
        has_room
    }

    fn remove(&mut self, url: &str) -> bool {
        let Some(missed) = self.by_url.remove(url) else { return false };
        self.bytes = self.bytes.saturating_sub(weight(&missed));
        true
    }
}

/// Reads the list that a stopped proxy left next to its store, most requested first. Without a file the list is empty.
///
/// `base` is [`crate::ProxyConfig::state_base`].
///
/// # Errors
/// The file cannot be read or is not such a list.
pub fn read_missed(base: &Path) -> io::Result<Vec<MissingResource>> {
    let mut list = MissingEntries::default();
    match list.load(&base.with_added_extension(FILE_KIND)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(list.in_order()),
    }
}

/// Empties the list that a stopped proxy left next to its store.
///
/// # Errors
/// The file cannot be written.
pub fn clear_missed(base: &Path) -> io::Result<()> {
    let path = base.with_added_extension(FILE_KIND);
    if path.exists() { write(&path, &[]) } else { Ok(()) }
}

/// Returns the approximate memory of an entry, in bytes.
fn weight(missed: &MissingResource) -> usize {
    let fields: usize = missed.fields.iter().map(|(name, value)| name.len() + value.len()).sum();
    2 * missed.url.len() + fields + ENTRY_BYTES
}

/// Writes entries to the list's file, in place of its old content.
fn write(path: &Path, all: &[MissingResource]) -> io::Result<()> {
    let mut text = Vec::new();
    for missed in all {
        serde_json::to_writer(&mut text, missed)?;
        text.push(b'\n');
    }
    replace_file(path, &text)
}

/// Request fields by which origins choose a representation, and whose values are common to many clients.
const CHOOSING_FIELDS: [HeaderName; 3] = [header::ACCEPT, header::ACCEPT_ENCODING, header::ACCEPT_LANGUAGE];
const VALUE_BYTES_MAX: usize = 256;
const URL_COUNT_MAX: usize = 10_000;
/// Maximum memory of the list, in bytes.
const BYTES_MAX: usize = 8 << 20;
/// Memory of an entry in addition to its texts, in bytes.
const ENTRY_BYTES: usize = 128;
const FILE_BYTES_MAX: u64 = 32 << 20;
/// Suffix of the file with the list, appended to the store's path.
pub(crate) const FILE_KIND: &str = "missing";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_counted_and_kept_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing");
        let missing = MissingList::open(Some(path.clone()));
        let french = HeaderMap::from_iter([(header::ACCEPT_LANGUAGE, "fr".parse().unwrap())]);
        let secret = HeaderMap::from_iter([(header::AUTHORIZATION, "Basic eDp5".parse().unwrap())]);
        missing.note("http://a.example/1", &HeaderMap::new(), 10);
        missing.note("http://a.example/2", &french, 11);
        missing.note("http://a.example/2", &HeaderMap::new(), 12);
        missing.note("http://a.example/3", &secret, 13);
        missing.save();
        let (all, _) = MissingList::open(Some(path.clone())).all();
        let fields = vec![("accept-language".to_owned(), "fr".to_owned())];
        let two = MissingResource { url: "http://a.example/2".to_owned(), count: 2, first: 11, last: 12, fields };
        assert_eq!((all.len(), &all[0]), (2, &two));
        assert!(missing.remove("http://a.example/2") && !missing.remove("http://a.example/2"));
        missing.save();
        assert_eq!(MissingList::open(Some(path.clone())).count(), 1);
        missing.clear();
        missing.save();
        assert_eq!(fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn what_is_no_list_is_told_and_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing");
        for text in ["nonsense\n", "{\"url\":1}\n", "\u{0}\u{0}"] {
            fs::write(&path, text).unwrap();
            let missing = MissingList::open(Some(path.clone()));
            assert_eq!(missing.count(), 0, "{text:?}");
            missing.note("http://a.example/", &HeaderMap::new(), 1);
            missing.save();
            assert_eq!(MissingList::open(Some(path.clone())).count(), 1, "{text:?}");
        }
    }

    #[test]
    fn clients_that_ask_for_ever_more_do_not_fill_the_memory() {
        let missing = MissingList::open(None);
        let long = "x".repeat(4000);
        for number in 0..URL_COUNT_MAX + 1000 {
            missing.note(&format!("http://a.example/{number}/{long}"), &HeaderMap::new(), 1);
        }
        let (all, unlisted_count) = missing.all();
        assert!(all.len() < URL_COUNT_MAX && missing.list().bytes <= BYTES_MAX);
        assert_eq!(all.len() as u64 + unlisted_count, URL_COUNT_MAX as u64 + 1000);
        let short = MissingList::open(None);
        (0..URL_COUNT_MAX + 5).for_each(|number| short.note(&format!("http://b/{number}"), &HeaderMap::new(), 1));
        assert_eq!((short.count(), short.all().1), (URL_COUNT_MAX, 5));
    }
}
