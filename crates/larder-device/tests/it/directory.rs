//! The contract of directories, checked on each implementation.

use std::{
    fs, io,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{Arc, Mutex, mpsc},
    thread,
};

use larder_device::{
    AlignedBuffer, Completion, DeviceErrorKind, Directory, FileName, FileWork, FilesDirectory, MemoryDirectory,
    block_on,
};
use tempfile::TempDir;

/// A directory, and its path if it is on the file system.
struct Subject {
    directory: Arc<dyn Directory>,
    place: Option<Place>,
}

struct Place {
    /// Removed with all it holds when this is dropped.
    _scratch: TempDir,
    path: PathBuf,
}

impl Place {
    fn open(&self) -> larder_device::Result<Arc<dyn Directory>> {
        let opened = FilesDirectory::open(&self.path, NonZeroUsize::new(3).unwrap())?;
        Ok(Arc::new(opened))
    }
}

impl Subject {
    fn memory() -> Self {
        Self { directory: Arc::new(MemoryDirectory::new(64 << 20)), place: None }
    }

    fn files() -> Self {
        let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let place = Place { path: scratch.path().join("store"), _scratch: scratch };
        Self { directory: place.open().unwrap(), place: Some(place) }
    }
}

macro_rules! suite {
    ($($implementation:ident),+; $($promise:ident),+ $(,)?) => {
        suite!(@each [$($implementation)+] [$($promise)+]);
    };
    (@each [$($implementation:ident)+] $promises:tt) => { $(suite!(@one $implementation $promises);)+ };
    (@one $implementation:ident [$($promise:ident)+]) => {
        mod $implementation {
            $(#[test]
            fn $promise() {
                super::$promise(super::Subject::$implementation());
            })+
        }
    };
}

suite! {
    memory, files;
    what_is_written_is_read,
    a_file_grows_where_it_is_written,
    what_is_not_there_cannot_be_read,
    a_removed_file_is_gone,
    every_file_is_listed_once,
    a_cleared_directory_is_empty,
    concurrent_work_does_not_mix,
    files_that_come_and_go_do_not_hinder_each_other,
    dropping_the_directory_completes_everything,
    a_completion_may_submit,
    a_completion_may_drop_the_directory,
    a_written_buffer_is_given_back,
    files_survive_reopening,
    a_directory_in_use_is_refused,
}

fn name(text: &str) -> FileName {
    FileName::new(text).unwrap()
}

