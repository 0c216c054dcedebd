//! Stores on real block devices. Protects a user's disk. Needs root for loop devices; otherwise the tests are skipped
//! with a message.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use larder_device::VolumeFile;
use larder_store::{ErrorKind, IoChoice, PathContent, Store, StoreOptions, format, inspect};
use tempfile::TempDir;

use crate::support::{block_on, insert, version_of};

const SIZE_BYTES: u64 = 48 << 20;

/// A loop device on a sparse file; detached when dropped.
struct LoopDevice {
    scratch: TempDir,
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches a loop device. Returns `None` and prints a message if the system does not permit it.
    fn attach() -> Option<Self> {
        let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let backing = scratch.path().join("backing");
        fs::File::create(&backing).unwrap().set_len(SIZE_BYTES).unwrap();
        let attached = Command::new("losetup").args(["--find", "--show"]).arg(&backing).output();
        match attached {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8(output.stdout).unwrap().trim().into();
                Some(Self { scratch, path })
            }
            Ok(output) => {
                eprintln!("skipped: no loop device: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                eprintln!("skipped: no losetup: {error}");
                None
            }
        }
    }

    fn options(&self) -> StoreOptions {
        StoreOptions::new(&self.path, SIZE_BYTES)
    }

    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        file.write_all_at(bytes, offset_bytes).unwrap();
        file.sync_all().unwrap();
    }

    fn backing(&self) -> Vec<u8> {
        fs::read(self.scratch.path().join("backing")).unwrap()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).stderr(Stdio::null()).status();
    }
}

fn open_loaded(options: StoreOptions) -> Store {
    let store = Store::open(options).unwrap();
    block_on(store.ready());
    store
}

#[track_caller]
fn check_refused(options: StoreOptions, kind: ErrorKind, says: &str) {
    let error = Store::open(options).err().unwrap();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn a_blank_device_becomes_a_store_and_keeps_its_entries() {
    let Some(device) = LoopDevice::attach() else { return };
    assert_eq!(inspect(&device.path).unwrap(), PathContent::Blank(SIZE_BYTES));
    for (io, version) in [(IoChoice::Auto, 1), (IoChoice::Threads, 2)] {
        let store = open_loaded(StoreOptions { io, ..device.options() });
        for key in 0..50 {
            assert_eq!(version_of(&store, key), (version > 1).then_some(version - 1));
            assert!(insert(&store, key, version, 10_000 + key as usize));
        }
        block_on(store.close()).unwrap();
    }
    let PathContent::Store(info) = inspect(&device.path).unwrap() else { panic!("it is a store") };
    assert_eq!((info.size_bytes, info.volume_bytes, info.is_block_device), (SIZE_BYTES, SIZE_BYTES, true));
    assert_eq!(info.policy.unwrap().name, "log");
    let store = open_loaded(device.options());
    assert!((0..50).all(|key| version_of(&store, key) == Some(2)));
}

#[test]
fn a_device_in_use_is_refused() {
    let Some(device) = LoopDevice::attach() else { return };
    let store = Store::open(device.options()).unwrap();
    check_refused(device.options(), ErrorKind::InUse, "in use by another store");
    drop(store);
    Store::open(device.options()).unwrap();
}

/// Protects a file system, or unknown data on a device.
#[test]
fn a_device_that_holds_something_is_left_alone_until_it_is_formatted() {
    let Some(device) = LoopDevice::attach() else { return };
    let marks: [(u64, &[u8], &str); 3] = [
        (0x438, &[0x53, 0xEF], "an ext2, ext3 or ext4 file system"),
        (SIZE_BYTES - 512, b"EFI PART", "a partition table (GPT)"),
        (60_000, b"?", "something that is not known here"),
    ];
    for (offset_bytes, bytes, what) in marks {
        device.write_at(offset_bytes, bytes);
        let before = device.backing();
        let content = PathContent::OtherDevice { what, size_bytes: SIZE_BYTES };
        assert_eq!(inspect(&device.path).unwrap(), content);
        check_refused(device.options(), ErrorKind::Invalid, what);
        assert!(device.backing() == before, "what is refused is not touched");
        format(&device.options()).unwrap();
        assert!(matches!(inspect(&device.path).unwrap(), PathContent::Store(_)));
        let backing = device.backing();
        assert_eq!(backing[60_000], 0, "what was between the superblock and the first segment is gone");
        assert_ne!(&backing[(SIZE_BYTES - 512) as usize..][..8], b"EFI PART");
        device.write_at(0, &[0; 4096]);
        device.write_at(SIZE_BYTES - 4096, &[0; 4096]);
    }
}

#[test]
fn a_device_really_formatted_by_others_is_recognized() {
    let Some(device) = LoopDevice::attach() else { return };
    let makers = [
        ("mkfs.ext4", vec!["-q", "-F"], "an ext2, ext3 or ext4 file system"),
        ("mkfs.xfs", vec!["-q", "-f"], "an XFS file system"),
        ("mkfs.btrfs", vec!["-q", "-f"], "a Btrfs file system"),
        ("mkfs.vfat", vec!["-I"], "a FAT file system"),
        ("mkswap", vec!["-q", "-f"], "swap space"),
    ];
    for (program, arguments, what) in makers {
        let status = Command::new(program).args(arguments).arg(&device.path).stdout(Stdio::null()).status();
        if !status.is_ok_and(|status| status.success()) {
            eprintln!("skipped: {program} is not here, or wants more room");
            continue;
        }
        check_refused(device.options(), ErrorKind::Invalid, what);
        VolumeFile::open(&device.path).unwrap().wipe_ends().unwrap();
    }
}

/// Guards against writes under a mounted file system.
#[test]
fn a_mounted_device_is_refused() {
    let Some(device) = LoopDevice::attach() else { return };
    let run = |program: &str, arguments: &[&Path]| {
        Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status()
    };
    let folder = device.scratch.path().join("mounted");
    fs::create_dir(&folder).unwrap();
    let made = run("mkfs.ext4", &[Path::new("-qF"), &device.path]).is_ok_and(|status| status.success());
    if !made || !run("mount", &[&device.path, &folder]).is_ok_and(|status| status.success()) {
        return eprintln!("skipped: nothing can be mounted here");
    }
    let refused = format(&device.options());
    assert!(run("umount", &[&folder]).unwrap().success());
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    assert!(error.to_string().contains("the device is mounted"), "{error}");
}

#[test]
fn a_store_may_take_a_part_of_a_device() {
    let Some(device) = LoopDevice::attach() else { return };
    check_refused(StoreOptions::new(&device.path, SIZE_BYTES + 4096), ErrorKind::Invalid, "fewer than the requested");
    let part = || StoreOptions::new(&device.path, SIZE_BYTES / 2);
    device.write_at(SIZE_BYTES / 2, &[7; 4096]);
    let store = Store::open(part()).unwrap();
    for key in 0..3000 {
        insert(&store, key, 1, 20_000);
    }
    block_on(store.close()).unwrap();
    drop(store);
    assert!(device.backing()[(SIZE_BYTES / 2) as usize..][..4096].iter().all(|byte| *byte == 7));
    let PathContent::Store(info) = inspect(&device.path).unwrap() else { panic!("it is a store") };
    assert_eq!((info.size_bytes, info.volume_bytes), (SIZE_BYTES / 2, SIZE_BYTES));
    check_refused(device.options(), ErrorKind::Invalid, "is a store of");
    // The first superblock is lost; the second one is at the end of the volume.
    device.write_at(0, &[0; 4096]);
    Store::open(part()).unwrap();
}
