//! Reads from the kernel's files how much memory the machine and the control groups leave to this process.
//!
//! Owns: finding the control groups of this process, and reading their limits, use and stalls. `memory_yield` decides
//! what to do. Both versions of control groups are read, because a machine may have the memory controller in either.
//! Invariant: a file that is missing or unreadable means no limit, never an error. Cost of one reading: three small
//! files, and five for each level of groups.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use memchr::memmem;

/// Reads how much memory the machine and the control groups leave to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineMemory {
    /// The root directory of the system's files. Tests use another one.
    root: PathBuf,
    /// The control groups of this process, the innermost first.
    groups: Vec<MemoryGroup>,
}

/// A control group of this process, which may limit its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MemoryGroup {
    folder: PathBuf,
    files: &'static GroupFiles,
}

/// The names of the files of a control group, which differ between cgroup versions 1 and 2.
#[derive(Debug, PartialEq, Eq)]
struct GroupFiles {
    limits: &'static [&'static str],
    used: &'static str,
    /// Lines of `memory.stat` that count file pages, which the kernel can reclaim before memory is short.
    reclaimable: &'static [&'static str],
    /// The file that counts how often a limit was reached, and the line in it. The line is empty if the file has only
    /// one number.
    reached: (&'static str, &'static str),
}

/// The memory of the machine or of one control group, and how much of it is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLevel {
    /// The name for people: `the machine`, or the path of the file with a group's limit.
    pub name: String,
    /// The machine's memory or the group's limit, in bytes.
    pub total_bytes: u64,
    /// Memory that can still be taken without swapping, in bytes.
    pub available_bytes: u64,
    /// Total time for which any thread waited for memory, in microseconds.
    pub stalled_us: u64,
    /// Number of times that the limit was reached.
    pub reached_count: u64,
}

impl MachineMemory {
    /// Creates a reader of the system's figures for this process.
    pub fn of_this_process() -> Self {
        Self::below(Path::new("/"))
    }

    /// Creates a reader that finds the system's files below `root`, for tests.
    pub fn below(root: &Path) -> Self {
        let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
        let mounts = read("proc/self/mountinfo");
        let own = read("proc/self/cgroup");
        let groups = group_folders(&mounts, &own).into_iter().map(|(folder, files)| {
            let folder = root.join(folder.strip_prefix("/").unwrap_or(&folder));
            MemoryGroup { folder, files }
        });
        Self { root: root.to_owned(), groups: groups.collect() }
    }

    /// Returns the memory of the machine, then of each control group with a lower limit, the outermost first.
    pub fn levels(&self) -> Vec<MemoryLevel> {
        let Some(machine) = self.machine() else { return Vec::new() };
        let total_bytes = machine.total_bytes;
        let groups = self.groups.iter().rev().filter_map(|group| group.level());
        // A limit above the machine's memory has no effect. In version 1, the outermost group has such a limit.
        let limited: Vec<_> = groups.filter(|group| group.total_bytes < total_bytes).collect();
        std::iter::once(machine).chain(limited).collect()
    }

    /// Returns the maximum memory of this process, in bytes: the machine's, or the lowest limit of its control groups.
    /// `None` if unknown.
    pub fn total_bytes(&self) -> Option<u64> {
        self.levels().iter().map(|level| level.total_bytes).min()
    }

    /// Opens files that poll(2) reports with `POLLPRI` when memory is short. Read a file after each report.
    pub(crate) fn open_alarms(&self) -> Vec<File> {
        let pressure = self.groups.iter().map(|group| group.folder.join("memory.pressure"));
        let pressure = pressure.chain([self.root.join("proc/pressure/memory")]);
        let events = self.groups.iter().map(|group| group.folder.join("memory.events"));
        pressure
            .filter_map(|path| open_trigger(&path).ok())
            .chain(events.filter_map(|path| File::open(path).ok()))
            .collect()
    }

    fn machine(&self) -> Option<MemoryLevel> {
        let figures = fs::read_to_string(self.root.join("proc/meminfo")).ok()?;
        let bytes = |name| {
            let value = rest_of_line(&figures, name)?;
            value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1 << 10)
        };
        Some(MemoryLevel {
            name: "the machine".to_owned(),
            total_bytes: bytes("MemTotal:")?,
            available_bytes: bytes("MemAvailable:")?,
            stalled_us: stalled_us(&self.root.join("proc/pressure/memory")),
            reached_count: 0,
        })
    }
}