/// Bytes that differ from place to place and from `seed` to `seed`.
fn pattern(seed: u64, len_bytes: usize) -> Arc<AlignedBuffer> {
    let mut buffer = AlignedBuffer::with_len(len_bytes);
    for (index, byte) in buffer.as_mut_slice().iter_mut().enumerate() {
        *byte = ((seed << 32 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    }
    Arc::new(buffer)
}

fn write(directory: &Arc<dyn Directory>, file: &str, offset_bytes: u64, seed: u64, len_bytes: usize) {
    block_on(directory.write(name(file), offset_bytes, pattern(seed, len_bytes))).unwrap();
}

#[track_caller]
fn check_holds(directory: &Arc<dyn Directory>, file: &str, offset_bytes: u64, seed: u64, len_bytes: usize) {
    let buffer = block_on(directory.read(name(file), offset_bytes, len_bytes)).unwrap();
    assert_eq!(buffer.len(), len_bytes);
    assert!(buffer.as_slice() == pattern(seed, len_bytes).as_slice(), "wrong bytes in {file} at {offset_bytes}");
}

#[track_caller]
fn check_read_fails(directory: &Arc<dyn Directory>, file: &str, offset_bytes: u64, expected: io::ErrorKind) {
    let error = block_on(directory.read(name(file), offset_bytes, 512)).err().unwrap();
    assert_eq!(error.kind(), expected, "{error}");
}

#[track_caller]
fn check_lists(directory: &Arc<dyn Directory>, expected: &[&str]) {
    let mut names = block_on(directory.list()).unwrap();
    names.sort();
    assert!(names.iter().map(FileName::as_str).eq(expected.iter().copied()), "{names:?}");
}

fn what_is_written_is_read(subject: Subject) {
    let directory = subject.directory;
    assert!(directory.block_bytes().is_power_of_two());
    for (seed, (file, len_bytes)) in
        [("a", 512), ("0/00/b", 100_000), ("x/y/z/c", 1 << 20), ("d", 0)].iter().enumerate()
    {
        write(&directory, file, 0, seed as u64, *len_bytes);
        check_holds(&directory, file, 0, seed as u64, *len_bytes);
    }
    check_holds(&directory, "a", 0, 0, 512);
    write(&directory, "a", 256, 9, 512);
    check_holds(&directory, "a", 256, 9, 512);
    assert!(block_on(directory.read(name("a"), 0, 256)).unwrap().as_slice() == &pattern(0, 512).as_slice()[..256]);
}

/// Guards against slots of a file that are written in arbitrary order.
fn a_file_grows_where_it_is_written(subject: Subject) {
    let directory = subject.directory;
    write(&directory, "class/7", 5000, 1, 1000);
    check_holds(&directory, "class/7", 5000, 1, 1000);
    assert!(block_on(directory.read(name("class/7"), 0, 5000)).unwrap().as_slice().iter().all(|byte| *byte == 0));
    write(&directory, "class/7", 0, 2, 512);
    check_holds(&directory, "class/7", 0, 2, 512);
    check_holds(&directory, "class/7", 5000, 1, 1000);
    check_read_fails(&directory, "class/7", 5500, io::ErrorKind::UnexpectedEof);
    check_read_fails(&directory, "class/7", 1 << 40, io::ErrorKind::UnexpectedEof);
}

fn what_is_not_there_cannot_be_read(subject: Subject) {
    check_read_fails(&subject.directory, "a", 0, io::ErrorKind::NotFound);
    check_read_fails(&subject.directory, "a/b/c", 0, io::ErrorKind::NotFound);
    check_lists(&subject.directory, &[]);
}

fn a_removed_file_is_gone(subject: Subject) {
    let directory = subject.directory;
    write(&directory, "site/a", 0, 1, 4096);
    write(&directory, "site/b", 0, 2, 4096);
    block_on(directory.remove(name("site/a"))).unwrap();
    check_read_fails(&directory, "site/a", 0, io::ErrorKind::NotFound);
    assert_eq!(block_on(directory.remove(name("site/a"))).unwrap_err().kind(), io::ErrorKind::NotFound);
    check_holds(&directory, "site/b", 0, 2, 4096);
    block_on(directory.remove(name("site/b"))).unwrap();
    check_lists(&directory, &[]);
    if let Some(place) = &subject.place {
        let folder = place.path.join(FilesDirectory::FOLDER_NAME);
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "an empty directory per site would grow with traffic");
    }
    write(&directory, "site/a", 0, 3, 512);
    check_holds(&directory, "site/a", 0, 3, 512);
    check_read_fails(&directory, "site/a", 512, io::ErrorKind::UnexpectedEof);
}

fn every_file_is_listed_once(subject: Subject) {
    let files = ["0/00/a", "0/01/a", "a", "f/ff/x.larder"];
    for file in files {
        write(&subject.directory, file, 0, 1, 512);
    }
    write(&subject.directory, "a", 512, 1, 512);
    check_lists(&subject.directory, &files);
}

/// Protects the files of an earlier start, and other files in the same directory.
fn a_cleared_directory_is_empty(subject: Subject) {
    let directory = subject.directory;
    if let Some(place) = &subject.place {
        fs::write(place.path.join("larder.volume"), "beside").unwrap();
    }
    for file in ["0/00/a", "b"] {
        write(&directory, file, 0, 1, 512);
    }
    block_on(directory.clear()).unwrap();
    check_lists(&directory, &[]);
    write(&directory, "0/00/a", 0, 2, 512);
    check_lists(&directory, &["0/00/a"]);
    if let Some(place) = &subject.place {
        assert_eq!(fs::read(place.path.join("larder.volume")).unwrap(), b"beside");
    }
}

/// Guards against one file's bytes in another file, or in another operation's buffer.
fn concurrent_work_does_not_mix(subject: Subject) {
    const FILE_COUNT: u64 = 300;
    let directory = &subject.directory;
    let file = |index: u64| name(&format!("{:x}/{index}", index % 7));
    for round in 0..3 {
        let seed = |index: u64| round << 16 | index;
        let len_bytes = |index: u64| 512 * (1 + (index + round) as usize % 20);
        let writes: Vec<_> = (0..FILE_COUNT)
            .map(|index| directory.write(file(index), 0, pattern(seed(index), len_bytes(index))))
            .collect();
        writes.into_iter().for_each(|write| block_on(write).unwrap());
        let reads: Vec<_> = (0..FILE_COUNT).map(|index| directory.read(file(index), 0, len_bytes(index))).collect();
        for (read, index) in reads.into_iter().zip(0..) {
            assert!(block_on(read).unwrap().as_slice() == pattern(seed(index), len_bytes(index)).as_slice());
        }
    }
}

/// Guards against a write into a folder that the removal of its last file deletes at that moment.
fn files_that_come_and_go_do_not_hinder_each_other(subject: Subject) {
    thread::scope(|scope| {
        for thread in 0..3 {
            let directory = &subject.directory;
            scope.spawn(move || {
                let file = format!("deep/er/{thread}");
                for round in 0..200 {
                    write(directory, &file, 0, round, 512);
                    check_holds(directory, &file, 0, round, 512);
                    block_on(directory.remove(name(&file))).unwrap();
                }
            });
        }
    });
    check_lists(&subject.directory, &[]);
}

fn dropping_the_directory_completes_everything(subject: Subject) {
    let directory = subject.directory;
    write(&directory, "there", 0, 1, 512);
    let reads: Vec<_> = (0..100).map(|_| directory.read(name("there"), 0, 512)).collect();
    let writes: Vec<_> = (0..100)
        .map(|index| directory.write(name(&format!("new/{index}")), 0, pattern(index, 512)))
        .chain([directory.sync()])
        .collect();
    drop(directory);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for read in reads {
        assert!(std::pin::pin!(read).poll(&mut context).map(|read| read.unwrap().len()).is_ready());
    }
    for write in writes {
        assert!(std::pin::pin!(write).poll(&mut context).map(Result::unwrap).is_ready());
    }
}

/// Guards against a completion that runs while its thread holds the directory's lock.
fn a_completion_may_submit(subject: Subject) {
    fn write_on(directory: Arc<dyn Directory>, index: u64, sender: mpsc::Sender<u64>) {
        let completion = Completion::callback({
            let directory = Arc::clone(&directory);
            move |result: io::Result<()>| {
                result.unwrap();
                if index == 100 { sender.send(index).unwrap() } else { write_on(directory, index + 1, sender) }
            }
        });
        let file = name(&index.to_string());
        directory.submit(FileWork::Write { file, offset_bytes: 0, buffer: pattern(index, 512), completion });
    }
    let (sender, receiver) = mpsc::channel();
    write_on(subject.directory, 0, sender);
    assert_eq!(receiver.recv(), Ok(100));
}

/// Guards against a thread of the directory that waits for itself.
fn a_completion_may_drop_the_directory(subject: Subject) {
    // A memory directory runs the completion inside `submit`, while the directory is still in use.
    let Some(_place) = subject.place else { return };
    let (sender, receiver) = mpsc::channel();
    let last = Arc::new(Mutex::new(None));
    let completion = Completion::callback({
        let last = Arc::clone(&last);
        move |result: io::Result<()>| {
            let directory: Option<Arc<dyn Directory>> = last.lock().unwrap().take();
            assert!(directory.is_some());
            drop(directory);
            sender.send(result.is_ok()).unwrap();
        }
    });
    let mut last = last.lock().unwrap();
    subject.directory.submit(FileWork::Sync { completion });
    *last = Some(subject.directory);
    drop(last);
    assert_eq!(receiver.recv(), Ok(true));
}

/// Guards against a copy per write, because the buffer is not returned when the directory is done with it.
fn a_written_buffer_is_given_back(subject: Subject) {
    let buffer = pattern(1, 4096);
    block_on(subject.directory.write(name("a"), 0, Arc::clone(&buffer))).unwrap();
    assert!(Arc::try_unwrap(buffer).is_ok());
}

fn files_survive_reopening(subject: Subject) {
    let Some(place) = subject.place else { return };
    write(&subject.directory, "0/00/a", 0, 1, 8192);
    block_on(subject.directory.sync()).unwrap();
    drop(subject.directory);
    for _ in 0..3 {
        check_holds(&place.open().unwrap(), "0/00/a", 0, 1, 8192);
    }
}

/// Guards against two stores that remove each other's files.
fn a_directory_in_use_is_refused(subject: Subject) {
    let Some(place) = subject.place else { return };
    let error = place.open().err().unwrap();
    assert_eq!(error.kind(), DeviceErrorKind::InUse, "{error}");
    assert!(error.to_string().contains("in use by another process or store"), "{error}");
    drop(subject.directory);
    place.open().unwrap();
}

/// Guards against a home directory that was given by mistake.
#[test]
fn a_directory_with_something_else_in_it_is_refused_and_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let open = |path: &str| FilesDirectory::open(&scratch.path().join(path), FilesDirectory::THREAD_COUNT_DEFAULT);
    let check = |path: &str, kind, says: &str| {
        let error = open(path).err().unwrap();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    };
    fs::create_dir(scratch.path().join("home")).unwrap();
    fs::write(scratch.path().join("home/letter"), "dear").unwrap();
    check("home", DeviceErrorKind::Invalid, "the directory contains something else");
    check("home/letter", DeviceErrorKind::Invalid, "the path of a store of files must be a directory");
    check("absent/store", DeviceErrorKind::Unavailable, "cannot make the store's directory");
    assert_eq!(fs::read_dir(scratch.path().join("home")).unwrap().count(), 1);
    assert!(!scratch.path().join("absent").exists());
    fs::create_dir(scratch.path().join("empty")).unwrap();
    open("empty").unwrap();
    open("empty").unwrap();
}

/// Guards against a full disk that is mistaken for an empty one.
#[test]
fn a_full_memory_directory_says_so() {
    let directory: Arc<dyn Directory> = Arc::new(MemoryDirectory::new(8192));
    write(&directory, "a", 0, 1, 4096);
    write(&directory, "b", 0, 2, 4096);
    let error = block_on(directory.write(name("c"), 0, pattern(3, 512))).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    write(&directory, "a", 0, 4, 4096);
    block_on(directory.remove(name("b"))).unwrap();
    write(&directory, "c", 0, 3, 4096);
    check_holds(&directory, "a", 0, 4, 4096);
}
