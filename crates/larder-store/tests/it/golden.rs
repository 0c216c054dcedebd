//! Protects existing stores. Volumes that were written in each format version open, and have their content.
//!
//! A fixture in `fixtures/format-N` holds the non-zero sectors of a closed store, each preceded by its number (4 bytes,
//! little-endian). Policies with probation write format 4, and formerly format 3; policies with a journal write format
//! 2; the others, and volumes created without either, have format 1. `LARDER_WRITE_FIXTURES=1` writes missing fixtures.

use crate::support::block_on;
use larder_device::{Device, MemoryDevice};
use larder_store::{ErrorKind, Hints, Policy, Store, StoreOptions, plan_upgrade, upgrade};
use larder_torture::{SIZE_BYTES, content, options};
use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

const SECTOR_BYTES: usize = 512;
const KEYS: u64 = 6;

/// The formats for which there are fixtures.
const FORMATS: [u32; 4] = [1, 2, 3, 4];

fn folder(format: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/format-{format}"))
}

/// Returns the format in the superblock.
fn format_of(contents: &[u8]) -> u32 {
    u32::from_le_bytes(contents[8..12].try_into().unwrap())
}

/// Returns the options that create a volume of this format, if the policy has it.
fn options_of(format: u32, policy: &'static Policy) -> StoreOptions {
    let mut options = options(policy, 1);
    options.tuning.map_journal = format > 1;
    options
}

fn version(key: u64) -> u64 {
    key + 10
}

/// Returns a volume written in this format. Key 5 was removed, and key 4 has another head than it was stored with.
fn written_by(format: u32, policy: &'static Policy) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(SIZE_BYTES));
    let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options_of(format, policy)).unwrap();
    for key in 0..KEYS {
        let head = content::head(key, version(key));
        let mut writer = store.insert(&content::key_bytes(key), head, Hints::default()).unwrap();
        writer.write(content::body(key, version(key), key * 700)).unwrap();
        block_on(writer.commit()).unwrap();
    }
    let new_head = content::head(4, 100);
    let is_updated = block_on(store.update_head(&content::key_bytes(4), new_head, Hints::default())).unwrap();
    assert!(is_updated, "row {policy}");
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

/// Returns the content of a policy's fixture. Writes the fixture first if that was requested and the policy has volumes
/// of this format.
fn fixture(format: u32, policy: &'static Policy) -> Option<Vec<u8>> {
    let path = folder(format).join(format!("{policy}.sectors"));
    if env::var_os("LARDER_WRITE_FIXTURES").is_some() && !path.exists() {
        let contents = written_by(format, policy);
        if format_of(&contents) == format {
            check_holds(policy, contents.clone());
            fs::create_dir_all(folder(format)).unwrap();
            fs::write(&path, packed(&contents)).unwrap();
        }
    }
    fs::read(path).ok().map(|packed| unpacked(&packed))
}

#[test]
fn stores_of_every_format_open_and_hold_what_they_held() {
    for (format, one_of_them) in FORMATS.into_iter().zip(["log", "stream", "log", "log"]) {
        let mut opened = Vec::new();
        for policy in Policy::all().iter().filter(|policy| !policy.layout.keeps_files()) {
            if let Some(contents) = fixture(format, policy) {
                assert_eq!(format_of(&contents), format, "{policy}");
                check_holds(policy, contents);
                opened.push(policy.name);
            }
        }
        let known = fs::read_dir(folder(format)).unwrap().count();
        assert_eq!(opened.len(), known, "every fixture of format {format} is of a row that is still there: {opened:?}");
        assert!(opened.contains(&one_of_them), "{opened:?}");
    }
}

/// Guards against a policy that begins to write a format without a fixture.
#[test]
fn what_each_row_makes_today_has_a_fixture_of_its_format() {
    for policy in Policy::all().iter().filter(|policy| !policy.layout.keeps_files()) {
        let format = format_of(&written_by(2, policy));
        let is_there = !FORMATS.contains(&format) || fixture(format, policy).is_some();
        assert!(is_there, "{policy} makes volumes of format {format}, and there is no fixture of one");
    }
}

#[test]
fn a_store_of_another_format_or_row_is_refused_and_left_as_it_is() {
    let contents = fixture(1, Policy::default_policy()).unwrap();
    let last = SIZE_BYTES as usize / 4096 * 4096 - 4096;
    let mut older = contents.clone();
    let mut newer = contents.clone();
    for superblock in [0, last] {
        older[superblock + 8] = 0;
        newer[superblock + 8] = 5;
    }
    let row = Policy::named("stream").unwrap();
    for (contents, policy, why) in [
        (older, Policy::default_policy(), "format 0"),
        (newer, Policy::default_policy(), "format 5"),
        (contents, row, "policy log"),
    ] {
        let device = Arc::new(MemoryDevice::from_contents(contents.clone()));
        let error = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options(policy, 1)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(why), "{error}");
        assert!(device.contents() == contents, "{why}: changed");
    }
}

/// Creates a file with the content of a fixture.
fn fixture_file(format: u32, policy: &'static Policy) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), fixture(format, policy).unwrap()).unwrap();
    file
}

/// Guards against an upgrade that succeeds and leaves a store of an older format.
#[test]
fn upgrade_leads_to_the_newest_format_and_tells_what_it_loses() {
    let policy = Policy::default_policy();
    for from in [1, 3] {
        let file = fixture_file(from, policy);
        let plan = plan_upgrade(file.path()).unwrap();
        assert_eq!((plan.from, plan.to, plan.loses_entries), (from, 4, true));
        assert_eq!(format_of(&fs::read(file.path()).unwrap()), from, "a plan changes nothing");
        upgrade(file.path()).unwrap();
        assert_eq!(format_of(&fs::read(file.path()).unwrap()), 4);
        let plan = plan_upgrade(file.path()).unwrap();
        assert_eq!((plan.from, plan.to, plan.loses_entries), (4, 4, false));
    }
}

#[test]
fn store_that_has_no_room_for_a_journal_is_made_anew_by_an_upgrade() {
    let policy = Policy::named("stream").unwrap();
    let file = fixture_file(1, policy);
    let plan = plan_upgrade(file.path()).unwrap();
    assert_eq!((plan.from, plan.to, plan.loses_entries), (1, 2, true));
    upgrade(file.path()).unwrap();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_contents(fs::read(file.path()).unwrap()));
    let store = Store::open_on(device, &options(policy, 1)).unwrap();
    assert_eq!(store.stats().entries, 0);
    assert_eq!(plan_upgrade(file.path()).unwrap().from, 2);
}