impl MemoryGroup {
    /// Returns the memory of the group, or `None` if it has no limit.
    fn level(&self) -> Option<MemoryLevel> {
        let Self { folder, files } = self;
        let limits = files.limits.iter().filter_map(|name| Some((number(&folder.join(name))?, *name)));
        let (limit, name) = limits.min()?;
        let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let reclaimable: u64 = files.reclaimable.iter().filter_map(|name| line_value(&stat, name)).sum();
        let used = number(&folder.join(files.used))?.saturating_sub(reclaimable);
        let (events, line) = files.reached;
        let events = fs::read_to_string(folder.join(events)).unwrap_or_default();
        Some(MemoryLevel {
            name: folder.join(name).display().to_string(),
            total_bytes: limit,
            available_bytes: limit.saturating_sub(used),
            stalled_us: stalled_us(&folder.join("memory.pressure")),
            reached_count: line_value(&events, line).or_else(|| events.trim().parse().ok()).unwrap_or(0),
        })
    }
}

/// Returns the directories of this process' control groups, the innermost first.
///
/// `mounts` is `/proc/self/mountinfo` and `own` is `/proc/self/cgroup`, see proc_pid_mountinfo(5) and cgroups(7).
fn group_folders(mounts: &str, own: &str) -> Vec<(PathBuf, &'static GroupFiles)> {
    let mut folders = Vec::new();
    for line in mounts.lines() {
        let Some((place, kind)) = line.split_once(" - ") else { continue };
        let mut place = place.split(' ').skip(3);
        let mut kind = kind.split(' ');
        let (Some(mount_root), Some(mount_point)) = (place.next(), place.next()) else { continue };
        let group_version = kind.next();
        let options = kind.nth(1).unwrap_or_default();
        let (files, controller) = match group_version {
            Some("cgroup2") => (&VERSION_2, ""),
            Some("cgroup") if options.split(',').any(|option| option == "memory") => (&VERSION_1, "memory"),
            _ => continue,
        };
        let group = own.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|named| named == controller).then_some(path)
        });
        // In a container, `own` may contain the path as seen outside. The mount is then the container's own group.
        let inner = Path::new(group.unwrap_or("/")).strip_prefix(mount_root).unwrap_or(Path::new(""));
        let inner = if inner.starts_with("..") { Path::new("") } else { inner };
        folders.extend(inner.ancestors().map(|inner| (Path::new(mount_point).join(inner), files)));
    }
    folders
}

/// Opens a pressure file and asks the kernel to report when threads wait for memory for longer than [`TRIGGER`]
/// permits.
fn open_trigger(path: &Path) -> io::Result<File> {
    let open = || File::options().read(true).write(true).open(path);
    let file = open()?;
    match io::Write::write_all(&mut &file, TRIGGER) {
        Ok(()) => Ok(file),
        // Without privileges, the kernel accepts only windows that are a multiple of two seconds.
        Err(_) => {
            let file = open()?;
            io::Write::write_all(&mut &file, TRIGGER_UNPRIVILEGED)?;
            Ok(file)
        }
    }
}

/// Returns the total time for which any thread was stalled, in microseconds, from a file like `/proc/pressure/memory`.
fn stalled_us(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let some = rest_of_line(&text, "some ");
    some.and_then(|some| some.rsplit_once("total=")?.1.trim().parse().ok()).unwrap_or(0)
}

/// Reads a file that contains one number. Returns `None` for `max`, which means no limit.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn line_value(text: &str, name: &str) -> Option<u64> {
    rest_of_line(text, &format!("{name} "))?.trim().parse().ok()
}

/// Returns the remainder of the first line that begins with `beginning`.
///
/// Searches the text as a whole instead of line by line: `memory.stat` has 55 lines and is read four times a second.
fn rest_of_line<'a>(text: &'a str, beginning: &str) -> Option<&'a str> {
    let is_line = |at: &usize| *at == 0 || text.as_bytes()[at - 1] == b'\n';
    let at = memmem::find_iter(text.as_bytes(), beginning).find(is_line)?;
    text[at + beginning.len()..].lines().next()
}

const VERSION_2: GroupFiles = GroupFiles {
    limits: &["memory.high", "memory.max"],
    used: "memory.current",
    reclaimable: &["inactive_file", "active_file", "slab_reclaimable"],
    reached: ("memory.events", "high"),
};
const VERSION_1: GroupFiles = GroupFiles {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    reclaimable: &["total_inactive_file", "total_active_file"],
    reached: ("memory.failcnt", ""),
};
/// The pressure to report: threads waited for 50,000 of 1,000,000 microseconds.
const TRIGGER: &[u8] = b"some 50000 1000000\0";
const TRIGGER_UNPRIVILEGED: &[u8] = b"some 100000 2000000\0";

