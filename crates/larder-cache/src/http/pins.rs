//! Pinned responses: URL patterns set by the operator, and the keys that match them. Eviction spares pinned entries.
//!
//! Owns: the patterns and the keys, in two files next to the store. The store itself spares the entries.
//!
//! Invariants: a key is recorded before its entry is stored, so pins survive a kill. All recorded keys are reported to
//! the store before anything new is stored. Keys that nothing refers to any more (chunks of a replaced body, variants
//! of a replaced resource) are unpinned when the record is rewritten.
//!
//! Cost: one flag or one pattern match per response that is not pinned; one line in a file per response that is.

pub mod record;

use larder_device::{IgnorePoison, replace_file};
use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, RwLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use larder_http::{BodyPlace, Head, TargetList, UrlPattern, UrlPatterns, key::KeyOf};
use larder_store::{Policy, Result, ScanSummary, Store};
use tokio::{runtime::Handle, task::spawn_blocking};

use crate::chunk_format::{KIND_FRAGMENT, chunk_key, chunks_of, split_chunk_key};
use crate::http::{
    ResponseCache,
    lookup::{EntryContent, decode},
    pins::record::{PinLine, PinRecord, fingerprint},
    purged::url_of,
};

/// The pinned URL patterns, and the record of the keys that are pinned because of them.
pub struct Pins {
    patterns: RwLock<Arc<UrlPatterns>>,
    patterns_path: Option<PathBuf>,
    record: Mutex<PinRecord>,
    /// Whether the patterns are being changed, or the record is being rewritten. Only one thread may do that at a time.
    is_changing: AtomicBool,
    /// Number of entries that matched a pattern but could not be pinned because the pin limit was reached.
    refused_count: AtomicU64,
    is_refusal_told: AtomicBool,
    /// Whether some pins are in memory only, because recording them failed. The next [`Pins::add`] records them again.
    is_unrecorded: AtomicBool,
}

/// The outcome of a change of the pins, and whether the change outlives the process.
#[derive(Debug)]
pub struct PinChange<T> {
    /// The outcome.
    pub result: T,
    /// The reason why the change will be lost when the process ends. `None` if it is recorded.
    pub unrecorded: Option<String>,
}

/// The number and size of the responses that are pinned by one pattern, or by all patterns together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinTotals {
    /// Number of pinned responses.
    pub responses: u64,
    /// Total size of their entries in bytes, with the chunks of long bodies.
    pub bytes: u64,
}

/// The reason why nothing was pinned or unpinned.
#[derive(Debug)]
pub enum NotPinned {
    /// Another change of the pins is in progress.
    Busy,
    /// The store cannot pin entries, for this reason.
    Cannot(String),
    /// More would be pinned than the share of the store that may be pinned.
    NoRoom {
        /// Size in bytes of all stored entries that the new patterns match.
        needed_bytes: u64,
    },
    /// The client that requested the change has disconnected.
    Abandoned,
    /// There would be more than [`PATTERN_COUNT_MAX`] patterns.
    TooMany,
}

impl Pins {
    /// Reads the patterns and the record of pinned keys from these two files, and pins the recorded keys in the store.
    /// Blocks.
    pub fn open(patterns_path: Option<PathBuf>, keys_path: Option<PathBuf>, store: Option<&Store>) -> Self {
        let patterns = patterns_path.as_deref().map_or_else(UrlPatterns::default, load_patterns);
        let record = PinRecord::open(keys_path);
        if let Some(store) = store.filter(|_| !patterns.is_empty()) {
            if store.can_pin() {
                record.each(&mut |line| _ = store.pin(&line.key, line.len_bytes));
            } else {
                tracing::warn!("this store's policy cannot pin: pinned URLs are evicted like others");
            }
        }
        Self {
            patterns: RwLock::new(Arc::new(patterns)),
            patterns_path,
            record: Mutex::new(record),
            is_changing: AtomicBool::new(false),
            refused_count: AtomicU64::new(0),
            is_refusal_told: AtomicBool::new(false),
            is_unrecorded: AtomicBool::new(false),
        }
    }

    /// Returns the pinned patterns.
    pub fn patterns(&self) -> Arc<UrlPatterns> {
        Arc::clone(&self.patterns.read().ignore_poison())
    }

    /// Returns whether a pattern matches the entry under `key`.
    pub fn name(&self, key: &[u8]) -> bool {
        let patterns = self.patterns.read().ignore_poison();
        !patterns.is_empty() && is_named(&patterns, key)
    }

    /// Returns the number of entries that matched a pattern but could not be pinned because the pin limit was reached.
    pub fn refused_count(&self) -> u64 {
        self.refused_count.load(Relaxed)
    }

