//! At stake: whenever the machine stops, what it has written so far opens again, and shows nothing
//! that was not stored. Cuts a workload after every single write, and in the middle of it.

use crate::support::{
    HEAD_VERSION, RecordingDevice, SIZE_BYTES, block_on, head, insert, key_bytes, open_image, options, version_of,
};
use larder_store::{Hints, Invalidation, Store, device::Device};
use std::{collections::HashMap, sync::Arc, time::Duration};

const KEYS: u64 = 30;
const WRITES_MIN: usize = 500;

/// What is allowed for one key from some write on.
#[derive(Clone, Debug)]
struct Step {
    /// The writes that were made when this was acknowledged.
    writes: usize,
    key: u64,
    change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    /// A commit was begun.
    Begun(u64),
    /// Everything committed before is durable.
    Durable,
    /// A removal was acknowledged.
    Removed,
}

struct Workload {
    device: Arc<RecordingDevice>,
    steps: Vec<Step>,
}

impl Workload {
    fn run() -> Self {
        let device = Arc::new(RecordingDevice::new());
        let options = options();
        let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
        let mut steps = Vec::new();
        let mut bodies = HashMap::new();
        let mut round = 0_u64;
        while device.write_count() < WRITES_MIN {
            round += 1;
            let key = (round * round + round / 3) % KEYS;
            let mut step = |key, change| steps.push(Step { writes: device.write_count(), key, change });
            match round % 16 {
                3 => {
                    block_on(store.remove(&key_bytes(key))).unwrap();
                    step(key, Change::Removed);
                }
                7 => {
                    block_on(store.sync()).unwrap();
                    (0..KEYS).for_each(|key| step(key, Change::Durable));
                }
                11 => {
                    if let Some(version) = version_of(&store, key) {
                        let new_version = version % HEAD_VERSION + HEAD_VERSION;
                        step(key, Change::Begun(new_version));
                        let new_head = head(key, new_version, bodies[&(key, version % HEAD_VERSION)]);
                        block_on(store.update_head(&key_bytes(key), new_head, Hints::default())).unwrap();
                    }
                }
                13 => {
                    options.clock.advance(Duration::from_secs(1));
                    block_on(store.maintain());
                }
                15 if round % 400 == 15 => {
                    block_on(store.invalidate(Invalidation::All)).unwrap();
                    (0..KEYS).for_each(|key| step(key, Change::Removed));
                }
                _ => {
                    let body_len = (round as usize * 6151) % 50_000;
                    bodies.insert((key, round), body_len);
                    step(key, Change::Begun(round));
                    insert(&store, key, round, body_len);
                    version_of(&store, key);
                }
            }
        }
        Self { device, steps }
    }

    /// The versions that may be found of `key` when the machine stopped after `writes` writes. One
    /// write more may have been on its way.
    fn allowed(&self, key: u64, writes: usize) -> Vec<u64> {
        let mut allowed = Vec::new();
        for step in self.steps.iter().filter(|step| step.key == key) {
            match step.change {
                Change::Begun(version) if step.writes <= writes => allowed.push(version),
                Change::Durable if step.writes <= writes && allowed.len() > 1 => {
                    allowed.drain(..allowed.len() - 1);
                }
                Change::Removed if step.writes <= writes => allowed.clear(),
                _ => {}
            }
        }
        allowed
    }
}

#[test]
fn a_store_cut_after_any_write_opens_clean() {
    let workload = Workload::run();
    let mut image = vec![0; SIZE_BYTES as usize];
    let writes = workload.device.writes();
    let (mut cuts, mut found) = (0, 0);
    for (count, (offset, buffer)) in writes.iter().enumerate() {
        let (at, bytes) = (*offset as usize, buffer.as_slice());
        // The two superblocks of a new volume are written before it has its name.
        if count >= 2 {
            let mut torn = image.clone();
            let half = (bytes.len() / 2).next_multiple_of(512);
            torn[at..at + half].copy_from_slice(&bytes[..half]);
            found += check(&workload, torn, count, count + 1);
            cuts += 1;
        }
        image[at..at + bytes.len()].copy_from_slice(bytes);
        if count >= 2 {
            found += check(&workload, image.clone(), count + 1, count + 1);
            cuts += 1;
        }
    }
    println!("{cuts} cut points over {} writes, {found} entries found and right", writes.len());
    assert!(cuts >= 2 * WRITES_MIN - 4 && found > 10 * cuts);
}

/// Opens `image` and checks every key; how many were found.
fn check(workload: &Workload, image: Vec<u8>, acknowledged: usize, begun: usize) -> usize {
    let store = open_image(image);
    let mut found = 0;
    for key in 0..KEYS {
        let Some(version) = version_of(&store, key) else { continue };
        let (sure, possible) = (workload.allowed(key, acknowledged), workload.allowed(key, begun));
        assert!(
            sure.contains(&version) || possible.contains(&version),
            "cut after {acknowledged} writes: key {key} has {version}, allowed {sure:?} or {possible:?}"
        );
        found += 1;
    }
    // And it works on.
    assert!(insert(&store, 1000, 1, 5000));
    assert_eq!(version_of(&store, 1000), Some(1));
    found
}
