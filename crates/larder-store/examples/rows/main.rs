//! Measures every policy on one trace: memory per entry, reads per hit and miss, bytes written per insertion.
//!
//! Owns: scratch stores in the given directory, which are removed at the end. Each part of a measurement runs in its
//! own process. Memory per entry is the difference between two stores, one with twice the entries of the other, so that
//! fixed buffers do not count. The kernel reports the memory; the store reports everything else.

mod measure;
mod report;
mod trace;

use larder_store::Policy;
use measure::Measured;
use std::{
    env,
    error::Error,
    io::Write,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

const USAGE: &str = "\
measure every policy row on the same trace

usage: rows DIRECTORY [--rows NAME,NAME..] [--entries COUNT] [--write FILE]

  DIRECTORY  where scratch stores go, on the disk to be used (about 14 GB free)
  --rows     only these rows; default all
  --entries  entries for the memory figure, default 1000000
  --write    put the table between the markers of this Markdown file";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let option = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let Some(directory) = arguments.first().filter(|directory| !directory.starts_with('-')) else {
        println!("{USAGE}");
        return Ok(());
    };
    let entries = option("--entries").map_or(Ok(1_000_000), |text| text.parse::<u64>())?;
    if let Some(name) = option("--measure") {
        let policy = Policy::named(&name).ok_or_else(|| format!("no row is called {name}"))?;
        let directory = Path::new(directory);
        let measured = match option("--part").as_deref() {
            Some("growth") => measure::growth(policy, directory, entries)?,
            _ => measure::trace(policy, directory)?,
        };
        println!("{}", measured.to_line());
        return Ok(());
    }
    let names: Vec<String> = match option("--rows") {
        Some(list) => list.split(',').map(str::to_owned).collect(),
        None => Policy::all().iter().map(|policy| policy.name.to_owned()).collect(),
    };
    let mut measured = Vec::new();
    for (position, name) in names.iter().enumerate() {
        eprint!("[{}/{}] {name} ...", position + 1, names.len());
        std::io::stderr().flush()?;
        let start = Instant::now();
        let part = |part: &str, entries: u64| in_a_process(directory, name, part, entries);
        let mut row = part("trace", entries)?;
        row.take_growth(&part("growth", entries / 2)?, &part("growth", entries)?, entries - entries / 2);
        eprintln!(" {:.0} s", start.elapsed().as_secs_f64());
        measured.push(row);
    }
    let table = report::table(&measured);
    match option("--write") {
        Some(file) => report::write(Path::new(&file), &table)?,
        None => print!("{table}"),
    }
    Ok(())
}

fn in_a_process(directory: &str, name: &str, part: &str, entries: u64) -> Result<Measured, Box<dyn Error>> {
    let output = Command::new(env::current_exe()?)
        .args([directory, "--measure", name, "--part", part, "--entries", &entries.to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    if !output.status.success() {
        return Err(format!("measuring {name} failed: {}", output.status).into());
    }
    Measured::from_line(text.trim()).ok_or_else(|| format!("cannot read what measuring {name} said: {text}").into())
}
