//! `cargo xtask mutants`: puts one bug at a time into a copy of the sources, and tells which of them are found: bugs of
//! the engine by the torture and the engine's tests, bugs of another crate by the tests that the list names.
//!
//! Owns: the copy under target/mutants, and the order of an engine's hunt: torture first, then the tests `it` of
//! larder-store. The bugs are in `crates/larder-torture/mutants.txt`. Each mutant gets its line as soon as it is known.
//! Invariants: the sources of the workspace are only read, and a mutant counts as killed only by a step that passes
//! without mutants. A mutant that hangs counts as killed.

use std::{
    env, fmt, fs, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The list of mutants.
pub(crate) const LIST: &str = "crates/larder-torture/mutants.txt";
/// The crate of a mutant if the list names none.
const ENGINE_CRATE: &str = "larder-store";
/// Number of seeds for the torture tests if the command names none.
const SEEDS_DEFAULT: u64 = 3000;
/// Time limit of a step that runs without a mutant.
const PATIENCE_AT_FIRST: Duration = Duration::from_mins(30);
/// A mutant counts as hanging if one step takes this many times as long as all steps of the same hunt without a mutant.
const HANG_FACTOR: u32 = 3;
/// Pause between two checks whether a step has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// A bug to be put into the copy of the sources.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    name: String,
    /// The crate with the bug, such as `larder-store`.
    package: String,
    /// Path below the crate's `src`.
    file: String,
    hunter: Hunter,
    /// The fault that the mutant causes, as a sentence.
    effect: String,
    old: String,
    new: String,
    /// The reason why no test finds the mutant; `None` if the tests must find it.
    survivor: Option<String>,
}

/// The tests that have to find a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hunter {
    /// The torture tests of one engine's policies, or of all, and the tests of larder-store.
    Torture { engine: Option<String> },
    /// The laws of one face of the cache, `values` or `responses`, tried with many seeds.
    Laws { face: String },
    /// The tests in `tests/it` of the crate `package` whose names contain `name`.
    Test { package: String, name: String },
}

/// The outcome of the hunt for a mutant.
enum Fate {
    KilledBySeed(String),
    KilledByTest(String),
    /// The mutant was not tried, because it does not compile or its old text is not found exactly once.
    Broken(String),
    Survived,
}

