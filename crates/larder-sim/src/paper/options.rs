//! The settings of a reproduction, and the policies as the papers' authors ran them.

use super::{markatos::KnownRuns, varied};
use crate::{Model, Table, parallel};
use larder_store::{Error, Policy, Tuning};

/// Settings with which a table or figure is reproduced.
pub struct PaperOptions<'a> {
    /// Seed of the workload.
    pub seed: u64,
    /// Number of simulations that run at the same time.
    pub jobs: usize,
    /// Share of the paper's operations to run. Less than 1 gives a quick impression.
    pub share: f64,
    /// A machine to use instead of the paper's; `None` for the paper's.
    pub model: Option<Model>,
    /// Whether tables that vary an assumption are also simulated. No comparison depends on them.
    pub varies_assumptions: bool,
    /// Results of runs that other reports have simulated.
    pub known: &'a KnownRuns,
    /// Called with 1 after each simulation. In a dry run, called with the number of simulations that it leaves out.
    pub progress: &'a (dyn Fn(u64) + Sync),
    /// Whether to build the report without simulating. It then has all its lines, but their values have no meaning.
    pub dry_run: bool,
}

impl PaperOptions<'_> {
    /// Runs independent simulations in parallel, and reports progress after each. In a dry run, returns empty results.
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

    /// Returns a table that varies an assumption; `None` if such tables were not requested.
    pub(super) fn varied(&self, table: impl FnOnce() -> Result<Table, Error>) -> Result<Option<Table>, Error> {
        self.varies_assumptions.then(table).transpose()
    }

    /// Returns the machine that the user requested, by default the one named `name`.
    pub(super) fn machine(&self, name: &str) -> Model {
        let own = || match varied::machine_value(name) {
            Some((field, value)) => Model::with_value(name, &field, value),
            None => Model::open(name),
        };
        self.model.clone().unwrap_or_else(|| own().expect("the machines that come along are right"))
    }
}

/// Returns the policy with this name, which must exist.
pub(crate) fn row(name: &str) -> &'static Policy {
    Policy::named(name).expect("papers name rows of the table")
}

/// Returns the constants of the policies for the papers' systems. Those systems kept their maps only in memory.
pub(crate) fn paper_tuning() -> Tuning {
    let mut tuning = Tuning::default();
    tuning.map_journal = false;
    tuning
}
