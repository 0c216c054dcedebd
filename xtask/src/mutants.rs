//! `cargo xtask mutants`: puts one bug at a time into a copy of the engine, and tells which of them the torture and the
//! engine's tests find.
//!
//! Owns: the copy under target/mutants, and the order: torture first, then the tests `it` of larder-store. The bugs are
//! in `crates/larder-torture/mutants.txt`. Each mutant gets its line as soon as it is known. Invariants: the sources of
//! the workspace are only read, and a mutant counts as killed only by a step that the engine without mutants passes. A
//! mutant that hangs counts as killed.

use std::{
    env, fs, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The list of mutants.
pub(crate) const LIST: &str = "crates/larder-torture/mutants.txt";
/// The folder of the files that mutants change.
const SOURCES: &str = "crates/larder-store/src";
/// Seeds of the torture if the command names no number.
const SEEDS_DEFAULT: u64 = 3000;
/// Longest time of a step of the engine without mutants.
const PATIENCE_AT_FIRST: Duration = Duration::from_mins(30);
/// A mutant hangs if a step takes longer than this many times the longest one of the engine without mutants.
const HANG_FACTOR: u32 = 3;
/// Pause between two looks at a running step.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// A bug to be put into the engine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    name: String,
    /// Path below [`SOURCES`].
    file: String,
    /// The fault that it makes, as a sentence.
    effect: String,
    old: String,
    new: String,
    /// Why nothing finds it, if that is so.
    survivor: Option<String>,
}

/// The outcome of the hunt for a mutant.
enum Fate {
    KilledBySeed(String),
    KilledByTest(String),
    /// Not tried: the mutant cannot be compiled, or the list does not fit the sources.
    Broken(String),
    Survived,
}

/// Runs the chosen mutants, or all. Returns whether each was killed, or has a reason to survive.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> bool {
    let (seeds, names) = match arguments {
        ["--seeds", seeds, names @ ..] => (seeds.parse().unwrap_or(SEEDS_DEFAULT), names),
        names => (SEEDS_DEFAULT, names),
    };
    match run_chosen(root, seeds, names) {
        Ok(is_good) => is_good,
        Err(error) => {
            eprintln!("mutants: {error}");
            false
        }
    }
}

fn run_chosen(root: &Path, seeds: u64, names: &[&str]) -> io::Result<bool> {
    let mutants = parse(&fs::read_to_string(root.join(LIST))?).map_err(io::Error::other)?;
    let tree = root.join("target/mutants/tree");
    copy_sources(root, &tree)?;
    let build = root.join("target/mutants/build");
    let mut workshop = Workshop { build, tree, seeds, patience: PATIENCE_AT_FIRST };
    let start = Instant::now();
    match workshop.hunt(None)? {
        Fate::Survived => {}
        Fate::Broken(problem) | Fate::KilledBySeed(problem) | Fate::KilledByTest(problem) => {
            return Err(io::Error::other(format!("the engine without mutants does not pass: {problem}")));
        }
    }
    workshop.patience = start.elapsed() * HANG_FACTOR;
    println!("none ({} s): passes, as the engine without mutants must", start.elapsed().as_secs());
    let mut killed = 0;
    let mut explained = 0;
    let mut bad = 0;
    for mutant in mutants.iter().filter(|mutant| names.is_empty() || names.contains(&mutant.name.as_str())) {
        let start = Instant::now();
        let fate = workshop.try_mutant(mutant)?;
        let told = match (&fate, &mutant.survivor) {
            (Fate::KilledBySeed(by) | Fate::KilledByTest(by), _) => {
                killed += 1;
                format!("killed by {by}")
            }
            (Fate::Survived, Some(reason)) => {
                explained += 1;
                format!("survives: {reason}")
            }
            (Fate::Survived, None) => {
                bad += 1;
                "SURVIVES, and nothing explains why".to_owned()
            }
            (Fate::Broken(problem), _) => {
                bad += 1;
                format!("cannot be tried: {problem}")
            }
        };
        println!("{} ({} s): {told}", mutant.name, start.elapsed().as_secs());
    }
    println!("mutants: {killed} killed, {explained} survive for a reason, {bad} neither");
    Ok(bad == 0)
}

/// The copy of the workspace, and what is built from it.
struct Workshop {
    tree: PathBuf,
    build: PathBuf,
    seeds: u64,
    /// Longest time of one step. A mutant that takes longer hangs.
    patience: Duration,
}

impl Workshop {
    /// Puts one mutant into the copy, looks for it, and takes it out again.
    fn try_mutant(&self, mutant: &Mutant) -> io::Result<Fate> {
        let path = self.tree.join(SOURCES).join(&mutant.file);
        let whole = fs::read_to_string(&path)?;
        let Some(changed) = mutant.apply(&whole) else {
            return Ok(Fate::Broken(format!("its text is not exactly once in {}", mutant.file)));
        };
        fs::write(&path, changed)?;
        let fate = self.hunt(mutant.engine());
        fs::write(&path, whole)?;
        fate
    }

