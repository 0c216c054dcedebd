//! Figures 6 and 8 of Markatos et al. under other assumptions, one at a time, to find out which of them explain the
//! printed curves.
//!
//! Invariant: no assumption is specific to a policy or a utilization; each case is one change for all runs of its line.

use super::{MACHINE, MarkatosRun};
use crate::{
    Model, PipelineAssumptions, Table, Victims,
    paper::{
        PaperOptions,
        beds::{constant, whole},
        row,
    },
};
use larder_store::{Error, TuningValue};
use larder_workload::Markatos;

/// Bytes that a record has in addition to its body: head, number and one checksum (docs/internals/format.md).
const RECORD_BYTES: u64 = 76;
const SLOT_BYTES: u64 = 512;
/// Share of the disk that counts as written first. It is less than the free share at 71% utilization, and more than
/// that at 95%.
const OLDEST: f64 = 0.1;
/// Number of documents whose sizes represent those of all documents.
const DOCUMENTS_SAMPLED: usize = 100_000;

/// A line of a table of sensitivity: the simulation with one assumption changed.
#[derive(Clone, Copy, Default)]
struct SensitivityCase {
    label: &'static str,
    victims: Option<Victims>,
    changed_share: Option<f64>,
    counts_memory_hits: bool,
    begins_full: bool,
    counts_slots: bool,
    reads_nothing_ahead: bool,
}

impl SensitivityCase {
    fn labeled(label: &'static str) -> Self {
        Self { label, ..Self::default() }
    }

    fn run(&self, options: &PaperOptions<'_>, subject: Subject) -> Result<f64, Error> {
        let mut run = MarkatosRun::table_2(row(subject.row), options.seed);
        run.operations = (constant("markatos.operations") * options.share) as u64;
        run.disk_bytes = whole("markatos.disk_bytes");
        run.warm_up = if self.begins_full { run.operations } else { 0 };
        run.utilization_percent = subject.utilization_percent;
        if self.counts_slots {
            run.utilization_percent /= slots_share(options.seed);
        }
        let known = PipelineAssumptions::default();
        run.assumed = PipelineAssumptions {
            victims: self.victims.unwrap_or(known.victims),
            changed_share: self.changed_share.unwrap_or(known.changed_share),
            counts_memory_hits: self.counts_memory_hits,
        };
        run.tuned.extend(subject.buffers.map(|count| ("locality_buffer_count", TuningValue::Number(count))));
        let mut model: Model = options.machine(MACHINE);
        if self.reads_nothing_ahead {
            model.system.reads_ahead = 0.0;
        }
        options.known.run(&run, &model).map(|outcome| outcome.passed.as_secs_f64())
    }
}

/// A policy with its constants.
#[derive(Clone, Copy)]
struct Subject {
    row: &'static str,
    buffers: Option<u64>,
    utilization_percent: f64,
}

/// Returns the bytes of slots that documents take, for each byte of documents.
fn slots_share(seed: u64) -> f64 {
    let documents =
        Markatos::new(seed, whole("markatos.memory_bytes"), whole("markatos.disk_bytes")).take(DOCUMENTS_SAMPLED);
    let (bytes, slots) = documents.fold((0, 0), |(bytes, slots), document| {
        (bytes + document.size_bytes, slots + (document.size_bytes + RECORD_BYTES).div_ceil(SLOT_BYTES))
    });
    (slots * SLOT_BYTES) as f64 / bytes as f64
}

/// Creates a table of the seconds of each case. Each pair of subjects is followed by the ratio of their times.
fn table(
    options: &PaperOptions<'_>,
    (title, columns): (&str, [&str; 6]),
    cases: &[SensitivityCase],
    subjects: [Subject; 4],
    ratio: fn(f64, f64) -> f64,
) -> Result<Table, Error> {
    let pairs: Vec<_> = cases.iter().flat_map(|case| subjects.map(|subject| (case, subject))).collect();
    let seconds = options.each(&pairs, |(case, subject)| case.run(options, *subject))?;
    let columns: Vec<&str> = std::iter::once("one assumption at a time").chain(columns).collect();
    let mut table = Table::new(title, &columns);
    for (case, seconds) in cases.iter().zip(seconds.chunks(subjects.len())) {
        let values = seconds.chunks(2).flat_map(|pair| [pair[0], pair[1], ratio(pair[0], pair[1])]);
        table.push(case.label, values.collect());
    }
    Ok(table)
}

