//! The phases of the comparison, and its settings.
//!
//! Owns: the values, which follow from their keys, so that each byte can be checked. A wrong value is counted, and
//! never taken for a hit.

use std::{
    env, fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use bytes::Bytes;
use larder_store::SplitMix64;

use crate::subjects::{Limits, Outcome, Subject};

/// A phase, which runs in a process of its own.
#[derive(Clone, Copy)]
pub enum Phase {
    Fill,
    Find,
    Trace,
}

/// The settings of a comparison.
#[derive(Clone)]
pub struct Settings {
    pub values: u64,
    pub value_bytes: usize,
    pub requests: u64,
    pub folder: PathBuf,
    pub only: Vec<String>,
    pub fill_limits: Limits,
    pub trace_limits: Limits,
    /// The phase and the library of this process, if another one started it.
    pub child: Option<(Phase, String)>,
}

/// Number of values that `find` asks for.
pub const SAMPLE: u64 = 20_000;
/// Number of objects of the trace.
const OBJECTS: u64 = 200_000;
/// Mean and spread of the objects' lengths: the logarithm of bytes.
const LOG_MEAN: f64 = 8.5;
const LOG_SPREAD: f64 = 1.2;
const OBJECT_BYTES_MAX: usize = 1 << 20;

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Fill => "fill",
            Self::Find => "find",
            Self::Trace => "trace",
        }
    }
}

impl Settings {
    pub fn of_arguments() -> Outcome<Self> {
        let mut settings = Self {
            values: 500_000,
            value_bytes: 200,
            requests: 400_000,
            folder: env::temp_dir().join("larder-libraries"),
            only: Vec::new(),
            fill_limits: Limits { disk: 512 << 20, memory: 16 << 20 },
            trace_limits: Limits { disk: 128 << 20, memory: 16 << 20 },
            child: None,
        };
        let mut arguments = env::args().skip(1);
        while let Some(flag) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{flag} needs a value"));
            match flag.as_str() {
                "--values" => settings.values = value()?.parse()?,
                "--value-bytes" => settings.value_bytes = value()?.parse()?,
                "--requests" => settings.requests = value()?.parse()?,
                "--folder" => settings.folder = value()?.into(),
                "--only" => settings.only = value()?.split(';').map(str::to_owned).collect(),
                "--child" => {
                    let phase = match value()?.as_str() {
                        "fill" => Phase::Fill,
                        "find" => Phase::Find,
                        _ => Phase::Trace,
                    };
                    settings.child = Some((phase, value()?));
                }
                other => return Err(format!("{other:?} is no flag: see the first lines of src/main.rs").into()),
            }
        }
        Ok(settings)
    }

    /// Returns the arguments with which another process has these settings.
    pub fn arguments(&self) -> Vec<String> {
        let folder = self.folder.display().to_string();
        [
            ("--values", self.values.to_string()),
            ("--value-bytes", self.value_bytes.to_string()),
            ("--requests", self.requests.to_string()),
            ("--folder", folder),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
    }

    pub fn folder_of(&self, name: &str) -> PathBuf {
        self.folder.join(name.replace([',', ' '], "-"))
    }
}

/// Runs a phase in this process.
pub fn run(phase: Phase, name: &str, settings: &Settings) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match phase {
            Phase::Fill => fill(name, settings).await,
            Phase::Find => find(name, settings).await,
            Phase::Trace => trace(name, settings).await,
        }
    })
}

