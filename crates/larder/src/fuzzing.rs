//! Fuzzes configuration files, up to the configuration of proxy and store.
//!
//! No socket or disk is opened. Used by the fuzz target in `fuzz/`, and by a test that runs it on mutated samples with
//! the stable toolchain. Compiled for tests and fuzzing only.
//!
//! Properties: there is no panic; an error names its place in the file and gives advice; the proxy accepts every
//! configuration that is accepted here.

use crate::{
    config,
    settings::{DiskSettings, RunSettings},
    volumes,
};
use larder_store::PathContent;
use std::path::Path;

/// Reads `bytes` as a configuration file.
///
/// # Panics
/// If one of the module's properties is violated.
pub fn run(bytes: &[u8]) {
    let mut settings = RunSettings::default();
    let path = Path::new("larder.toml");
    if let Err(failure) = config::apply_bytes(path, bytes, &mut settings) {
        let shown = failure.shown();
        assert!(shown.contains("help: "), "the error does not say what to do: {shown}");
        assert!(shown.contains("larder.toml:"), "the error does not say where: {shown}");
        return;
    }
    if let Err(failure) = settings.check() {
        let shown = failure.shown();
        assert!(shown.contains("help: "), "the error does not say what to do: {shown}");
        return;
    }
    if let Err(error) = settings.proxy_config().check() {
        panic!("the proxy refuses settings that were accepted: {error}");
    }
    for (index, disk) in settings.store.disks.iter().enumerate() {
        if let DiskSettings::At(path) = disk {
            let options = volumes::options_of(path, &PathContent::Nothing, &settings.store, index);
            assert!(options.size_bytes > 0 && options.path == *path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: usize = 4000;
    /// Samples in addition to the example in the documentation.
    const SAMPLES: [&str; 3] = [
        "listen = [\"0.0.0.0:80\"]\nallow_clients = [\"::/0\"]\norigin = \"h2c://[::1]:1/a\"\n[store]\npath = \"none\"\n",
        "[[site]]\nhosts = [\"a\"]\n[[site.origins]]\nurl = \"http://b\"\nweight = 7\n[[site.origins]]\nurl = \"http://c\"\n",
        "[[key]]\nurls = [\"http://a/\"]\nas = \"http://b/c/\"\nstrip = [\"utm_*\"]\n[cache]\nnegative = [\"404=9s\"]\n",
    ];

    /// An invalid configuration must cause no panic, and its error must name a place.
    #[test]
    fn no_mutation_of_a_configuration_breaks_the_law() {
        let document = include_str!("../../../docs/configuration.md");
        let example =
            document.split("```").nth(1).expect("the documentation has an example").trim_start_matches("toml");
        let samples = [example, SAMPLES[0], SAMPLES[1], SAMPLES[2]];
        let mut random = larder_store::SplitMix64::new(1);
        let mut next = || (random.next_u64() >> 16) as usize;
        for round in 0..ROUNDS {
            let mut bytes = samples[round % samples.len()].as_bytes().to_vec();
            for _ in 0..=next() % 3 {
                let at = next() % (bytes.len() + 1);
                match next() % 5 {
                    0 => bytes.insert(at, b"[]{}=\"'\\\n#.,-09aT\x00\xff"[next() % 19]),
                    1 => bytes.truncate(at),
                    2 => drop(bytes.drain(at..(at + next() % 40).min(bytes.len()))),
                    3 => bytes.extend_from_within(at..(at + next() % 80).min(bytes.len())),
                    _ if at < bytes.len() => bytes[at] = next() as u8,
                    _ => {}
                }
            }
            run(&bytes);
        }
    }
}
