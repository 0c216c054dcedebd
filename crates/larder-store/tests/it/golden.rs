//! At stake: stores that people have. Volumes that format version 1 was written with open, and hold what they held.
//!
//! A fixture in `fixtures/format-1` is what a closed store of a row left: the sectors that are not zero, each behind
//! its number (4 bytes, little-endian). `LARDER_WRITE_FIXTURES=1` writes those that are missing.

use crate::support::block_on;
use larder_store::{
    ErrorKind, Hints, Policy, Store,
    device::{Device, MemoryDevice},
};
use larder_torture::{SIZE_BYTES, content, options};
use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

const SECTOR_BYTES: usize = 512;
const KEYS: u64 = 6;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/format-1")
}

fn version(key: u64) -> u64 {
    key + 10
}

/// Key 5 was removed, key 4 has another head than it was stored with.
fn written_by(policy: &'static Policy) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(SIZE_BYTES));
    let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options(policy, 1)).unwrap();
    for key in 0..KEYS {
        let head = content::head(key, version(key));
        let mut writer = store.insert(&content::key_bytes(key), head, Hints::default()).unwrap();
        writer.write(content::body(key, version(key), key * 700)).unwrap();
        block_on(writer.commit()).unwrap();
    }
    let new_head = content::head(4, 100);
    assert!(block_on(store.update_head(&content::key_bytes(4), new_head, Hints::default())).unwrap());
    block_on(store.remove(&content::key_bytes(5))).unwrap();
    block_on(store.close()).unwrap();
    device.contents()
}

fn check_holds(policy: &'static Policy, contents: Vec<u8>) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_contents(contents));
    let store = Store::open_on(device, &options(policy, 1)).unwrap();
    for key in 0..KEYS {
        let reader = block_on(store.get(&content::key_bytes(key))).unwrap();
        let Some(reader) = reader.filter(|_| key != 5) else {
            assert_eq!(key, 5, "row {policy}: key {key} is gone");
            continue;
        };
        let head = if key == 4 { 100 } else { version(key) };
        assert_eq!(content::parse_head(&reader.head()), Some((key, head)), "row {policy}");
        let body = block_on(reader.read(0..reader.len())).unwrap().unwrap();
        assert!(body == content::body(key, version(key), key * 700), "row {policy}: wrong bytes of key {key}");
    }
}

fn packed(contents: &[u8]) -> Vec<u8> {
    let sectors = (0_u32..).zip(contents.chunks(SECTOR_BYTES));
    let used = sectors.filter(|(_, sector)| sector.iter().any(|byte| *byte != 0));
    used.flat_map(|(number, sector)| [&number.to_le_bytes()[..], sector].concat()).collect()
}

fn unpacked(packed: &[u8]) -> Vec<u8> {
    let mut contents = vec![0; SIZE_BYTES as usize];
    for piece in packed.chunks_exact(4 + SECTOR_BYTES) {
        let (number, sector) = piece.split_first_chunk().unwrap();
        let at = u32::from_le_bytes(*number) as usize * SECTOR_BYTES;
        contents[at..at + SECTOR_BYTES].copy_from_slice(sector);
    }
    contents
}

/// The contents of the fixture of a row, made first where that was asked for.
fn fixture(policy: &'static Policy) -> Option<Vec<u8>> {
    let path = folder().join(format!("{policy}.sectors"));
    if env::var_os("LARDER_WRITE_FIXTURES").is_some() && !path.exists() {
        let contents = written_by(policy);
        check_holds(policy, contents.clone());
        fs::create_dir_all(folder()).unwrap();
        fs::write(&path, packed(&contents)).unwrap();
    }
    fs::read(path).ok().map(|packed| unpacked(&packed))
}

#[test]
fn stores_of_format_1_open_and_hold_what_they_held() {
    let mut opened = Vec::new();
    for policy in Policy::all().iter().filter(|policy| !policy.layout.keeps_files()) {
        if let Some(contents) = fixture(policy) {
            check_holds(policy, contents);
            opened.push(policy.name);
        }
    }
    let known = fs::read_dir(folder()).unwrap().count();
    assert_eq!(opened.len(), known, "every fixture is of a row that is still there: {opened:?}");
    assert!(opened.contains(&"log"));
}

#[test]
fn a_store_of_another_format_or_row_is_refused_and_left_as_it_is() {
    let contents = fixture(Policy::default_row()).unwrap();
    let last = SIZE_BYTES as usize / 4096 * 4096 - 4096;
    let mut older = contents.clone();
    let mut newer = contents.clone();
    for superblock in [0, last] {
        older[superblock + 8] = 0;
        newer[superblock + 8] = 4;
    }
    let row = Policy::named("stream").unwrap();
    for (contents, policy, why) in [
        (older, Policy::default_row(), "format 0"),
        (newer, Policy::default_row(), "format 4"),
        (contents, row, "policy log"),
    ] {
        let device = Arc::new(MemoryDevice::from_contents(contents.clone()));
        let error = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options(policy, 1)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(why), "{error}");
        assert!(device.contents() == contents, "{why}: changed");
    }
}
