//! Writes docs/laboratory.md: every table and figure of the papers, as `larder sim paper all` prints them.
//!
//! `cargo run --release -p larder-sim --example laboratory -- docs/laboratory.md docs/figures [SHARE [NAME...]]`

use larder_sim::{MODELS, Model, PAPERS, PaperOptions, jobs_default};
use std::{error::Error, fmt::Write as _, fs, path::Path};

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [document, folder, rest @ ..] = &arguments[..] else {
        println!("usage: laboratory DOCUMENT FIGURES [SHARE [NAME...]]");
        return Ok(());
    };
    let names = rest.get(1..).unwrap_or_default();
    let share: f64 = rest.first().map_or(Ok(1.0), |text| text.parse())?;
    let mut text = String::from(
        "# The laboratory\n\nWritten by `cargo run --release -p larder-sim --example laboratory -- docs/laboratory.md \
         docs/figures`. Each table is also printed by\n`larder sim paper NAME`; every value comes from the policies that the \
         proxy runs, in virtual time, on the machines below.\n\n## How\n\n`ModelDevice` and `ModelDirectory` are the engine's \
         seams to disk and file system. They complete every transfer at once and add up\nwhat it would have taken; what is \
         written is kept, without its zeros, so that the engine reads back what it wrote. One\nthread drives the store with \
         its clock set by hand. `larder sim run` does the same with traces and workloads.\n\n## Machines\n\n",
    );
    for (name, _) in MODELS {
        writeln!(text, "- `{name}`: {}", Model::open(name)?.about)?;
    }
    text.push_str("\n`larder sim models NAME` prints all parameters with their sources.\n\n");
    if share < 1.0 {
        writeln!(
            text,
            "This copy was made with {share} of the papers' operations (seconds of the papers are scaled).\n"
        )?;
    }
    for paper in PAPERS.iter().filter(|paper| names.is_empty() || names.iter().any(|name| name == paper.name)) {
        let options = PaperOptions { seed: 11, jobs: jobs_default(), share, model: None, progress: &|_| {} };
        let report = paper.simulate(&options)?;
        eprintln!("{}", report.to_text());
        text.push_str(&report.to_text());
        for figure in &report.figures {
            figure.draw(Path::new(folder))?;
        }
        writeln!(text, "`larder sim paper {}`\n", paper.name)?;
    }
    fs::write(document, text.trim_end().to_owned() + "\n")?;
    Ok(())
}
