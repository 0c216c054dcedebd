//! "Performance Issues in Squid" (2002): files or one large file, with or without waiting for the disk, poll or kqueue.
//!
//! Owns: the versions. Queueing is in [`queue`](super::queue). Invariant: no constant was chosen for a single version.
//! The processor time of a request is the time that "Squid: The Definitive Guide" measured without a cache.

use super::queue::{
    ASYNCHRONOUS, CHANGES, Demands, ONE_AT_A_TIME, Origin, Proxy, Service, THREADS, gather, peak, sample, serve,
    squid_reads,
};
use crate::{
    Comparison, ComparisonBasis, Model, Report, Table, ValueKind,
    figure::{Figure, FigureContent, FigureLine, Hue, Scale},
    paper::{
        PaperOptions,
        beds::{constant, whole},
    },
};
use larder_store::Error;
use larder_workload::PolyMixVersion;

const MACHINE: &str = "squid-scsi";

/// A version of Squid.
#[derive(Clone, Copy)]
struct Version {
    /// Name of the version in the lines of the report.
    name: &'static str,
    about: &'static str,
    row: &'static str,
    /// Whether the only process waits for the disk.
    waits: bool,
    /// Whether the file system batches metadata writes (soft updates).
    gathers: bool,
    /// Whether the program uses kqueue instead of poll.
    has_kqueue: bool,
    /// Requests per second for which the paper gives response times.
    rate: f64,
}

const VERSIONS: [Version; 4] = [
    Version {
        name: "Squid 2.3",
        about: "files, waits for the disk",
        row: "squid",
        waits: true,
        gathers: false,
        has_kqueue: false,
        rate: 60.0,
    },
    Version {
        name: "Squid 2.4",
        about: "files, waits, soft updates",
        row: "squid",
        waits: true,
        gathers: true,
        has_kqueue: false,
        rate: 140.0,
    },
    Version {
        name: "expv1",
        about: "one large file, raw, asynchronous",
        row: "large-file",
        waits: false,
        gathers: false,
        has_kqueue: false,
        rate: 400.0,
    },
    Version {
        name: "expv2",
        about: "the same with kqueue",
        row: "large-file",
        waits: false,
        gathers: false,
        has_kqueue: true,
        rate: 450.0,
    },
];

/// The rates of Table 6.6, in requests per second.
const RATES: [f64; 13] = [200.0, 220.0, 240.0, 260.0, 280.0, 300.0, 320.0, 340.0, 360.0, 380.0, 400.0, 420.0, 450.0];
/// The machines of the versions: the policy, whether metadata writes are batched, and the requests per second.
const MACHINES: [(&str, bool, f64); 3] = [("squid", false, 60.0), ("squid", true, 140.0), ("large-file", false, 400.0)];

