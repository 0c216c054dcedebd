//! The benchmarks in appendix D of "Squid: The Definitive Guide" (2004), which measured the schemes of *Performance
//! Issues in Squid* on other hardware: files or one large file, with or without waiting for the disk.
//!
//! Owns: the schemes and their published values. Queueing is in [`queue`](super::queue). Invariant: no constant was
//! chosen for a single scheme. The processor time of a request is the time that the book measured without a cache.

use super::queue::{ONE_AT_A_TIME, Origin, Proxy, THREADS, gather, peak, sample, squid_reads};
use crate::{
    Comparison, ComparisonBasis, Model, PieceReads, Report, Table, ValueKind,
    figure::{Figure, FigureContent},
    paper::{
        PaperOptions,
        beds::{constant, whole},
    },
};
use larder_store::Error;
use larder_workload::PolyMixVersion;

/// A storage scheme of the book, on one file system.
struct Scheme {
    name: &'static str,
    row: &'static str,
    machine: &'static str,
    /// Whether metadata writes are batched (soft updates) and reads do not update access times (noatime). It overrides
    /// the parameters of the machine.
    is_relaxed: bool,
    waits: bool,
    disk_depth: usize,
    /// Requests per second that the book prints, in its tables D-1 and D-2.
    printed: f64,
}

const SCHEMES: [Scheme; 8] = [
    scheme("ufs on FFS", ("squid", "guide-ffs"), (false, true, ONE_AT_A_TIME), 24.4),
    scheme("ufs on FFS, soft updates, async, noatime", ("squid", "guide-ffs"), (true, true, ONE_AT_A_TIME), 38.0),
    scheme("ufs on ext2", ("squid", "guide-ext2"), (false, true, ONE_AT_A_TIME), 54.9),
    scheme("diskd on FFS", ("squid", "guide-ffs"), (false, false, ONE_AT_A_TIME), 77.4),
    scheme("diskd on FFS, soft updates, async, noatime", ("squid", "guide-ffs"), (true, false, ONE_AT_A_TIME), 129.0),
    scheme("aufs on ext2", ("squid", "guide-ext2"), (false, false, THREADS), 110.0),
    scheme("aufs on ext2, noatime", ("squid", "guide-ext2"), (true, false, THREADS), 168.5),
    scheme("coss (one file)", ("large-file", "guide-ffs"), (false, false, THREADS), 330.7),
];

const fn scheme(
    name: &'static str,
    (row, machine): (&'static str, &'static str),
    (is_relaxed, waits, disk_depth): (bool, bool, usize),
    printed: f64,
) -> Scheme {
    Scheme { name, row, machine, is_relaxed, waits, disk_depth, printed }
}

/// The result of a storage scheme.
#[derive(Clone, Copy, Default)]
struct SchemeOutcome {
    peak_per_s: f64,
    disk_ms: f64,
    hits_percent: f64,
}

impl Scheme {
    fn run(&self, options: &PaperOptions<'_>, sample: u64, seed: u64) -> Result<SchemeOutcome, Error> {
        let mut model = options.machine(self.machine);
        if self.is_relaxed {
            relax(&mut model);
        }
        let disk_count = whole("guide.disk_count") as usize;
        let origin = Origin {
            row: self.row,
            model: &model,
            is_raw: true,
            // COSS reads an object at once (storeCossRead of Squid 2.5).
            reads: if self.row == "squid" { squid_reads() } else { PieceReads::default() },
            version: PolyMixVersion::Four,
            requests_per_s: self.printed,
            disk_count,
            disk_bytes: whole("guide.disk_bytes"),
            memory_bytes: whole("guide.memory_bytes") / disk_count as u64,
            seed,
            sample,
        };
        let demands = origin.demands()?;
        let cpu_s = model.system.request_us / 1e6;
        let Self { waits, disk_depth, .. } = *self;
        let proxy = Proxy { waits, cpu_s, disk_count, disk_depth };
        let peak_per_s = peak(&demands, &proxy, constant("guide.accepted_s"), seed);
        Ok(SchemeOutcome { peak_per_s, disk_ms: demands.disk_ms(), hits_percent: demands.hits_percent() })
    }
}

