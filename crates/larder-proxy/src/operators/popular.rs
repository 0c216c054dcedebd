//! The most requested sites and objects, in tables of fixed size.
//!
//! Owns: the tables of one worker. `overview` sums the tables of all workers.
//!
//! Invariants: only the worker's thread writes, as with its counters, so readers need no lock and may see a value one
//! event old. A reported count always belongs to the name reported with it. The counts cover the last 30 to 60 minutes.
//! If there are more names than slots, the most requested ones stay (Metwally's space-saving algorithm, in sets of 8
//! slots).
//!
//! Cost: for each request two hashes and two scans of 8 slots. A name is copied when its slot is new, and when it is
//! seen again. Memory: 130 KiB plus the names, less than half a megabyte per worker.

use larder_device::IgnorePoison;
use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{BuildHasher as _, Hasher as _},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use foldhash::fast::RandomState;

use crate::figures::{metrics::Counter, outcome::Outcome, site_figures::SiteFigures};

/// Counts the requests for the most requested sites and objects of one worker.
#[derive(Debug)]
pub(crate) struct PopularityCounter {
    hashes: RandomState,
    sites: PopularityTable,
    objects: PopularityTable,
}

/// The slots in which a request's site and object are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PopularitySubject {
    site: CounterPlace,
    object: Option<CounterPlace>,
    /// The label of the site in metrics.
    pub(crate) label: u8,
}

/// The recent requests for one site or object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PopularityCount {
    pub(crate) name: String,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// Requests that were neither hits nor misses: tunnels and failures.
    pub(crate) others: u64,
    /// Failed requests, which `others` includes.
    pub(crate) failed: u64,
    pub(crate) client_bytes: u64,
    pub(crate) hit_bytes: u64,
}

impl PopularityCounter {
    /// Finds the slots of a request's site and object.
    ///
    /// `object` is the scheme and target of a request that may be cached. For other requests, it is `None`; they count
    /// only for their site.
    pub(crate) fn see(&self, labels: &SiteFigures, authority: &str, object: Option<(&str, &str)>) -> PopularitySubject {
        let hash = self.hash(&[authority]);
        let site = self.sites.claim(hash, |name| push(name, authority));
        let label = labels.label(hash);
        let object = object.map(|(scheme, target)| {
            // URLs with a query are seldom requested twice, and the query may be private, so they share one name.
            let (path, query) = match memchr::memchr(b'?', target.as_bytes()) {
                Some(at) => (&target[..at], "?..."),
                None => (target, ""),
            };
            let hash = self.hash(&[scheme, authority, path, query]);
            self.objects.claim(hash, |name| {
                let parts = [scheme, "://", authority, path, query];
                name.reserve(parts.iter().map(|part| part.len()).sum::<usize>().min(NAME_BYTES_MAX));
                parts.iter().for_each(|part| push(name, part));
            })
        });
        PopularitySubject { site, object, label }
    }

    /// Counts a request, unless it was refused.
    pub(crate) fn note(&self, subject: PopularitySubject, outcome: Outcome, bytes: u64) {
        if outcome == Outcome::Denied {
            return;
        }
        self.sites.note(subject.site, outcome, bytes);
        if let Some(object) = subject.object {
            self.objects.note(object, outcome, bytes);
        }
    }

    /// Returns the hash under which this counter counts a site.
    pub(crate) fn hash_of_site(&self, authority: &str) -> u64 {
        self.hash(&[authority])
    }

    /// Begins a new half hour. The counts of the half hour that just ended are kept, and older ones are dropped.
    pub(crate) fn turn(&self) {
        self.sites.turn();
        self.objects.turn();
    }

    /// Returns the memory of the tables in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let banks = [&self.sites, &self.objects].into_iter().flat_map(|table| &table.banks);
        banks.map(Bank::bytes).sum()
    }

    pub(crate) fn sites(&self) -> Vec<PopularityCount> {
        self.sites.all()
    }

    pub(crate) fn objects(&self) -> Vec<PopularityCount> {
        self.objects.all()
    }

    fn hash(&self, parts: &[&str]) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        parts.iter().for_each(|part| hasher.write(part.as_bytes()));
        // The lowest bit is set, because 0 marks empty slots.
        hasher.finish() | 1
    }
}

