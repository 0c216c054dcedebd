//! Chooses constants for a plan: HashCache's sizes of bins, sets and tags, and the shares of disk and memory that
//! depend on them; and whether reads are sorted.
//!
//! Owns: the candidates, the choice among them, and the advice about constants that cost more than they gain. The plan
//! predicts each. Invariant: a constant that the operator has set stays, and so does one that differs from its default.
//! Cost: up to 2,500 predictions for a policy, each a few microseconds.

use super::{DeviceFigures, PlanWishes, PlannedRow, hits_per_second, planned};
use crate::{
    Tuning, TuningKind, TuningValue,
    policy::{EngineRow, LocatedRow, LogRow, MappedRow, Policy, ReadAxis, TableRow, mean_rest_bytes},
};

/// A tuning constant, and the values that a plan tries for it.
struct Candidates {
    name: &'static str,
    values: Vec<TuningValue>,
}

impl Candidates {
    fn numbers(name: &'static str, values: impl IntoIterator<Item = u64>) -> Self {
        Self { name, values: values.into_iter().map(TuningValue::Number).collect() }
    }

    /// Returns the constants that `policy` uses, each with the values to try.
    fn of(policy: &Policy) -> Vec<Self> {
        let powers = |from: u32, to: u32| (from..=to).map(|power| 1 << power);
        let bins = Self::numbers("hashcache_bin_bytes", powers(12, 20));
        let ways = Self::numbers("hashcache_ways", powers(1, 4));
        let tags = Self::numbers("hashcache_tag_bits", (4..=16).step_by(2));
        let sorted_reads = Self { name: SORTED_READS, values: [false, true].map(TuningValue::Switch).to_vec() };
        match policy.engine {
            EngineRow::Table(TableRow::Bins) => vec![bins],
            EngineRow::Table(TableRow::Sets) => vec![bins, ways],
            EngineRow::Table(TableRow::TaggedSets) => vec![bins, ways, tags],
            EngineRow::Table(TableRow::RecentlyTaggedSets) => {
                let values = (1..=9).map(|tenths| TuningValue::Share(f64::from(tenths) / 10.0)).collect();
                vec![bins, ways, tags, Self { name: RESIDENT_SHARE, values }]
            }
            EngineRow::Log(LogRow::Located(LocatedRow::Plain)) => vec![ways, tags, sorted_reads],
            EngineRow::Log(LogRow::Located(LocatedRow::Grouped)) => vec![ways, tags],
            EngineRow::Log(LogRow::Located(LocatedRow::Recent)) => {
                vec![ways, tags, Self::numbers("hashcache_positions", 1..=15)]
            }
            EngineRow::Log(LogRow::Packed(_)) => vec![sorted_reads],
            // Not in policies that read groups or clusters, which lose, nor in those that read at a miss.
            EngineRow::Mapped(MappedRow::Slots(_) | MappedRow::Bitmap) if policy.reads != ReadAxis::SortedBatches => {
                vec![sorted_reads]
            }
            EngineRow::Mapped(_) | EngineRow::Clusters | EngineRow::Tiny => Vec::new(),
        }
    }
}

/// Returns the prediction for `policy` with the constants that give the most hits per second. Only constants whose
/// index fits in the memory are considered.
///
/// Among constants that are about equally fast, those with the smallest index win, because the memory cache gets the
/// remainder. If no index fits, the constants stay as they are.
pub(super) fn planned_best(policy: &'static Policy, wishes: &PlanWishes, figures: &DeviceFigures) -> PlannedRow {
    let mut tunings = vec![wishes.tuning.clone()];
    for candidates in Candidates::of(policy).iter().filter(|candidates| is_free(candidates.name, wishes)) {
        tunings = tunings.iter().flat_map(|tuning| with_each(tuning, candidates)).collect();
    }
    let rows: Vec<PlannedRow> = tunings
        .into_iter()
        .filter(|tuning| {
            // More positions than a set has entries are no use, but the operator's own number stays.
            let kept = wishes.tuning.hashcache_positions;
            tuning.hashcache_positions <= tuning.hashcache_ways || tuning.hashcache_positions == kept
        })
        .map(|tuning| planned(policy, wishes, &with_ring_for_bins(policy, wishes, tuning), figures))
        .filter(|row| !is_free(RESIDENT_SHARE, wishes) || saves_memory(policy, row))
        .collect();
    let best = rows.iter().filter(|row| row.fits).map(hits_per_second).fold(0.0, f64::max);
    let is_candidate = |row: &&PlannedRow| row.fits && hits_per_second(row) >= best * AS_FAST;
    let shortest = rows.iter().filter(is_candidate).map(|row| row.index_bytes).fold(f64::INFINITY, f64::min);
    let fastest = rows
        .into_iter()
        .filter(|row| is_candidate(&row) && row.index_bytes <= shortest * AS_SHORT)
        // Of equal ones the first, which has the smallest values.
        .rev()
        .max_by(|one, other| hits_per_second(one).total_cmp(&hits_per_second(other)));
    let Some(mut row) = fastest else { return planned(policy, wishes, &wishes.tuning, figures) };
    row.constants = flags(&row.tuning, &wishes.tuning);
    row
}

