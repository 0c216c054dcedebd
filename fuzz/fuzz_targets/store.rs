//! Fuzzes a store against the model. The bytes select the policy, the faults and the operations.
#![no_main]

use larder_store::Policy;
use larder_torture::{Crash, Operation, Trial, faults, options};

const OPERATIONS_MAX: usize = 200;
const KEY_COUNT: u64 = 12;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&[row, kind, seed], rest)) = bytes.split_first_chunk() else { return };
    let rows = Policy::all();
    let policy = &rows[usize::from(row) % rows.len()];
    let kinds = faults::all();
    let faults = &kinds[usize::from(kind) % kinds.len()];
    let mut trial = Trial::new(options(policy, u64::from(seed)), faults, u64::from(seed)).expect("a new store");
    for chosen in rest.as_chunks().0.iter().take(OPERATIONS_MAX) {
        let step = trial.step(operation(*chosen));
        step.unwrap_or_else(|broken| panic!("row {policy}, faults {}: {broken}", faults.name));
    }
    trial.check_all().unwrap_or_else(|broken| panic!("row {policy}, faults {}: {broken}", faults.name));
});

fn operation([what, key, small, large]: [u8; 4]) -> Operation {
    let key = u64::from(key) % KEY_COUNT;
    let number = u64::from(small) << 8 | u64::from(large);
    match what % 16 {
        0..=5 => Operation::Insert { key, body_bytes: number * 2, short_lived: small % 8 == 0 },
        6..=7 => Operation::Read { key },
        8 => Operation::ReadPart { key, part: number << 12 | number },
        9 => Operation::Remove { key },
        10 => Operation::UpdateHead { key },
        11 => Operation::Sync,
        12 => Operation::Wait { milliseconds: number * 10 },
        13 => Operation::Reopen,
        14 if small % 8 == 0 => Operation::Clear,
        14 => Operation::Abandon { key },
        _ => Operation::Crash {
            how: if small % 2 == 0 { Crash::Kill } else { Crash::PowerCut },
            again_after: (large % 4 == 0).then_some(u64::from(large) / 4),
        },
    }
}