impl Default for PopularityCounter {
    fn default() -> Self {
        Self {
            hashes: RandomState::default(),
            sites: PopularityTable::new(SITE_SETS),
            objects: PopularityTable::new(OBJECT_SETS),
        }
    }
}

/// Appends `part` to a name. What exceeds the maximum length of names is cut off.
fn push(name: &mut String, part: &str) {
    let room = NAME_BYTES_MAX.saturating_sub(name.len());
    name.push_str(&part[..part.floor_char_boundary(room)]);
}

/// The counts of all names, in the current half hour and in the previous one.
#[derive(Debug)]
struct PopularityTable {
    banks: [Bank; 2],
    current: AtomicUsize,
}

#[derive(Debug)]
struct Bank {
    places: Box<[Spot]>,
    /// The names in the slots, each with its hash.
    names: Mutex<Box<[(u64, String)]>>,
}

#[derive(Debug, Default)]
struct Spot {
    /// Hash of the slot's name, or 0 if the slot is empty.
    hash: AtomicU64,
    is_named: AtomicBool,
    /// Number of requests counted in the slot, including those of the names that held it before.
    claims: Counter,
    hits: Counter,
    misses: Counter,
    others: Counter,
    failed: Counter,
    client_bytes: Counter,
    hit_bytes: Counter,
}

/// The index of a slot in a table, and half of the hash of its name. It is small, because every response carries two of
/// them until it is sent.
#[derive(Clone, Copy, Debug)]
struct CounterPlace {
    tag: u32,
    index: u16,
    is_in_second: bool,
}

impl PopularityTable {
    fn new(set_count: usize) -> Self {
        assert!(set_count.is_power_of_two(), "a hash is cut to a set's number");
        Self { banks: [Bank::new(set_count), Bank::new(set_count)], current: AtomicUsize::new(0) }
    }

    fn claim(&self, hash: u64, name: impl FnOnce(&mut String)) -> CounterPlace {
        let bank = self.current.load(Relaxed);
        let index = self.banks[bank].claim(hash, name);
        CounterPlace { tag: hash as u32, index: index as u16, is_in_second: bank == 1 }
    }

    fn note(&self, place: CounterPlace, outcome: Outcome, bytes: u64) {
        let entry = &self.banks[usize::from(place.is_in_second)].places[usize::from(place.index)];
        if entry.hash.load(Relaxed) as u32 == place.tag {
            entry.note(outcome, bytes);
        }
    }

    fn turn(&self) {
        let next = 1 - self.current.load(Relaxed);
        self.banks[next].clear();
        self.current.store(next, Relaxed);
    }

    /// Returns the counts of all names with at least one response. A name counted in both half hours occurs twice.
    fn all(&self) -> Vec<PopularityCount> {
        let both = self.banks.iter().flat_map(Bank::all);
        both.filter(|asked| asked.requests() > 0).collect()
    }
}

impl Bank {
    fn new(set_count: usize) -> Self {
        let count = set_count * WAYS;
        let places = (0..count).map(|_| Spot::default()).collect();
        Self { places, names: Mutex::new(vec![(0, String::new()); count].into()) }
    }

    fn claim(&self, hash: u64, name: impl FnOnce(&mut String)) -> usize {
        let set_count = self.places.len() / WAYS;
        let first = (hash >> 32) as usize % set_count * WAYS;
        let set = &self.places[first..first + WAYS];
        let found = set.iter().position(|entry| entry.hash.load(Relaxed) == hash);
        let way = found.unwrap_or_else(|| {
            let (way, least) =
                set.iter().enumerate().min_by_key(|(_, entry)| entry.claims.value()).expect("a set has places");
            least.displace(hash);
            way
        });
        let entry = &set[way];
        entry.claims.add(1);
        // A name that displaces another may occur only once, so it is copied when it occurs again.
        if entry.claims.value() == 1 || (found.is_some() && !entry.is_named.load(Relaxed)) {
            self.set_name(first + way, hash, name);
        }
        first + way
    }

