//! Writes docs/internals/laboratory.md: every table and figure of the papers, as `larder sim paper all` prints them,
//! and the laboratory's own speed, as `larder sim speed` prints it.
//!
//! `cargo run --profile fast -p larder-sim --example laboratory -- docs/internals/laboratory.md docs/figures [SHARE
//! [NAME...]]` simulates the named reports, or all, and keeps the others. A name of no report renders all of them
//! again.
//!
//! `... --example laboratory -- ranges docs/internals/laboratory.md crates/larder-sim/papers/ranges.tsv [NAME...]`
//! varies the assumed constants of the named reports on the page, or of all.

use larder_sim::{
    ComparisonBasis, KnownRuns, MODELS, Model, PAPERS, Paper, PaperOptions, RANGES_TITLE, Report, RequestSource,
    SpeedTest, jobs_default, vary_assumptions,
};
use larder_store::Policy;
use std::{error::Error, fmt::Write as _, fs, path::Path, time::Duration};

/// The page between its first sentence and its list of machines.
const OPENING: &str = "
`cargo run --profile fast -p larder-sim --example laboratory -- docs/internals/laboratory.md docs/figures` writes this
page. The simulation runs the proxy's own storage policies in virtual time, on models of the machines below. `larder sim
paper count` prints the first sentence, the account and all tables below. `larder sim paper NAME` prints one report, and
also tables in which its assumptions vary; this page leaves those tables out. These commands are part of the packages,
and of builds with `--features lab`.

## Method

`ModelDevice` and `ModelDirectory` implement the engine's interfaces to disk and file system. The two models complete
each operation at once and add up the time that it would have taken. The models keep written data in memory, so that the
engine can read it back; for bytes that are zero, they keep nothing. One thread drives the store and sets its clock.
`larder sim run` simulates traces and workloads in the same way.

The load generator PolyMix has simulated users, called robots. All robots together send requests at the rate that the
paper prints, so requests for different pages interleave. Disk, caches and working set are 3 to 200 times smaller than
in the paper, so there are fewer objects. The number of robots is that of the paper. The cylinder groups of the disk are
also that many times smaller. Otherwise the number of groups, and so the results, would depend on the scale of the
simulation. The simulated Squid, ESP and expv1 read an object in pieces of 4 KB. Each piece waits for its turn at the
disk, which serves other requests in between.

In the reports on Squid and ESP, one request in 20 is a reload (PolyMix's `Reload`). A reload waits for the server. As
in Polygraph's reports, the mean response time includes reloads, but a reload is neither a hit nor a miss. Each packet
to or from a server takes 40 ms, as PolyMix-4 prescribes, and a connection needs the round trips of TCP's slow start. So
a miss takes 0.2 s longer than the server's think time of 2.5 s.

The *ratio* in a table is the simulated value divided by the paper's. If the paper prints a range or a bound, the
simulated value is divided by the nearer end of the range. A simulated value within the range has the ratio 1. Gains are
compared in percent: a gain of 5% misses a gain of 30%, although the factors 1.05 and 1.3 differ little.

Each line of a report compares one value. The column *value is* has the origin of the paper's value: it is *printed*,
*derived* from printed values, or *external* (from other authors). The column *line is* shows how independent the
simulated value is of the paper's:

- *fitted*: a constant was chosen to give the paper's value, or a rule was added after its effect on the value was
  known.
- *repeated*: another line already compares the same simulated value, with a number in another place of the paper.
- *derived*: the simulated value follows from other lines and from inputs by arithmetic.
- *conditional*: no constant was chosen to match the paper's value, but the simulated value depends on assumed
  constants. These constants are marked `[D]` and `[M]` in the files of the machines, or belong to a bed (the set-up of
  a report).
- *predicted*: like *conditional*, but the simulated value matches the paper's over the whole range of each assumed
  constant.

`models/beds.toml` has the plausible range of each assumed constant of a bed, and `models/ranges.toml` that of each
assumed constant of a machine. `cargo run --profile fast -p larder-sim --example laboratory -- ranges
docs/internals/laboratory.md crates/larder-sim/papers/ranges.tsv` simulates the reports again, with each constant at the
ends of its range. It varies only reports that meet the paper in a conditional row. If a constant's assumed value is an
end of its range, the middle of the range is simulated too. The variation of a report stops when each of its conditional
rows was missed at least once. Constants of beds are varied before constants of machines, and constants with a wide
range before those with a narrow one. Each varied report is also simulated with two other seeds. The account and the
reports below have the results.

The account counts claims. A claim is one finding of a paper. A claim has one row for each place where the paper prints
it; all claims together have 288 rows. [`papers/`](../../crates/larder-sim/papers/README.md) has each row with its
quote. It also has the lines that reproduce the row, or the reason why no line does. A row with a printed value is *met*
if the simulated value is within 25% of it. A row with a printed range or bound is met if the simulated value is within
this range. A claim counts as compared if no row that could be compared is left out. A claim is met if all of its
compared rows are met. If a text permits several readings, the row names the chosen one.

## Traces, workloads, sweeps

`tests/real/sim_live.sh` replays five traces through the running proxy and through the simulator, both with default
settings. The script fails if their hit ratios differ by more than half a percentage point (two points for PolyMix). Two
traces are from PolyMix-3 and PolyMix-4, scaled to two cores. These two traces have 200,000 requests and a working set
of up to 1 GB; the store has 128 MB. One user sends all requests without pauses. The traces have no responses that
caches may not store, no life cycles and no reloads, and servers respond at once.

The table has the hits in percent of the requests. They were measured on 28 November 2026 on a busy machine (a load
average of 9 on two cores), with the store in `/dev/shm`:

| trace | live | simulated |
|---|--:|--:|
| Zipf 0.8 | 40.51 | 40.31 |
| Zipf 1.0 | 67.69 | 67.95 |
| `markatos` | 31.28 | 31.54 |
| PolyMix-3 | 58.01 | 58.79 |
| PolyMix-4 | 59.22 | 59.60 |

`larder sim run` simulates the proxy's memory cache in front of each store. With an LRU as the memory cache, 32.42% of
the simulated requests of `markatos` were hits. The reason is that the store refuses one in seven objects of `markatos`
as too long. Such objects are in memory only, and an LRU keeps them there for longer. The proxy's memory cache hashes
with a new seed in each run, so its hits differ by up to 0.2 points between runs. The reports on the papers simulate an
LRU, as in the proxies of the papers, and give the same values in each run. If other programs use the store's disk, the
running proxy has up to 5 points fewer hits, because it bypasses a store that does not respond.

`larder sim run --trace FILE` reads these formats: Squid's native log, the common and combined log formats, text in
columns, libCacheSim's oracleGeneral and Larder's own format. The file may be plain, gzip or zstd, or standard input
(`-`). The first bytes determine the format, or `--format` names it. Columns are separated by commas, semicolons, tabs
or spaces. A first line may name them, in any order: `key`, `id`, `obj_id`, `url`; `size`, `obj_size`, `bytes`; `time`,
`timestamp`, `ts`. Without names, the columns are time, key and size, or key and size. A file with more columns and no
names is refused. The public traces of Twitter (OSDI 2020), IBM (HotStorage 2020), Wikimedia (2019) and MSR Cambridge
(FAST 2008) are recognized; the simulation uses only their reads. Damaged lines are skipped and counted, and the first
one is printed. The site of an entry is the host of its URL. The group of an entry is the set of objects that a workload
requests together.

`--workload` is `zipf`, `zipf-0.8`, `zipf-1.0`, `small-objects`, `markatos`, `polymix-3` or `polymix-4`. A seed gives
the same requests on every machine. `larder sim convert` writes a trace or a workload in Larder's own format, with 14
to 30 bytes per request.

`--sweep` varies the size of the store (`size=100GB..4TB`), the size of the memory cache (`memory-cache=16MB..1GB`), or
the share of the store that entries may use (`utilization=50..95`). Markatos et al. varied this share in their
experiments. To stay within it, the simulator removes the least recently used entries. Each policy gets the same
requests, and simulations run on all cores. `--output` selects a table, JSON or CSV. `--plots` draws the request rate,
the hits, the bytes hit, the memory and the bytes written. A request for an entry longer than the store is a miss.

## Machines

";

/// The heading of the last section.
const SPEED_TITLE: &str = "The laboratory's own speed: requests per second of one core";

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, document, file, names @ ..] = &arguments[..]
        && command == "ranges"
    {
        return write_ranges(document, file, names);
    }
    let [document, folder, rest @ ..] = &arguments[..] else {
        println!("usage: laboratory DOCUMENT FIGURES [SHARE [NAME...]]");
        return Ok(());
    };
    let names = rest.get(1..).unwrap_or_default();
    let share: f64 = rest.first().map_or(Ok(1.0), |text| text.parse())?;
    // The speed is measured first, because its table reports the peak memory of this process.
    let (before, speed) = if names.is_empty() {
        (String::new(), speed()?)
    } else {
        let before = fs::read_to_string(document)?;
        let speed = before.find(&format!("## {SPEED_TITLE}\n")).map_or("", |at| &before[at..]).to_owned();
        (before, speed)
    };
    let known = KnownRuns::default();
    let options = PaperOptions {
        seed: 11,
        jobs: jobs_default(),
        share,
        model: None,
        varies_assumptions: false,
        known: &known,
        progress: &|_| {},
        dry_run: false,
    };
    let mut text = String::new();
    let mut reports = Vec::new();
    for paper in PAPERS {
        let is_simulated = names.is_empty() || names.iter().any(|name| name == paper.name);
        let (section, report) =
            if is_simulated { simulated(paper, &options, Path::new(folder))? } else { kept(paper, &options, &before)? };
        text.push_str(&section);
        reports.push(report);
    }
    let account = Paper::account(&reports);
    let headline = account.title.clone();
    let account = Report { title: "Account of the printed results".to_owned(), ..account }.to_text();
    let machines = machines(share)?;
    let text = format!("# The laboratory\n\n**{headline}.**\n{OPENING}{machines}{account}\n{text}{speed}");
    fs::write(document, text.trim_end().to_owned() + "\n")?;
    Ok(())
}

/// Varies the assumed constants of the named reports on the page, or of all, and writes the results. The file keeps
/// those of other reports.
fn write_ranges(document: &str, file: &str, names: &[String]) -> Result<(), Box<dyn Error + Send + Sync>> {
    let page = fs::read_to_string(document)?;
    let options = PaperOptions {
        seed: 11,
        jobs: 1,
        share: 1.0,
        model: None,
        varies_assumptions: false,
        known: &KnownRuns::default(),
        progress: &|_| {},
        dry_run: true,
    };
    let is_varied = |name: &str| names.is_empty() || names.iter().any(|known| known == name);
    let papers = PAPERS.iter().filter(|paper| is_varied(paper.name));
    let reports: Result<Vec<_>, _> = papers.map(|paper| kept(paper, &options, &page)).collect();
    let reports: Vec<_> = reports?.into_iter().map(|(_, report)| report).collect();
    let told = |report: &str, constant: &str, value: f64| eprintln!("{report}: {constant} = {value}");
    let mut text = vary_assumptions(&reports, jobs_default(), RANGES_LIMIT, &told);
    let before = fs::read_to_string(file)?;
    let is_kept = |line: &&str| line.split_once('\t').is_some_and(|(name, _)| !is_varied(name));
    for line in before.lines().skip(RANGES_HEADER_LINES).filter(is_kept) {
        writeln!(text, "{line}")?;
    }
    fs::write(file, text)?;
    Ok(())
}

/// Time after which the variation of assumed constants begins no further simulation.
const RANGES_LIMIT: Duration = Duration::from_mins(7);
/// Lines before the first result in the file of ranges.
const RANGES_HEADER_LINES: usize = 2;

/// Returns the list of machines, and a note if fewer operations than the papers' are simulated.
fn machines(share: f64) -> Result<String, Box<dyn Error + Send + Sync>> {
    let mut text = String::new();
    for (name, _) in MODELS {
        writeln!(text, "- `{name}`: {}", Model::open(name)?.about)?;
    }
    text.push_str("\n`larder sim models NAME` prints all parameters with their sources, and\n`larder sim models beds` the constants of the reports' beds.\n\n");
    if share < 1.0 {
        writeln!(
            text,
            "This copy was made with {share} of the papers' operations (seconds of the papers are scaled).\n"
        )?;
    }
    Ok(text)
}

/// Returns the last line of a paper's section.
fn end_of_section(paper: &Paper) -> String {
    format!("\n`larder sim paper {}`\n\n", paper.name)
}

/// Simulates a paper, draws its figures, and returns its section.
fn simulated(
    paper: &Paper,
    options: &PaperOptions<'_>,
    folder: &Path,
) -> Result<(String, Report), Box<dyn Error + Send + Sync>> {
    let report = paper.simulate(options)?;
    let mut text = report.to_text();
    eprintln!("{text}");
    for figure in &report.figures {
        figure.draw(folder)?;
        let folder = folder.file_name().unwrap_or_default().display();
        write!(text, "\n![{}](../{folder}/{}.svg)\n", figure.title, figure.name)?;
    }
    text.push_str(&end_of_section(paper));
    Ok((text, report))
}

/// Returns a paper's section of the page with its comparisons rendered again, and these, with the simulated values that
/// are printed there. Their digits are enough to tell which values are met.
fn kept(
    paper: &Paper,
    options: &PaperOptions<'_>,
    page: &str,
) -> Result<(String, Report), Box<dyn Error + Send + Sync>> {
    let end_line = end_of_section(paper);
    let missing = |what: &str| format!("the page has no {what} of {}: simulate it too", paper.name);
    let end = page.find(&end_line).ok_or_else(|| missing("section"))?;
    let start = page[..end].rfind("\n## ").ok_or_else(|| missing("heading"))? + 1;
    let section = page[start..end].to_owned() + &end_line;
    // A dry run fills the known runs with meaningless values, so it gets its own.
    let dry = PaperOptions { dry_run: true, known: &KnownRuns::default(), model: None, ..*options };
    let mut report = paper.simulate(&dry)?;
    for comparison in &mut report.comparisons {
        let cells = printed_cells(&section, &comparison.what);
        let value = cells.as_ref().and_then(|cells| cells[SIMULATED_CELL].replace(',', "").parse().ok());
        comparison.simulated = value.ok_or_else(|| missing(&format!("line `{}`", comparison.what)))?;
        // A dry run meets nothing, so it predicts nothing.
        if cells.is_some_and(|cells| cells[BASIS_CELL] == ComparisonBasis::Predicted.name()) {
            comparison.basis = ComparisonBasis::Predicted;
        }
    }
    let fresh = body(Report { comparisons: report.comparisons.clone(), ..Report::default() });
    let section = with_ranges(section, paper);
    let start = section.find("\n|").ok_or_else(|| missing("table"))? + 1;
    let end = start + section[start..].find("|\n\n").ok_or_else(|| missing("table"))? + 1;
    Ok((format!("{}{fresh}{}", &section[..start], &section[end..]), report))
}

/// Returns the text of a report without its title.
fn body(report: Report) -> String {
    report.to_text().trim_start_matches("## \n\n").trim_end().to_owned()
}

/// Returns a section of the page with the present table of ranges, which comes after all other tables.
fn with_ranges(mut section: String, paper: &Paper) -> String {
    let table = paper.ranges();
    if let Some(start) = section.find(RANGES_TITLE) {
        let end = section[start..].find("|\n\n").map_or(section.len(), |end| start + end + "|\n\n".len());
        section.replace_range(start..end, "");
    }
    let after_tables = section.rfind("|\n\n").map_or(0, |end| end + "|\n\n".len());
    let table = table.map(|table| body(Report { tables: vec![table], ..Report::default() }) + "\n\n");
    section.insert_str(after_tables, &table.unwrap_or_default());
    section
}

/// Returns the cells of the line of `what`, in the first table of `section`.
fn printed_cells<'a>(section: &'a str, what: &str) -> Option<Vec<&'a str>> {
    let rows = section.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let of_line = |cells: &Vec<&str>| cells.len() == COMPARISON_CELLS && cells[1] == what;
    rows.into_iter().find(of_line)
}

/// Cells of a comparison's line, with the empty ones outside of the first and last bar; those of what the line is, and
/// of the simulated value.
const COMPARISON_CELLS: usize = 9;
const BASIS_CELL: usize = 4;
const SIMULATED_CELL: usize = 6;

/// Measures the laboratory's own speed on this machine.
fn speed() -> Result<String, Box<dyn Error + Send + Sync>> {
    let speed = SpeedTest {
        source: RequestSource::Workload("zipf".to_owned(), 11),
        kept: 10_000_000,
        streamed: 100_000_000,
        row_requests: 400_000,
        cache_bytes: 1_000_000_000,
        policies: Policy::all().iter().collect(),
    };
    let mut report = speed.run(&|_| {})?;
    report.title = SPEED_TITLE.to_owned();
    let machine = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let machine = machine.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    report.remarks.push(format!(
        "The rates were measured on one core of: {}.",
        machine.map_or("a machine without a name", |(_, name)| name)
    ));
    Ok(format!("{}\n`larder sim speed --streamed 100000000`\n", report.to_text()))
}
