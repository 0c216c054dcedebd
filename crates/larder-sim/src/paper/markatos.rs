//! The runs of Markatos et al. (USITS 1999): a fixed number of their pipeline's operations on a policy.
//!
//! Owns: the configuration that makes a policy behave like the paper's policy of that name. As in the paper's
//! simulator, the pipeline decides which documents are on the disk, so the store has room for all and never evicts.
//! Invariant: one machine file and one workload for all policies.

mod figures;
mod operations;
mod sensitivity;
mod tables;

use super::beds::{constant, whole};
use crate::{
    DiskWork, Model, Operation, OperationCounts, Pipeline, PipelineAssumptions, SimStore, SimStoreOptions, StoreEvents,
};
use larder_device::IgnorePoison;
use larder_store::{Error, LayoutAxis, Policy, TuningValue};
use std::{collections::HashMap, sync::Mutex, time::Duration};

pub(super) use figures::{figure_2, figure_4, figure_5, figure_6, figure_7, figure_8};
pub(super) use operations::figure_3;
pub(super) use tables::{footnote_2, table_1, table_2};

/// Name of the machine on which the runs are simulated.
const MACHINE: &str = "st15150wc-ufs";
/// A timeout so long that it never ends a wait of the engine, as in the paper.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// A run of Markatos' method: a policy and a number of operations.
#[derive(Clone, Debug)]
pub struct MarkatosRun {
    /// The policy.
    pub policy: &'static Policy,
    /// Seed of the workload.
    pub seed: u64,
    /// Number of reads, writes and deletes.
    pub operations: u64,
    /// Size of the second level, the disk, in bytes.
    pub disk_bytes: u64,
    /// Share of the file that documents take, in percent, for policies with one file.
    pub utilization_percent: f64,
    /// Assumptions about the second level.
    pub assumed: PipelineAssumptions,
    /// Number of operations before those that are counted.
    pub warm_up: u64,
    /// Whether reads of the disk are left out, to measure what they cost.
    pub leaves_out_reads: bool,
    /// Constants of the policy that differ from the defaults, each with its name.
    pub tuned: Vec<(&'static str, TuningValue)>,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct MarkatosOutcome {
    /// Number of operations of each kind.
    pub counts: OperationCounts,
    /// Virtual time that the counted operations took.
    pub passed: Duration,
    /// Number of events in the store since it was opened.
    pub happened: StoreEvents,
    /// Operations that the disk has done.
    pub served: DiskWork,
}

/// The results of runs that were simulated before, because several tables and figures need the same runs.
#[derive(Debug, Default)]
pub struct KnownRuns(Mutex<HashMap<String, MarkatosOutcome>>);

impl KnownRuns {
    /// Returns the result of `run` on `model`. Simulates it only if it is not known.
    fn run(&self, run: &MarkatosRun, model: &Model) -> Result<MarkatosOutcome, Error> {
        let mut key = run.clone();
        if run.policy.layout.keeps_files() {
            // Such a store does not depend on the size of one file.
            key.utilization_percent = 0.0;
        }
        let key = format!("{key:?} {model:?}");
        let lock = || self.0.lock().ignore_poison();
        if let Some(known) = lock().get(&key) {
            return Ok(*known);
        }
        let outcome = run.run(model)?;
        lock().insert(key, outcome);
        Ok(outcome)
    }
}

impl MarkatosOutcome {
    /// Returns the requests per second.
    pub fn gets_per_s(&self) -> f64 {
        self.counts.gets as f64 / self.passed.as_secs_f64()
    }
}

impl MarkatosRun {
    /// Returns the run of Table 2 for a policy: 300,000 operations on 1 GB for policies with many files, and a million
    /// on 2 GB for others.
    pub fn table_2(policy: &'static Policy, seed: u64) -> Self {
        let is_small = policy.layout.keeps_files();
        Self {
            policy,
            seed,
            operations: whole(if is_small { "markatos.small_operations" } else { "markatos.operations" }),
            disk_bytes: whole(if is_small { "markatos.small_disk_bytes" } else { "markatos.disk_bytes" }),
            utilization_percent: constant("markatos.utilization_percent"),
            assumed: PipelineAssumptions::default(),
            warm_up: 0,
            leaves_out_reads: false,
            tuned: Vec::new(),
        }
    }

    /// Runs the operations on `model`.
    ///
    /// # Errors
    /// If the store refuses its options.
    pub fn run(&self, model: &Model) -> Result<MarkatosOutcome, Error> {
        let mut bed = SimStore::new(model, &self.bed_options()?)?;
        let mut pipeline =
            Pipeline::new(self.seed, whole("markatos.memory_bytes"), self.disk_bytes).assuming(self.assumed);
        let mut gets = 0;
        let mut before = (bed.passed(), bed.served(), pipeline.counts());
        while pipeline.counts().operations() < self.warm_up + self.operations {
            if pipeline.counts().operations() <= self.warm_up {
                before = (bed.passed(), bed.served(), pipeline.counts());
            }
            let Some(operation) = pipeline.next() else { break };
            bed.handle_requests(pipeline.counts().gets - gets);
            gets = pipeline.counts().gets;
            match operation {
                Operation::Read(_) if self.leaves_out_reads => {}
                Operation::Read(document) => {
                    bed.look_up(document.number);
                }
                Operation::Write(document) => {
                    bed.store(document.number, document.size_bytes, document.server, 0);
                }
                Operation::Delete(number) => bed.remove(number),
            }
        }
        let (passed, served, counts) = before;
        Ok(MarkatosOutcome {
            counts: pipeline.counts().since(counts),
            passed: bed.passed() - passed,
            happened: bed.happened(),
            served: bed.served().since(served),
        })
    }

    fn bed_options(&self) -> Result<SimStoreOptions, Error> {
        let size_bytes = match self.policy.layout.keeps_files() {
            true => whole("markatos.room_bytes"),
            false => (self.disk_bytes as f64 * 100.0 / self.utilization_percent) as u64 / 4096 * 4096,
        };
        let mut tuning = super::paper_tuning();
        // The pipeline decides which documents are deleted.
        tuning.set("stream_used_percent", TuningValue::Number(95))?;
        tuning.set("buddy_used_percent", TuningValue::Number(99))?;
        tuning.set("squid_directory_files", TuningValue::Number(1))?;
        tuning.set("read_batch_time_out", TuningValue::Time(Duration::from_secs(1)))?;
        for &(name, value) in &self.tuned {
            tuning.set(name, value)?;
        }
        debug_assert!(self.policy.layout != LayoutAxis::Segments, "the paper has no segments");
        let mut options = SimStoreOptions::new(self.policy, size_bytes);
        options.mean_entry_bytes = Some(whole("markatos.index_entry_bytes"));
        options.is_raw = false;
        options.tuning = tuning;
        options.flush_interval = LONG;
        Ok(options)
    }
}
