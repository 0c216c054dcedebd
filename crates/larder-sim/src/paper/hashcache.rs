//! HashCache (NSDI 2009): memory of its policies, and requests per second on its three test beds.
//!
//! Owns: the test beds, and the published results. Invariant: every policy is the shipping policy of its name. The
//! formulas are derived from the descriptions of the policies, not from the paper's own Table 4, which was not
//! available.

use crate::{
    Comparison, DiskParameters, Experiment, Model, Outcome, Report, SimStore, SimStoreOptions, Table, ValueKind,
    figure::{Figure, FigureContent},
    paper::{PaperOptions, row},
};
use larder_store::{Error, Tuning, TuningValue};
use larder_workload::Workload;

/// Times everything is smaller than in the paper.
const SAMPLE: u64 = 16;
/// A bin of 8 KiB an object, by which the paper counts.
const OBJECT_BYTES: u64 = 8 << 10;

/// Bits of memory an object: the paper's, and whether it prints them.
const MEMORY: [(&str, f64, ValueKind); 7] = [
    ("hashcache-basic", 0.0, ValueKind::Printed),
    ("hashcache-set", 0.0, ValueKind::Printed),
    ("hashcache-setmem", 11.0, ValueKind::Printed),
    ("hashcache-setmem-lru", 8.8, ValueKind::Derived),
    ("hashcache-log-n", 47.0, ValueKind::Printed),
    ("hashcache-log", 55.0, ValueKind::Derived),
    ("hashcache-log-lru", 35.0, ValueKind::Printed),
];

pub(crate) fn memory(options: &PaperOptions<'_>) -> Result<Report, Error> {
    const SIZE_BYTES: u64 = 4 << 30;
    let model = options.machine("hashcache-sata");
    let found = options.each(&MEMORY, |(name, ..)| {
        let mut bed = SimStoreOptions::new(row(name), SIZE_BYTES);
        bed.mean_entry_bytes = Some(OBJECT_BYTES);
        bed.tuning = super::paper_tuning();
        let stats = SimStore::new(&model, &bed)?.stats();
        Ok((stats.index_bytes, stats.entries_max))
    })?;
    let mut report = Report::new("HashCache: memory of its policies");
    let mut table = Table::new("", &["policy", "GiB for each TiB of 8 KiB objects", "entries the store can hold"]);
    let mut bars = Vec::new();
    for ((name, paper, kind), (index_bytes, entries_max)) in MEMORY.iter().zip(found) {
        let bits = index_bytes as f64 * 8.0 / entries_max.max(1) as f64;
        // Nothing is compared with nothing.
        if *paper > 0.0 {
            report.comparisons.push(Comparison::new(*name, "bits an object", *paper, bits).of(*kind));
            bars.push((name.trim_start_matches("hashcache-").to_owned(), vec![*paper, bits]));
        } else {
            report.remarks.push(format!("{name}: the paper has 0 bits an object, the policy {bits:.3}."));
        }
        table.push(*name, vec![bits * (1_u64 << 27) as f64 / 8.0 / (1_u64 << 30) as f64, entries_max as f64]);
    }
    report.tables.push(table);
    report.remarks.push(
        "hashcache-setmem-lru keeps 40% of the sets in memory at once. hashcache-log-lru takes 2.5 bits more per \
         object for positions that are not in its file yet; without groups the paper has 31."
            .to_owned(),
    );
    report.remarks.push(
        "The policies with a map (squid and the others of Markatos et al.) take 272 bits an entry. The paper says \
         640 or more for Squid, and 256 for the leanest commercial index."
            .to_owned(),
    );
    report.figures.push(Figure {
        name: "hashcache-memory".to_owned(),
        title: "Memory of HashCache's policies".to_owned(),
        y_label: "bits an object".to_owned(),
        content: FigureContent::Bars(vec!["paper".to_owned(), "Larder".to_owned()], bars),
        ..Figure::default()
    });
    Ok(report)
}

/// A test bed, one disk of it.
struct TestBed {
    title: &'static str,
    name: &'static str,
    model: &'static str,
    disk_bytes: u64,
    /// The part of the disk that Squid had.
    squid_bytes: u64,
    memory_bytes: u64,
    /// Row, and requests per second of one disk as printed.
    rows: &'static [(&'static str, f64)],
    remark: &'static str,
}