    fn set_name(&self, index: usize, hash: u64, name: impl FnOnce(&mut String)) {
        let mut names = self.names();
        let (of, text) = &mut names[index];
        *of = hash;
        text.clear();
        name(text);
        // Long names are rare, so their memory is released.
        text.shrink_to(NAME_BYTES_USUAL);
        self.places[index].is_named.store(true, Relaxed);
    }

    fn all(&self) -> Vec<PopularityCount> {
        let names = self.names();
        let named = self.places.iter().zip(names.iter());
        let named = named.filter(|(entry, (hash, _))| *hash != 0 && entry.hash.load(Relaxed) == *hash);
        named.map(|(entry, (_, name))| entry.asked(name)).collect()
    }

    fn bytes(&self) -> usize {
        let names = self.names();
        let places = self.places.len() * (size_of::<Spot>() + size_of::<(u64, String)>());
        places + names.iter().map(|(_, name)| name.capacity()).sum::<usize>()
    }

    fn clear(&self) {
        self.names().iter_mut().for_each(|(hash, _)| *hash = 0);
        self.places.iter().for_each(|entry| entry.displace(0));
        self.places.iter().for_each(|entry| entry.claims.set(0));
    }

    fn names(&self) -> MutexGuard<'_, Box<[(u64, String)]>> {
        self.names.lock().ignore_poison()
    }
}

impl Spot {
    /// Gives the slot to another name.
    ///
    /// The new name inherits the old name's number of uses, which is an upper bound of its own number (space-saving
    /// algorithm). Its other counts start at 0.
    fn displace(&self, hash: u64) {
        // The hash changes first, so that readers do not attribute the new name's counts to the old one.
        self.hash.store(hash, Relaxed);
        self.is_named.store(false, Relaxed);
        let Self { hits, misses, others, failed, client_bytes, hit_bytes, .. } = self;
        for counter in [hits, misses, others, failed, client_bytes, hit_bytes] {
            counter.set(0);
        }
    }

    fn note(&self, outcome: Outcome, bytes: u64) {
        let counter = match outcome {
            _ if outcome.is_hit() => &self.hits,
            _ if outcome.is_miss() => &self.misses,
            _ => &self.others,
        };
        counter.add(1);
        if outcome == Outcome::Failed {
            self.failed.add(1);
        }
        self.client_bytes.add(bytes);
        if outcome.is_hit() {
            self.hit_bytes.add(bytes);
        }
    }

    fn asked(&self, name: &str) -> PopularityCount {
        PopularityCount {
            name: name.to_owned(),
            hits: self.hits.value(),
            misses: self.misses.value(),
            others: self.others.value(),
            failed: self.failed.value(),
            client_bytes: self.client_bytes.value(),
            hit_bytes: self.hit_bytes.value(),
        }
    }
}

impl PopularityCount {
    pub(crate) fn requests(&self) -> u64 {
        self.hits + self.misses + self.others
    }

    /// Adds the counts of another worker or half hour for the same name.
    pub(crate) fn add(&mut self, other: &Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.others += other.others;
        self.failed += other.failed;
        self.client_bytes += other.client_bytes;
        self.hit_bytes += other.hit_bytes;
    }
}

/// Sums the counts of several workers by name, the most requested first.
pub(crate) fn together(all: impl Iterator<Item = Vec<PopularityCount>>) -> Vec<PopularityCount> {
    let mut by_name: HashMap<String, PopularityCount> = HashMap::new();
    for asked in all.flatten() {
        match by_name.entry(asked.name.clone()) {
            Entry::Occupied(mut known) => known.get_mut().add(&asked),
            Entry::Vacant(place) => drop(place.insert(asked)),
        }
    }
    let mut sums: Vec<PopularityCount> = by_name.into_values().collect();
    sums.sort_by(|one, other| other.requests().cmp(&one.requests()).then_with(|| one.name.cmp(&other.name)));
    sums
}

