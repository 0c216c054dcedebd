//! Checks that measured figures on the pages are those of docs/figures.toml, and lists the runs that are too old.
//!
//! Owns: the form of the file and of a mark (`14.9 µs<!--=hot1k-larder-->`), and the greatest age. tidy compares texts
//! and scripts, which only a commit can make wrong. The age of a run grows by itself, so tidy only mentions it:
//! otherwise an old commit would fail its own gate. `cargo xtask figures` is for releases, and fails for it.

use crate::tidy::{
    Finding,
    source::{Text, Tree},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

/// The file with all measured figures, by run.
pub(crate) const DATA: &str = "docs/figures.toml";

/// Greatest age of a run, in days.
const AGE_DAYS_MAX: i64 = 30;

/// The facts that a run must state. `OPTIONAL` are the facts that it may state.
const REQUIRED: [&str; 5] = ["date", "commit", "machine", "script", "command"];
const OPTIONAL: [&str; 2] = ["files", "stale"];

/// Start and end of the comment that marks a figure on a page.
const OPENING: &str = "<!--=";
const CLOSING: &str = "-->";

/// Value of `script` for a run that was made by hand, with its command alone.
const NO_SCRIPT: &str = "none";

/// One measurement, with all its figures.
struct Run<'a> {
    name: &'a str,
    line: usize,
    facts: BTreeMap<&'a str, &'a str>,
    /// Each figure's name, with its line and its value.
    figures: BTreeMap<&'a str, (usize, &'a str)>,
}

impl Run<'_> {
    fn fact(&self, name: &str) -> &str {
        self.facts.get(name).copied().unwrap_or_default()
    }

    /// Returns the files that decide what the run measures: its script and its `files`.
    fn files(&self) -> impl Iterator<Item = &str> {
        let script = Some(self.fact("script")).filter(|script| *script != NO_SCRIPT);
        script.into_iter().chain(self.fact("files").split_whitespace())
    }

    fn age_days(&self, today: i64) -> Option<i64> {
        Some(today - days(self.fact("date"))?)
    }
}

/// Prints every run with its age. Returns false if a run is stale or too old.
pub(crate) fn run(root: &Path) -> bool {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("figures: {error}");
            return false;
        }
    };
    let mut findings = check(&tree);
    findings.extend(changed_scripts(root, &tree));
    findings.iter().for_each(|finding| eprintln!("{finding}"));
    let (runs, _) = parse(tree.text(DATA).unwrap_or_default());
    let today = today();
    let mut old_count = 0;
    for run in &runs {
        let age = run.age_days(today).unwrap_or(i64::MAX);
        let stale = run.fact("stale");
        let is_old = age > AGE_DAYS_MAX || !stale.is_empty();
        old_count += usize::from(is_old);
        let state = if is_old { "MEASURE AGAIN" } else { "current" };
        println!("figures: {}: {age} days, {state} {stale}\n         {}", run.name, run.fact("command"));
    }
    println!("figures: {} runs, {old_count} to measure again, {} findings", runs.len(), findings.len());
    old_count == 0 && findings.is_empty()
}

/// Returns a line that names the runs that are too old, or `None` if there are none.
pub(crate) fn warning(tree: &Tree) -> Option<String> {
    let (runs, _) = parse(tree.text(DATA)?);
    let today = today();
    let old = runs.iter().filter(|run| run.age_days(today).is_some_and(|age| age > AGE_DAYS_MAX)).map(|run| run.name);
    let names = old.collect::<Vec<_>>().join(", ");
    (!names.is_empty()).then(|| format!("these runs of {DATA} are older than {AGE_DAYS_MAX} days: {names}"))
}

/// Returns the faults in the file of figures, and the places where a page contradicts it.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(data) = tree.text(DATA) else { return Vec::new() };
    let (runs, mut findings) = parse(data);
    findings.extend(runs.iter().flat_map(|run| incomplete(tree, run)));
    let mut owners: BTreeMap<&str, &Run<'_>> = BTreeMap::new();
    for run in &runs {
        for (name, (line, _)) in &run.figures {
            if owners.insert(name, run).is_some() {
                findings.push(Finding::new(DATA, *line, format!("`{name}` is there twice")));
            }
        }
    }
    let mut printed = BTreeSet::new();
    for page in &tree.documents {
        let marks = marks(&page.text);
        findings.extend(marks.iter().filter_map(|mark| contradiction(page, mark, &owners)));
        findings.extend(unmarked_cells(page));
        let names: BTreeSet<_> = marks.iter().map(|mark| mark.name).collect();
        let shown: BTreeSet<_> = names.iter().filter_map(|name| owners.get(name)).map(|run| run.fact("date")).collect();
        for date in shown.into_iter().filter(|date| !page.text.contains(date)) {
            findings.push(Finding::new(&page.path, 1, format!("shows figures of {date}, and not that date")));
        }
        printed.extend(names);
    }
    for (name, run) in owners.iter().filter(|(name, _)| !printed.contains(**name)) {
        findings.push(Finding::new(DATA, run.figures[name].0, format!("no page prints `{name}`")));
    }
    findings
}