/// Returns whether keeping only recently used sets in memory (`hashcache-setmem-lru`) saves memory. Each set in memory
/// also needs its number and a place in the order of use. If more than about half of the sets are kept, keeping all of
/// them (`hashcache-setmem`) takes less memory and is faster. `true` for all other policies.
fn saves_memory(policy: &Policy, row: &PlannedRow) -> bool {
    let all_bits = f64::from(row.tuning.hashcache_tag_bits + row.tuning.hashcache_ways.ilog2());
    policy.engine != EngineRow::Table(TableRow::RecentlyTaggedSets) || row.index_bits < all_bits
}

/// Returns whether the plan may choose the constant `name`: it has its default, and the operator did not set it.
fn is_free(name: &str, wishes: &PlanWishes) -> bool {
    wishes.tuning.value(name) == Tuning::default().value(name) && !wishes.set_constants.contains(&name)
}

/// Returns advice on constants in `wishes` that cost more than they gain.
pub(super) fn advice(wishes: &PlanWishes) -> Vec<String> {
    let mut advice = Vec::new();
    if wishes.tuning.sorted_reads {
        advice.push(format!(
            "{SORTED_READS} costs policies that read groups or clusters almost half of their rate (measured: \
             hashcache-log 499 instead of 915 requests/s, ucfs 418 instead of 760)"
        ));
    }
    advice
}

fn with_each(tuning: &Tuning, candidates: &Candidates) -> Vec<Tuning> {
    let with = |value: &TuningValue| {
        let mut tuning = tuning.clone();
        tuning.set(candidates.name, *value).expect("candidates are in the range of their constant");
        tuning
    };
    candidates.values.iter().map(with).collect()
}

/// Divides the volume between bins and the ring for the remainders of long entries, so that both are full at the same
/// time.
fn with_ring_for_bins(policy: &Policy, wishes: &PlanWishes, mut tuning: Tuning) -> Tuning {
    const NAME: &str = "hashcache_ring_share";
    if matches!(policy.engine, EngineRow::Table(_)) && is_free(NAME, wishes) {
        let rest = mean_rest_bytes(&|bytes| wishes.sizes.share_longer_than(bytes), tuning.hashcache_bin_bytes);
        let share = rest / (rest + tuning.hashcache_bin_bytes as f64);
        tuning.hashcache_ring_share = ((share * 100.0).ceil() / 100.0).clamp(0.01, 0.9);
    }
    tuning
}

/// Returns the constants in `tuning` that differ from `before`, in the form `name=value` of `--tune`.
fn flags(tuning: &Tuning, before: &Tuning) -> Vec<String> {
    let changed = Tuning::fields().iter().filter(|field| tuning.value(field.name) != before.value(field.name));
    changed
        .filter_map(|field| Some(format!("{}={}", field.name, shown(&field.kind, tuning.value(field.name)?))))
        .collect()
}

fn shown(kind: &TuningKind, value: TuningValue) -> String {
    match value {
        TuningValue::Number(bytes) if matches!(kind, TuningKind::Power(_) | TuningKind::Bytes(_)) => match bytes % 1024
        {
            0 => format!("{}KiB", bytes >> 10),
            _ => bytes.to_string(),
        },
        TuningValue::Number(number) => number.to_string(),
        TuningValue::Switch(is_on) => if is_on { "on" } else { "off" }.to_owned(),
        TuningValue::Time(time) => format!("{}ms", time.as_millis()),
        TuningValue::Share(share) => share.to_string(),
        TuningValue::Word(word) => word.to_owned(),
    }
}

const RESIDENT_SHARE: &str = "hashcache_resident_share";
const SORTED_READS: &str = "sorted_reads";
/// Constants with at least this share of the best hits per second count as equally fast, because smaller differences
/// are within the error of the predictions.
const AS_FAST: f64 = 0.99;
/// Factor by which an index may be larger than the smallest one, and still counts as equally small.
const AS_SHORT: f64 = 1.000_001;
