//! Accesses counted one by one: HashCache's seeks of stores, hits and misses, and ESP's worked examples of its
//! allocator.
//!
//! Owns: the beds of these counts, on stores without a memory cache. The papers derive the numbers from their designs,
//! so a line shows whether the shipping policy does what its paper says. Invariant: one object is looked up or stored
//! at a time, and nothing else uses the disk.

use crate::{
    Comparison, DiskWork, Report, SimStore, SimStoreOptions, Table,
    paper::{PaperOptions, beds::whole, row},
};
use larder_store::Error;
use std::{collections::HashSet, time::Duration};

/// The policies whose seeks are counted.
const POLICIES: [&str; 4] = ["hashcache-basic", "hashcache-setmem", "hashcache-log", "hashcache-log-lru"];
/// Virtual time after which everything that was stored is written.
const WRITTEN_AFTER: Duration = Duration::from_secs(2);

/// The columns of the table of seeks.
const SEEK_COLUMNS: [&str; 9] = [
    "policy",
    "seeks of a store",
    "seeks of a batch",
    "seeks of its writes",
    "reads of a hit",
    "reads of a hit that takes more than one",
    "reads of a miss",
    "reads of an object of a page",
    "hits, %",
];

/// The number of accesses of one policy.
#[derive(Clone, Copy, Default)]
struct SeekCounts {
    /// Movements of the head for each object that is stored alone. `batch_moves` counts them for objects in a batch.
    object_moves: f64,
    batch_moves: f64,
    /// Movements of the head for writing each object of a batch. Movements for reads are not counted.
    batch_write_moves: f64,
    /// Mean number of reads for a hit (`hit_reads`) and for a miss (`miss_reads`).
    hit_reads: f64,
    miss_reads: f64,
    /// Median number of reads, for hits that take more than one read (`long_hit_reads`) and for misses.
    long_hit_reads: f64,
    typical_miss_reads: f64,
    /// Number of reads for each object, for pages that are requested in the order in which they were stored.
    page_reads: f64,
    hits: f64,
}

pub(crate) fn seeks(options: &PaperOptions<'_>) -> Result<Report, Error> {
    let counts = options.each(&POLICIES, |policy| SeekBed::new(policy, options)?.run())?;
    let of = |policy: &str| counts[POLICIES.iter().position(|known| *known == policy).expect("it is one of them")];
    let basic = of("hashcache-basic");
    let setmem = of("hashcache-setmem");
    let log = of("hashcache-log");
    let printed = |what: &str, simulated: f64| Comparison::published("hashcache-seeks", what, simulated);
    let requests = basic.hits + whole("seeks.objects") as f64;
    let request_reads =
        (basic.hit_reads * basic.hits + basic.miss_reads * whole("seeks.objects") as f64) / requests.max(1.0);
    let mut report = Report::new("HashCache: seeks of stores, hits and misses");
    report.comparisons = vec![
        printed("hashcache-basic: reads of a request", request_reads),
        printed("hashcache-basic: seeks of a store", basic.object_moves),
        printed("hashcache-setmem: reads of a hit", setmem.hit_reads),
        printed("hashcache-setmem: reads of most misses", setmem.typical_miss_reads),
        printed("hashcache-log: seeks of the writes of a batch", log.batch_write_moves),
        printed("hashcache-log: reads of a hit", log.hit_reads),
        printed("hashcache-log: reads of an object of a page", log.page_reads),
        printed(
            "hashcache-log-lru: reads of a hit whose position is on the disk",
            of("hashcache-log-lru").long_hit_reads,
        ),
    ];
    let mut table = Table::new("", &SEEK_COLUMNS);
    for (policy, counts) in POLICIES.iter().zip(&counts) {
        let values = vec![
            counts.object_moves,
            counts.batch_moves,
            counts.batch_write_moves,
            counts.hit_reads,
            counts.long_hit_reads,
            counts.miss_reads,
            counts.page_reads,
            counts.hits / whole("seeks.objects") as f64 * 100.0,
        ];
        table.push(*policy, values);
    }
    report.tables.push(table);
    report.remarks = vec![
        format!(
            "The run looks up {} objects of {} bytes, misses, and stores them in batches of {}. Between two batches, \
             it reads another object, which moves the head. Then the run looks up the stored objects in another \
             order, to measure hits, and as many objects that were never stored, to measure misses. Last, it looks up \
             pages of {} objects in the order in which they were stored, to measure the reads per page.",
            whole("seeks.objects"),
            whole("seeks.object_bytes"),
            whole("seeks.batch_objects"),
            whole("seeks.page_objects"),
        ),
        "The paper states that a miss takes no seek, and ignores false positives. So the line has the median over all \
         misses. The table has the mean, which includes the misses that read because another key has the same 8 bits \
         of hash."
            .to_owned(),
        "The policy hashcache-basic has one place for each key, as the paper describes, and an entry overwrites the \
         entry that was in its place. So about 8 of 200 entries in a store of 32 MB are overwritten. A kill loses \
         none of the other entries (`basic_loses_colliding_entries_and_none_to_a_kill`)."
            .to_owned(),
        "The paper counts one seek for a batch of writes. In this simulation, a batch takes another seek for each \
         segment of the log that begins in it. Storing an object also reads from the disk if another key has the same \
         bits of hash, and this read moves the head too. The table has the seeks of writes alone, and those of writes \
         and reads. Half of the positions of hashcache-log-lru are in memory."
            .to_owned(),
    ];
    Ok(report)
}