/// Creates a table of the highest rates with other sampling factors and another seed.
fn spread(options: &PaperOptions<'_>) -> Result<Table, Error> {
    let seed = options.seed;
    let cases = [(sample() * 2, seed), (sample() / 2, seed), (sample(), seed + 1)];
    let runs: Vec<_> = SCHEMES.iter().flat_map(|scheme| cases.map(|case| (scheme, case))).collect();
    let outcomes = options.each(&runs, |(scheme, (sample, seed))| scheme.run(options, *sample, *seed))?;
    let columns = ["requests/s", "disks half as large", "disks twice as large", "another seed"];
    let mut table = Table::new("Rates with another sample of the objects, or another seed", &columns);
    for (scheme, outcomes) in SCHEMES.iter().zip(outcomes.chunks(cases.len())) {
        table.push(scheme.name, outcomes.iter().map(|outcome| outcome.peak_per_s).collect());
    }
    Ok(table)
}

pub(crate) fn guide(options: &PaperOptions<'_>) -> Result<Report, Error> {
    let outcomes = options.each(&SCHEMES, |scheme| scheme.run(options, sample(), options.seed))?;
    let mut report = Report::new("Squid: The Definitive Guide, appendix D: storage schemes on three SCSI disks");
    let mut table = Table::new("", &["scheme", "disk, ms a request", "hits, %"]);
    let mut bars = Vec::new();
    for (scheme, outcome) in SCHEMES.iter().zip(outcomes) {
        let SchemeOutcome { peak_per_s, disk_ms, hits_percent } = outcome;
        let line = Comparison::new(scheme.name, "requests/s", ValueKind::External, scheme.printed, peak_per_s);
        report.comparisons.push(line.on(ComparisonBasis::Conditional));
        table.push(scheme.name, vec![disk_ms, hits_percent]);
        bars.push((scheme.name.replace(", soft updates, async, noatime", " *"), vec![scheme.printed, peak_per_s]));
    }
    report.tables.push(table);
    report.tables.extend(options.varied(|| spread(options))?);
    report.remarks = vec![
        "A rate is the highest one at which the mean response time is at most 1.6 s (the guide prints response times \
         of 1.45 to 1.59 s). The load is PolyMix-4. With ufs, Squid waits for all I/O on directories and inodes, and \
         for reads of data. With diskd and aufs, it waits for none of them."
            .to_owned(),
        "This report checks the models that the reports squid-peak and esp-squid use. One constant, the processor \
         time of a request, comes from the guide's tables. No constant was chosen to match one of the schemes. The \
         guide does not print the transfer rates of its disks. In the guide, 53.9% to 56.8% of the requests are hits, \
         whichever scheme is used."
            .to_owned(),
        "Squid reads in pieces of 4 KB, except with COSS, which reads a whole object at once (source of Squid 2.5). \
         Ufs sends one operation at a time to a disk, and so does diskd, which has one process per disk. Aufs sends \
         up to 16 at a time."
            .to_owned(),
        "Missed: on FFS, all schemes are 1.4 to 2.0 times as fast as in the guide. On ext2, aufs is 1.3 to 1.8 times \
         as fast, and ufs is slower than in the guide. The simulated time of a single file operation matches another \
         source (report markatos-figure3). The guide does not state the speed of its disks; 10,000 revolutions a \
         minute are assumed. The report squid-peak compares a source that contradicts this one."
            .to_owned(),
    ];
    report.figures.push(Figure {
        name: "squid-guide".to_owned(),
        title: "Storage schemes of Squid (* soft updates, async, noatime)".to_owned(),
        y_label: "requests per second".to_owned(),
        content: FigureContent::Bars(vec!["printed".to_owned(), "simulated".to_owned()], bars),
        ..Figure::default()
    });
    Ok(report)
}

fn relax(model: &mut Model) {
    gather(model);
    model.files.access_times = 0.0;
}