/// Number of slots in which a name can be counted.
const WAYS: usize = 8;
const SITE_SETS: usize = 16;
const OBJECT_SETS: usize = 64;
/// Maximum length of a name, in bytes. Longer names are cut.
const NAME_BYTES_MAX: usize = 256;
const NAME_BYTES_USUAL: usize = 64;
/// Maximum memory of one worker's tables, in bytes, if all slots have the longest names.
#[cfg(test)]
const BYTES_MAX: usize =
    2 * (SITE_SETS + OBJECT_SETS) * WAYS * (size_of::<Spot>() + size_of::<(u64, String)>() + NAME_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(popular: &PopularityCounter, authority: &str, target: &str, count: usize) {
        for _ in 0..count {
            let subject = popular.see(&SiteFigures::default(), authority, Some(("http", target)));
            popular.note(subject, Outcome::Hit, 10);
        }
    }

    #[test]
    fn what_is_asked_for_most_is_found_among_many_that_are_asked_for_once() {
        let popular = PopularityCounter::default();
        for round in 0..100 {
            for number in 0..100 {
                ask(&popular, "many.example", &format!("/{round}/{number}"), 1);
            }
            ask(&popular, "few.example", "/often", 20);
        }
        let objects = popular.objects();
        let often =
            objects.iter().find(|asked| asked.name == "http://few.example/often").expect("it is asked for most");
        assert_eq!((often.hits, often.hit_bytes), (2000, 20_000));
        assert!(objects.len() <= 2 * OBJECT_SETS * WAYS);
        let mut sites = popular.sites();
        sites.sort_by_key(|asked| asked.hits);
        assert_eq!((sites.len(), &*sites[0].name, sites[1].hits), (2, "few.example", 10_000));
    }

    #[test]
    fn memory_has_a_bound_whatever_is_asked_for() {
        let popular = PopularityCounter::default();
        for round in 0..2 {
            for number in 0..20_000 {
                ask(&popular, &format!("{number}.{round}.example"), &format!("/{}", "x".repeat(1000)), 2);
            }
            popular.turn();
        }
        assert!(popular.bytes() > BYTES_MAX / 2 && popular.bytes() <= BYTES_MAX, "{} of {BYTES_MAX}", popular.bytes());
    }

    #[test]
    fn names_have_a_bound_and_no_query() {
        let popular = PopularityCounter::default();
        ask(&popular, "a.example", "/search?q=secret", 1);
        ask(&popular, "a.example", "/search?q=other", 1);
        ask(&popular, "a.example", &format!("/{}", "ü".repeat(1000)), 1);
        let mut names: Vec<String> = popular.objects().into_iter().map(|asked| asked.name).collect();
        names.sort();
        assert_eq!(names[0], "http://a.example/search?...");
        assert!(names.len() == 2 && names[1].len() <= NAME_BYTES_MAX, "{names:?}");
    }

    #[test]
    fn what_is_older_than_an_hour_is_forgotten_and_what_is_under_way_is_counted_for_nothing_else() {
        let popular = PopularityCounter::default();
        ask(&popular, "a.example", "/1", 3);
        let under_way = popular.see(&SiteFigures::default(), "a.example", Some(("http", "/1")));
        popular.turn();
        ask(&popular, "a.example", "/1", 2);
        let hits = |asked: &[PopularityCount]| asked.iter().map(|asked| asked.hits).sum::<u64>();
        assert_eq!(hits(&popular.objects()), 5);
        popular.turn();
        popular.note(under_way, Outcome::Hit, 1);
        assert_eq!(hits(&popular.objects()), 2);
        popular.turn();
        assert_eq!(popular.objects(), []);
    }

    #[test]
    fn refused_clients_are_not_listed() {
        let popular = PopularityCounter::default();
        let subject = popular.see(&SiteFigures::default(), "a.example", None);
        popular.note(subject, Outcome::Denied, 100);
        assert_eq!((popular.sites(), popular.objects()), (Vec::new(), Vec::new()));
    }
}
