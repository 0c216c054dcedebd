//! ESP (ICS 2002) against Squid, and its threshold; UCFS (IEEE TC 2002) against Squid on two file systems.
//!
//! Invariant: all comparisons are of the disk's time for the same requests, by shipping policies on one disk. The
//! papers' own traces are lost; the workload is the benchmark they used (ESP) or the Markatos trace (UCFS).

use super::queue::{CHANGES, Demands, ONE_AT_A_TIME, Origin, Proxy, THREADS, peak, sample, squid_reads};
use crate::{
    Comparison, Experiment, Model, Outcome, PieceReads, Report, Table,
    figure::{Figure, FigureContent, FigureLine, Scale},
    paper::{
        PaperOptions,
        beds::{constant, whole},
        row,
    },
};
use larder_store::{Error, TuningValue};
use larder_workload::{PolyMixLoad, PolyMixRobots, PolyMixVersion, Workload};

/// A policy and the machine on which it runs.
struct EspCase {
    row: &'static str,
    machine: &'static str,
    workload: &'static str,
    disk_bytes: u64,
    tuned: Vec<(&'static str, TuningValue)>,
    /// Requests per second; `None` for as many as the machine can serve.
    load_per_s: Option<f64>,
}

impl EspCase {
    fn run(&self, options: &PaperOptions<'_>) -> Result<Outcome, Error> {
        let mut model = options.machine(self.machine);
        if let Some(load_per_s) = self.load_per_s {
            model.system.request_us = 1e6 / load_per_s;
        }
        let mut experiment = Experiment::new(row(self.row), model, self.disk_bytes, whole("esp.memory_bytes"));
        let object_bytes = whole("esp.object_bytes");
        experiment.mean_entry_bytes = Some(object_bytes / 2);
        experiment.tuning = super::paper_tuning();
        for (name, value) in &self.tuned {
            experiment.tuning.set(name, *value)?;
        }
        let mut experiment = experiment.sampled(whole("esp.sample"));
        let objects = (experiment.disk_bytes / object_bytes) as f64;
        // Even a partial run begins with a full store.
        (experiment.warm_up, experiment.requests) = ((4.0 * objects) as u64, (objects * options.share) as u64);
        let memory = experiment.memory_bytes;
        let disk = experiment.disk_bytes;
        let requests = Workload::named(self.workload, options.seed, memory, disk);
        experiment.run(requests.expect("papers name workloads there are"))
    }
}

/// The mean response times at which the paper compares the systems, in seconds, and a much longer one.
const RESPONSES_S: [f64; 3] = [1.5, 2.0, 3.0];
fn demands_of(row: &'static str, model: &Model, seed: u64) -> Result<Demands, Error> {
    Origin {
        row,
        model,
        is_raw: false,
        reads: squid_reads(),
        version: PolyMixVersion::Three,
        requests_per_s: constant("esp.requests_per_s"),
        disk_count: whole("esp.disk_count") as usize,
        disk_bytes: whole("esp.disk_bytes"),
        memory_bytes: whole("esp.memory_bytes"),
        seed,
        sample: sample(),
    }
    .demands()
}

fn esp_proxy(waits: bool, cpu_s: f64) -> Proxy {
    let disk_count = whole("esp.disk_count") as usize;
    Proxy { waits, cpu_s, disk_count, disk_depth: if waits { ONE_AT_A_TIME } else { THREADS } }
}

/// Creates a table of how much faster ESP is than Squid at the first of [`RESPONSES_S`]. Each row changes one property
/// of the machine.
fn sensitivity(options: &PaperOptions<'_>, model: &Model) -> Result<Table, Error> {
    let title = "ESP over Squid at 1.5 s; the paper has 2 times";
    let columns = [
        "one assumption at a time",
        "both waiting",
        "neither waiting",
        "ESP waiting, Squid not",
        "Squid, ms a request",
    ];
    let mut table = Table::new(title, &columns);
    let lines = options.each(&CHANGES, |change| {
        let mut model = model.clone();
        (change.model)(&mut model);
        let cpu_s = model.system.request_us / 1e6;
        let mut rates = Vec::new();
        let mut squid_ms = 0.0;
        for row in ["esp", "squid"] {
            let mut demands = demands_of(row, &model, options.seed)?;
            if change.stores_late {
                demands.store_late();
            }
            squid_ms = demands.disk_ms();
            rates.extend([true, false].map(|waits| {
                let proxy = esp_proxy(waits, cpu_s);
                peak(&demands, &proxy, RESPONSES_S[0], options.seed)
            }));
        }
        Ok(vec![rates[0] / rates[2], rates[1] / rates[3], rates[0] / rates[3], squid_ms])
    })?;
    CHANGES.iter().zip(lines).for_each(|(change, values)| table.push(change.label, values));
    Ok(table)
}

/// Rates in requests per second that are lower than the disk's maximum rate. At these rates, ESP evicts as many entries
/// as are stored.
const ESP_LOADS_PER_S: [f64; 5] = [20.0, 25.0, 30.0, 40.0, 60.0];

pub(crate) fn esp_squid(options: &PaperOptions<'_>) -> Result<Report, Error> {
    let model = options.machine("esp-ide");
    let demands = options.each(&["squid", "esp"], |row| demands_of(row, &model, options.seed))?;
    let mut report = Report::new("ESP against Squid, PolyMix-3 on two 30 GB IDE disks with ext2");
    let columns = ["requests/s at a mean response of", "1.5 s", "2 s", "3 s"];
    let mut table = Table::new("", &columns);
    let cases = [
        ("Squid, waiting", 0, true),
        ("ESP, waiting", 1, true),
        ("Squid, not waiting", 0, false),
        ("ESP, not waiting", 1, false),
    ];
    let searches: Vec<_> = cases.iter().flat_map(|case| RESPONSES_S.map(|accepted_s| (case, accepted_s))).collect();
    let peaks = options.each(&searches, |((_, at, waits), accepted_s)| {
        let proxy = esp_proxy(*waits, model.system.request_us / 1e6);
        Ok(peak(&demands[*at], &proxy, *accepted_s, options.seed))
    })?;
    let mut rates = Vec::new();
    for ((name, ..), of) in cases.iter().zip(peaks.chunks(RESPONSES_S.len())) {
        table.push(*name, of.to_vec());
        rates.push((*name, of.to_vec()));
    }
    let ratio = |at: usize| rates[1].1[at] / rates[0].1[at];
    let lines = ["ESP over Squid at 1.5 s", "ESP over Squid at 2 s", "ESP over Squid above 2 s"];
    report.comparisons =
        lines.iter().enumerate().map(|(at, what)| Comparison::published("esp-squid", *what, ratio(at))).collect();
    report.remarks = vec![
        "In these comparisons, both programs wait for the disk. The last comparison is at a response time of 3 s. \
         Both programs keep their data on ext2, and ESP uses one file, as in the paper. The paper does not say \
         whether its Squid waited for the disk (as ufs does) or not (aufs, diskd), or whether ESP waited. The axes of \
         the paper's figures are lost."
            .to_owned(),
        "The Definitive Guide compares similar programs on one machine (report squid-guide). A Squid with one large \
         file serves 5.9 times the rate of a Squid that waits for files on ext2, and 1.9 times the rate of a Squid \
         that does not wait."
            .to_owned(),
        "Both programs read in pieces of 4 KB, as Squid does (report squid-peak). ESP's objects are contiguous in its \
         file, but each piece waits for its turn at the disk too, so reading in pieces costs ESP more than Squid. The \
         paper states neither the size of the cache nor the request rate. The simulation has a cache of 10 GB per \
         disk, and 100 requests/s."
            .to_owned(),
        format!(
            "A request takes {:.1} ms of disk time with Squid and {:.1} ms with ESP. The hit ratio is {:.1}% with \
             Squid and {:.1}% with ESP.",
            demands[0].disk_ms(),
            demands[1].disk_ms(),
            demands[0].hits_percent(),
            demands[1].hits_percent()
        ),
    ];
    let bars = rates.iter().map(|(name, of)| ((*name).to_owned(), vec![of[0]]));
    report.figures.push(Figure {
        name: "esp-squid".to_owned(),
        title: "ESP and Squid at a mean response time of 1.5 s".to_owned(),
        y_label: "requests per second".to_owned(),
        content: FigureContent::Bars(vec!["simulated".to_owned()], bars.collect()),
        ..Figure::default()
    });
    report.tables.push(table);
    report.tables.extend(options.varied(|| sensitivity(options, &model))?);
    Ok(report)
}

const THRESHOLDS_KB: [u64; 7] = [64, 256, 1024, 4096, 16_384, 65_536, 262_144];

pub(crate) fn esp_threshold(options: &PaperOptions<'_>) -> Result<Report, Error> {
    let cases = |load_per_s| {
        THRESHOLDS_KB.map(|kilobytes| EspCase {
            row: "esp",
            machine: "esp-ide",
            workload: "polymix-3",
            disk_bytes: whole("esp.disk_bytes"),
            // The disk is scaled down by this factor, and so are its free runs.
            tuned: vec![("esp_threshold_bytes", TuningValue::Number(kilobytes * 1024 / whole("esp.sample")))],
            load_per_s,
        })
    };
    let cases: Vec<_> = std::iter::once(None).chain(ESP_LOADS_PER_S.map(Some)).flat_map(cases).collect();
    let outcomes = options.each(&cases, |case| case.run(options))?;
    let (outcomes, loaded) = outcomes.split_at(THRESHOLDS_KB.len());
    let mut report = Report::new("ESP: hit ratio and rate against the threshold");
    let mut table = Table::new("", &["threshold, KB", "hits, %", "requests/s of the disk"]);
    for (kilobytes, outcome) in THRESHOLDS_KB.iter().zip(outcomes) {
        table.push(kilobytes.to_string(), vec![outcome.hit_ratio() * 100.0, outcome.per_s_disk()]);
    }
    report.remarks = vec![
        "In the paper, the threshold changes the hit ratio by up to 10%. A threshold of 1 MB is too low, and a much \
         higher one moves the head too far. At the full speed of the simulated disk, the threshold does not change \
         the hit ratio. ESP evicts 10 to 25 entries a second while the disk is filled less than the low watermark. At \
         full speed, ESP stores more entries than that, so the disk is always filled to the watermark. At loads that \
         store about 10 to 25 entries a second, the threshold does change the hit ratio. If no free run is as long as \
         the threshold, ESP evicts 15 more entries a second, so it keeps fewer entries. This costs up to 3.7 of 50 \
         percentage points, or 7.5% of the hits. At these loads, a low threshold gives more hits."
            .to_owned(),
        "The number of levels in ESP's tree of free space affects the hit ratio most. The paper states this number \
         only in an example, which has 3 levels. With 7 levels, a node covers 256 KB; then ESP hardly ever finds a \
         free run, and refuses most entries."
            .to_owned(),
    ];
    let names = ESP_LOADS_PER_S.map(|load_per_s| format!("{load_per_s}/s"));
    let columns: Vec<&str> = std::iter::once("threshold, KB").chain(names.iter().map(String::as_str)).collect();
    let mut by_load = Table::new("Hits in percent at an offered load", &columns);
    for (at, kilobytes) in THRESHOLDS_KB.iter().enumerate() {
        let of_loads = loaded.chunks(THRESHOLDS_KB.len()).map(|outcomes| outcomes[at].hit_ratio() * 100.0);
        by_load.push(kilobytes.to_string(), of_loads.collect());
    }
    let at_least_load: Vec<f64> = loaded[..THRESHOLDS_KB.len()].iter().map(|outcome| outcome.hit_ratio()).collect();
    let what = "share of the hits that the threshold decides";
    report.comparisons.push(Comparison::published("esp-threshold", what, spread(&at_least_load) * 100.0));
    report.figures.push(threshold_figure(&names, outcomes, loaded));
    report.tables.extend([table, by_load]);
    Ok(report)
}

/// Creates a figure of the hits at different thresholds. It has one line for the greatest load, and one for each of the
/// named loads.
fn threshold_figure(names: &[String], outcomes: &[Outcome], loaded: &[Outcome]) -> Figure {
    let line = |(label, outcomes): (String, &[Outcome])| FigureLine {
        label,
        points: THRESHOLDS_KB
            .iter()
            .zip(outcomes)
            .map(|(kilobytes, outcome)| (*kilobytes as f64, outcome.hit_ratio() * 100.0))
            .collect(),
        ..FigureLine::default()
    };
    let loads = names.iter().map(|name| format!("{name} offered")).zip(loaded.chunks(THRESHOLDS_KB.len()));
    let lines = std::iter::once(("all the disk can do".to_owned(), outcomes)).chain(loads).map(line);
    Figure {
        name: "esp-threshold".to_owned(),
        title: "ESP's threshold".to_owned(),
        x_label: "threshold, KB".to_owned(),
        y_label: "hits, %".to_owned(),
        scale: Scale::LogarithmicX,
        content: FigureContent::Lines(lines.collect()),
    }
}

/// Returns the difference of the greatest and the least value, as a share of the greatest.
fn spread(values: &[f64]) -> f64 {
    let ends = |(least, most): (f64, f64), value: &f64| (least.min(*value), most.max(*value));
    let (least, most) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), ends);
    (most - least) / most
}

