//! Runs the fuzz targets for a second with the stable toolchain: on the corpus, and on mutations by seed.

use super::*;
use std::{env, fs, path::PathBuf};

const MUTATIONS: u64 = 3_000;

fn corpus(target: &FuzzTarget) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target.name)
}

/// Protects the formats of existing stores, and the fuzzers' starting points.
///
/// With `LARDER_WRITE_CORPUS=1`, missing samples are written.
#[test]
fn the_corpus_holds_every_sample_as_it_is_written_today() {
    for target in targets() {
        for (number, sample) in (target.samples)().into_iter().enumerate() {
            assert!(target.run_bounded(&sample), "{} accepts its sample {number}", target.name);
            let path = corpus(&target).join(format!("sample-{number}"));
            if env::var_os("LARDER_WRITE_CORPUS").is_some() && !path.exists() {
                fs::create_dir_all(corpus(&target)).unwrap();
                fs::write(&path, &sample).unwrap();
            }
            let known = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(known == sample, "{} is written differently from {}", target.name, path.display());
        }
    }
}

/// Guards against a panic, an endless loop or memory without bound on hostile bytes.
#[test]
fn no_decoder_panics_on_its_corpus_or_on_mutated_samples() {
    for (target, seed) in targets().iter().zip(1..) {
        for entry in fs::read_dir(corpus(target)).unwrap() {
            target.run_bounded(&fs::read(entry.unwrap().path()).unwrap());
        }
        let mut random = SplitMix64::new(seed);
        let samples = (target.samples)();
        let mut refused = 0;
        for round in 0..MUTATIONS {
            let mut bytes = samples[round as usize % samples.len()].clone();
            mutate(&mut random, &mut bytes);
            refused += u64::from(!target.run_bounded(&bytes));
        }
        assert!(refused > MUTATIONS / 10, "{}: {refused} of {MUTATIONS} refused", target.name);
    }
}

/// Guards against a damaged or hostile volume whose structures take seconds each to decode.
#[test]
fn no_long_repetition_in_a_sample_is_read_more_often_than_its_length_allows() {
    for target in targets() {
        for sample in (target.samples)() {
            for start in (0..sample.len()).step_by(sample.len() / STARTS + 1) {
                for len in [1, 4, 24] {
                    let (front, rest) = sample.split_at(start);
                    let (part, end) = rest.split_at(len.min(rest.len()));
                    target.run_bounded(&[front, &part.repeat(LONG / part.len()), end].concat());
                }
            }
        }
    }
}

/// Bytes of a long input, in which a cost that grows with the square of the length shows.
const LONG: usize = 64 << 10;
/// Places in a sample at which a part is repeated.
const STARTS: usize = 40;

#[test]
#[should_panic(expected = "octets are read of an input of 65536")]
fn decoder_whose_cost_grows_with_the_square_of_the_length_is_found() {
    let bytes = [b'x'; LONG];
    steps::bounded(bytes.len(), || {
        for start in (0..bytes.len()).step_by(64) {
            VOLUME.checksum(&[&bytes[start..]]);
        }
    });
}
