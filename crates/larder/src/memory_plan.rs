//! How the memory that `--memory` gives to the whole process is divided among its parts.
//!
//! Owns: the size of each part, and the refusal of a memory that is too small. Does not: hold the process to it while
//! it runs: the proxy does, whose memory cache gives way when other parts grow. Invariant: the parts add up to the
//! memory that was given.

use crate::{failure::Failure, settings::RunSettings, size, volumes};
use larder_store::plan::{DeviceFigures, Plan, PlanWishes, Sizes};
use std::{fmt, num::NonZeroU64};

/// The parts of the memory of the whole process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    pub(crate) volume_count: u64,
    /// The program itself, and its threads.
    program: u64,
    /// The index, with as many entries as are expected.
    pub(crate) index: u64,
    /// Entries that wait to be written to disk.
    dirty: u64,
    /// Buffers for reading from disk.
    reads: u64,
    /// Bodies on their way to clients.
    bodies: u64,
    connections: u64,
    cache: u64,
}

/// The basis of a plan.
#[derive(Clone, Copy, Debug)]
struct Needs {
    worker_count: u64,
    volume_count: u64,
    index: u64,
    /// The memory cache, if its size was given.
    cache: Option<u64>,
    /// Bodies on their way, if their memory was given.
    bodies: Option<u64>,
}

/// Divides the memory that was given, and sets what follows from it; `None` if none was given for the whole process.
///
/// # Errors
/// The memory is too small: says how much is needed.
pub(crate) fn fit(settings: &mut RunSettings) -> Result<Option<MemoryPlan>, Failure> {
    let Some(total) = settings.proxy.memory_bytes else { return fit_with_index(settings, 0, 0) };
    let (volume_count, index) = index_of(settings, total)?;
    fit_with_index(settings, volume_count, index)
}

/// As [`fit`], for a store that is open.
///
/// # Errors
/// As [`fit`].
pub(crate) fn fit_with_index(
    settings: &mut RunSettings,
    volume_count: u64,
    index: u64,
) -> Result<Option<MemoryPlan>, Failure> {
    let proxy = &mut settings.proxy;
    let Some(total) = proxy.memory_bytes else {
        proxy.hot_bytes = settings.memory_cache.unwrap_or(proxy.hot_bytes);
        return Ok(None);
    };
    let worker_count = proxy.worker_count as u64;
    let needs = Needs { worker_count, volume_count, index, cache: settings.memory_cache, bodies: proxy.window_bytes };
    let plan = MemoryPlan::new(total, &needs).map_err(|needed| {
        Failure::usage(
            format!("--memory is for the whole process, and {} are too little for it", size::show(total)),
            format!(
                "give at least {}, a smaller --memory-cache or --size, or fewer --workers; without --memory only the memory cache is \
                 bounded",
                size::show(needed)
            ),
        )
    })?;
    (proxy.hot_bytes, proxy.window_bytes) = (plan.cache, Some(plan.bodies));
    if let Some(count) = NonZeroU64::new(volume_count) {
        settings.store.dirty_bytes_max = Some(plan.dirty / count);
        settings.store.index_bytes_max = Some((total / INDEX_SHARE_MAX).max(plan.index) / count);
    }
    Ok(Some(plan))
}

/// Returns the memory that index and memory cache have together.
pub(crate) fn index_and_cache_bytes(settings: &RunSettings) -> u64 {
    let proxy = &settings.proxy;
    let cache = settings.memory_cache.unwrap_or(proxy.hot_bytes);
    let Some(total) = proxy.memory_bytes else { return cache };
    let worker_count = proxy.worker_count as u64;
    let needs = Needs { worker_count, volume_count: 1, index: 0, cache: None, bodies: proxy.window_bytes };
    // One that is too small is refused elsewhere, with what would do.
    MemoryPlan::new(total, &needs).map_or(total, |plan| plan.cache)
}

/// Returns how many volumes there are, and what the index of all of them takes.
fn index_of(settings: &RunSettings, total: u64) -> Result<(u64, u64), Failure> {
    let (mut count, mut index) = (0, 0);
    for options in volumes::wanted(&settings.store)? {
        let mut wishes = PlanWishes::new(options.size_bytes, total);
        wishes.sizes = Sizes::Mean(options.mean_entry_bytes as f64);
        wishes.tuning = options.tuning.clone();
        let plan = Plan::new(&wishes, &DeviceFigures::typical_solid_state());
        let row = plan.rows.iter().find(|row| row.policy == options.policy.name);
        index += row.map_or(0, |row| row.index_bytes as u64);
        count += 1;
    }
    Ok((count, index))
}

impl MemoryPlan {
    /// Divides `total`; or returns how much is enough.
    fn new(total: u64, needs: &Needs) -> Result<Self, u64> {
        let plan = Self::without_remainder(total, needs);
        if plan.sum() > total {
            return Err(Self::enough(plan.sum(), needs));
        }
        let cache = needs.cache.unwrap_or(plan.cache + total - plan.sum());
        Ok(Self { cache, ..plan })
    }