/// A system that the paper on UCFS simulates, on the disk of that paper.
struct UcfsCase {
    label: &'static str,
    row: &'static str,
    machine: &'static str,
    reads: PieceReads,
    tuned: &'static [(&'static str, TuningValue)],
}

impl UcfsCase {
    fn run(&self, options: &PaperOptions<'_>) -> Result<Outcome, Error> {
        let model = options.machine(self.machine);
        let object_bytes = whole("ucfs.object_bytes");
        let mut experiment =
            Experiment::new(row(self.row), model, whole("ucfs.disk_bytes"), whole("ucfs.memory_bytes"));
        experiment.mean_entry_bytes = Some(object_bytes / 2);
        experiment.tuning = super::paper_tuning();
        for (name, value) in self.tuned {
            experiment.tuning.set(name, *value)?;
        }
        (experiment.reads, experiment.is_timed) = (self.reads, true);
        let sample = whole("ucfs.sample");
        let mut experiment = experiment.sampled(sample);
        let objects = (experiment.disk_bytes / object_bytes) as f64;
        (experiment.warm_up, experiment.requests) = ((6.0 * objects) as u64, (objects * options.share) as u64);
        let mut load = PolyMixLoad::of_peak(PolyMixVersion::Three, constant("ucfs.requests_per_s"));
        load.working_set_bytes /= sample;
        experiment.run(PolyMixRobots::new(load, options.seed))
    }
}