const LOW_END: TestBed = TestBed {
    title: "HashCache, low end: one 60 GB SATA disk of 7200 rpm, 256 MB",
    name: "hashcache-low-end",
    model: "hashcache-sata",
    disk_bytes: 60_000_000_000,
    squid_bytes: 18_000_000_000,
    memory_bytes: 64 << 20,
    rows: &[
        ("hashcache-basic", 45.0),
        ("hashcache-set", 45.0),
        ("squid", 60.0),
        ("hashcache-setmem", 75.0),
        ("hashcache-log", 275.0),
    ],
    remark: "Squid has 18 GB of the disk, as in the paper, with a working set that fits there.",
};

const HIGH_END: TestBed = TestBed {
    title: "HashCache, high end: one of five 18 GB SCSI disks of 10,000 rpm",
    name: "hashcache-high-end",
    model: "hashcache-scsi",
    disk_bytes: 18_000_000_000,
    squid_bytes: 18_000_000_000,
    memory_bytes: 400 << 20,
    rows: &[("hashcache-log", 440.0), ("squid", 80.0)],
    remark: "Printed for five disks: 2,200 to 2,300 and 400. Squid does not use its disks evenly, which one disk cannot \
         show.",
};

const LARGE: TestBed = TestBed {
    title: "HashCache, large disks: one of two USB disks of 1 TB",
    name: "hashcache-large",
    model: "hashcache-usb",
    disk_bytes: 1_000_000_000_000,
    squid_bytes: 1_000_000_000_000,
    memory_bytes: 512 << 20,
    rows: &[("hashcache-log", 300.0), ("hashcache-log-lru", 300.0)],
    remark: "Printed for two disks: 600. hashcache-log-lru with 6 of 8 positions in memory.",
};

pub(crate) fn low_end(options: &PaperOptions<'_>) -> Result<Report, Error> {
    LOW_END.simulate(options)
}

pub(crate) fn high_end(options: &PaperOptions<'_>) -> Result<Report, Error> {
    HIGH_END.simulate(options)
}

pub(crate) fn large(options: &PaperOptions<'_>) -> Result<Report, Error> {
    LARGE.simulate(options)
}

impl TestBed {
    fn simulate(&self, options: &PaperOptions<'_>) -> Result<Report, Error> {
        let model = options.machine(self.model);
        let outcomes = options.each(self.rows, |(name, _)| self.run(name, &model, options))?;
        let mut report = Report::new(self.title);
        let mut table = Table::new(
            "",
            &["policy", "hits, %", "from memory, %", "reads per request", "writes per request", "formula, requests/s"],
        );
        let mut bars = Vec::new();
        for ((name, paper), outcome) in self.rows.iter().zip(&outcomes) {
            let per_s = outcome.per_s_disk();
            report.comparisons.push(Comparison::new(*name, "requests/s a disk", *paper, per_s));
            let per_request = |count: u64| count as f64 / outcome.requests as f64;
            table.push(
                *name,
                vec![
                    outcome.hit_ratio() * 100.0,
                    per_request(outcome.memory_hits) * 100.0,
                    per_request(outcome.served.reads),
                    per_request(outcome.served.writes),
                    formula(name, &model),
                ],
            );
            bars.push((name.trim_start_matches("hashcache-").to_owned(), vec![*paper, per_s]));
        }
        report.tables.push(table);
        report.remarks = vec![
            format!(
                "PolyMix-4; everything {} times smaller. The rate is that of one disk without the processor, as all \
                 results of the paper are limited by the disk.",
                self.sample()
            ),
            self.remark.to_owned(),
            "Some rates are greater than the paper's, because here no processor, network or waiting client stands \
             between requests and the disk. Also, a group is a page with all its images, which clients always \
             request together."
                .to_owned(),
        ];
        report.remarks.extend(self.squid_missed(&outcomes));
        report.figures.push(Figure {
            name: self.name.to_owned(),
            title: self.title.to_owned(),
            y_label: "requests per second and disk".to_owned(),
            content: FigureContent::Bars(vec!["paper".to_owned(), "simulated".to_owned()], bars),
            ..Figure::default()
        });
        Ok(report)
    }

    /// Returns the cost of Squid's files on this test bed, which explains why it misses the paper; `None` if it is not
    /// run.
    fn squid_missed(&self, outcomes: &[Outcome]) -> Option<String> {
        let at = self.rows.iter().position(|(name, _)| *name == "squid")?;
        let Outcome { requests, disk_hits, served, .. } = &outcomes[at];
        let per_request = |count: u64| count as f64 / *requests as f64;
        Some(format!(
            "Squid reaches {:.2} times the printed rate. Of its {:.1} reads per request, {:.1} are of inodes and \
             directories. Its own rule puts 256 consecutive files into a directory, so documents stored together lie \
             together. With files spread in turn over all directories, as in Markatos et al., the same disks reached \
             0.54 and 0.53 times the printed rate.",
            outcomes[at].per_s_disk() / self.rows[at].1,
            per_request(served.reads),
            per_request(served.reads.saturating_sub(*disk_hits))
        ))
    }