pub(crate) fn squid(options: &PaperOptions<'_>) -> Result<Report, Error> {
    let model = options.machine(MACHINE);
    let demands = options.each(&MACHINES, |(row, gathers, requests_per_s)| {
        let mut model = model.clone();
        if *gathers {
            gather(&mut model);
        }
        demands_of(row, &model, *requests_per_s, options.seed)
    })?;
    let proxy = |version: &Version| Proxy {
        waits: version.waits,
        // The study's text credits kqueue with up to 8%. Its own rates differ by 12.5%. A measurement gives neither.
        cpu_s: model.system.request_us / 1e6
            * if version.has_kqueue { 1.0 / constant("squid.poll_share") } else { 1.0 },
        disk_count: disk_count(),
        disk_depth: if version.waits { ONE_AT_A_TIME } else { ASYNCHRONOUS },
    };
    let of = |version: &Version| {
        let at = MACHINES.iter().position(|(row, gathers, _)| *row == version.row && *gathers == version.gathers);
        &demands[at.expect("every version's machine is run")]
    };
    let mut report = Report::new("Performance Issues in Squid: rates and times of four versions");
    let accepted_s = constant("squid.accepted_s");
    let peaks = options.each(&VERSIONS, |version| Ok(peak(of(version), &proxy(version), accepted_s, options.seed)))?;
    let last = &VERSIONS[3];
    let rates: Vec<_> =
        VERSIONS.iter().map(|version| (version, version.rate)).chain(RATES.map(|rate| (last, rate))).collect();
    let serve = |(version, rate): &(&Version, f64)| Ok(serve(of(version), &proxy(version), *rate, options.seed));
    let services = options.each(&rates, serve)?;
    let (at_peaks, at_rates) = services.split_at(VERSIONS.len());
    for ((version, peak), service) in VERSIONS.iter().zip(&peaks).zip(at_peaks) {
        report.comparisons.extend(version_lines(version.name, *peak, service, of(version)));
    }
    report.comparisons.push(with_diskd(&demands[1], &proxy(&VERSIONS[1]), options)?);
    let gain = (peaks[3] / peaks[2] - 1.0) * 100.0;
    report.comparisons.push(published("gain of kqueue, up to", gain));
    let mut points = Vec::new();
    for (rate, service) in RATES.iter().zip(at_rates) {
        report.comparisons.extend(service_lines(&format!("{rate}/s"), service, of(last)));
        points.push((*rate, service.hit_s * 1e3));
    }
    let rise = points[points.len() - 1].1 / points[0].1;
    let what = "rise of the time of hits from 200 to 450/s";
    report.comparisons.push(Comparison::new(what, "times", ValueKind::Derived, 18.0, rise));
    report.tables.extend(options.varied(|| sensitivity(options, &model))?);
    report.remarks = remarks(&demands, peaks[3]);
    report.figures = figures(&report, points);
    Ok(report)
}

/// Returns a line for Squid 2.4 with diskd, which came with this version: a process for each disk, which waits for the
/// disk. This line was added after its result was known.
fn with_diskd(demands: &Demands, waiting: &Proxy, options: &PaperOptions<'_>) -> Result<Comparison, Error> {
    let proxy = Proxy { waits: false, ..*waiting };
    let accepted_s = constant("squid.accepted_s");
    let peaks = options.each(&[proxy], |proxy| Ok(peak(demands, proxy, accepted_s, options.seed)))?;
    let line = Comparison::new("Squid 2.4 with diskd: peak", "req/s", ValueKind::Printed, 140.0, peaks[0]);
    Ok(line.on(ComparisonBasis::Fitted))
}

fn published(what: &str, simulated: f64) -> Comparison {
    Comparison::published("squid-peak", what, simulated)
}

/// Returns the report's lines for one version of Squid: its peak rate; then throughput, response times and hit ratio at
/// the rate for which the paper has a table.
fn version_lines(name: &str, peak: f64, service: &Service, demands: &Demands) -> Vec<Comparison> {
    let mut lines = vec![
        published(&format!("{name}: peak"), peak),
        published(&format!("{name}: throughput"), service.responses_per_s),
    ];
    lines.extend(service_lines(name, service, demands));
    lines
}

/// Returns the lines of a version's response times.
fn service_lines(name: &str, service: &Service, demands: &Demands) -> [Comparison; 4] {
    [
        published(&format!("{name}: response"), service.response_s * 1e3),
        published(&format!("{name}: misses"), service.miss_s * 1e3),
        published(&format!("{name}: hits"), service.hit_s * 1e3),
        published(&format!("{name}: hit ratio"), demands.hits_percent()),
    ]
}

