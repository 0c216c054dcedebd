//! Fuzzes configuration files, up to the configuration of proxy and store, and requests on the control socket.
//!
//! No socket or disk is opened. Used by the fuzz targets in `fuzz/`, and by tests that run them on the corpus and on
//! mutated samples with the stable toolchain. Compiled for tests and fuzzing only.
//!
//! Properties: there is no panic; the number of steps is in proportion to the length; an error names its place in the
//! file and gives advice; the proxy accepts every configuration that is accepted here.

use crate::{
    run::control::ControlRequest,
    settings::{DiskSettings, RunSettings, config, volumes},
};
use larder_http::steps;
use larder_proxy::HostPattern;
use larder_store::PathContent;
use std::path::Path;

/// Reads `bytes` as a configuration file.
///
/// # Panics
/// If one of the module's properties is violated.
pub fn run(bytes: &[u8]) {
    steps::bounded(bytes.len(), || read_configuration(bytes));
}

/// Parses `bytes` as requests on the control socket, one per line.
///
/// # Panics
/// If a request changes when it is written and parsed again, or if parsing takes too many steps.
pub fn run_control(bytes: &[u8]) {
    let read = |line: &str| {
        let Ok(request) = ControlRequest::parse(line) else { return };
        let written = serde_json::to_string(&request).expect("a request can be written");
        let again = ControlRequest::parse(&written).expect("what was written can be read");
        assert_eq!(format!("{request:?}"), format!("{again:?}"));
        if let ControlRequest::Open { hosts, except, .. } = request {
            // Texts that are not host patterns are refused with a reason.
            hosts.iter().chain(&except).for_each(|host| drop(host.parse::<HostPattern>()));
        }
    };
    steps::bounded(bytes.len(), || String::from_utf8_lossy(bytes).lines().for_each(read));
}

fn read_configuration(bytes: &[u8]) {
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
    use std::{env, fs, path::PathBuf};

    const ROUNDS: usize = 4000;
    /// Samples in addition to the example in the documentation.
    const SAMPLES: [&str; 3] = [
        "listen = [\"0.0.0.0:80\"]\nallow_clients = [\"::/0\"]\norigin = \"h2c://[::1]:1/a\"\n[store]\npath = \"none\"\n",
        "[[site]]\nhosts = [\"a\"]\n[[site.origins]]\nurl = \"http://b\"\nweight = 7\n[[site.origins]]\nurl = \"http://c\"\n",
        "[[key]]\nurls = [\"http://a/\"]\nas = \"http://b/c/\"\nstrip = [\"utm_*\"]\n[cache]\nnegative = [\"404=9s\"]\n",
    ];

    const REQUESTS: [&str; 3] = [
        "{\"Open\":{\"hosts\":[\"a.example\",\"*.b.example\"],\"except\":[],\"offline\":false}}\n\"Figures\"\n",
        "\"About\"\n\"Reload\"\n\"Operate\"\n",
        "{\"Upgrade\":{\"program\":\"/a/larder\",\"check\":true}}\n{\"Upgrade\":{\"program\":null,\"check\":false}}\n",
    ];

    fn corpus(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name)
    }

    /// Guards against fuzzers that start without samples. With `LARDER_WRITE_CORPUS=1`, the test writes the missing
    /// samples.
    #[test]
    fn corpus_of_every_target_holds_its_samples_and_breaks_no_law() {
        for (name, samples, run) in
            [("configuration", SAMPLES, run as fn(&[u8])), ("control", REQUESTS, run_control as fn(&[u8]))]
        {
            for (number, sample) in samples.iter().enumerate() {
                let path = corpus(name).join(format!("sample-{number}"));
                if env::var_os("LARDER_WRITE_CORPUS").is_some() && !path.exists() {
                    fs::create_dir_all(corpus(name)).unwrap();
                    fs::write(&path, sample).unwrap();
                }
                let known = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                assert!(known == sample.as_bytes(), "{}", path.display());
            }
            for entry in fs::read_dir(corpus(name)).unwrap() {
                run(&fs::read(entry.unwrap().path()).unwrap());
            }
        }
        assert!(REQUESTS.iter().all(|lines| lines.lines().all(|line| ControlRequest::parse(line).is_ok())));
    }

    /// Guards against a process of the same user that stops the proxy with a message.
    #[test]
    fn no_mutation_of_a_control_request_breaks_the_law() {
        each_mutated(&REQUESTS, run_control);
    }

    /// An invalid configuration must cause no panic, and its error must name a place.
    #[test]
    fn no_mutation_of_a_configuration_breaks_the_law() {
        let document = include_str!("../../../../docs/reference/configuration.md");
        let example =
            document.split("```").nth(1).expect("the documentation has an example").trim_start_matches("toml");
        each_mutated(&[example, SAMPLES[0], SAMPLES[1], SAMPLES[2]], run);
    }

    /// Calls `run` with samples in which some octets are changed, inserted or removed.
    fn each_mutated(samples: &[&str], run: fn(&[u8])) {
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