    /// Pins everything that the patterns `added` match: the stored entries, and those that are stored later.
    ///
    /// Scans the whole store, and blocks for that time. Calls `progress` with the number of bytes scanned and the size
    /// of the store, and stops if it returns `false`.
    ///
    /// # Errors
    /// After an error, the same entries are pinned as before.
    pub fn add(
        &self,
        store: &Store,
        targets: &TargetList,
        added: Vec<UrlPattern>,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> std::result::Result<PinChange<PinTotals>, NotPinned> {
        check(store)?;
        if !self.record().has_place() {
            return Err(NotPinned::Cannot("there is no place next to the store for the list of pins".to_owned()));
        }
        let _turn = PinChangeGuard::begin(&self.is_changing)?;
        let before = self.patterns();
        // If the record lacks pins, patterns that are known already are scanned again.
        let is_repeat = self.is_unrecorded.load(Relaxed);
        let (new, known): (Vec<_>, Vec<_>) = added.into_iter().partition(|pattern| !before.all().contains(pattern));
        let all = UrlPatterns::new(before.all().iter().chain(&new).cloned());
        let added = UrlPatterns::new(new.into_iter().chain(known.into_iter().filter(|_| is_repeat)));
        if all.all().len() > PATTERN_COUNT_MAX {
            return Err(NotPinned::TooMany);
        }
        let recorded_before = self.record().len_bytes();
        self.set_patterns(all);
        let outcome = self.add_stored(store, targets, &added, progress);
        let result = outcome.inspect_err(|_| {
            self.set_patterns_shared(before);
            let patterns = self.patterns();
            // This includes entries that other tasks stored in the meantime.
            self.record().truncate(recorded_before, &mut |line| {
                let stays = is_named(&patterns, &line.key);
                if !stays {
                    store.unpin(&line.key);
                }
                stays
            });
        })?;
        Ok(PinChange { result, unrecorded: self.save() })
    }

    /// Pins the stored entries that the patterns `added` match.
    fn add_stored(
        &self,
        store: &Store,
        targets: &TargetList,
        added: &UrlPatterns,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> std::result::Result<PinTotals, NotPinned> {
        let mut sum = PinTotals::default();
        let mut has_room = true;
        let mut goes_on = true;
        let mut seen = HashSet::new();
        let scanned = store.scan(&mut |scanned| {
            match scanned {
                ScanSummary::Passed { bytes, of } => goes_on = progress(bytes, of),
                ScanSummary::Key(key) if is_named(added, key) && seen.insert(fingerprint(key)) => {
                    if let Ok(Some(len_bytes)) = stored_len(store, targets, key) {
                        sum.note(key, len_bytes);
                        has_room &= self.pin_stored(store, key, len_bytes);
                    }
                }
                _ => {}
            }
            goes_on
        });
        scanned.map_err(|error| NotPinned::Cannot(error.to_string()))?;
        match (goes_on, has_room) {
            (false, _) => Err(NotPinned::Abandoned),
            (true, false) => Err(NotPinned::NoRoom { needed_bytes: sum.bytes }),
            (true, true) => Ok(sum),
        }
    }

    /// Removes these patterns, and unpins the entries that only they match. Without patterns, unpins everything.
    /// Returns the given patterns that were not pinned. Blocks to read the record.
    ///
    /// # Errors
    /// On an error, nothing is unpinned.
    pub fn remove(
        &self,
        store: &Store,
        targets: &TargetList,
        removed: Option<&[UrlPattern]>,
    ) -> std::result::Result<PinChange<Vec<UrlPattern>>, NotPinned> {
        let _turn = PinChangeGuard::begin(&self.is_changing)?;
        let before = self.patterns();
        let unknown = removed.unwrap_or_default().iter().filter(|pattern| !before.all().contains(pattern));
        let unknown: Vec<UrlPattern> = unknown.cloned().collect();
        let stays = |pattern: &&UrlPattern| removed.is_some_and(|removed| !removed.contains(pattern));
        self.set_patterns(UrlPatterns::new(before.all().iter().filter(stays).cloned()));
        let unrecorded = self.save_patterns().err().map(|error| error.to_string());
        self.tidy_record(store, targets, &|| true);
        Ok(PinChange { result: unknown, unrecorded })
    }

    /// Returns how much each pattern pins, and how much all patterns pin together. Blocks to read the record.
    pub fn figures(&self, store: &Store) -> (Vec<(UrlPattern, PinTotals)>, PinTotals) {
        let patterns = self.patterns();
        let mut by_pattern = vec![PinTotals::default(); patterns.all().len()];
        let mut sum = PinTotals::default();
        let mut seen = HashSet::new();
        self.record_now().each(&mut |line| {
            if store.is_pinned(&line.key) && seen.insert(fingerprint(&line.key)) {
                sum.note(&line.key, line.len_bytes);
                patterns
                    .which(url_of(&line.key))
                    .into_iter()
                    .for_each(|at| by_pattern[at].note(&line.key, line.len_bytes));
            }
        });
        (patterns.all().iter().cloned().zip(by_pattern).collect(), sum)
    }

    /// Unpins entries that no lookup can find any more. Stops once `owner` is dropped. Blocks to read the record, and
    /// one entry of the store per chunk and variant.
    pub fn tidy(&self, store: &Store, targets: &TargetList, owner: &Weak<()>) {
        if let Ok(_turn) = PinChangeGuard::begin(&self.is_changing) {
            self.tidy_record(store, targets, &|| owner.strong_count() > 0);
            self.is_refusal_told.store(false, Relaxed);
        }
    }

    /// Makes the record of pinned keys durable. Returns whether it has grown so much that it should be rewritten.
    /// Blocks.
    pub fn sync(&self) -> bool {
        self.record().sync()
    }

    fn tidy_record(&self, store: &Store, targets: &TargetList, goes_on: &dyn Fn() -> bool) {
        let patterns = self.patterns();
        let stays = |line: &PinLine| {
            let is_of_use = store.is_pinned(&line.key)
                && is_named(&patterns, &line.key)
                && !matches!(stored_len(store, targets, &line.key), Ok(None));
            if !is_of_use {
                store.unpin(&line.key);
            }
            is_of_use
        };
        let Some(rewritten) = self.record_now().rewrite(&stays, goes_on) else { return };
        self.record().replace(rewritten);
    }

    /// Pins a key in the store, and records it. Returns `false` if the limit on pins is reached.
    fn pin(&self, store: &Store, key: &[u8], len_bytes: u64) -> bool {
        if store.pin(key, len_bytes) {
            self.record().append(key, len_bytes);
            return true;
        }
        self.refused_count.fetch_add(1, Relaxed);
        false
    }

    /// Pins the key of a stored entry. If it is pinned but the record lacks some pins, records it again.
    fn pin_stored(&self, store: &Store, key: &[u8], len_bytes: u64) -> bool {
        if !store.is_pinned(key) {
            return self.pin(store, key, len_bytes);
        }
        if self.is_unrecorded.load(Relaxed) {
            self.record().append(key, len_bytes);
        }
        true
    }

    /// Makes the patterns and the record durable. Returns the reason if that failed.
    fn save(&self) -> Option<String> {
        let failed = {
            let mut record = self.record();
            record.sync();
            record.take_error()
        };
        let unrecorded = failed.or_else(|| self.save_patterns().err().map(|error| error.to_string()));
        self.is_unrecorded.store(unrecorded.is_some(), Relaxed);
        unrecorded
    }

    /// Returns a snapshot of the record, which can be read while others append to the record.
    fn record_now(&self) -> PinRecord {
        self.record().snapshot()
    }

    fn record(&self) -> MutexGuard<'_, PinRecord> {
        self.record.lock().ignore_poison()
    }

    fn set_patterns(&self, patterns: UrlPatterns) {
        self.set_patterns_shared(Arc::new(patterns));
    }

    fn set_patterns_shared(&self, patterns: Arc<UrlPatterns>) {
        *self.patterns.write().ignore_poison() = patterns;
    }

    fn save_patterns(&self) -> io::Result<()> {
        let Some(path) = &self.patterns_path else { return Ok(()) };
        let lines: String = self.patterns().all().iter().map(|pattern| format!("{pattern}\n")).collect();
        let saved = replace_file(path, lines.as_bytes());
        saved.inspect_err(|error| {
            tracing::warn!(%error, path = %path.display(), "the list of pinned URLs cannot be written");
        })
    }
}

/// Pins an entry that is about to be stored and that a pattern matches. Returns whether it is pinned. `len_bytes` is
/// the length of its head and body.
pub async fn spare(cache: &Arc<ResponseCache>, store: &Store, key: &[u8], len_bytes: u64) -> bool {
    if !store.can_pin() {
        return false;
    }
    let owner = Arc::clone(cache);
    let own_store = store.clone();
    let key = Box::<[u8]>::from(key);
    // The key is recorded before the entry is stored. This writes to a file, so it runs on a blocking thread.
    let pinned = spawn_blocking(move || owner.shared.pins.pin(&own_store, &key, len_bytes)).await;
    let is_pinned = pinned.unwrap_or(false);
    if !is_pinned && !cache.shared.pins.is_refusal_told.swap(true, Relaxed) {
        tracing::warn!("the limit on pins is reached: further matching responses are stored unpinned (pin_share)");
    }
    is_pinned
}

/// Pins the chunks of a body whose head has just been stored.
///
/// [`Pins::add`] cannot do this if the chunks were stored before a matching pattern was added, and the head is stored
/// later: only the head shows that the chunks belong to a response.
pub async fn spare_chunks(cache: &Arc<ResponseCache>, store: &Store, head_key: &[u8], body: BodyPlace) {
    let BodyPlace::Chunks { len, representation } = body else { return };
    if !cache.shared.pins.name(head_key) {
        return;
    }
    for number in chunks_of(&(0..len)) {
        spare_stored(cache, store, &chunk_key(head_key, representation, number)).await;
    }
}

/// Pins an entry that was just stored, if a pattern matches it.
///
/// [`spare`] runs before an entry is written, and [`Pins::add`] scans what is stored. If a pattern is added, and its
/// scan finishes, while an entry is being written, both miss this entry.
pub async fn spare_stored(cache: &Arc<ResponseCache>, store: &Store, key: &[u8]) {
    if !cache.shared.pins.name(key) || store.is_pinned(key) || !store.may_contain(key) {
        return;
    }
    if let Ok(Some(entry)) = store.front(key).await {
        spare(cache, store, key, entry.head().len() as u64 + entry.len()).await;
    }
}

impl PinTotals {
    fn note(&mut self, key: &[u8], len_bytes: u64) {
        let is_response = KeyOf::parse(key).is_some();
        self.responses += u64::from(is_response);
        self.bytes += len_bytes;
    }
}

/// The exclusive right to change the patterns or to remove useless pins.
struct PinChangeGuard<'a>(&'a AtomicBool);

