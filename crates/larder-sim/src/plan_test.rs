//! Compares plans with simulations: the ranking of all policies, for combinations of disk, memory and mean size.
//!
//! Owns: the combinations, the figures of a modeled device, the comparison, and the simulated gain of sorted reads.
//! `larder_store::plan` plans, and [`Experiment`] simulates. A plan gets what an operator can know: the device's
//! figures, lengths of objects, and the hits of an LRU of the store's size. Invariant: no plan gets a value of a
//! simulated policy, but for the gain of sorted reads, a constant of all plans. Policies are ranked by hits per second
//! of the disk, as plans do. Cost: a simulation for each policy, machine, mean size and set of chosen constants.

mod figures;
mod machines;

use crate::{Experiment, Model, Outcome, Report, SweepError, Table, eviction, parallel};
use figures::figures_of;
use larder_store::{
    Policy, Tuning, TuningValue,
    plan::{Plan, PlanWishes, PlannedRow, Sizes},
};
use larder_workload::{Workload, WorkloadRequest};
use std::time::Duration;

/// Mean length of the objects of the workload `zipf` in bytes, before they are scaled.
const ZIPF_MEAN_BYTES: f64 = 10_412.0;
/// Bytes of the head of an entry.
const HEAD_BYTES: u64 = 256;
/// Number of sampled object lengths that a plan gets.
const SAMPLE: u64 = 4000;
/// Ratio of two simulated rates at which their difference begins to matter. Below this ratio, plans treat the rates as
/// equal.
const CLEAR_DIFFERENCE: f64 = 1.25;
/// Share of a machine's disk that the store takes.
const STORE_SHARE: f64 = 0.5;
/// Share of the memory that the index may take in a plan.
const INDEX_SHARE: f64 = 0.75;
/// Name of a machine whose disk does not sort reads. The gain of sorted reads is shown for it.
const SORTED_MACHINE: &str = "hdd-7200";
const SORTED_POLICIES: [&str; 2] = ["log", "stream-pack"];
const SORTED_MEAN_BYTES: u64 = 4 << 10;

/// Settings of the comparison between plans and simulations.
#[derive(Clone, Debug)]
pub struct PlanTest {
    /// Names of the machines.
    pub machines: Vec<&'static str>,
    /// Mean lengths of the objects, in bytes.
    pub mean_bytes: Vec<u64>,
    /// Memory for the index, in bits for each object of 8 KiB that fits in the store.
    pub index_bits: Vec<f64>,
    /// Size of the simulated stores in bytes. They represent larger stores.
    pub simulated_bytes: u64,
    /// Seed of the workload.
    pub seed: u64,
    /// Number of simulations that run at the same time.
    pub jobs: usize,
}

impl Default for PlanTest {
    /// Returns settings for forty combinations: five machines, two mean lengths and four sizes of memory.
    fn default() -> Self {
        Self {
            machines: vec!["hdd-7200", "ssd-sata", "hashcache-sata", "hashcache-usb", "st15150wc-ext2"],
            mean_bytes: vec![4 << 10, 16 << 10],
            index_bits: vec![1.0, 16.0, 48.0, 800.0],
            simulated_bytes: 64 << 20,
            seed: 11,
            jobs: crate::jobs_default(),
        }
    }
}

/// A disk, a mean length and a memory, with the plan for them.
struct Combination {
    machine: &'static str,
    mean_bytes: u64,
    index_bits: f64,
    hit_ratio: f64,
    plan: Plan,
}

/// A simulation that some plans need.
#[derive(Clone, PartialEq)]
struct SimulatedRow {
    machine: &'static str,
    mean_bytes: u64,
    policy: &'static str,
    tuning: Tuning,
}

/// The disk's hits per second in each simulation.
struct SimulatedRates {
    rows: Vec<(SimulatedRow, f64)>,
}

/// The result of comparing the plan of one combination.
struct RankingResult {
    /// Description of the combination.
    what: String,
    recommended: &'static str,
    best: &'static str,
    /// Simulated hits per second of the recommended policy, as a share of those of the best policy.
    share_of_best: f64,
    /// Share of the pairs of policies that the plan puts in the same order as the simulation. Only pairs that differ
    /// clearly count.
    ordered_share: f64,
}