/// The constants of SQUIDML (Maltzahn et al., 1999): entries under 8 KB are in slots, and each longer one has a file in
/// a directory of its site.
const SQUIDML: [(&str, TuningValue); 2] =
    [("buddy_threshold_bytes", TuningValue::Number(8 << 10)), ("buddy_long_by_site", TuningValue::Switch(true))];

pub(crate) fn ucfs(options: &PaperOptions<'_>) -> Result<Report, Error> {
    let case = |label, row, machine, reads| UcfsCase { label, row, machine, reads, tuned: &[] };
    let squidml = |label, machine| UcfsCase { tuned: &SQUIDML, ..case(label, "buddy", machine, squid_reads()) };
    let cases = [
        case("Squid on FFS", "squid", "atlas-10k-ufs", squid_reads()),
        case("Squid on asynchronous FFS", "squid", "atlas-10k-async", squid_reads()),
        case("UCFS", "ucfs", "atlas-10k-ufs", PieceReads::default()),
        squidml("SQUIDML on FFS", "atlas-10k-ufs"),
        squidml("SQUIDML on asynchronous FFS", "atlas-10k-async"),
    ];
    let outcomes = options.each(&cases, |case| case.run(options))?;
    let mut report = Report::new("UCFS against Squid on FFS and on asynchronous FFS: time of the disk");
    let mut table = Table::new("", &["", "disk, ms a request", "hits, %", "transfers a request"]);
    let milliseconds = |outcome: &Outcome| outcome.disk_s * 1e3 / outcome.requests as f64;
    for (case, outcome) in cases.iter().zip(&outcomes) {
        let transfers = (outcome.served.reads + outcome.served.writes) as f64 / outcome.requests as f64;
        table.push(case.label, vec![milliseconds(outcome), outcome.hit_ratio() * 100.0, transfers]);
    }
    let over = |at: usize| milliseconds(&outcomes[at]) / milliseconds(&outcomes[2]);
    report.comparisons = vec![
        Comparison::published("ucfs-squid", "over Squid on FFS", over(0)),
        Comparison::published("ucfs-squid", "over Squid on asynchronous FFS", over(1)),
        Comparison::published("ucfs-squid", "over SQUIDML", over(3)),
    ];
    report.remarks.push(
        "The printed values are the paper's ranges over five real traces; the simulation uses PolyMix-3. The layout \
         of UCFS is known only from the paper's abstract. In the simulation, the objects of a page are in one \
         cluster, and are requested together again."
            .to_owned(),
    );
    report.remarks.push(format!(
        "Squid reads in pieces of 4 KB, and FFS in blocks of 8 KB. UCFS reads a whole cluster at once. PolyMix's \
         robots send {} requests/s, the printed peak of a Squid of that time (squid-peak).",
        constant("ucfs.requests_per_s")
    ));
    report.remarks.push(
        "SQUIDML is Maltzahn's Squid (1999). It keeps entries under 8 KB in one mapped file, and each longer entry in \
         a file in the directory of its server. The simulated SQUIDML is the policy buddy with \
         `buddy_threshold_bytes` of 8 KiB and with `buddy_long_by_site`. It has one file for each slot length instead \
         of one mapped file, and reads a slot from the disk at each hit. The abstract does not name the file system \
         of SQUIDML. The line \"over SQUIDML\" assumes FFS, as the line \"over Squid on FFS\" does; the table has FFS \
         and asynchronous FFS."
            .to_owned(),
    );
    let bars = cases.iter().zip(&outcomes).map(|(case, outcome)| (case.label.to_owned(), vec![milliseconds(outcome)]));
    report.figures.push(Figure {
        name: "ucfs-squid".to_owned(),
        title: "UCFS and Squid: disk time of a request".to_owned(),
        y_label: "ms a request".to_owned(),
        content: FigureContent::Bars(vec!["simulated".to_owned()], bars.collect()),
        ..Figure::default()
    });
    report.tables.push(table);
    Ok(report)
}