/// A store whose accesses are counted.
struct SeekBed {
    store: SimStore,
    /// Operations that the disk has done for lookups.
    lookups: DiskWork,
}

impl SeekBed {
    fn new(policy: &str, options: &PaperOptions<'_>) -> Result<Self, Error> {
        let mut of_store = SimStoreOptions::new(row(policy), whole("seeks.store_bytes"));
        of_store.mean_entry_bytes = Some(whole("hashcache.object_bytes"));
        of_store.tuning = super::paper_tuning();
        let store = SimStore::new(&options.machine("hashcache-sata"), &of_store)?;
        Ok(Self { store, lookups: DiskWork::default() })
    }

    fn run(mut self) -> Result<SeekCounts, Error> {
        let objects = whole("seeks.objects");
        let batch_objects = whole("seeks.batch_objects");
        let page_objects = whole("seeks.page_objects");
        for key in 0..objects {
            self.look_up(key);
            self.store.store(key, whole("seeks.object_bytes"), key / page_objects, key / page_objects);
            if (key + 1).is_multiple_of(batch_objects) {
                self.store.wait_until(self.store.passed() + WRITTEN_AFTER);
                self.look_up(key / 2);
            }
        }
        let store_moves = (self.store.served().moves - self.lookups.moves) as f64;
        let mut counts = SeekCounts {
            object_moves: store_moves / objects as f64,
            batch_moves: store_moves / (objects / batch_objects) as f64,
            batch_write_moves: self.store.served().write_moves as f64 / (objects / batch_objects) as f64,
            ..SeekCounts::default()
        };
        let looked_up = shuffled(objects).map(|key| self.look_up(key));
        let hits: Vec<_> = looked_up.filter(|(is_hit, _)| *is_hit).map(|(_, reads)| reads).collect();
        let misses: Vec<_> = (objects..2 * objects).map(|key| self.look_up(key).1).collect();
        counts.hits = hits.len() as f64;
        counts.hit_reads = mean(&hits);
        counts.long_hit_reads = median(hits.into_iter().filter(|reads| *reads > 1).collect());
        counts.miss_reads = mean(&misses);
        counts.typical_miss_reads = median(misses);
        counts.page_reads = self.page_reads(objects);
        Ok(counts)
    }

    /// Returns the mean reads of an object, if the objects that are read along with an earlier one stay in memory.
    fn page_reads(&mut self, objects: u64) -> f64 {
        self.store.take_neighbors();
        let mut in_memory = HashSet::new();
        let mut reads = 0;
        for key in (0..objects).filter(|key| !key.is_multiple_of(whole("seeks.page_objects"))) {
            if !in_memory.remove(&key) {
                reads += self.look_up(key).1;
                in_memory.extend(self.store.take_neighbors().into_iter().map(|(neighbor, _)| neighbor));
            }
        }
        reads as f64 / objects as f64
    }

    /// Looks up an object. Returns whether it was found, and the number of reads.
    fn look_up(&mut self, key: u64) -> (bool, u64) {
        let before = self.store.served();
        let is_hit = self.store.look_up(key) == Some(true);
        let work = self.store.served().since(before);
        self.lookups.moves += work.moves;
        (is_hit, work.reads)
    }
}

fn mean(reads: &[u64]) -> f64 {
    reads.iter().sum::<u64>() as f64 / reads.len().max(1) as f64
}

fn median(mut reads: Vec<u64>) -> f64 {
    reads.sort_unstable();
    reads.get(reads.len() / 2).map_or(f64::NAN, |reads| *reads as f64)
}

/// Returns the numbers from 1 to `count` in another order: in steps of a number that has no divisor in common with
/// `count`.
fn shuffled(count: u64) -> impl Iterator<Item = u64> {
    let step = (count / 3..).find(|step| is_coprime(*step, count)).expect("the next prime is one");
    (1..=count).map(move |number| number * step % count)
}

