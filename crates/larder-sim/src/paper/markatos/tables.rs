//! Tables 1 and 2 of Markatos et al.: requests per second of the eight policies, and the gain of each idea.

use super::{MACHINE, MarkatosRun};
use crate::{
    Comparison, OperationCounts, Pipeline, Report, ValueKind,
    figure::{Figure, FigureContent},
    paper::{
        PaperOptions,
        beds::{constant, whole},
        row,
    },
};
use larder_store::{Error, TuningValue};

/// The rows of Table 2, each with the policy that reproduces it.
const TABLE_2: [(&str, &str); 8] = [
    ("SIMPLE", "simple"),
    ("SQUID", "squid"),
    ("MULTIPLE-DIRS", "multiple-dirs"),
    ("BUDDY", "buddy"),
    ("STREAM", "stream"),
    ("STREAM-PACK", "stream-pack"),
    ("LAZY-READS", "lazy-reads"),
    ("LAZY-READS-LOC", "lazy-reads-loc"),
];

/// The rows of Table 1: the name, the policy, and whether each read is submitted alone. "Locality buffers alone" is the
/// last policy with batches of one read.
const TABLE_1: [(&str, &str, bool); 4] = [
    ("STREAM-PACK", "stream-pack", false),
    ("STREAM-PACK + LAZY-READS", "lazy-reads", false),
    ("STREAM-PACK + LOC-128", "lazy-reads-loc", true),
    ("STREAM-PACK + LAZY-READS + LOC-128", "lazy-reads-loc", false),
];

pub(crate) fn table_2(options: &PaperOptions<'_>) -> Result<Report, Error> {
    let model = options.machine(MACHINE);
    let outcomes = options.each(&TABLE_2, |(_, name)| {
        let run = MarkatosRun::table_2(row(name), options.seed);
        let run = MarkatosRun { operations: (run.operations as f64 * options.share) as u64, ..run };
        options.known.run(&run, &model)
    })?;
    let mut report = Report::new("Markatos et al., Table 2: requests per second of eight file-space policies");
    let simulated: Vec<f64> = outcomes.iter().map(|outcome| outcome.gets_per_s()).collect();
    let printed = |what: &str, simulated: f64| Comparison::published("markatos-table2", what, simulated);
    report.comparisons = TABLE_2.iter().zip(&simulated).map(|((what, _), rate)| printed(what, *rate)).collect();
    let rates: Vec<f64> = report.comparisons.iter().map(|line| line.paper).collect();
    for (over, under) in [(3, 1), (4, 3), (5, 4), (6, 5), (7, 6)] {
        let what = format!("{} over {}", TABLE_2[over].0, TABLE_2[under].0);
        let ratio = simulated[over] / simulated[under];
        report.comparisons.push(Comparison::new(what, "times", ValueKind::Derived, rates[over] / rates[under], ratio));
    }
    let buddy = &outcomes[3];
    let lazy = &outcomes[6];
    report.comparisons.extend([
        printed("LAZY-READS-LOC over SQUID", simulated[7] / simulated[1]),
        printed("BUDDY: time of an operation", buddy.passed.as_secs_f64() * 1e3 / buddy.counts.operations() as f64),
        printed("LAZY-READS: disk reads", lazy.counts.reads as f64 / lazy.passed.as_secs_f64()),
    ]);
    let verb = if simulated.is_sorted() { "is" } else { "is NOT" };
    let counts = outcomes[4].counts;
    report.remarks = vec![
        format!(
            "All policies were simulated with one machine file ({}) and one workload. Their order by rate {verb} that \
             of the paper.",
            model.name
        ),
        format!(
            "The first four rows are of 300,000 operations on 1 GB. The other rows are of a million operations on 2 GB \
             at 71% utilization. Their workload has {} gets ({} memory hits, {} reads, {} writes, {} deletes). The \
             paper's has 1,058,206 gets (338,081 memory hits, 42,085 reads, 678,040 writes, 279,875 deletes).",
            counts.gets, counts.memory_hits, counts.reads, counts.writes, counts.deletes
        ),
        "The machine's constants marked [C] were chosen to match this table. So the agreement shows that the form of \
         the model is adequate, but not that the model predicts results."
            .to_owned(),
        "Locality buffers gain less than in the paper. Probably the paper's trace requested pages of one server in \
         closer succession than this workload does. The rates of SQUID and MULTIPLE-DIRS are a few gets/s, so a small \
         difference of the rate is a large ratio."
            .to_owned(),
    ];
    let bars = report.comparisons[..TABLE_2.len()].iter();
    let bars = bars.map(|line| (line.what.clone(), vec![line.paper, line.simulated]));
    report.figures.push(Figure {
        name: "markatos-table2".to_owned(),
        title: "Requests per second of eight file-space policies".to_owned(),
        y_label: "URL-gets per second".to_owned(),
        content: FigureContent::Bars(vec!["paper".to_owned(), "simulated".to_owned()], bars.collect()),
        ..Figure::default()
    });
    Ok(report)
}