/// Returns the remarks on the tables of the study. `peak` is the simulated highest rate of the last version.
fn remarks(demands: &[Demands], peak: f64) -> Vec<String> {
    let versions = VERSIONS.map(|version| format!("{} ({})", version.name, version.about)).join(", ");
    vec![
        format!(
            "The versions are: {versions}. Lines that start with a rate instead of a version are of the last version."
        ),
        "A peak is the request rate at which the mean response time reaches 3 s. In a miss, the server's think time \
         alone takes 2.5 s. The times of a version are at the request rate of the paper's table for it, which may be \
         higher than the simulated peak. The processor time of a request is derived from the Definitive Guide's peak \
         rate of Squid without a disk cache (332 requests/s at 500 MHz). This time is scaled by the clock rate of the \
         processor."
            .to_owned(),
        "Kqueue saves 8% of the processor time, as the paper's text says. The 8% are an input, because they cannot be \
         derived from a measurement. `larder bench descriptors` measured 0.65 ms for a call of `poll` over 1,844 \
         connections (docs/internals/measurements.md). By Little's law, the test of Table 6.3 had this many \
         connections. Scaled by the clock rates of the processors, such a call took 2.6 ms in 1998, which is longer \
         than a request takes. But one call serves all sockets that are ready, and a busier process finds more of \
         them ready. If a call finds one ready request, `poll` halves the rate; if it finds 14, `poll` costs the 8%. \
         The paper does not print how many a call found."
            .to_owned(),
        "One request in 20 is a reload, which waits for the server whether the object is cached or not. As in \
         Polygraph's reports, the times of hits and misses exclude reloads, and the response time includes them. The \
         paper's own columns confirm this. A weighted mean of 95% for its plain requests (hits and misses) and 5% for \
         reloads (at the time of a miss) is within 0.2% of its response times, at 200 to 360 requests/s."
            .to_owned(),
        "A packet to or from a server takes 40 ms, so each round trip adds to the time of a miss. PolyMix-3 delays \
         each packet (Pai et al., USITS 2003); the 40 ms are those of PolyMix-4. At 200 requests/s, the paper's \
         misses take 0.44 s longer than the server's think time. This value was not used as an input. In the \
         simulation, connecting, slow start and packet delays take 0.19 s."
            .to_owned(),
        format!(
            "A request takes {:.1} ms of disk time in Squid 2.3, {:.1} ms in Squid 2.4 (with soft updates), and {:.1} \
             ms in the versions with one file.",
            demands[0].disk_ms(),
            demands[1].disk_ms(),
            demands[2].disk_ms(),
        ),
        "All versions read an object in pieces of 4 KB (SM_PAGE_SIZE in Squid's source). Each piece is an operation \
         of its own. It waits for its turn at the disk, which serves other operations in between, in the order of \
         their addresses. FFS reads blocks of 8 KB, and keeps the second half of a block in memory. No constant was \
         chosen to match these tables. But two rules were added later, because hits were too slow near the peak and \
         too fast at lower rates. By these rules, disks sort their queues, and a piece that comes after a pause waits \
         for half a revolution."
            .to_owned(),
        "The paper does not say how Squid 2.3 and 2.4 did their I/O, nor how the disks were mounted. The simulation \
         assumes that both wait for each operation, which is Squid's default. It runs Squid 2.3 on FreeBSD's default \
         FFS, and Squid 2.4 with soft updates. Both simulated versions are slower than in the paper. But with the \
         same model of FFS, the simulated Squid is faster than the Definitive Guide's (report squid-guide). The paper \
         prints 60 requests/s, and the guide prints 24.4 on half as many disks, so the two sources contradict each \
         other. Squid 2.4 included diskd, but the paper does not say whether it was used. With diskd, the simulated \
         peak is 2.7 times the printed one (line `Squid 2.4 with diskd`). No reading of the paper's text gives the \
         printed rate of either version, so neither is reproduced."
            .to_owned(),
        format!(
            "The paper contradicts itself. At 400 requests/s, its response time is 2,631 ms in the table of expv1 and \
             1,819 ms in Table 6.6. At 450 requests/s, a hit takes 988 ms in the table of expv2 and 1,039 ms in Table \
             6.6. The simulated peak of expv2 is {peak:.0} requests/s. Times rise steeply near a peak, so the last \
             rows of Table 6.6 depend on their distance from it. At a rate beyond a version's peak, its times grow \
             with the length of the run, so they have no meaning."
        ),
        "In the paper, the hit ratio falls from 56.4% to 52.1% as the rate rises, because Squid skips overloaded \
         disks. The simulation does not skip disks, so all rows of the versions with one file have the same simulated \
         hit ratio. A simulated miss takes 2.5 s of think time and 0.2 s for its packets; the queues add little."
            .to_owned(),
    ]
}