#[cfg(test)]
pub(crate) mod tests {
    use tempfile::TempDir;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A directory with the system files of an imaginary machine.
    pub(crate) struct Files(TempDir);

    impl Files {
        /// Creates the files of a machine with 1 GiB of memory, half of it available, and without control groups.
        pub(crate) fn new() -> Self {
            let files = Self(TempDir::new().unwrap());
            files.set_available(512 * MIB);
            files
        }

        pub(crate) fn memory(&self) -> MachineMemory {
            MachineMemory::below(self.0.path())
        }

        pub(crate) fn set_available(&self, bytes: u64) {
            let text = format!("MemTotal:  1048576 kB\nMemFree:  1 kB\nMemAvailable:  {} kB\n", bytes >> 10);
            self.write("proc/meminfo", &text);
        }

        pub(crate) fn write(&self, name: &str, text: &str) {
            let path = self.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn limits_of_all_groups_above_the_process_count_and_pages_of_files_are_free() {
        let files = Files::new();
        files.write(
            "proc/self/mountinfo",
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
        );
        files.write("proc/self/cgroup", "0::/slice/larder\n");
        files.write(
            "proc/pressure/memory",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=77\nfull avg10=0.00 total=5\n",
        );
        let group = |name: &str, text: &str| files.write(&format!("sys/fs/cgroup/slice/{name}"), text);
        group("memory.max", "400000000\n");
        group("memory.current", "100000000\n");
        group("larder/memory.max", "300000000\n");
        group("larder/memory.high", "200000000\n");
        group("larder/memory.current", "60000000\n");
        group("larder/memory.stat", "anon 40000000\nfile 20000000\ninactive_file 15000000\nactive_file 5000000\n");
        group("larder/memory.events", "low 0\nhigh 3\nmax 0\n");
        group("larder/memory.pressure", "some avg10=0.00 total=9000\n");
        let levels = files.memory().levels();
        let shown: Vec<_> =
            levels.iter().map(|level| (level.total_bytes, level.available_bytes, level.stalled_us)).collect();
        assert_eq!(shown, [(1 << 30, 512 * MIB, 77), (400_000_000, 300_000_000, 0), (200_000_000, 160_000_000, 9000)]);
        assert!(levels[2].name.ends_with("/slice/larder/memory.high"), "{}", levels[2].name);
        assert_eq!((levels[2].reached_count, files.memory().total_bytes()), (3, Some(200_000_000)));
    }

    #[test]
    fn group_of_a_container_is_found_where_it_is_mounted_whatever_its_path_outside() {
        for (mount, own) in [
            ("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/../../outside\n"),
            ("30 23 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/docker/1\n"),
            ("30 23 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/elsewhere\n"),
        ] {
            let found = group_folders(mount, own);
            let folders: Vec<_> =
                found.iter().map(|(folder, _)| folder.to_str().unwrap().trim_end_matches('/')).collect();
            assert_eq!(folders, ["/sys/fs/cgroup"], "{mount} {own}");
        }
    }

    #[test]
    fn limit_of_a_group_of_version_1_counts_and_none_of_its_root() {
        let files = Files::new();
        let mounts = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        files.write("proc/self/mountinfo", mounts);
        files.write("proc/self/cgroup", "4:memory:/a\n0::/\n");
        files.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        files.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");
        files.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "100000000\n");
        files.write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "50000000\n");
        files.write("sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file 1000000\n");
        files.write("sys/fs/cgroup/memory/a/memory.failcnt", "12\n");
        let levels = files.memory().levels();
        assert_eq!(levels.len(), 2, "{levels:?}");
        assert_eq!(
            (levels[1].total_bytes, levels[1].available_bytes, levels[1].reached_count),
            (100_000_000, 51_000_000, 12)
        );
    }

    #[test]
    fn machine_of_the_test_has_memory_and_one_without_files_has_none() {
        let levels = MachineMemory::of_this_process().levels();
        assert!(levels[0].total_bytes > 64 << 20 && levels[0].available_bytes > 0, "{levels:?}");
        let empty = TempDir::new().unwrap();
        assert_eq!(MachineMemory::below(empty.path()).total_bytes(), None);
    }
}