/// Returns the runs whose script or files have changed since their commit, unless they are marked as stale. Skips a run
/// if git does not know its commit, as in an archive.
pub(crate) fn changed_scripts(root: &Path, tree: &Tree) -> Vec<Finding> {
    let (runs, _) = parse(tree.text(DATA).unwrap_or_default());
    let unmarked = runs.iter().filter(|run| run.fact("stale").is_empty());
    let changed = unmarked.filter_map(|run| {
        let compared = |file: &&str| {
            let arguments = ["diff", "--quiet", run.fact("commit"), "--", file];
            let status =
                Command::new("git").args(arguments).current_dir(root).stderr(std::process::Stdio::null()).status();
            // 0 means equal, 1 different, and 128 that git cannot compare them.
            status.is_ok_and(|status| status.code() == Some(1))
        };
        Some((run, run.files().find(compared)?.to_owned()))
    });
    let problem = |file: &str| format!("{file} changed since: measure again, or say `stale = \"why\"`");
    changed.map(|(run, file)| Finding::new(DATA, run.line, problem(&file))).collect()
}

/// Parses the file of figures: comments, `[run.NAME]`, and `key = "value"`.
fn parse(text: &str) -> (Vec<Run<'_>>, Vec<Finding>) {
    let mut runs: Vec<Run<'_>> = Vec::new();
    let mut findings = Vec::new();
    for (position, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let line_number = position + 1;
        let header = line.strip_prefix("[run.").and_then(|rest| rest.strip_suffix(']'));
        let pair = line.split_once(" = \"").and_then(|(key, rest)| Some((key, rest.strip_suffix('"')?)));
        match (header, pair, runs.last_mut()) {
            (Some(name), ..) => {
                runs.push(Run { name, line: line_number, facts: BTreeMap::new(), figures: BTreeMap::new() });
            }
            (None, Some((key, value)), Some(run)) if REQUIRED.contains(&key) || OPTIONAL.contains(&key) => {
                run.facts.insert(key, value);
            }
            (None, Some((key, value)), Some(run)) => drop(run.figures.insert(key, (line_number, value))),
            _ => findings.push(Finding::new(DATA, line_number, "neither `[run.NAME]` nor `key = \"value\"`")),
        }
    }
    (runs, findings)
}

/// Returns the faults of one run, such as missing facts and files that do not exist.
fn incomplete(tree: &Tree, run: &Run<'_>) -> Vec<Finding> {
    let missing = REQUIRED.iter().filter(|fact| run.fact(fact).is_empty()).map(|fact| format!("no `{fact}`"));
    let lost = run.files().filter(|file| !tree.paths.iter().any(|path| path == file));
    let lost = lost.map(|file| format!("there is no file {file}"));
    let undated = days(run.fact("date")).is_none().then(|| "a date is written 2026-11-28".to_owned());
    let unscripted = run.fact("script") == NO_SCRIPT && run.fact("stale").is_empty();
    let unscripted = unscripted.then(|| "a run without a script has to say `stale = \"why\"`".to_owned());
    let problems = missing.chain(lost).chain(undated).chain(unscripted);
    problems.map(|problem| Finding::new(DATA, run.line, format!("{}: {problem}", run.name))).collect()
}

/// A mark on a page. `text` is what stands before the mark, up to the start of its line.
struct Mark<'a> {
    line: usize,
    text: &'a str,
    name: &'a str,
}

fn marks(page: &str) -> Vec<Mark<'_>> {
    let mut found = Vec::new();
    for (position, line) in page.lines().enumerate() {
        for (at, _) in line.match_indices(OPENING) {
            let text = line[..at].trim_end_matches(['*', ' ']);
            let Some((name, _)) = line[at + OPENING.len()..].split_once(CLOSING) else { continue };
            found.push(Mark { line: position + 1, text, name });
        }
    }
    found
}

/// Returns a finding if the text before a mark does not end with the figure, with or without its unit.
fn contradiction(page: &Text, mark: &Mark<'_>, owners: &BTreeMap<&str, &Run<'_>>) -> Option<Finding> {
    let Some(run) = owners.get(mark.name) else {
        return Some(Finding::new(&page.path, mark.line, format!("{DATA} has no `{}`", mark.name)));
    };
    let value = run.figures[mark.name].1;
    let number = value.split(' ').next().unwrap_or_default();
    let ends = |text: &str| {
        let rest = mark.text.strip_suffix(text);
        rest.is_some_and(|rest| !rest.ends_with(|last: char| last.is_ascii_digit() || ".,".contains(last)))
    };
    let forms = [value.to_owned(), value.replace(" %", "%"), number.to_owned()];
    let problem = format!("`{}` is {value} in {DATA}", mark.name);
    (!forms.iter().any(|form| ends(form))).then(|| Finding::new(&page.path, mark.line, problem))
}