async fn fill(name: &str, settings: &Settings) -> Outcome<()> {
    let subject = Subject::open(name, &settings.folder_of(name), settings.fill_limits).await?;
    let started = Instant::now();
    for number in 0..settings.values {
        subject.put(&key_of(number), value_of(number, settings.value_bytes)).await?;
    }
    let us = started.elapsed().as_secs_f64() * 1e6 / settings.values as f64;
    // What the library writes by itself within a second belongs to the values.
    tokio::time::sleep(Duration::from_secs(1)).await;
    println!("{us:.1} | {:.0} | {:.0}", written_bytes()? as f64 / 1e6, peak_memory_bytes()? as f64 / 1e6);
    // Lives until it is killed.
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn find(name: &str, settings: &Settings) -> Outcome<()> {
    let started = Instant::now();
    let subject = Subject::open(name, &settings.folder_of(name), settings.fill_limits).await?;
    let opened = started.elapsed().as_secs_f64();
    let mut random = SplitMix64::new(7);
    let mut found = 0;
    let mut wrong = 0;
    let started = Instant::now();
    for _ in 0..SAMPLE {
        let number = random.below(settings.values);
        if let Some(value) = subject.get(&key_of(number)).await? {
            match value == value_of(number, settings.value_bytes) {
                true => found += 1,
                false => wrong += 1,
            }
        }
    }
    let us = started.elapsed().as_secs_f64() * 1e6 / SAMPLE as f64;
    println!("{opened:.2} | {found} | {wrong} | {us:.1}");
    subject.close().await
}

async fn trace(name: &str, settings: &Settings) -> Outcome<()> {
    let subject = Subject::open(name, &settings.folder_of(name), settings.trace_limits).await?;
    let weights = cumulative_weights();
    let mut random = SplitMix64::new(11);
    let mut hits = 0;
    let mut requested_bytes = 0;
    let started = Instant::now();
    let cpu_before = cpu_seconds()?;
    for _ in 0..settings.requests {
        let drawn = random.share();
        let number = weights.partition_point(|weight| *weight < drawn) as u64;
        let bytes = object_bytes(number);
        requested_bytes += bytes as u64;
        match subject.get(&key_of(number)).await? {
            Some(value) if value == value_of(number, bytes) => hits += 1,
            Some(_) => return Err(format!("{name} returned a wrong value").into()),
            None => subject.put(&key_of(number), value_of(number, bytes)).await?,
        }
    }
    let requests = settings.requests as f64;
    let us = started.elapsed().as_secs_f64() * 1e6 / requests;
    let cpu_us = (cpu_seconds()? - cpu_before) * 1e6 / requests;
    subject.close().await?;
    println!(
        "{:.2} | {:.3} | {us:.0} | {cpu_us:.0} | {:.0}",
        100.0 * f64::from(hits) / requests,
        written_bytes()? as f64 / requested_bytes as f64,
        peak_memory_bytes()? as f64 / 1e6
    );
    Ok(())
}

fn key_of(number: u64) -> Vec<u8> {
    format!("value/{number:010}").into_bytes()
}

/// Returns a value that cannot be compressed.
fn value_of(number: u64, bytes: usize) -> Bytes {
    let mut random = SplitMix64::new(number);
    let mut value: Vec<u8> = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        value.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    value.truncate(bytes);
    value.into()
}

/// Returns the length of an object, by a lognormal distribution.
fn object_bytes(number: u64) -> usize {
    let mut random = SplitMix64::new(number ^ 0x5eed);
    let radius = (-2.0 * (1.0 - random.share()).ln()).sqrt();
    let angle = std::f64::consts::TAU * random.share();
    let bytes = (LOG_MEAN + LOG_SPREAD * radius * angle.cos()).exp();
    (bytes as usize).clamp(100, OBJECT_BYTES_MAX)
}

/// Returns the share of the requests that the objects up to each one get, by Zipf's law.
fn cumulative_weights() -> Vec<f64> {
    let mut sum = 0.0;
    let mut weights: Vec<f64> = (1..=OBJECTS)
        .map(|rank| {
            sum += (rank as f64).powf(-0.9);
            sum
        })
        .collect();
    weights.iter_mut().for_each(|weight| *weight /= sum);
    weights
}

fn written_bytes() -> Outcome<u64> {
    number_after(&fs::read_to_string("/proc/self/io")?, "write_bytes:")
}

fn peak_memory_bytes() -> Outcome<u64> {
    Ok(1024 * number_after(&fs::read_to_string("/proc/self/status")?, "VmHWM:")?)
}

fn number_after(text: &str, name: &str) -> Outcome<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(|| format!("no line {name}"))?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Returns the processor time of this process.
fn cpu_seconds() -> Outcome<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(ticks as f64 / 100.0)
}
