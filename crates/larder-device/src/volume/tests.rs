//! Tests of opening and creating volume files.

use std::os::unix::fs::MetadataExt;

use super::*;

const SIZE_BYTES: u64 = 1 << 20;

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume");
    (directory, path)
}

#[track_caller]
fn check_refused(result: Result<VolumeFile>, kind: DeviceErrorKind, says: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn a_created_file_is_private_whole_and_zero() {
    let (_directory, path) = scratch();
    let volume = VolumeFile::create(&path, SIZE_BYTES).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o600);
    assert_eq!(metadata.len(), SIZE_BYTES);
    assert_eq!(volume.len_bytes(), SIZE_BYTES);
    assert!(volume.alignment_bytes().is_power_of_two());
    assert!((512..=4096).contains(&volume.alignment_bytes()));
    let mut buffer = AlignedBuffer::with_len(8192);
    volume.read_exact_at(&mut buffer, SIZE_BYTES - 8192).unwrap();
    assert!(buffer.as_slice().iter().all(|byte| *byte == 0));
    let error = volume.read_exact_at(&mut buffer, SIZE_BYTES - 4096).unwrap_err();
    assert_eq!(error.kind(), DeviceErrorKind::Unavailable);
}

/// Guards against two stores that write over each other.
#[test]
fn a_volume_in_use_is_refused_until_it_is_dropped() {
    let (_directory, path) = scratch();
    let volume = VolumeFile::create(&path, SIZE_BYTES).unwrap();
    check_refused(VolumeFile::open(&path), DeviceErrorKind::InUse, "in use by another process or store");
    drop(volume);
    assert_eq!(VolumeFile::open(&path).unwrap().len_bytes(), SIZE_BYTES);
}

/// Guards against a restart that fails because the kernel has not yet finished the I/O of the killed process.
#[test]
fn a_volume_about_to_be_let_go_is_waited_for() {
    let (_directory, path) = scratch();
    let volume = VolumeFile::create(&path, SIZE_BYTES).unwrap();
    let file = options().open(&path).unwrap();
    let mut holder = Some(volume);
    let mut pause_count = 0;
    let pause = || {
        pause_count += 1;
        if pause_count == LOCK_RETRY_COUNT_MAX - 1 {
            holder = None;
        }
    };
    lock(&file, &path, pause).unwrap();
    assert_eq!(pause_count, LOCK_RETRY_COUNT_MAX - 1);
}

/// Guards against a restart that fails because the kernel takes several seconds to finish the I/O of the killed
/// process.
#[test]
fn volume_of_a_process_that_ends_is_waited_for_longer() {
    let (_directory, path) = scratch();
    let volume = VolumeFile::create(&path, SIZE_BYTES).unwrap();
    let file = options().open(&path).unwrap();
    let mut holder = Some(volume);
    let mut pause_count = 0;
    let pause = || {
        pause_count += 1;
        if pause_count == ENDING_RETRY_COUNT_MAX - 1 {
            holder = None;
        }
    };
    lock_unless(&file, &path, pause, || false).unwrap();
    assert_eq!(pause_count, ENDING_RETRY_COUNT_MAX - 1);
}

#[test]
fn holder_of_a_lock_is_found_in_the_list_of_the_kernel() {
    let line = "12: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF";
    assert_eq!((flock_holder(line, 1234), flock_holder(line, 34)), (Some(4711), None));
    assert_eq!(flock_holder("12: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF", 1234), None);
    assert_eq!(flock_holder("12: FLOCK", 1234), None);
    let (_directory, path) = scratch();
    let _volume = VolumeFile::create(&path, SIZE_BYTES).unwrap();
    assert!(has_living_holder(&options().open(&path).unwrap()));
    assert!(is_living(std::process::id().into()) && !is_living(u64::MAX));
}

/// Guards against two stores on one path, one of them on a file that was removed before it was locked.
#[test]
fn file_that_lost_its_name_before_it_was_locked_is_not_used() {
    let (_directory, path) = scratch();
    drop(VolumeFile::create(&path, SIZE_BYTES).unwrap());
    let file = options().open(&path).unwrap();
    assert!(is_named(&file, &path).unwrap());
    fs::remove_file(&path).unwrap();
    assert!(!is_named(&file, &path).unwrap());
    drop(VolumeFile::create(&path, SIZE_BYTES).unwrap());
    assert!(!is_named(&file, &path).unwrap());
}

/// Guards against a foreign file that is emptied because it has the volume's name.
#[test]
fn an_existing_file_is_never_changed() {
    let (_directory, path) = scratch();
    fs::write(&path, "a letter").unwrap();
    check_refused(VolumeFile::create(&path, SIZE_BYTES), DeviceErrorKind::Unavailable, "cannot create the volume");
    assert_eq!(VolumeFile::open(&path).unwrap().len_bytes(), 8);
    assert_eq!(fs::read(&path).unwrap(), b"a letter");
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let (directory, path) = scratch();
    check_refused(VolumeFile::open(&path), DeviceErrorKind::Unavailable, "cannot open the volume");
    check_refused(VolumeFile::open(directory.path()), DeviceErrorKind::Invalid, "a directory");
    check_refused(VolumeFile::open(Path::new("/dev/null")), DeviceErrorKind::Invalid, "neither a regular file");
    let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    check_refused(VolumeFile::open(&path), DeviceErrorKind::Invalid, "neither a regular file");
    drop(socket);
    check_refused(
        VolumeFile::create(&directory.path().join("absent/volume"), SIZE_BYTES),
        DeviceErrorKind::Unavailable,
        "cannot create the volume",
    );
}

/// Guards against a disk filled by a volume that cannot be created, and a leftover file that looks like one.
#[test]
fn without_room_nothing_stays_behind() {
    let (directory, path) = scratch();
    let space = rustix::fs::statvfs(directory.path()).unwrap();
    let too_much = (space.f_bavail * space.f_frsize).saturating_mul(2) + SIZE_BYTES;
    check_refused(VolumeFile::create(&path, too_much), DeviceErrorKind::Full, "no room for the volume");
    assert!(!path.exists());
    check_refused(VolumeFile::create(&path, 0), DeviceErrorKind::Invalid, "cannot reserve 0 bytes");
    assert!(!path.exists());
}

#[test]
fn the_device_is_the_one_asked_for_and_holds_the_lock() {
    let (_directory, path) = scratch();
    VolumeFile::create(&path, SIZE_BYTES).unwrap();
    let device = open_device(VolumeFile::open(&path).unwrap(), IoChoice::Threads).unwrap();
    assert_eq!(device.name(), "threads");
    assert_eq!(device.len_bytes(), SIZE_BYTES);
    check_refused(VolumeFile::open(&path), DeviceErrorKind::InUse, "in use by another process or store");
    drop(device);
    let device = open_device(VolumeFile::open(&path).unwrap(), IoChoice::Auto).unwrap();
    assert!(["io_uring", "threads"].contains(&device.name()));
    drop(device);
    VolumeFile::open(&path).unwrap();
}