/// Returns the rows of tables in which some figures are marked and others are not. The first cell is the row's name.
fn unmarked_cells(page: &Text) -> Vec<Finding> {
    let rows = page.text.lines().enumerate().filter(|(_, line)| line.starts_with('|') && line.contains(OPENING));
    let unmarked = rows.filter_map(|(position, row)| {
        let figure =
            |cell: &&str| cell.trim_start_matches([' ', '*']).starts_with(|first: char| first.is_ascii_digit());
        let cell = row.split('|').skip(2).filter(figure).find(|cell| !cell.contains(OPENING))?;
        Some(Finding::new(&page.path, position + 1, format!("`{}` has no mark like the row's others", cell.trim())))
    });
    unmarked.collect()
}

fn today() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    i64::try_from(since / 86_400).unwrap_or(i64::MAX)
}

/// Returns the days from 1970-01-01 to a date such as `2026-11-28`.
fn days(date: &str) -> Option<i64> {
    let [year, month, day] = date.split('-').map(str::parse).collect::<Result<Vec<i64>, _>>().ok()?[..] else {
        return None;
    };
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March, so that the day of a leap year is their last.
    let shifted = if month < 3 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(365 * shifted + shifted / 4 - shifted / 100 + shifted / 400 + day_of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# x\n[run.a]\ndate = \"2026-11-26\"\ncommit = \"1234567\"\nmachine = \"m\"\n\
        script = \"bench/a.sh\"\ncommand = \"bench/a.sh\"\nhot = \"8.1 µs\"\nhits = \"42 %\"\n";

    fn check_one(data: &str, page: &str) -> Vec<String> {
        let text = |path: &str, text: &str| Text { path: path.to_owned(), text: text.to_owned() };
        let tree = Tree {
            documents: vec![text("docs/a.md", page)],
            texts: vec![text(DATA, data)],
            paths: vec!["bench/a.sh".to_owned()],
            ..Tree::default()
        };
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_page_prints_what_the_file_says() {
        let page = "On 2026-11-26:\n| a | **8.1 µs**<!--=hot--> | 42%<!--=hits--> |\n| b | 8.1<!--=hot--> | |\n";
        assert_eq!(check_one(FILE, page), Vec::<String>::new());
    }

    #[test]
    fn a_page_that_says_something_else_is_found() {
        for (page, problem) in [
            ("18.1 µs<!--=hot-->", "docs/a.md:1: `hot` is 8.1 µs in docs/figures.toml"),
            ("8.1 µs<!--=cold-->", "docs/a.md:1: docs/figures.toml has no `cold`"),
            ("\n| a | 8.1<!--=hot--> | **7** |", "docs/a.md:2: `**7**` has no mark like the row's others"),
        ] {
            let page = format!("{page}\n2026-11-26 8.1<!--=hot--> 42%<!--=hits-->");
            assert_eq!(check_one(FILE, &page), [problem]);
        }
        let undated = "8.1<!--=hot--> 42<!--=hits-->";
        assert_eq!(check_one(FILE, undated), ["docs/a.md:1: shows figures of 2026-11-26, and not that date"]);
    }

    #[test]
    fn a_run_without_a_fact_a_script_or_a_page_is_found() {
        let page = "2026-11-26 8.1<!--=hot-->";
        assert_eq!(check_one(FILE, page), ["docs/figures.toml:9: no page prints `hits`"]);
        let page = format!("{page} 42%<!--=hits-->");
        let found = check_one(&FILE.replace("machine = \"m\"\n", ""), &page);
        assert_eq!(found, ["docs/figures.toml:2: a: no `machine`"]);
        let found = check_one(&FILE.replace("\"bench/a.sh\"", "\"bench/b.sh\""), &page);
        assert_eq!(found, ["docs/figures.toml:2: a: there is no file bench/b.sh"]);
        let found = check_one(&FILE.replace("script = \"bench/a.sh\"", "script = \"none\""), &page);
        assert_eq!(found, ["docs/figures.toml:2: a: a run without a script has to say `stale = \"why\"`"]);
    }

    #[test]
    fn days_are_counted_over_leap_years() {
        assert_eq!(days("1970-01-01"), Some(0));
        assert_eq!(days("2000-03-01").zip(days("2000-02-28")).map(|(one, other)| one - other), Some(2));
        assert_eq!(days("2026-11-28"), Some(20_785));
        assert_eq!(days("yesterday"), None);
    }
}
