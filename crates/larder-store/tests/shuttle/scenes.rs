//! The scenes: concurrent operations on a few keys, for every policy that uses a device.

use crate::{history::History, late::LateDevice};
use bytes::Bytes;
use larder_device::Device;
use larder_store::{Clock, Hints, Policy, Store, StoreOptions};
use shuttle::{Config, Runner, future::block_on, scheduler::PctScheduler, scheduler::RandomScheduler, thread};
use std::{sync::Arc, time::Duration};

/// Two threads write the same key, one removes it, one reads it, and one does the store's maintenance.
#[test]
fn writers_a_remover_and_a_reader_of_one_key() {
    try_rows(|world| {
        let writers = [1, 2].map(|writer| {
            let world = world.clone();
            thread::spawn(move || (0..2).for_each(|round| world.commit(1, writer * 10 + round, 3000)))
        });
        let remover = spawn(world, |world| world.remove(1));
        let reader = spawn(world, |world| (0..3).for_each(|_| world.read(1)));
        world.tend();
        writers.into_iter().chain([remover, reader]).for_each(|thread| thread.join().unwrap());
        world.read(1);
    });
}

/// Segments are overwritten again and again while older entries in them are read and replaced.
#[test]
fn readers_of_what_is_being_reclaimed() {
    try_rows(|world| {
        (0..KEY_COUNT).for_each(|key| world.commit(key, u32::from(key), LONG_BYTES));
        let writer = spawn(world, |world| {
            (0..KEY_COUNT).for_each(|key| world.commit(key, 100 + u32::from(key), LONG_BYTES));
        });
        let reader = spawn(world, |world| (0..KEY_COUNT).for_each(|key| world.read(key)));
        world.tend();
        [writer, reader].into_iter().for_each(|thread| thread.join().unwrap());
        (0..KEY_COUNT).for_each(|key| world.read(key));
    });
}

/// Entries get new heads while they are replaced or removed.
#[test]
fn new_heads_and_new_bodies() {
    try_rows(|world| {
        world.commit(1, 1, 3000);
        let renewer = spawn(world, |world| {
            world.renew(1);
            world.renew(1);
        });
        let writer = spawn(world, |world| {
            world.commit(1, 2, 5000);
            world.remove(1);
            world.commit(1, 3, 100);
        });
        let reader = spawn(world, |world| (0..2).for_each(|_| world.read(1)));
        [renewer, writer, reader].into_iter().for_each(|thread| thread.join().unwrap());
        world.read(1);
    });
}

/// The state that the threads share.
#[derive(Clone)]
struct World {
    store: Store,
    history: Arc<History>,
}

impl World {
    fn commit(&self, key: u8, version: u32, len: usize) {
        let begun = self.history.begin(key, Some(version));
        let mut writer = self.store.insert(&[key; 20], Bytes::from_static(b"head"), Hints::default()).unwrap();
        writer.write(Bytes::from(body_of(key, version, len))).unwrap();
        // Refused is neither a lie nor acknowledged.
        if block_on(writer.commit()).is_ok() {
            self.history.end(&begun);
        }
        self.store.check_invariants();
    }

    fn remove(&self, key: u8) {
        let begun = self.history.begin(key, None);
        if block_on(self.store.remove(&[key; 20])).is_ok() {
            self.history.end(&begun);
        }
        self.store.check_invariants();
    }

    fn renew(&self, key: u8) {
        let _ = block_on(self.store.update_head(&[key; 20], Bytes::from_static(b"newer head"), Hints::default()));
        self.store.check_invariants();
    }

    fn read(&self, key: u8) {
        let began = self.history.now();
        let Some(reader) = block_on(self.store.get(&[key; 20])).unwrap() else { return };
        let head = reader.head();
        assert!(head == b"head"[..] || head == b"newer head"[..], "{head:?}");
        // The entry may be overwritten before its body is read. Then there is no body.
        let Some(body) = block_on(reader.read(0..reader.len())).unwrap() else { return };
        let version = u32::from_le_bytes(body[..4].try_into().unwrap());
        assert_eq!(body, body_of(key, version, body.len()), "key {key}");
        self.history.judge(key, began, version);
    }

    fn tend(&self) {
        for _ in 0..2 {
            block_on(self.store.maintain());
            self.store.check_invariants();
        }
    }
}

fn spawn(world: &World, work: impl FnOnce(&World) + Send + 'static) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || work(&world))
}

fn body_of(key: u8, version: u32, len: usize) -> Vec<u8> {
    let mut body = version.to_le_bytes().to_vec();
    body.extend((4..len).map(|at| (at as u8).wrapping_mul(key | 1).wrapping_add(version as u8)));
    body
}

/// Runs a scene on every policy in many interleavings, then opens the device's content once more.
fn try_rows(scene: impl Fn(&World) + Send + Sync + Copy + 'static) {
    for policy in Policy::all().iter().filter(|policy| !policy.layout.keeps_files()) {
        let play = move || play(policy, scene);
        Runner::new(RandomScheduler::new(iterations()), config()).run(play);
        Runner::new(PctScheduler::new(CHANGE_POINTS, iterations()), config()).run(play);
    }
}

fn play(policy: &'static Policy, scene: impl Fn(&World)) {
    let device = LateDevice::new(SIZE_BYTES);
    let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options(policy)).unwrap();
    let world = World { store, history: Arc::default() };
    let server = device.be_late();
    scene(&world);
    block_on(world.store.close()).unwrap();
    device.stop();
    server.join().unwrap();
    let image: Arc<dyn Device> = Arc::new(device.snapshot());
    let again = Store::open_on(image, &options(policy)).unwrap();
    let world = World { store: again, history: world.history };
    (0..KEY_COUNT).for_each(|key| world.read(key));
}

fn options(policy: &'static Policy) -> StoreOptions {
    StoreOptions {
        policy,
        mean_entry_bytes: 2048,
        segment_size_bytes: Some(256 << 10),
        clock: Clock::manual(Duration::from_secs(1_700_000_000)),
        identity_seed: Some(7),
        background: false,
        ..StoreOptions::new("", SIZE_BYTES)
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config
}

/// Interleavings of each kind that are tried for a row and a scene.
fn iterations() -> usize {
    std::env::var("SHUTTLE_ITERATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(20)
}

const SIZE_BYTES: u64 = (12 << 18) + (68 << 10);
const KEY_COUNT: u8 = 24;
const LONG_BYTES: usize = 100 << 10;
/// Number of times a thread of high priority may lose it (Burckhardt et al., ASPLOS 2010).
const CHANGE_POINTS: usize = 3;