impl<'a> PinChangeGuard<'a> {
    fn begin(is_changing: &'a AtomicBool) -> std::result::Result<Self, NotPinned> {
        if is_changing.swap(true, Relaxed) { Err(NotPinned::Busy) } else { Ok(Self(is_changing)) }
    }
}

impl Drop for PinChangeGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

fn check(store: &Store) -> std::result::Result<(), NotPinned> {
    let cannot = |what: &str| Err(NotPinned::Cannot(what.to_owned()));
    match (store.can_pin(), store.stats().pinned_bytes_max) {
        (false, _) => {
            let rows: Vec<&str> =
                Policy::all().iter().filter(|policy| policy.can_pin()).map(|policy| policy.name).collect();
            cannot(&format!("the store's policy does not support pins; {} do", rows.join(" and ")))
        }
        (true, 0) => cannot("pin_share is 0, which allows no pins"),
        (true, _) => Ok(()),
    }
}

fn is_named(patterns: &UrlPatterns, key: &[u8]) -> bool {
    // A fragment is removed once its whole chunk is stored.
    key.first() != Some(&KIND_FRAGMENT)
        && Some(url_of(key)).filter(|url| !url.is_empty()).is_some_and(|url| patterns.contain(url))
}

/// Returns the length of the entry under a key: head and body together, in bytes. `None` if the store has no such
/// entry, or if no lookup can find it any more. Blocks.
///
/// # Errors
/// The store cannot be read, so the result is unknown.
pub fn stored_len(store: &Store, targets: &TargetList, key: &[u8]) -> Result<Option<u64>> {
    let (entry_key, representation) = split_chunk_key(key);
    let Some((of, entry)) = KeyOf::parse(entry_key).zip(wait(store.front(key))?) else { return Ok(None) };
    if let Some(representation) = representation {
        let head = wait(store.front(of.entry))?.map(|reader| Head::decode(reader.head(), targets));
        let Some(Ok(Head::Response(head))) = head else { return Ok(None) };
        match head.body() {
            BodyPlace::Chunks { representation: own, .. } if own == representation => {}
            BodyPlace::Chunks { .. } | BodyPlace::Whole { .. } => return Ok(None),
        }
    }
    if of.entry != of.primary {
        let Some(marker) = wait(store.get(of.primary))? else { return Ok(None) };
        let Some(body) = wait(marker.read(0..marker.len()))? else { return Ok(None) };
        let Some(EntryContent::Marker(marker)) = decode(marker.head(), body, targets) else { return Ok(None) };
        let generation = of.entry.split_last_chunk::<8>().map(|(_, octets)| u64::from_le_bytes(*octets));
        if generation != Some(marker.generation) {
            return Ok(None);
        }
    }
    Ok(Some(entry.head().len() as u64 + entry.len()))
}

/// Blocks until a future completes. Must be called on a thread that may block.
pub fn wait<F: Future>(work: F) -> F::Output {
    Handle::current().block_on(work)
}

fn load_patterns(path: &Path) -> UrlPatterns {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return UrlPatterns::default(),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "the list of pinned URLs cannot be read: nothing is pinned");
            return UrlPatterns::default();
        }
    };
    let parse = |line: &str| match line.parse() {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "a line of the list of pinned URLs is ignored");
            None
        }
    };
    UrlPatterns::new(text.lines().filter(|line| !line.is_empty()).filter_map(parse).take(PATTERN_COUNT_MAX))
}

/// Maximum number of pinned patterns.
pub const PATTERN_COUNT_MAX: usize = 10_000;