fn is_coprime(one: u64, other: u64) -> bool {
    if other == 0 { one == 1 } else { is_coprime(other, one % other) }
}

pub(crate) fn esp_blocks(options: &PaperOptions<'_>) -> Result<Report, Error> {
    // Objects of 9 KB, three blocks, two blocks and one, each with its record's head.
    const OBJECT_BYTES: [u64; 4] = [9 << 10, 11 << 10, 7 << 10, 1 << 10];
    let places = options.each(&[()], |()| {
        let mut of_store = SimStoreOptions::new(row("esp"), whole("seeks.store_bytes"));
        of_store.tuning = super::paper_tuning();
        let mut store = SimStore::new(&options.machine("esp-ide"), &of_store)?;
        store.record_operations();
        let mut place = |(key, len_bytes)| {
            store.take_operations();
            store.store(key, len_bytes, 0, 0);
            store.wait_until(store.passed() + WRITTEN_AFTER);
            store.take_operations().iter().map(|operation| operation.at).max().unwrap_or(0)
        };
        Ok((0..).zip(OBJECT_BYTES).map(&mut place).collect::<Vec<_>>())
    })?;
    let between = |one: usize, other: usize| {
        let place = |number: usize| places[0].get(number).copied().unwrap_or(0);
        place(other).saturating_sub(place(one)) as f64
    };
    let block_bytes = super::paper_tuning().esp_block_bytes as f64;
    let printed = |what: &str, simulated: f64| Comparison::published("esp-blocks", what, simulated);
    let mut report = Report::new("ESP: worked examples of the allocator");
    report.comparisons = vec![
        printed("space of an object of 9 KB", between(0, 1) / 1024.0),
        printed("pos after 3 blocks", between(1, 2) / block_bytes),
        printed("pos after 2 more blocks", between(1, 3) / block_bytes),
    ];
    report.remarks.push(
        "Objects are stored one after the other, and the offset of an object's write shows its place. At the start, \
         all blocks after the first object are free, like the 16 blocks in the paper's drawing."
            .to_owned(),
    );
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::finished;
    use bytes::Bytes;
    use larder_device::{Device, MemoryDevice};
    use larder_store::{Hints, Store, StoreOptions};
    use std::sync::Arc;

    const ENTRIES: u64 = 200;
    const STORE_BYTES: u64 = 32 << 20;

    /// Returns the keys of the entries in a store.
    fn found(store: &Store) -> Vec<u64> {
        let is_found =
            |key: &u64| finished(store.get(&key.to_le_bytes())).is_some_and(|found| found.unwrap().is_some());
        (0..ENTRIES).filter(is_found).collect()
    }

    /// Guards against entries that a kill loses. `hashcache-basic` has about 192 of 200 entries after `kill -9`. An
    /// entry has only one place, as in the paper, so a later entry has overwritten each of the other eight before the
    /// kill.
    #[test]
    fn basic_loses_colliding_entries_and_none_to_a_kill() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(STORE_BYTES));
        let mut options = StoreOptions::new("", STORE_BYTES);
        options.policy = row("hashcache-basic");
        options.mean_entry_bytes = 8192;
        options.identity_seed = Some(1);
        options.background = false;
        let store = Store::open_on(Arc::clone(&device), &options).unwrap();
        let mut kept = Vec::new();
        let mut overwritten = 0;
        for key in 0..ENTRIES {
            let mut writer = store.insert(&key.to_le_bytes(), Bytes::new(), Hints::default()).unwrap();
            writer.write(Bytes::from(vec![7; 4000])).unwrap();
            finished(writer.commit()).unwrap().unwrap();
            finished(store.sync()).unwrap().unwrap();
            let before = std::mem::replace(&mut kept, found(&store));
            let lost = before.iter().filter(|known| !kept.contains(known)).count();
            assert!(lost <= 1 && kept.contains(&key), "one place, one entry: {lost}");
            overwritten += lost;
        }
        assert_eq!(kept.len() + overwritten, ENTRIES as usize);
        // The expected number of entries that fall on a place which a later one takes.
        let places = store.stats().entries_max as f64;
        let expected = ENTRIES as f64 - places * (1.0 - (1.0 - 1.0 / places).powi(ENTRIES as i32));
        println!("{overwritten} of {ENTRIES} entries were overwritten; expected {expected:.1} with {places} places");
        assert!((overwritten as f64 - expected).abs() < 3.0 * expected.sqrt(), "{overwritten}, expected {expected}");
        // A kill: the store is not closed, and another one opens what is on the device.
        let reopened = Store::open_on(device, &options).unwrap();
        assert_eq!(found(&reopened), kept);
        drop(store);
    }
}
