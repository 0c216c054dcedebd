//! The papers' tables and figures, simulated with the shipping policies and compared with the published values.
//!
//! Owns: the list of papers. Each result is computed in its own module. The catalog has the published values, and the
//! reasons why some are not compared; the account counts both. Invariant: compared values were computed in one run.

mod accesses;
mod account;
mod beds;
mod catalog;
mod esp;
mod guide;
mod hashcache;
mod history;
mod markatos;
mod options;
mod queue;
mod ranges;
mod squid;
mod varied;

use crate::{Comparison, Report, Table};
use larder_store::Error;
use std::sync::atomic::{AtomicU64, Ordering};

pub use beds::bed_notes;
pub use markatos::{KnownRuns, MarkatosOutcome, MarkatosRun};
pub use options::PaperOptions;
pub(crate) use options::{paper_tuning, row};
pub use ranges::{RANGES_TITLE, vary_assumptions};

/// A table or figure of a paper, with the simulation that reproduces it.
pub struct Paper {
    /// Name of the table or figure on the command line.
    pub name: &'static str,
    /// The content of the table or figure, and its place in the paper.
    pub about: &'static str,
    run: fn(&PaperOptions<'_>) -> Result<Report, Error>,
}

/// All tables and figures that can be reproduced.
pub static PAPERS: &[Paper] = &[
    Paper {
        name: "markatos-table1",
        about: "completion time at 71% utilization: packetizer, lazy reads, locality buffers (USITS 1999)",
        run: markatos::table_1,
    },
    Paper {
        name: "markatos-table2",
        about: "requests per second of the eight file-space policies (USITS 1999)",
        run: markatos::table_2,
    },
    Paper {
        name: "markatos-footnote2",
        about: "operations of the synthetic workload against those of the paper's trace (USITS 1999)",
        run: markatos::footnote_2,
    },
    Paper {
        name: "markatos-figure2",
        about: "disk reads and writes against the size of the disk (USITS 1999)",
        run: markatos::figure_2,
    },
    Paper {
        name: "markatos-figure3",
        about: "time of creating and removing a file (USITS 1999)",
        run: markatos::figure_3,
    },
    Paper {
        name: "markatos-figure4",
        about: "completion time of the policies that keep many files (USITS 1999)",
        run: markatos::figure_4,
    },
    Paper {
        name: "markatos-figure5",
        about: "completion time of BUDDY against its threshold (USITS 1999)",
        run: markatos::figure_5,
    },
    Paper {
        name: "markatos-figure6",
        about: "completion time of BUDDY, STREAM and STREAM-PACK against utilization (USITS 1999)",
        run: markatos::figure_6,
    },
    Paper {
        name: "markatos-figure7",
        about: "completion time of STREAM-PACK and LAZY-READS against utilization (USITS 1999)",
        run: markatos::figure_7,
    },
    Paper {
        name: "markatos-figure8",
        about: "completion time of LAZY-READS with 0 to 128 locality buffers against utilization (USITS 1999)",
        run: markatos::figure_8,
    },
    Paper {
        name: "hashcache-memory",
        about: "bits of memory an object of each policy (NSDI 2009)",
        run: hashcache::memory,
    },
    Paper {
        name: "hashcache-formulas",
        about: "throughput formulas against the measurements of all test beds (NSDI 2009)",
        run: hashcache::formulas,
    },
    Paper {
        name: "hashcache-low-end",
        about: "requests per second on one SATA disk (NSDI 2009)",
        run: hashcache::low_end,
    },
    Paper {
        name: "hashcache-high-end",
        about: "requests per second on SCSI disks (NSDI 2009)",
        run: hashcache::high_end,
    },
    Paper { name: "hashcache-seeks", about: "seeks of stores, hits and misses (NSDI 2009)", run: accesses::seeks },
    Paper { name: "hashcache-large", about: "requests per second on disks of 1 TB (NSDI 2009)", run: hashcache::large },
    Paper { name: "esp-squid", about: "ESP against Squid (ICS 2002)", run: esp::esp_squid },
    Paper { name: "esp-blocks", about: "ESP's worked examples of its allocator (ICS 2002)", run: accesses::esp_blocks },
    Paper { name: "esp-threshold", about: "ESP's hit ratio against its threshold (ICS 2002)", run: esp::esp_threshold },
    Paper {
        name: "squid-peak",
        about: "peak rates and time of hits of four versions of Squid (2002)",
        run: squid::squid,
    },
    Paper {
        name: "squid-guide",
        about: "storage schemes of Squid by file system and mount options (Squid: The Definitive Guide, 2004)",
        run: guide::guide,
    },
    Paper {
        name: "ucfs-squid",
        about: "UCFS against Squid on FFS and asynchronous FFS (IEEE TC 2002)",
        run: esp::ucfs,
    },
];

impl Paper {
    /// Returns the table or figure with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PAPERS.iter().find(|paper| paper.name == name)
    }

    /// Simulates the table or figure.
    ///
    /// # Errors
    /// If a store refuses its options. That can happen on another machine than the paper's.
    pub fn simulate(&self, options: &PaperOptions<'_>) -> Result<Report, Error> {
        let mut report = (self.run)(options)?;
        report.name = Some(self.name);
        report.tables.extend(self.ranges());
        Ok(report)
    }

    /// Returns the comparisons of the report without simulating. Their simulated values have no meaning.
    pub fn lines(&self) -> Vec<Comparison> {
        self.run_dry(false, &|_| {}).comparisons
    }

    /// Returns the number of simulations. The numbers that are passed to [`PaperOptions::progress`] add up to it.
    pub fn simulation_count(&self, varies_assumptions: bool) -> u64 {
        let count = AtomicU64::new(0);
        self.run_dry(varies_assumptions, &|more| {
            count.fetch_add(more, Ordering::Relaxed);
        });
        count.into_inner()
    }

    fn run_dry(&self, varies_assumptions: bool, progress: &(dyn Fn(u64) + Sync)) -> Report {
        let options = PaperOptions {
            seed: 1,
            jobs: 1,
            share: 1.0,
            model: None,
            varies_assumptions,
            known: &KnownRuns::default(),
            progress,
            dry_run: true,
        };
        self.simulate(&options).expect("a dry run opens no store")
    }

    /// Returns the table of how conditional lines change over the ranges of assumed constants; `None` if there is none.
    pub fn ranges(&self) -> Option<Table> {
        ranges::table(self.name)
    }

    /// Returns the account of the reports of all papers: how many printed claims they compare, meet and predict, and
    /// why the others are not compared.
    pub fn account(reports: &[Report]) -> Report {
        account::account(reports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against a progress above 100%. A report may simulate in several steps, each with its own number of
    /// simulations.
    #[test]
    fn progress_comes_to_the_number_of_simulations() {
        for name in ["markatos-figure3", "hashcache-formulas"] {
            let done = AtomicU64::new(0);
            let progress = |more| {
                done.fetch_add(more, Ordering::Relaxed);
            };
            let paper = Paper::named(name).unwrap();
            let known = KnownRuns::default();
            let options = PaperOptions {
                seed: 1,
                jobs: 2,
                share: 1.0,
                model: None,
                varies_assumptions: false,
                known: &known,
                progress: &progress,
                dry_run: false,
            };
            paper.simulate(&options).unwrap();
            assert_eq!(done.load(Ordering::Relaxed), paper.simulation_count(false), "{name}");
        }
        assert_eq!(Paper::named("esp-squid").unwrap().simulation_count(false), 2 + 4 * 3);
        assert!(PAPERS.iter().all(|paper| paper.simulation_count(true) >= paper.simulation_count(false)));
    }
}