    /// Returns the sampling factor. A policy with bins needs at least a few thousand bins, so larger disks are scaled
    /// down more.
    fn sample(&self) -> u64 {
        SAMPLE * (self.disk_bytes / LOW_END.disk_bytes).max(1)
    }

    fn run(&self, name: &str, model: &Model, options: &PaperOptions<'_>) -> Result<Outcome, Error> {
        let disk_bytes = if name == "squid" { self.squid_bytes } else { self.disk_bytes };
        let mut experiment = Experiment::new(row(name), model.clone(), disk_bytes, self.memory_bytes);
        experiment.mean_entry_bytes = Some(OBJECT_BYTES);
        experiment.tuning = super::paper_tuning();
        experiment.is_on_file_system = false;
        set_constants(name, &mut experiment.tuning)?;
        let mut experiment = experiment.sampled(self.sample());
        let objects = experiment.disk_bytes / OBJECT_BYTES;
        // A share of a run begins with a full store too.
        (experiment.warm_up, experiment.requests) = (4 * objects, (objects as f64 * options.share) as u64);
        let requests = Workload::named("polymix-4", options.seed, experiment.memory_bytes, experiment.disk_bytes);
        experiment.run(requests.expect("there is PolyMix-4"))
    }
}

fn set_constants(name: &str, tuning: &mut Tuning) -> Result<(), Error> {
    if name == "hashcache-log-lru" {
        tuning.set("hashcache_positions", TuningValue::Number(6))?;
    }
    Ok(())
}

/// Requests per second of one disk, derived from what each policy reads and writes, with the shares of PolyMix.
fn formula(name: &str, model: &Model) -> f64 {
    let DiskParameters::Spinning(arm) = &model.disk else { return f64::NAN };
    let (t, h, c, q, f, r) = (arm.random_reads_per_s(OBJECT_BYTES as f64), 0.60, 0.80, 0.25, 0.031, 2.14);
    match name {
        "hashcache-basic" | "hashcache-set" => t / (1.0 + h * q + (1.0 - h) * c),
        "hashcache-setmem" => t / (h * (1.0 + q) + (1.0 - h) * (f + c)),
        "hashcache-log-n" => t / (h + (1.0 - h) * f),
        "hashcache-log" => t * r / h,
        "hashcache-log-lru" => t / (h / r * (1.0 + 0.25)),
        _ => f64::NAN,
    }
}

pub(crate) fn formulas(options: &PaperOptions<'_>) -> Result<Report, Error> {
    let mut report = Report::new("HashCache: throughput formulas against its measurements");
    for bed in [&LOW_END, &HIGH_END, &LARGE] {
        let model = options.machine(bed.model);
        for (name, paper) in bed.rows.iter().filter(|(name, _)| *name != "squid") {
            let what = format!("{name} on {}", bed.model);
            let line = Comparison::new(what, "requests/s a disk", *paper, formula(name, &model));
            report.comparisons.push(line.of(ValueKind::Derived));
        }
    }
    (options.progress)(1);
    report.remarks.push(
        "Derived: hits 60%, storable 80%, a quarter of objects longer than a bin, 2.14 useful objects per read of a \
         group. The paper expects 250 at 67 to 70 seeks/s and at least 320 at 90 to 95."
            .to_owned(),
    );
    report.remarks.push(
        "Nothing is run here: `paper` is its measurement, `simulated` the result of the formulas. Missed: \
         hashcache-log-lru. The formula counts no groups, and a second read for the positions in the file; the paper \
         measured the same rate as for hashcache-log. The measured rate of hashcache-log on SCSI disks is also above \
         the paper's own expectation."
            .to_owned(),
    );
    let bars = report
        .comparisons
        .iter()
        .map(|line| (line.what.trim_start_matches("hashcache-").to_owned(), vec![line.paper, line.simulated]));
    report.figures.push(Figure {
        name: "hashcache-formulas".to_owned(),
        title: "HashCache's throughput formulas".to_owned(),
        y_label: "requests per second and disk".to_owned(),
        content: FigureContent::Bars(vec!["measured".to_owned(), "formula".to_owned()], bars.collect()),
        ..Figure::default()
    });
    Ok(report)
}
