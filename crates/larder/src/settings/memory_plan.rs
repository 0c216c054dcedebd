//! The memory of the process (`--memory`), and its division among the parts of the program.
//!
//! Owns: the choice for `--memory auto`, the size of each part, and the refusal of a size that is too small. While the
//! proxy runs, it keeps the process within this memory: its memory cache shrinks when other parts grow and, with
//! `auto`, when other programs need memory. Invariant: the parts add up to the memory of the process.

use crate::{
    ground::{failure::Failure, machine, size, value::BadValue},
    settings::{RunSettings, volumes},
};
use larder_proxy::{CONNECTIONS_SHARE, MachineMemory, MemoryLevel};
use larder_store::plan::{DeviceFigures, Plan, PlanWishes, Sizes};
use std::{fmt, num::NonZeroU64, process};

/// The memory of each part of the process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    pub(crate) volume_count: u64,
    /// Memory of the program itself and its threads.
    program: u64,
    /// Memory of the index, when it has the expected number of entries.
    pub(crate) index: u64,
    /// Memory of entries that wait to be written to disk.
    dirty: u64,
    /// Memory of buffers for reading from disk.
    reads: u64,
    /// Memory of bodies in transfer to clients.
    bodies: u64,
    connections: u64,
    cache: u64,
}

/// The inputs for a division of the memory.
#[derive(Clone, Copy, Debug)]
struct Needs {
    worker_count: u64,
    volume_count: u64,
    index: u64,
    /// The configured size of the memory cache. `None` if it is not configured.
    cache: Option<u64>,
    /// The configured memory for bodies in transfer. `None` if it is not configured.
    bodies: Option<u64>,
}

/// The configured memory of the whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TotalMemory {
    /// A share of the free memory. The proxy gives some of it back while other programs need memory.
    #[default]
    Auto,
    Bytes(u64),
}

impl TotalMemory {
    /// Parses a size, or `auto`.
    pub(crate) fn parse(text: &str) -> Result<Self, BadValue> {
        match text {
            "auto" => Ok(Self::Auto),
            size => size::parse(size).map(Self::Bytes).map_err(|bad| {
                BadValue::new(bad.problem, format!("{}; auto takes a part of the free memory", bad.help))
            }),
        }
    }
}

/// The memory of the process, and how it was divided.
#[derive(Clone, Debug)]
pub(crate) struct FittedMemory {
    pub(crate) plan: MemoryPlan,
    /// The reason why the program chose this amount of memory. `None` if the amount was configured.
    pub(crate) basis: Option<String>,
}

/// Divides the memory of the process, and adjusts the settings that depend on it.
///
/// Memory of the process `predecessor` counts as free, because that process ends when this one serves.
///
/// # Errors
/// The configured memory is too small. The failure says how much is needed.
pub(crate) fn fit(settings: &mut RunSettings, predecessor: Option<u32>) -> Result<FittedMemory, Failure> {
    let total = total_of(settings, predecessor)?;
    let (volume_count, index) = index_of(settings, total.bytes)?;
    divide(settings, total, volume_count, index)
}

/// Divides the memory again like [`fit`], for a store that is open and has `volume_count` volumes and an index of
/// `index` bytes.
///
/// # Errors
/// The configured memory is too small. The failure says how much is needed.
pub(crate) fn fit_with_index(settings: &mut RunSettings, volume_count: u64, index: u64) -> Result<(), Failure> {
    let total = total_of(settings, None)?;
    divide(settings, total, volume_count, index).map(drop)
}

/// Returns the memory for the index and the memory cache together.
///
/// # Errors
/// The path of the store cannot be used, or the configured memory is too small for `larder run`.
pub(crate) fn index_and_cache_bytes(settings: &RunSettings) -> Result<u64, Failure> {
    let ChosenTotal { bytes: total, basis } = total_of(settings, None)?;
    let proxy = &settings.proxy;
    let worker_count = proxy.worker_count as u64;
    let needs = Needs { worker_count, volume_count: 1, index: 0, cache: None, bodies: proxy.window_bytes };
    match (MemoryPlan::new(total, &needs), basis) {
        (Ok(plan), _) => Ok(plan.cache),
        // With `auto`, a machine with little memory gets the best division that is possible.
        (Err(_), Some(_)) => Ok(total),
        (Err(needed), None) => Err(too_small(total, needed)),
    }
}