/// Runs the chosen mutants, or all. Returns whether each one was killed or has a stated reason to survive.
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
    let is_chosen = |mutant: &&Mutant| names.is_empty() || names.contains(&mutant.name.as_str());
    let chosen: Vec<&Mutant> = mutants.iter().filter(is_chosen).collect();
    let tree = root.join("target/mutants/tree");
    copy_sources(root, &tree)?;
    let build = root.join("target/mutants/build");
    let mut workshop = Workshop { build, tree, seeds, patience: Vec::new() };
    workshop.pass_without_mutants(&chosen)?;
    let mut killed = 0;
    let mut explained = 0;
    let mut bad = 0;
    for mutant in chosen {
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

/// The copy of the workspace into which mutants are put, and the build of it.
struct Workshop {
    tree: PathBuf,
    build: PathBuf,
    seeds: u64,
    /// Time limit of a step for each hunter that has passed without mutants. A mutant that takes longer counts as
    /// hanging.
    patience: Vec<(Hunter, Duration)>,
}

impl Workshop {
    /// Runs the hunters of `mutants` on the unchanged copy. Each must pass.
    fn pass_without_mutants(&mut self, mutants: &[&Mutant]) -> io::Result<()> {
        for mutant in mutants {
            let hunter = mutant.hunter.without_engine();
            if self.patience.iter().any(|(passed, _)| *passed == hunter) {
                continue;
            }
            let start = Instant::now();
            match self.hunt(&hunter, PATIENCE_AT_FIRST)? {
                Fate::Survived => {}
                Fate::Broken(problem) | Fate::KilledBySeed(problem) | Fate::KilledByTest(problem) => {
                    return Err(io::Error::other(format!("the sources without mutants do not pass: {problem}")));
                }
            }
            println!("none, {hunter} ({} s): passes, as it must without mutants", start.elapsed().as_secs());
            self.patience.push((hunter, start.elapsed() * HANG_FACTOR));
        }
        Ok(())
    }

    /// Puts one mutant into the copy, runs its hunter, and restores the copy.
    fn try_mutant(&self, mutant: &Mutant) -> io::Result<Fate> {
        let path = self.tree.join(mutant.path());
        let whole = fs::read_to_string(&path)?;
        let Some(changed) = mutant.apply(&whole) else {
            return Ok(Fate::Broken(format!("its text is not exactly once in {}", mutant.file)));
        };
        fs::write(&path, changed)?;
        let known = self.patience.iter().find(|(hunter, _)| *hunter == mutant.hunter.without_engine());
        let fate = self.hunt(&mutant.hunter, known.map_or(PATIENCE_AT_FIRST, |(_, patience)| *patience));
        fs::write(&path, whole)?;
        fate
    }

    /// Runs the tests of `hunter` in the copy. Returns which of them failed.
    fn hunt(&self, hunter: &Hunter, patience: Duration) -> io::Result<Fate> {
        match hunter {
            Hunter::Torture { engine } => self.torture(engine.as_deref(), patience),
            Hunter::Laws { face } => self.seeds(&["--face", face], patience),
            Hunter::Test { package, name } => self.test(package, name, patience),
        }
    }

    /// Runs the torture tests of one engine, or of all, in the copy. If they pass, runs the tests of larder-store.
    fn torture(&self, engine: Option<&str>, patience: Duration) -> io::Result<Fate> {
        let engine: Vec<&str> = engine.into_iter().flat_map(|engine| ["--engine", engine]).collect();
        let fate = self.seeds(&engine, patience)?;
        if !matches!(fate, Fate::Survived) {
            return Ok(fate);
        }
        let tests = ["test", "--quiet", "--locked", "--package", ENGINE_CRATE, "--lib", "--test", "it"];
        let (is_passed, output) = self.run(self.cargo(&tests), patience)?;
        Ok(if is_passed { Fate::Survived } else { Fate::KilledByTest(last_line(&output, "panicked at")) })
    }

    /// Builds larder-torture in the copy, and runs it with `arguments`.
    fn seeds(&self, arguments: &[&str], patience: Duration) -> io::Result<Fate> {
        let build = self.cargo(&["build", "--quiet", "--locked", "--package", "larder-torture"]);
        let (is_built, output) = self.run(build, patience)?;
        if !is_built {
            return Ok(Fate::Broken(last_line(&output, "error")));
        }
        let mut torture = Command::new(self.build.join("debug/larder-torture"));
        torture.args(["--seeds", &self.seeds.to_string()]).args(arguments);
        let (is_lawful, output) = self.run(torture, patience)?;
        Ok(if is_lawful { Fate::Survived } else { Fate::KilledBySeed(last_line(&output, "seed ")) })
    }

    /// Runs those tests in `tests/it` of a crate of the copy whose names contain `name`.
    fn test(&self, package: &str, name: &str, patience: Duration) -> io::Result<Fate> {
        let tests = ["test", "--quiet", "--locked", "--package", package, "--test", "it"];
        let mut build = self.cargo(&tests);
        build.arg("--no-run");
        let (is_built, output) = self.run(build, patience)?;
        if !is_built {
            return Ok(Fate::Broken(last_line(&output, "error")));
        }
        let mut chosen = self.cargo(&tests);
        chosen.args(["--", name]);
        let (is_passed, output) = self.run(chosen, patience)?;
        Ok(if is_passed { Fate::Survived } else { Fate::KilledByTest(last_line(&output, "law ")) })
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.tree).args(arguments).env("CARGO_TARGET_DIR", &self.build);
        command
    }

    /// Runs a command. Returns whether it succeeded within `patience`, and what it printed.
    fn run(&self, mut command: Command, patience: Duration) -> io::Result<(bool, String)> {
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
            if start.elapsed() > patience {
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

impl Hunter {
    /// Returns the hunter for a file of larder-store: that of its engine, or that of all engines if they share the
    /// file.
    fn of_engine(file: &str) -> Self {
        let engine = file.strip_prefix("engine/").and_then(|path| path.split_once('/'));
        let engine = engine.filter(|(engine, _)| *engine != "kit");
        Self::Torture { engine: engine.map(|(engine, _)| engine.to_owned()) }
    }

    /// Returns the hunter that must pass without mutants before this one is used. One engine's torture tests are
    /// checked as part of those of all engines.
    fn without_engine(&self) -> Self {
        match self {
            Self::Torture { .. } => Self::Torture { engine: None },
            Self::Laws { .. } | Self::Test { .. } => self.clone(),
        }
    }
}

impl fmt::Display for Hunter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Torture { engine: None } => formatter.write_str("torture"),
            Self::Torture { engine: Some(engine) } => write!(formatter, "torture of {engine}"),
            Self::Laws { face } => write!(formatter, "laws of {face}"),
            Self::Test { package, name } => write!(formatter, "{name} of {package}"),
        }
    }
}