fn disk_count() -> usize {
    whole("squid.disk_count") as usize
}

fn demands_of(row: &'static str, model: &Model, requests_per_s: f64, seed: u64) -> Result<Demands, Error> {
    Origin {
        row,
        model,
        is_raw: true,
        reads: squid_reads(),
        version: PolyMixVersion::Three,
        requests_per_s,
        disk_count: disk_count(),
        disk_bytes: whole("squid.disk_bytes"),
        memory_bytes: whole("squid.memory_bytes") / disk_count() as u64,
        seed,
        sample: sample(),
    }
    .demands()
}

/// Creates a table of the versions with files. Each row changes one property of the machine.
fn sensitivity(options: &PaperOptions<'_>, model: &Model) -> Result<Table, Error> {
    let title = "Peaks of the versions with files; the paper has 60, 140 and 2.3 times";
    let columns = ["one assumption at a time", "Squid 2.3", "Squid 2.4", "2.4 over 2.3", "disk, ms a request"];
    let mut table = Table::new(title, &columns);
    let lines = options.each(&CHANGES, |change| {
        let mut model = model.clone();
        (change.model)(&mut model);
        let mut demands = demands_of("squid", &model, MACHINES[0].2, options.seed)?;
        if change.stores_late {
            demands.store_late();
        }
        let cpu_s = model.system.request_us / 1e6;
        let peak = |waits, disk_depth| {
            let proxy = Proxy { waits, cpu_s, disk_count: disk_count(), disk_depth };
            peak(&demands, &proxy, constant("squid.accepted_s"), options.seed)
        };
        let waiting = peak(true, ONE_AT_A_TIME);
        let not_waiting = peak(false, THREADS);
        Ok(vec![waiting, not_waiting, not_waiting / waiting, demands.disk_ms()])
    })?;
    CHANGES.iter().zip(lines).for_each(|(change, values)| table.push(change.label, values));
    Ok(table)
}

fn figures(report: &Report, points: Vec<(f64, f64)>) -> Vec<Figure> {
    let line = |what: &str| report.comparisons.iter().find(|line| line.what == what).expect("the lines were made");
    let bars = VERSIONS.map(|version| {
        let peak = line(&format!("{}: peak", version.name));
        (version.name.to_owned(), vec![peak.paper, peak.simulated])
    });
    let peaks = Figure {
        name: "squid-peak".to_owned(),
        title: "Peak rate of four versions of Squid".to_owned(),
        y_label: "requests per second".to_owned(),
        content: FigureContent::Bars(vec!["paper".to_owned(), "simulated".to_owned()], bars.to_vec()),
        ..Figure::default()
    };
    let printed = RATES.map(|rate| (rate, line(&format!("{rate}/s: hits")).paper)).to_vec();
    let lines = vec![
        FigureLine { label: "paper".to_owned(), points: printed, hue: Hue::Gray, ..FigureLine::default() },
        FigureLine { label: "simulated".to_owned(), points, ..FigureLine::default() },
    ];
    let hit_times = Figure {
        name: "squid-hit-time".to_owned(),
        title: "Time of hits against load, expv2".to_owned(),
        x_label: "requests per second".to_owned(),
        y_label: "time of a hit, ms".to_owned(),
        scale: Scale::LogarithmicY,
        content: FigureContent::Lines(lines),
    };
    vec![peaks, hit_times]
}