/// Creates the table of how much slower STREAM and STREAM-PACK are at 95% utilization than at 71%.
pub(super) fn of_figure_6(options: &PaperOptions<'_>) -> Result<Table, Error> {
    let cases = [
        SensitivityCase::labeled("as above"),
        SensitivityCase { counts_slots: true, ..SensitivityCase::labeled("utilization of slots instead of bytes") },
        SensitivityCase { counts_memory_hits: true, ..SensitivityCase::labeled("hits in memory are uses on the disk") },
        SensitivityCase { changed_share: Some(0.10), ..SensitivityCase::labeled("10% new versions instead of 3") },
        SensitivityCase { reads_nothing_ahead: true, ..SensitivityCase::labeled("no read-ahead") },
        SensitivityCase { begins_full: true, ..SensitivityCase::labeled("begins full: the second million") },
        SensitivityCase { victims: Some(Victims::Documents(1.0)), ..SensitivityCase::labeled("any document goes") },
        SensitivityCase {
            victims: Some(Victims::Documents(OLDEST)),
            ..SensitivityCase::labeled("any of the oldest tenth goes")
        },
        SensitivityCase {
            victims: Some(Victims::Documents(OLDEST)),
            begins_full: true,
            ..SensitivityCase::labeled("begins full, and any of the oldest tenth goes")
        },
        SensitivityCase {
            victims: Some(Victims::Documents(OLDEST)),
            begins_full: true,
            reads_nothing_ahead: true,
            ..SensitivityCase::labeled("the same, and no read-ahead")
        },
    ];
    let subject = |row, utilization_percent| Subject { row, buffers: None, utilization_percent };
    let subjects =
        [subject("stream", 71.0), subject("stream", 95.0), subject("stream-pack", 71.0), subject("stream-pack", 95.0)];
    let columns = ["STREAM, 71%", "STREAM, 95%", "rise", "STREAM-PACK, 71%", "STREAM-PACK, 95%", "rise"];
    let title = "Seconds for a million operations; the paper's rises are 2 and 2.5";
    table(options, (title, columns), &cases, subjects, |at_71, at_95| at_95 / at_71)
}

/// Creates the table of how much faster LAZY-READS is with 128 locality buffers, at 71% and 76% utilization.
pub(super) fn of_figure_8(options: &PaperOptions<'_>) -> Result<Table, Error> {
    let cases = [
        SensitivityCase::labeled("as above"),
        SensitivityCase { counts_slots: true, ..SensitivityCase::labeled("utilization of slots instead of bytes") },
        SensitivityCase { reads_nothing_ahead: true, ..SensitivityCase::labeled("no read-ahead") },
        SensitivityCase { begins_full: true, ..SensitivityCase::labeled("begins full: the second million") },
        SensitivityCase { victims: Some(Victims::Documents(1.0)), ..SensitivityCase::labeled("any document goes") },
        SensitivityCase {
            victims: Some(Victims::Pages(1.0)),
            ..SensitivityCase::labeled("any page goes, with all its documents")
        },
        SensitivityCase {
            victims: Some(Victims::Pages(1.0)),
            begins_full: true,
            ..SensitivityCase::labeled("begins full, and any page goes")
        },
        SensitivityCase {
            victims: Some(Victims::Pages(OLDEST)),
            begins_full: true,
            ..SensitivityCase::labeled("begins full, and any page of the oldest tenth goes")
        },
    ];
    let subject = |buffers: Option<u64>, utilization_percent| {
        let row = if buffers.is_some() { "lazy-reads-loc" } else { "lazy-reads" };
        Subject { row, buffers, utilization_percent }
    };
    let subjects = [subject(None, 71.0), subject(Some(128), 71.0), subject(None, 76.0), subject(Some(128), 76.0)];
    let columns = ["LAZY-READS, 71%", "LOC-128, 71%", "gain", "LAZY-READS, 76%", "LOC-128, 76%", "gain"];
    let title = "Seconds for a million operations; the paper's gains are 1.3 or more, and 2.5";
    table(options, (title, columns), &cases, subjects, |lazy, buffered| lazy / buffered)
}
