//! The settings of a reproduction, and the policies as the papers' authors ran them.

use super::{markatos::KnownRuns, varied};
use crate::{Model, Table, parallel};
use larder_store::{Error, Policy, Tuning};

/// Settings of a reproduction.
pub struct PaperOptions<'a> {
    /// Seed of the workload.
    pub seed: u64,
    /// Number of simulations run at once.
    pub jobs: usize,
    /// Share of the paper's operations to run; less than 1 for a quick look.
    pub share: f64,
    /// A machine to use instead of the paper's.
    pub model: Option<Model>,
    /// Whether tables that vary an assumption are simulated too. No line depends on them.
    pub varies_assumptions: bool,
    /// Runs that other reports have made already.
    pub known: &'a KnownRuns,
    /// Called after each simulation with 1. A dry run calls it with the number of simulations that it leaves out.
    pub progress: &'a (dyn Fn(u64) + Sync),
    /// Builds the report without simulating. All its lines are present, but their values are meaningless.
    pub dry_run: bool,
}

impl PaperOptions<'_> {
    /// Runs independent simulations in parallel and reports progress after each. A dry run returns empty results.
    pub(super) fn each<T: Sync, R: Send + Default>(
        &self,
        items: &[T],
        run: impl Fn(&T) -> Result<R, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        if self.dry_run {
            (self.progress)(items.len() as u64);
            return Ok(items.iter().map(|_| R::default()).collect());
        }
        let scope = varied::current();
        let outcomes = parallel::map(items, self.jobs, |item| {
            let outcome = varied::within(scope.clone(), || run(item));
            (self.progress)(1);
            outcome
        });
        outcomes.into_iter().collect()
    }

    /// Returns a table that varies an assumption, if those are wanted.
    pub(super) fn varied(&self, table: impl FnOnce() -> Result<Table, Error>) -> Result<Option<Table>, Error> {
        self.varies_assumptions.then(table).transpose()
    }

    /// Returns the requested machine, or the one with this name if none was requested.
    pub(super) fn machine(&self, name: &str) -> Model {
        let own = || match varied::machine_value(name) {
            Some((field, value)) => Model::with_value(name, &field, value),
            None => Model::open(name),
        };
        self.model.clone().unwrap_or_else(|| own().expect("the machines that come along are right"))
    }
}

/// Returns an existing policy.
pub(crate) fn row(name: &str) -> &'static Policy {
    Policy::named(name).expect("papers name rows of the table")
}

/// Returns the policies' constants for a paper. The measured systems kept their maps in memory only.
pub(crate) fn paper_tuning() -> Tuning {
    let mut tuning = Tuning::default();
    tuning.map_journal = false;
    tuning
}