impl Mutant {
    /// Returns the path of the file that the mutant changes, from the root of the workspace.
    fn path(&self) -> PathBuf {
        Path::new("crates").join(&self.package).join("src").join(&self.file)
    }

    /// Returns a file's text with the bug, or `None` if the text to replace does not occur exactly once.
    fn apply(&self, text: &str) -> Option<String> {
        (text.matches(&self.old).count() == 1).then(|| text.replacen(&self.old, &self.new, 1))
    }
}

/// Copies all files that git tracks and that still exist. A file that has not changed keeps its time, so that cargo
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
        fs::copy(&from, &to)?; // with its permissions: the runner of the tests is a script
    }
    Ok(())
}

/// Returns the first line of an output that contains `mark`, or else its last line.
fn last_line(output: &str, mark: &str) -> String {
    let marked = output.lines().find(|line| line.contains(mark));
    marked.or(output.lines().last()).unwrap_or("no output").trim().to_owned()
}

/// Reads the list. Each mutant is `[name] file` for a file of the engine, `[name] crate file values` (or `responses`)
/// for the seeds of that face's laws, or `[name] crate file test`; then come a line with its effect, `<<<<`, the old
/// text, `====`, the new text, `>>>>`, and perhaps `survives: reason`.
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
        let (name, place) = head.ok_or_else(|| format!("not the head of a mutant: {line}"))?;
        let (package, file, hunter) = match place.split(' ').collect::<Vec<_>>()[..] {
            [file] => (ENGINE_CRATE, file, Hunter::of_engine(file)),
            [package, file, face @ ("values" | "responses")] => {
                (package, file, Hunter::Laws { face: (*face).to_owned() })
            }
            [package, file, test] => {
                (package, file, Hunter::Test { package: package.to_owned(), name: test.to_owned() })
            }
            _ => return Err(format!("{name}: neither a file, nor a crate, a file and a test: {place}")),
        };
        let effect = lines.next().unwrap_or_default().to_owned();
        if lines.next() != Some("<<<<") {
            return Err(format!("{name}: no line <<<< after its effect"));
        }
        let mut until = |end: &str| lines.by_ref().take_while(|line| *line != end).collect::<Vec<_>>().join("\n");
        let old = until("====");
        let new = until(">>>>");
        let package = package.to_owned();
        let file = file.to_owned();
        mutants.push(Mutant { name: name.to_owned(), package, file, hunter, effect, old, new, survivor: None });
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
            let text = fs::read_to_string(root().join(mutant.path())).unwrap();
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
        assert_eq!(mutant.path(), Path::new("crates/larder-store/src/b.rs"));
        assert_eq!(mutant.hunter, Hunter::Torture { engine: None });
        assert!(parse("[a] b.rs\nIt is wrong.\nx").is_err());
    }

    #[test]
    fn mutant_names_its_engine_or_its_crate_and_test() {
        let body = "It is wrong.\n<<<<\nx\n====\ny\n>>>>\n";
        let list = format!("[a] engine/log/b.rs\n{body}[c] larder-cache d/e.rs object::tests\n{body}");
        let read = parse(&format!("{list}[f] larder-cache g.rs values\n{body}")).unwrap();
        let [engine, cache, laws] = &read[..] else { panic!("{read:?}") };
        assert_eq!(laws.hunter, Hunter::Laws { face: "values".to_owned() });
        assert_eq!(engine.hunter, Hunter::Torture { engine: Some("log".to_owned()) });
        assert_eq!(engine.hunter.without_engine(), Hunter::Torture { engine: None });
        assert_eq!(cache.path(), Path::new("crates/larder-cache/src/d/e.rs"));
        assert_eq!(cache.hunter.to_string(), "object::tests of larder-cache");
        assert!(parse(&format!("[a] larder-cache b.rs\n{body}")).is_err());
    }
}