impl PlanTest {
    /// Runs the comparison. Calls `progress` with the number of simulations done since the last call, and the total
    /// number.
    ///
    /// # Errors
    /// If a store refuses its options.
    pub fn run(&self, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Report, SweepError> {
        let combinations = self.combinations();
        let sorted = SORTED_POLICIES.into_iter().flat_map(|policy| [false, true].map(|on| sorted_row(policy, on)));
        let needed = combinations.iter().flat_map(Combination::simulated_rows).chain(sorted);
        let simulated = self.simulate(needed, progress)?;
        let results = self.compare(&combinations, &simulated);
        let mut report = Report::new("Plans and simulations: ranking of all policies by hits per second of the disk");
        report.tables.push(ranking_table(&results));
        report.tables.push(self.rates(&combinations, &simulated));
        report.tables.push(sorted_reads(&simulated));
        let (machines, reasons) = machines::plans();
        report.tables.push(machines);
        report.tables.push(machines::markatos_table_2());
        report.remarks.extend(reasons);
        let good = results.iter().filter(|result| result.share_of_best * CLEAR_DIFFERENCE >= 1.0).count();
        report.remarks.push(format!(
            "In {good} of {} combinations, the recommended policy is within 25% of the best one that fits.",
            results.len()
        ));
        Ok(report)
    }

    /// Runs each simulation in `rows` once. Calls `progress` like [`PlanTest::run`].
    fn simulate(
        &self,
        rows: impl Iterator<Item = SimulatedRow>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<SimulatedRates, SweepError> {
        let mut needed: Vec<SimulatedRow> = Vec::new();
        for row in rows {
            if !needed.contains(&row) {
                needed.push(row);
            }
        }
        let total = needed.len() as u64;
        let outcomes = parallel::map(&needed, self.jobs, |row| {
            let outcome = self.simulate_row(row);
            progress(1, total);
            outcome.map_err(|error| SweepError::Store(row.policy.to_owned(), error))
        });
        let rates = outcomes.into_iter().map(|outcome| outcome.map(|one| one.per_s_disk() * one.hit_ratio()));
        let rates: Vec<f64> = rates.collect::<Result<_, _>>()?;
        Ok(SimulatedRates { rows: needed.into_iter().zip(rates).collect() })
    }

    fn compare(&self, combinations: &[Combination], simulated: &SimulatedRates) -> Vec<RankingResult> {
        combinations.iter().map(|combination| combination.compare(&simulated.rates_of(combination))).collect()
    }

    /// Returns a table of the planned and simulated rates of all policies, with enough memory for every index.
    fn rates(&self, combinations: &[Combination], simulated: &SimulatedRates) -> Table {
        let columns = ["machine, mean size, policy", "planned", "simulated", "planned / simulated"];
        let mut table = Table::new("Hits per second of the disk", &columns);
        let most_bits = self.index_bits.iter().copied().fold(0.0, f64::max);
        for combination in combinations.iter().filter(|combination| combination.index_bits == most_bits) {
            for (row, simulated) in combination.plan.rows.iter().zip(simulated.rates_of(combination)) {
                let Combination { machine, mean_bytes, .. } = combination;
                let planned = combination.planned_hits_per_s(row);
                let name = format!("{machine}, {} KiB, {}", mean_bytes >> 10, row.policy);
                table.push(name, vec![planned, simulated, planned / simulated]);
            }
        }
        table
    }

    fn combinations(&self) -> Vec<Combination> {
        let mut combinations = Vec::new();
        for &machine in &self.machines {
            let size_bytes = store_bytes(machine);
            let smaller = open(machine).smaller(size_bytes as f64 / self.simulated_bytes as f64);
            let figures = figures_of(&smaller, self.simulated_bytes);
            for &mean_bytes in &self.mean_bytes {
                let known = self.known_requests(mean_bytes);
                for &index_bits in &self.index_bits {
                    let index_bytes = size_bytes as f64 / 8192.0 * index_bits / 8.0;
                    let wishes = known.wishes(size_bytes, (index_bytes / INDEX_SHARE) as u64);
                    let hit_ratio = wishes.hit_ratio;
                    let plan = Plan::new(&wishes, &figures);
                    combinations.push(Combination { machine, mean_bytes, index_bits, hit_ratio, plan });
                }
            }
        }
        combinations
    }

    /// Returns requests for objects of this mean length.
    fn requests(&self, mean_bytes: u64) -> impl Iterator<Item = WorkloadRequest> + use<> {
        let times = mean_bytes as f64 / ZIPF_MEAN_BYTES;
        let unscaled_bytes = (self.simulated_bytes as f64 / times) as u64;
        let requests = Workload::named("zipf", self.seed, 0, unscaled_bytes).expect("it is a workload");
        requests.map(move |mut asked| {
            asked.request.size_bytes = ((asked.request.size_bytes as f64 * times) as u64).max(1);
            asked
        })
    }

    /// Returns how many requests fill the store several times.
    fn fill_count(&self, mean_bytes: u64) -> u64 {
        4 * self.simulated_bytes / mean_bytes
    }

    fn known_requests(&self, mean_bytes: u64) -> KnownRequests {
        let mut lru = eviction("lru", self.simulated_bytes).expect("there is an LRU");
        let mut lengths = Vec::new();
        let mut hits = 0_u64;
        let fill_count = self.fill_count(mean_bytes);
        for (number, asked) in (0..2 * fill_count).zip(self.requests(mean_bytes)) {
            let len_bytes = asked.request.size_bytes + HEAD_BYTES;
            let is_hit = lru.request(asked.request.key, len_bytes);
            if number < fill_count {
                continue;
            }
            if is_hit {
                hits += 1;
            } else if number.is_multiple_of(fill_count / SAMPLE + 1) {
                lengths.push(len_bytes);
            }
        }
        KnownRequests { hit_ratio: hits as f64 / fill_count as f64, sizes: Sizes::sample(lengths) }
    }

    fn simulate_row(&self, row: &SimulatedRow) -> Result<Outcome, larder_store::Error> {
        let policy = Policy::named(row.policy).expect("plans name policies");
        let size_bytes = store_bytes(row.machine);
        let mut experiment = Experiment::new(policy, open(row.machine), size_bytes, 0);
        experiment.mean_entry_bytes = Some(row.mean_bytes);
        experiment.tuning = row.tuning.clone();
        experiment.is_on_file_system = false;
        let fill_count = self.fill_count(row.mean_bytes);
        experiment.warm_up = fill_count;
        experiment.requests = fill_count;
        experiment.sampled(size_bytes / self.simulated_bytes).run(self.requests(row.mean_bytes))
    }
}

impl SimulatedRates {
    fn rate(&self, wanted: &SimulatedRow) -> f64 {
        self.rows.iter().find(|(row, _)| row == wanted).expect("it was simulated").1
    }

    /// Returns the simulated rates of the policies, in the order of the plan.
    fn rates_of(&self, combination: &Combination) -> Vec<f64> {
        combination.simulated_rows().map(|row| self.rate(&row)).collect()
    }
}

/// The properties of the requests that an operator would know.
struct KnownRequests {
    hit_ratio: f64,
    sizes: Sizes,
}

impl KnownRequests {
    fn wishes(&self, size_bytes: u64, memory_bytes: u64) -> PlanWishes {
        let mut wishes = PlanWishes::new(size_bytes, memory_bytes);
        wishes.sizes = self.sizes.clone();
        wishes.hit_ratio = self.hit_ratio;
        wishes.storable_share = 1.0;
        // The comparison is that of disks.
        wishes.processor_count = f64::INFINITY;
        wishes.request_cpu = Duration::ZERO;
        wishes.chooses_constants = true;
        wishes
    }
}

impl Combination {
    fn simulated_rows(&self) -> impl Iterator<Item = SimulatedRow> {
        self.plan.rows.iter().map(|row| SimulatedRow {
            machine: self.machine,
            mean_bytes: self.mean_bytes,
            policy: row.policy,
            tuning: row.tuning.clone(),
        })
    }

    fn planned_hits_per_s(&self, row: &PlannedRow) -> f64 {
        row.requests_per_second * row.hits_of_lru * self.hit_ratio
    }

    /// Compares the plan with the simulated hits per second of each policy.
    fn compare(&self, simulated: &[f64]) -> RankingResult {
        let rows: Vec<_> = self.plan.rows.iter().zip(simulated).filter(|(row, _)| row.fits && row.known).collect();
        let best = rows.iter().max_by(|one, other| one.1.total_cmp(other.1)).expect("policies without an index fit");
        let recommended = self.plan.recommended.expect("policies without an index fit");
        let chosen = rows.iter().find(|(row, _)| row.policy == recommended).expect("it fits");
        let mut pairs = 0_u64;
        let mut ordered = 0_u64;
        for (slower, slow) in &rows {
            for (faster, _) in rows.iter().filter(|(_, fast)| **fast > **slow * CLEAR_DIFFERENCE) {
                pairs += 1;
                ordered += u64::from(self.planned_hits_per_s(faster) > self.planned_hits_per_s(slower));
            }
        }
        let Self { machine, mean_bytes, index_bits, .. } = self;
        RankingResult {
            what: format!("{machine}, {} KiB, {index_bits} bits", mean_bytes >> 10),
            recommended,
            best: best.0.policy,
            share_of_best: chosen.1 / best.1,
            ordered_share: ordered as f64 / pairs.max(1) as f64,
        }
    }
}

fn ranking_table(results: &[RankingResult]) -> Table {
    let title = "The recommended policy, and the order of all that fit";
    let columns = [
        "machine, mean size, room for the index an object of 8 KiB; recommended; fastest simulated",
        "recommended / fastest",
        "pairs in order, %",
    ];
    let mut table = Table::new(title, &columns);
    for RankingResult { what, recommended, best, share_of_best, ordered_share } in results {
        table.push(format!("{what}; {recommended}; {best}"), vec![*share_of_best, ordered_share * 100.0]);
    }
    table
}

fn sorted_row(policy: &'static str, is_sorted: bool) -> SimulatedRow {
    let mut tuning = Tuning::default();
    tuning.set("sorted_reads", TuningValue::Switch(is_sorted)).expect("it is a constant");
    SimulatedRow { machine: SORTED_MACHINE, mean_bytes: SORTED_MEAN_BYTES, policy, tuning }
}

/// Returns a table of how much faster sorted reads are.
fn sorted_reads(simulated: &SimulatedRates) -> Table {
    let title = "Sorted reads: hits per second of the disk, of which the store takes half";
    let mut table = Table::new(title, &["machine, mean size, policy", "without", "with", "with / without"]);
    for policy in SORTED_POLICIES {
        let [without, with] = [false, true].map(|is_sorted| simulated.rate(&sorted_row(policy, is_sorted)));
        let name = format!("{SORTED_MACHINE}, {} KiB, {policy}", SORTED_MEAN_BYTES >> 10);
        table.push(name, vec![without, with, with / without]);
    }
    table
}

fn open(machine: &str) -> Model {
    Model::open(machine).expect("the machines that come along are right")
}

fn store_bytes(machine: &str) -> u64 {
    (open(machine).disk.capacity_bytes() * STORE_SHARE) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against a recommended policy with half the rate of another one, on the same disk.
    #[test]
    fn plans_rank_policies_as_simulations_do() {
        let test = PlanTest {
            machines: vec!["hdd-7200", "ssd-sata"],
            mean_bytes: vec![16 << 10],
            index_bits: vec![16.0, 800.0],
            simulated_bytes: 32 << 20,
            ..PlanTest::default()
        };
        let combinations = test.combinations();
        let rows = combinations.iter().flat_map(Combination::simulated_rows);
        let simulated = test.simulate(rows, &|_, _| {}).unwrap();
        for RankingResult { what, recommended, best, share_of_best, ordered_share } in
            test.compare(&combinations, &simulated)
        {
            let shown = format!("{what}: {recommended} has {share_of_best:.2} of the rate of {best}");
            assert!(share_of_best * CLEAR_DIFFERENCE >= 1.0, "{shown}");
            assert!(ordered_share > 0.75, "{what}: {ordered_share:.2} of the pairs are in order");
        }
    }
}