    /// Looks for a wrong result of the engine in the copy: in the rows of one engine, or in all.
    fn hunt(&self, engine: Option<&str>) -> io::Result<Fate> {
        let (is_built, output) =
            self.run(self.cargo(&["build", "--quiet", "--locked", "--package", "larder-torture"]))?;
        if !is_built {
            return Ok(Fate::Broken(last_line(&output, "error")));
        }
        let mut torture = Command::new(self.build.join("debug/larder-torture"));
        torture.args(["--seeds", &self.seeds.to_string()]);
        torture.args(engine.into_iter().flat_map(|engine| ["--engine", engine]));
        let (is_lawful, output) = self.run(torture)?;
        if !is_lawful {
            return Ok(Fate::KilledBySeed(last_line(&output, "seed ")));
        }
        let tests = ["test", "--quiet", "--locked", "--package", "larder-store", "--lib", "--test", "it"];
        let (is_passed, output) = self.run(self.cargo(&tests))?;
        Ok(if is_passed { Fate::Survived } else { Fate::KilledByTest(last_line(&output, "panicked at")) })
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.tree).args(arguments).env("CARGO_TARGET_DIR", &self.build);
        command
    }

    /// Returns whether a command succeeded in time, and what it printed.
    fn run(&self, mut command: Command) -> io::Result<(bool, String)> {
        let path = self.build.with_extension("output");
        let output = fs::File::create(&path)?;
        // A group of its own, so that the tests that cargo runs can be ended with it.
        let command = command.process_group(0).stdin(Stdio::null());
        let mut child = command.stdout(output.try_clone()?).stderr(output).spawn()?;
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok((status.success(), String::from_utf8_lossy(&fs::read(&path)?).into_owned()));
            }
            if start.elapsed() > self.patience {
                end_group(&mut child)?;
                return Ok((false, "seed or test that hangs".to_owned()));
            }
            thread::sleep(LOOK_INTERVAL);
        }
    }
}

/// Ends a command that hangs, and all processes that it started.
fn end_group(child: &mut Child) -> io::Result<()> {
    Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status()?;
    child.wait()?;
    Ok(())
}

impl Mutant {
    /// Returns the engine to whose rows the bug is limited, if it is in one of them.
    fn engine(&self) -> Option<&str> {
        let (engine, _) = self.file.strip_prefix("engine/")?.split_once('/')?;
        (engine != "kit").then_some(engine)
    }

    /// Returns a file's text with the bug, or `None` if the text to replace is not there exactly once.
    fn apply(&self, text: &str) -> Option<String> {
        (text.matches(&self.old).count() == 1).then(|| text.replacen(&self.old, &self.new, 1))
    }
}

/// Copies all files that git tracks and that are still there. A file that has not changed keeps its time, so that cargo
/// does not compile it again.
fn copy_sources(root: &Path, tree: &Path) -> io::Result<()> {
    let listed = Command::new("git").current_dir(root).args(["ls-files", "-z"]).output()?;
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    for name in names.split_terminator('\0') {
        let from = root.join(name);
        let to = tree.join(name);
        let Ok(bytes) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|copied| copied == bytes) {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(to, bytes)?;
    }
    Ok(())
}

/// Returns the first line of an output that contains `mark`, or else its last line.
fn last_line(output: &str, mark: &str) -> String {
    let marked = output.lines().find(|line| line.contains(mark));
    marked.or(output.lines().last()).unwrap_or("no output").trim().to_owned()
}

/// Reads the list. Each mutant is `[name] file`, a line with its effect, `<<<<`, the old text, `====`, the new text,
/// `>>>>`, and perhaps `survives: reason`.
pub(crate) fn parse(list: &str) -> Result<Vec<Mutant>, String> {
    let mut mutants: Vec<Mutant> = Vec::new();
    let mut lines = list.lines();
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let (Some(reason), Some(mutant)) = (line.strip_prefix("survives: "), mutants.last_mut()) {
            mutant.survivor = Some(reason.to_owned());
            continue;
        }
        let head = line.strip_prefix('[').and_then(|line| line.split_once("] "));
        let (name, file) = head.ok_or_else(|| format!("not the head of a mutant: {line}"))?;
        let effect = lines.next().unwrap_or_default().to_owned();
        if lines.next() != Some("<<<<") {
            return Err(format!("{name}: no line <<<< after its effect"));
        }
        let mut until = |end: &str| lines.by_ref().take_while(|line| *line != end).collect::<Vec<_>>().join("\n");
        let old = until("====");
        let new = until(">>>>");
        mutants.push(Mutant { name: name.to_owned(), file: file.to_owned(), effect, old, new, survivor: None });
    }
    Ok(mutants)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
    }

    #[test]
    fn every_mutant_applies_to_the_present_sources() {
        let mutants = parse(&fs::read_to_string(root().join(LIST)).unwrap()).unwrap();
        assert!(mutants.len() >= 27, "{}", mutants.len());
        for mutant in &mutants {
            let text = fs::read_to_string(root().join(SOURCES).join(&mutant.file)).unwrap();
            let changed = mutant.apply(&text);
            assert!(changed.is_some_and(|changed| changed != text), "{}: {:?}", mutant.name, mutant.old);
            assert!(mutant.effect.ends_with('.'), "{} says what is wrong: {}", mutant.name, mutant.effect);
            assert_eq!(mutants.iter().filter(|other| other.name == mutant.name).count(), 1, "{}", mutant.name);
        }
    }

    #[test]
    fn list_is_read_with_texts_of_several_lines() {
        let list = "# a list\n\n[a] b.rs\nIt is wrong.\n<<<<\nx\n  y\n====\n>>>>\nsurvives: nobody looks\n";
        let read = parse(list).unwrap();
        let [mutant] = &read[..] else { panic!("{read:?}") };
        assert_eq!((mutant.old.as_str(), mutant.new.as_str()), ("x\n  y", ""));
        assert_eq!(mutant.survivor.as_deref(), Some("nobody looks"));
        assert_eq!(mutant.apply("1\nx\n  y\n2"), Some("1\n\n2".to_owned()));
        assert_eq!(mutant.apply("x\n  yx\n  y"), None);
        assert!(parse("[a] b.rs\nIt is wrong.\nx").is_err());
    }
}