fn divide(
    settings: &mut RunSettings,
    total: ChosenTotal,
    volume_count: u64,
    index: u64,
) -> Result<FittedMemory, Failure> {
    let ChosenTotal { mut bytes, mut basis } = total;
    let proxy = &mut settings.proxy;
    let worker_count = proxy.worker_count as u64;
    let needs = Needs { worker_count, volume_count, index, cache: settings.memory_cache, bodies: proxy.window_bytes };
    let plan = match (MemoryPlan::new(bytes, &needs), &mut basis) {
        (Ok(plan), _) => plan,
        // With `auto`, a machine with little memory gets the best division that is possible.
        (Err(needed), Some(basis)) => {
            bytes = needed;
            *basis = format!("{basis}, which is less than these settings need: the minimum is used");
            MemoryPlan::new(bytes, &needs).expect("it is the memory that is enough")
        }
        (Err(needed), None) => return Err(too_small(bytes, needed)),
    };
    (proxy.memory_bytes, proxy.hot_bytes, proxy.window_bytes) = (Some(bytes), plan.cache, Some(plan.bodies));
    proxy.exchange_bytes = Some(bytes.saturating_sub(plan.fixed_bytes()));
    proxy.memory_yields = basis.is_some().then(MachineMemory::of_this_process);
    if let Some(count) = NonZeroU64::new(volume_count) {
        settings.store.dirty_bytes_max = Some(plan.dirty / count);
        settings.store.index_bytes_max = Some((bytes / INDEX_SHARE_MAX).max(plan.index) / count);
    }
    Ok(FittedMemory { plan, basis })
}

fn too_small(total: u64, needed: u64) -> Failure {
    Failure::usage(
        format!("{} of --memory is too little for the whole process", size::show(total)),
        format!(
            "give at least {}, a smaller --memory-cache or --size, or fewer --workers; --memory auto uses what is \
             needed",
            size::show(needed)
        ),
    )
}

/// The memory of the process in bytes, and the reason why the program chose it. `basis` is `None` if it was configured.
#[derive(Debug)]
struct ChosenTotal {
    bytes: u64,
    basis: Option<String>,
}

fn total_of(settings: &RunSettings, predecessor: Option<u32>) -> Result<ChosenTotal, Failure> {
    if let TotalMemory::Bytes(bytes) = settings.memory {
        return Ok(ChosenTotal { bytes, basis: None });
    }
    let levels = MachineMemory::of_this_process().levels();
    // Memory that this process and its predecessor use counts as free.
    let own = [Some(process::id()), predecessor].into_iter().flatten().filter_map(machine::resident_bytes).sum();
    let sizes = volumes::wanted(&settings.store)?.into_iter().map(|options| options.size_bytes);
    Ok(automatic_total(&levels, own, sizes.reduce(u64::saturating_add)))
}

/// Returns a share of the free memory, for a process that already has `own` bytes and a store of `store_bytes`.
fn automatic_total(levels: &[MemoryLevel], own: u64, store_bytes: Option<u64>) -> ChosenTotal {
    let Some(least) = levels.iter().min_by_key(|level| level.available_bytes) else {
        let basis = "auto: the free memory is unknown".to_owned();
        return ChosenTotal { bytes: AUTOMATIC_BYTES_MIN, basis: Some(basis) };
    };
    let free = least.available_bytes.saturating_add(own);
    // More memory than the store's size would not be used by the memory cache.
    let useful = store_bytes.map_or(u64::MAX, |bytes| bytes.max(AUTOMATIC_BYTES_MIN));
    let free_shown = size::show(free / 1_000_000 * 1_000_000);
    let name = &least.name;
    let basis = if free / AUTOMATIC_SHARE > useful {
        format!("auto: enough for this store; {name} has {free_shown} free")
    } else {
        format!("auto: half of the {free_shown} that {name} has free")
    };
    ChosenTotal { bytes: (free / AUTOMATIC_SHARE).min(useful), basis: Some(basis) }
}