/// Compares the numbers of operations of the synthetic workload with those of the paper's trace.
pub(crate) fn footnote_2(options: &PaperOptions<'_>) -> Result<Report, Error> {
    let counts = options.each(&[()], |()| {
        let mut pipeline = Pipeline::new(options.seed, whole("markatos.memory_bytes"), whole("markatos.disk_bytes"));
        let operations = (constant("markatos.operations") * options.share) as u64;
        while pipeline.counts().operations() < operations && pipeline.next().is_some() {}
        Ok(pipeline.counts())
    })?;
    let OperationCounts { gets, memory_hits, reads, writes, deletes } = counts[0];
    let mut report = Report::new("Markatos et al., footnote 2: the operations of the workload");
    let printed = |what: &str, simulated: f64| Comparison::published("markatos-footnote2", what, simulated);
    let count = |what: &str, count: u64| printed(what, count as f64 / options.share);
    let share = |what: &str, count: u64| printed(what, count as f64 / gets as f64 * 100.0);
    report.comparisons = vec![
        count("gets for a million operations", gets),
        count("memory hits", memory_hits),
        count("disk reads", reads),
        count("disk writes", writes),
        count("disk deletes", deletes),
        share("share of memory hits", memory_hits),
        share("share of disk hits", reads),
        share("share of misses", writes),
    ];
    report.remarks.push(
        "The paper's trace is not available. The constants of the synthetic workload were chosen to match these \
         counts. The reports on the paper's other results use the same workload."
            .to_owned(),
    );
    Ok(report)
}

pub(crate) fn table_1(options: &PaperOptions<'_>) -> Result<Report, Error> {
    let model = options.machine(MACHINE);
    let outcomes = options.each(&TABLE_1, |(_, name, reads_alone)| {
        let mut run = MarkatosRun::table_2(row(name), options.seed);
        run.operations = (run.operations as f64 * options.share) as u64;
        if *reads_alone {
            run.tuned.push(("read_batch_count", TuningValue::Number(1)));
        }
        options.known.run(&run, &model)
    })?;
    let mut report = Report::new("Markatos et al., Table 1: completion time at 71% utilization");
    let printed = |what: &str, simulated: f64| Comparison::published("markatos-table1", what, simulated);
    let seconds: Vec<f64> = outcomes.iter().map(|outcome| outcome.passed.as_secs_f64()).collect();
    for ((what, ..), seconds) in TABLE_1.iter().zip(&seconds) {
        report.comparisons.push(printed(what, *seconds / options.share));
    }
    for at in 1..TABLE_1.len() {
        let gain = (seconds[0] / seconds[at] - 1.0) * 100.0;
        report.comparisons.push(printed(&format!("improvement of {}", TABLE_1[at].0), gain));
    }
    report.remarks = vec![
        "The paper's Tables 1 and 2 differ by up to 6% for the same policy, so no simulation can match both of them \
         more closely."
            .to_owned(),
        "Missed: LOC-128 alone improves the time by half as much as in the paper, and LOC-128 with LAZY-READS by \
         three fifths as much. The report markatos-figure8 shows the causes."
            .to_owned(),
    ];
    let bars = report.comparisons[..TABLE_1.len()].iter();
    let bars =
        bars.map(|line| (line.what.trim_start_matches("STREAM-PACK + ").to_owned(), vec![line.paper, line.simulated]));
    report.figures.push(Figure {
        name: "markatos-table1".to_owned(),
        title: "A million operations at 71% utilization".to_owned(),
        y_label: "completion time, s".to_owned(),
        content: FigureContent::Bars(vec!["paper".to_owned(), "simulated".to_owned()], bars.collect()),
        ..Figure::default()
    });
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KnownRuns, Paper};

    /// Checks the claim that Larder's policies behave like the paper's. The test runs the policies of Table 2 that use
    /// one file, on a tenth of the paper's operations. Policies next to each other must be in the right order.
    #[test]
    fn neighbors_in_table_2_stand_on_the_right_sides() {
        let known = [KnownRuns::default(), KnownRuns::default()];
        let options = PaperOptions {
            seed: 11,
            jobs: 2,
            share: 0.1,
            model: None,
            varies_assumptions: false,
            known: &known[0],
            progress: &|_| {},
            dry_run: false,
        };
        let report = Paper::named("markatos-table2").unwrap().simulate(&options).unwrap();
        println!("{}", report.to_text());
        let rates: Vec<f64> = report.comparisons[..8].iter().map(|line| line.simulated).collect();
        // With a tenth of the operations, SIMPLE's only directory is too short to be slow, so its rate is not compared.
        assert!(rates[1..].is_sorted(), "{rates:?}");
        assert!(rates[3] > 4.0 * rates[2], "{rates:?}");
        let again = Paper::named("markatos-table2")
            .unwrap()
            .simulate(&PaperOptions { jobs: 1, known: &known[1], ..options })
            .unwrap();
        assert_eq!(again, report, "one seed, one table");
    }
}
