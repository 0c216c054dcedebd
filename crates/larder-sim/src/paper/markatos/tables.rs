//! Tables 1 and 2 of Markatos et al.: requests per second of the eight policies, and what each idea gives.

use super::{MACHINE, MarkatosRun};
use crate::{
    Comparison, Report, ValueKind,
    figure::{Figure, FigureContent},
    paper::{PaperOptions, row},
};
use larder_store::{Error, TuningValue};

/// Table 2: URL-gets per second.
const TABLE_2: [(&str, &str, f64); 8] = [
    ("SIMPLE", "simple", 14.0),
    ("SQUID", "squid", 20.0),
    ("MULTIPLE-DIRS", "multiple-dirs", 23.0),
    ("BUDDY", "buddy", 133.0),
    ("STREAM", "stream", 295.0),
    ("STREAM-PACK", "stream-pack", 358.0),
    ("LAZY-READS", "lazy-reads", 396.0),
    ("LAZY-READS-LOC", "lazy-reads-loc", 495.0),
];

/// Table 1: seconds for a million operations at 71% utilization. Locality buffers alone are the last row with batches
/// of one read.
const TABLE_1: [(&str, &str, bool, f64); 4] = [
    ("STREAM-PACK", "stream-pack", false, 2791.0),
    ("STREAM-PACK + LAZY-READS", "lazy-reads", false, 2528.0),
    ("STREAM-PACK + LOC-128", "lazy-reads-loc", true, 2176.0),
    ("STREAM-PACK + LAZY-READS + LOC-128", "lazy-reads-loc", false, 2031.0),
];

pub(crate) fn table_2(options: &PaperOptions<'_>) -> Result<Report, Error> {
    let model = options.machine(MACHINE);
    let outcomes = options.each(&TABLE_2, |(_, name, _)| {
        let run = MarkatosRun::table_2(row(name), options.seed);
        MarkatosRun { operations: (run.operations as f64 * options.share) as u64, ..run }.run(&model)
    })?;
    let mut report = Report::new("Markatos et al., Table 2: requests per second of eight file-space policies");
    let simulated: Vec<f64> = outcomes.iter().map(|outcome| outcome.gets_per_s()).collect();
    let lines = TABLE_2.iter().zip(&simulated);
    report.comparisons =
        lines.map(|((what, _, paper), &rate)| Comparison::new(*what, "gets/s", *paper, rate)).collect();
    for (what, over, under) in [
        ("BUDDY over SQUID", 3, 1),
        ("STREAM over BUDDY", 4, 3),
        ("STREAM-PACK over STREAM", 5, 4),
        ("LAZY-READS over STREAM-PACK", 6, 5),
        ("LAZY-READS-LOC over LAZY-READS", 7, 6),
    ] {
        let paper = TABLE_2[over].2 / TABLE_2[under].2;
        let line = Comparison::new(what, "times", paper, simulated[over] / simulated[under]);
        report.comparisons.push(line.of(ValueKind::Derived));
    }
    report.comparisons.push(Comparison::new("LAZY-READS-LOC over SQUID", "times", 25.0, simulated[7] / simulated[1]));
    let order = if simulated.is_sorted() { "the order is the paper's" } else { "the order is NOT the paper's" };
    let counts = outcomes[4].counts;
    report.remarks = vec![
        format!("One machine file ({}) and one workload for all policies; {order}.", model.name),
        format!(
            "The first four rows: 300,000 operations on 1 GB. The others: a million on 2 GB at 71% utilization, from \
             {} gets ({} memory hits, {} reads, {} writes, {} deletes; the paper: 1,058,206 gets, 338,081, 42,085, \
             678,040, 279,875).",
            counts.gets, counts.memory_hits, counts.reads, counts.writes, counts.deletes
        ),
        "The machine's constants marked [C] were chosen while looking at this table: the agreement shows that the form \
         is adequate, not that it predicts."
            .to_owned(),
        "The gain of locality buffers is too small: in this workload, the pages of one server are further apart than \
         they seem to have been in the paper's trace. The rates of SQUID and MULTIPLE-DIRS are a few gets/s, so \
         small differences give large ratios."
            .to_owned(),
    ];
    let bars = TABLE_2.iter().zip(&simulated).map(|((what, _, paper), rate)| ((*what).to_owned(), vec![*paper, *rate]));
    report.figures.push(Figure {
        name: "markatos-table2".to_owned(),
        title: "Requests per second of eight file-space policies".to_owned(),
        y_label: "URL-gets per second".to_owned(),
        content: FigureContent::Bars(vec!["paper".to_owned(), "simulated".to_owned()], bars.collect()),
        ..Figure::default()
    });
    Ok(report)
}

pub(crate) fn table_1(options: &PaperOptions<'_>) -> Result<Report, Error> {
    let model = options.machine(MACHINE);
    let outcomes = options.each(&TABLE_1, |(_, name, reads_alone, _)| {
        let mut run = MarkatosRun::table_2(row(name), options.seed);
        run.operations = (run.operations as f64 * options.share) as u64;
        if *reads_alone {
            run.tuned.push(("read_batch_count", TuningValue::Number(1)));
        }
        run.run(&model)
    })?;
    let mut report = Report::new("Markatos et al., Table 1: completion time at 71% utilization");
    for ((what, _, _, paper), outcome) in TABLE_1.iter().zip(&outcomes) {
        report.comparisons.push(Comparison::new(*what, "s", paper * options.share, outcome.passed.as_secs_f64()));
    }
    let paper_improvements = [10.0, 28.0, 37.5];
    for (at, paper) in (1..).zip(paper_improvements) {
        let gain = outcomes[0].passed.as_secs_f64() / outcomes[at].passed.as_secs_f64() - 1.0;
        report.comparisons.push(Comparison::new(format!("improvement of {}", TABLE_1[at].0), "%", paper, gain * 100.0));
    }
    report.remarks = vec![
        "The paper's Table 1 and Table 2 differ by up to 6% for the same policy; no reproduction can be closer."
            .to_owned(),
        "Missed: the improvement of LOC-128 is too small, by half alone and by two fifths with lazy reads. \
         markatos-figure8 shows its causes."
            .to_owned(),
    ];
    let bars = TABLE_1.iter().zip(&outcomes);
    let bars = bars.map(|((what, _, _, paper), outcome)| {
        (
            (*what).trim_start_matches("STREAM-PACK + ").to_owned(),
            vec![paper * options.share, outcome.passed.as_secs_f64()],
        )
    });
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
    use crate::Paper;

    /// At stake: the claim that the shipping rows behave as the paper's policies. Table 2, the rows with one file: a
    /// tenth of the paper's operations, on all of which the ratios of neighbours must be on the right side of 1.
    #[test]
    fn neighbours_in_table_2_stand_on_the_right_sides() {
        let options = PaperOptions { seed: 11, jobs: 2, share: 0.1, model: None, progress: &|_| {} };
        let report = Paper::named("markatos-table2").unwrap().simulate(&options).unwrap();
        println!("{}", report.to_text());
        let rates: Vec<f64> = report.comparisons[..8].iter().map(|line| line.simulated).collect();
        // With a tenth of the operations SIMPLE's one directory is too short to be slow; Squid's are as they are.
        assert!(rates[1..].is_sorted(), "{rates:?}");
        assert!(rates[3] > 4.0 * rates[2], "{rates:?}");
        let again = Paper::named("markatos-table2").unwrap().simulate(&PaperOptions { jobs: 1, ..options }).unwrap();
        assert_eq!(again, report, "one seed, one table");
    }
}