/// Returns the number of volumes, and the memory of all their indexes.
fn index_of(settings: &RunSettings, total: u64) -> Result<(u64, u64), Failure> {
    let mut count = 0;
    let mut index = 0;
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
    /// Divides `total`. If it is too small, returns a size that suffices.
    fn new(total: u64, needs: &Needs) -> Result<Self, u64> {
        let plan = Self::without_remainder(total, needs);
        if plan.sum() > total {
            return Err(Self::enough(plan.sum(), needs));
        }
        let cache = needs.cache.unwrap_or(plan.cache + total - plan.sum());
        Ok(Self { cache, ..plan })
    }

    /// Divides `total` among the parts. The memory cache gets its configured size, or the minimum.
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

    /// Returns a total that suffices, even after it was rounded for display. Repeats the division, because some parts
    /// grow with the total.
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
            (bodies, "bodies in transfer"),
            (connections, "connections"),
            (cache, "memory cache"),
        ]
    }

    /// Returns the bytes of all parts except connections and the memory cache, which share what is left.
    fn fixed_bytes(&self) -> u64 {
        self.sum() - self.connections - self.cache
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

/// With `auto`, the process gets the free memory divided by this number.
const AUTOMATIC_SHARE: u64 = 2;
const AUTOMATIC_BYTES_MIN: u64 = 256 << 20;
/// Memory of a program that has served requests, without its workers, in bytes. Most of it is code.
const PROGRAM_BYTES: u64 = 21 << 20;
/// Memory of a worker, in bytes: its stack, its rings, and the allocator's cache for it.
const WORKER_BYTES: u64 = 512 << 10;
/// Memory of the read buffers that a worker keeps, in bytes.
const READ_BYTES: u64 = 5 << 19;
/// Entries that wait to be written get the memory of the process divided by this number, within bounds.
const DIRTY_SHARE: u64 = 16;
const DIRTY_BYTES_MIN: u64 = 2 << 20;
const DIRTY_BYTES_MAX: u64 = 32 << 20;
/// Bodies in transfer get the memory of the process divided by this number, but at least [`BODIES_BYTES_MIN`].
const BODIES_SHARE: u64 = 8;
const BODIES_BYTES_MIN: u64 = 2 << 20;
/// The index gets at most the memory of the process divided by this number.
const INDEX_SHARE_MAX: u64 = 4;
/// Minimum size of the memory cache, in bytes.
const CACHE_BYTES_MIN: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs = Needs { worker_count: 2, volume_count: 1, index: 1_000_000, cache: None, bodies: None };

    #[test]
    fn parts_add_up_to_the_memory_that_was_given() {
        for total in [42_000_000, 64_000_000, 256_000_000, 1_000_000_000, 64_000_000_000] {
            let plan = MemoryPlan::new(total, &NEEDS).unwrap();
            assert_eq!(plan.sum(), total, "{plan}");
            assert!(plan.cache >= CACHE_BYTES_MIN, "{plan}");
        }
        let plan = MemoryPlan::new(64_000_000, &NEEDS).unwrap().to_string();
        assert!(plan.starts_with("64 MB in all: ") && plan.ends_with(" memory cache"), "{plan}");
    }

    #[test]
    fn automatic_memory_is_half_of_what_the_tightest_group_has_free() {
        let level = |name: &str, total_bytes, available_bytes| MemoryLevel {
            name: name.to_owned(),
            total_bytes,
            available_bytes,
            stalled_us: 0,
            reached_count: 0,
        };
        let machine = level("the machine", 24_000_000_000, 20_000_000_000);
        let group = level("/g/memory.high", 2_000_000_000, 990_000_000);
        let chosen = automatic_total(&[machine.clone(), group], 10_000_000, None);
        assert_eq!(chosen.bytes, 500_000_000, "{chosen:?}");
        assert_eq!(chosen.basis.unwrap(), "auto: half of the 1 GB that /g/memory.high has free");
        let chosen = automatic_total(std::slice::from_ref(&machine), 0, Some(1_000_000_000));
        assert_eq!(chosen.bytes, 1_000_000_000, "no more than the store holds: {chosen:?}");
        let chosen = automatic_total(&[machine], 0, Some(64 << 20));
        assert_eq!(chosen.bytes, AUTOMATIC_BYTES_MIN, "{chosen:?}");
        assert_eq!(automatic_total(&[], 0, None).bytes, AUTOMATIC_BYTES_MIN);
    }

    #[test]
    fn automatic_memory_that_is_too_small_becomes_the_least_that_is_enough() {
        let mut settings = RunSettings { memory_cache: Some(100_000_000), ..RunSettings::default() };
        let total = ChosenTotal { bytes: 10_000_000, basis: Some("auto: little".to_owned()) };
        let fitted = divide(&mut settings, total, 0, 0).unwrap();
        assert_eq!((fitted.plan.cache, settings.proxy.memory_yields.is_some()), (100_000_000, true));
        assert!(fitted.basis.unwrap().starts_with("auto: little, which is less than"));
        let given = ChosenTotal { bytes: 10_000_000, basis: None };
        assert!(divide(&mut settings, given, 0, 0).is_err());
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
    fn memory_that_cannot_hold_its_bound_is_refused() {
        let enough = MemoryPlan::new(32_000_000, &NEEDS).unwrap_err();
        assert!((36_000_000..44_000_000).contains(&enough), "{enough}");
    }

    #[test]
    fn connections_and_exchanges_get_all_that_the_fixed_parts_leave() {
        let given = || ChosenTotal { bytes: 64_000_000, basis: None };
        let mut settings = RunSettings::default();
        let plan = divide(&mut settings, given(), 1, 1_000_000).unwrap().plan;
        assert_eq!(settings.proxy.exchange_bytes, Some(plan.connections + plan.cache));
        let mut settings = RunSettings { memory_cache: Some(2_000_000), ..RunSettings::default() };
        let small = divide(&mut settings, given(), 1, 1_000_000).unwrap().plan;
        assert_eq!(small.cache, 2_000_000);
        assert_eq!(settings.proxy.exchange_bytes, Some(plan.connections + plan.cache), "a smaller cache leaves more");
    }

    #[test]
    fn memory_cache_has_the_size_that_was_given() {
        let plan = MemoryPlan::new(256_000_000, &Needs { cache: Some(50_000_000), ..NEEDS }).unwrap();
        assert_eq!(plan.cache, 50_000_000);
        assert!(plan.sum() <= 256_000_000);
    }
}