    /// Returns the parts with the least memory cache.
    fn without_remainder(total: u64, needs: &Needs) -> Self {
        let Needs { worker_count, volume_count, index, cache, bodies } = *needs;
        let has_store = volume_count > 0;
        Self {
            volume_count,
            program: PROGRAM_BYTES + worker_count * WORKER_BYTES,
            index,
            dirty: if has_store { (total / DIRTY_SHARE).clamp(DIRTY_BYTES_MIN, DIRTY_BYTES_MAX) } else { 0 },
            reads: if has_store { worker_count * READ_BYTES } else { 0 },
            bodies: bodies.unwrap_or((total / BODIES_SHARE).max(BODIES_BYTES_MIN)),
            connections: total / CONNECTIONS_SHARE,
            cache: cache.unwrap_or(CACHE_BYTES_MIN),
        }
    }

    /// Returns a memory that is enough, even when it is shown rounded. Some parts grow with the whole.
    fn enough(mut total: u64, needs: &Needs) -> u64 {
        loop {
            let needed = Self::without_remainder(total, needs).sum();
            if needed <= total {
                return total + total / 100;
            }
            total = needed;
        }
    }

    /// Returns the bytes of each part, with its name.
    fn parts(&self) -> [(u64, &'static str); 7] {
        let Self { volume_count: _, program, index, dirty, reads, bodies, connections, cache } = *self;
        [
            (program, "program"),
            (index, "index"),
            (dirty, "entries to be written"),
            (reads, "read buffers"),
            (bodies, "bodies on their way"),
            (connections, "connections"),
            (cache, "memory cache"),
        ]
    }

    fn sum(&self) -> u64 {
        self.parts().iter().map(|(bytes, _)| bytes).sum()
    }
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in all:", size::show(self.sum()))?;
        for (number, (bytes, name)) in self.parts().into_iter().filter(|(bytes, _)| *bytes > 0).enumerate() {
            write!(f, "{} {} {name}", if number == 0 { "" } else { "," }, size::show(bytes))?;
        }
        Ok(())
    }
}

/// The memory of a program that has just started, without its workers: most of it is code.
const PROGRAM_BYTES: u64 = 14 << 20;
/// The memory of a worker: its stack, its rings, and the allocator's cache for it.
const WORKER_BYTES: u64 = 512 << 10;
/// The buffers that a worker keeps to read into.
const READ_BYTES: u64 = 5 << 19;
/// The part of the memory for entries that wait to be written, and its bounds.
const DIRTY_SHARE: u64 = 16;
const DIRTY_BYTES_MIN: u64 = 2 << 20;
const DIRTY_BYTES_MAX: u64 = 32 << 20;
/// The part for bodies on their way, and the least of it.
const BODIES_SHARE: u64 = 8;
const BODIES_BYTES_MIN: u64 = 2 << 20;
/// The part for connections and exchanges; the memory cache gives way to more.
const CONNECTIONS_SHARE: u64 = 16;
/// The most that the index may grow to, at the cost of the memory cache, as a part of the whole.
const INDEX_SHARE_MAX: u64 = 4;
/// The least that is worth to be called a memory cache.
const CACHE_BYTES_MIN: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs = Needs { worker_count: 2, volume_count: 1, index: 1_000_000, cache: None, bodies: None };

    #[test]
    fn parts_add_up_to_the_memory_that_was_given() {
        for total in [32_000_000, 64_000_000, 256_000_000, 1_000_000_000, 64_000_000_000] {
            let plan = MemoryPlan::new(total, &NEEDS).unwrap();
            assert_eq!(plan.sum(), total, "{plan}");
            assert!(plan.cache >= CACHE_BYTES_MIN, "{plan}");
        }
        let plan = MemoryPlan::new(64_000_000, &NEEDS).unwrap().to_string();
        assert!(plan.starts_with("64 MB in all: ") && plan.ends_with(" memory cache"), "{plan}");
    }

    #[test]
    fn memory_that_is_too_small_is_refused_with_what_would_do() {
        for needs in [
            NEEDS,
            Needs { cache: Some(100_000_000), ..NEEDS },
            Needs { bodies: Some(50_000_000), ..NEEDS },
            Needs { volume_count: 0, index: 0, ..NEEDS },
        ] {
            let enough = MemoryPlan::new(10_000_000, &needs).unwrap_err();
            assert!(MemoryPlan::new(enough, &needs).is_ok(), "{needs:?} {enough}");
            assert!(MemoryPlan::new(enough / 20 * 19, &needs).is_err(), "{needs:?} {enough}");
        }
    }

    #[test]
    fn memory_cache_has_the_size_that_was_given() {
        let plan = MemoryPlan::new(256_000_000, &Needs { cache: Some(50_000_000), ..NEEDS }).unwrap();
        assert_eq!(plan.cache, 50_000_000);
        assert!(plan.sum() <= 256_000_000);
    }
}
