//! Compares Larder's cache with other libraries that keep values on disk, at equal bytes of disk and memory.
//!
//!   cargo run --release                                small values, a Zipf trace of web objects, and a kill
//!   cargo run --release -- --values 100000 --requests 100000 --folder /mnt/disk --only larder-cache,foyer
//!
//! Each phase of each library runs in a process of its own, so that memory and bytes written are its own:
//!
//! - `fill` stores the small values one after another, and is killed two seconds later (`kill -9`).
//! - `find` opens the same folder and asks for 20,000 of the values, and checks each byte.
//! - `trace` asks for web objects by Zipf's law, and stores each that is missing.
//!
//! Prints two tables. Bytes written are those that the process handed to the disk (`/proc/self/io`), the page cache's
//! included once the kernel writes them.

mod phases;
mod subjects;

use std::{
    env,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use phases::{Phase, Settings};
use subjects::{NAMES, Outcome};

fn main() -> Outcome<()> {
    let settings = Settings::of_arguments()?;
    if let Some((phase, subject)) = settings.child.clone() {
        return phases::run(phase, &subject, &settings);
    }
    println!("{} values of {} bytes, one after another:\n", settings.values, settings.value_bytes);
    println!(
        "| library | put, us | written, MB | memory, MB | open after kill -9, s | found of {} | wrong | get, us |",
        phases::SAMPLE
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for name in chosen(&settings) {
        let folder = fresh_folder(&settings, name)?;
        let filled = Running::start(Phase::Fill, name, &settings)?.line_then_kill()?;
        let found = Running::start(Phase::Find, name, &settings)?.line()?;
        println!("| {name} | {filled} | {found} |");
        std::fs::remove_dir_all(folder)?;
    }
    println!(
        "\n{} requests for web objects by Zipf's law (0.9), {} MB of disk, {} MB of memory:\n",
        settings.requests,
        settings.trace_limits.disk / 1_000_000,
        settings.trace_limits.memory / 1_000_000
    );
    println!("| library | hits, % | written per byte requested | us a request | CPU, us a request | memory, MB |");
    println!("|---|--:|--:|--:|--:|--:|");
    for name in chosen(&settings).filter(|name| !name.ends_with("no limit") && !name.ends_with("tiny")) {
        let folder = fresh_folder(&settings, name)?;
        // A library that fails its requests has no figures. The others still have theirs.
        match Running::start(Phase::Trace, name, &settings)?.line() {
            Ok(line) => println!("| {name} | {line} |"),
            Err(error) => println!("| {name} | {error} | | | | |"),
        }
        std::fs::remove_dir_all(folder)?;
    }
    Ok(())
}

fn chosen(settings: &Settings) -> impl Iterator<Item = &'static str> {
    NAMES.into_iter().filter(|name| settings.only.is_empty() || settings.only.iter().any(|only| only == name))
}

/// Returns the empty folder of a library.
fn fresh_folder(settings: &Settings, name: &str) -> Outcome<PathBuf> {
    let folder = settings.folder_of(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A phase in a process of its own.
struct Running {
    child: Child,
    what: String,
}

impl Running {
    fn start(phase: Phase, name: &str, settings: &Settings) -> Outcome<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--child", phase.name(), name]).args(settings.arguments());
        let child = command.stdout(Stdio::piped()).spawn()?;
        Ok(Self { child, what: format!("{} of {name}", phase.name()) })
    }

    /// Returns the line that the phase prints, after it has ended.
    fn line(mut self) -> Outcome<String> {
        let line = self.read_line()?;
        if !self.child.wait()?.success() {
            return Err(format!("{} failed", self.what).into());
        }
        Ok(line)
    }

    /// Returns the line that the phase prints, and kills it two seconds later.
    fn line_then_kill(mut self) -> Outcome<String> {
        let line = self.read_line()?;
        let printed = Instant::now();
        std::thread::sleep(Duration::from_secs(2).saturating_sub(printed.elapsed()));
        self.child.kill()?;
        self.child.wait()?;
        Ok(line)
    }

    fn read_line(&mut self) -> Outcome<String> {
        let output = self.child.stdout.take().ok_or("a phase has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        match line.trim_end() {
            "" => Err(format!("{} ended without a result", self.what).into()),
            line => Ok(line.to_owned()),
        }
    }
}
