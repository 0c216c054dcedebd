//! One large file on a file system, behind the page cache, as used by policies with one file on UFS.
//!
//! Adjacent dirty pages are collected. They are written when they form a cluster, or when the next page is not
//! adjacent. A page that a call writes only partly and that is not in the cache is read first: at the sequential rate
//! if it follows the previous page (read-ahead), otherwise like any other. Owns: the cached and the dirty pages.
//! [`super::device`] keeps the bytes. Source: memory-mapped and written files of a Unix kernel of 1999, as described in
//! docs/internals/systems.md.

use super::{disk::Disk, parameters::SystemParameters, recent::Recent};

/// A large file in a file system with a page cache.
pub(super) struct OneFile {
    page_bytes: u64,
    cluster_pages: u64,
    reads_kept_together: u32,
    reads_ahead: bool,
    cached: Recent,
    /// Numbers of the adjacent pages that are not written yet; `None` if all are.
    dirty: Option<(u64, u64)>,
    last_page: u64,
    reads_in_a_row: u32,
}

impl OneFile {
    pub(super) fn new(system: &SystemParameters) -> Self {
        Self {
            page_bytes: system.page_bytes as u64,
            cluster_pages: (system.write_cluster_bytes / system.page_bytes) as u64,
            reads_kept_together: system.reads_kept_together as u32,
            reads_ahead: system.reads_ahead > 0.0,
            cached: Recent::new(system.page_cache_pages as u64),
            dirty: None,
            last_page: 0,
            reads_in_a_row: 0,
        }
    }

    /// Executes a system call that writes. Returns its time in nanoseconds.
    pub(super) fn write(&mut self, disk: &mut Disk, offset_bytes: u64, len_bytes: u64) -> u64 {
        self.reads_in_a_row = 0;
        let end = offset_bytes + len_bytes;
        let mut ns = 0;
        for page in offset_bytes / self.page_bytes..end.div_ceil(self.page_bytes) {
            let start = page * self.page_bytes;
            let is_whole = start >= offset_bytes && start + self.page_bytes <= end;
            if !self.cached.uses(page, 1) && !is_whole {
                let follows = page == self.last_page || page == self.last_page + 1;
                ns += if follows && self.reads_ahead {
                    disk.pass(self.page_bytes)
                } else {
                    disk.read(start, self.page_bytes)
                };
            }
            self.last_page = page;
            ns += self.dirty_page(disk, page);
        }
        ns
    }

    /// Executes a system call that reads. Returns its time in nanoseconds.
    pub(super) fn read(&mut self, disk: &mut Disk, offset_bytes: u64, len_bytes: u64) -> u64 {
        let mut ns = 0;
        if self.reads_in_a_row == self.reads_kept_together
            && let Some((start, _)) = self.dirty
        {
            ns += disk.seek(start * self.page_bytes);
            self.reads_in_a_row = 0;
        }
        let mut missing: Option<(u64, u64)> = None;
        for page in offset_bytes / self.page_bytes..(offset_bytes + len_bytes).div_ceil(self.page_bytes) {
            if self.cached.uses(page, 1) {
                continue;
            }
            missing = match missing {
                Some((from, to)) if to == page => Some((from, page + 1)),
                before => {
                    ns += self.read_pages(disk, before);
                    Some((page, page + 1))
                }
            };
        }
        ns + self.read_pages(disk, missing)
    }

    fn read_pages(&mut self, disk: &mut Disk, pages: Option<(u64, u64)>) -> u64 {
        let Some((from, to)) = pages else { return 0 };
        self.reads_in_a_row += 1;
        disk.read(from * self.page_bytes, (to - from) * self.page_bytes)
    }

    /// Adds a page to those that are not written yet. If it is not adjacent to them, writes them first. Returns the
    /// time in nanoseconds.
    fn dirty_page(&mut self, disk: &mut Disk, page: u64) -> u64 {
        let mut ns = 0;
        self.dirty = Some(match self.dirty {
            Some((from, to)) if (from..to).contains(&page) => (from, to),
            Some((from, to)) if page == to && to - from < self.cluster_pages => (from, page + 1),
            Some((from, to)) => {
                ns = disk.write_late(from * self.page_bytes, (to - from) * self.page_bytes);
                (page, page + 1)
            }
            None => (page, page + 1),
        });
        ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    fn file() -> (OneFile, Disk) {
        let model = Model::open("st15150wc-ufs").unwrap();
        (OneFile::new(&model.system), Disk::new(&model.disk))
    }

    #[test]
    fn whole_pages_are_written_in_clusters_and_none_is_read() {
        let (mut file, mut disk) = file();
        for page in 0..70 {
            file.write(&mut disk, page * 8192, 8192);
        }
        let served = disk.served();
        assert_eq!((served.reads, served.writes, served.written_bytes), (0, 9, 9 * 57_344));
    }

    #[test]
    fn a_page_written_in_part_is_read_first_unless_it_is_in_the_cache() {
        let (mut file, mut disk) = file();
        file.write(&mut disk, 0, 1024);
        assert_eq!(disk.served().reads, 1);
        file.write(&mut disk, 1024, 1024);
        assert_eq!(disk.served().reads, 1, "it is in the cache now");
        let passed = file.write(&mut disk, 8192, 512);
        assert_eq!(passed, 1_742_979, "read ahead at 4.7 MB/s");
        assert!(file.write(&mut disk, 100 << 20, 512) > 10_000_000, "far away it is a read like any other");
    }

    #[test]
    fn reads_in_a_row_let_the_writes_have_the_disk_now_and_then() {
        let (mut file, mut disk) = file();
        file.write(&mut disk, 1 << 30, 8192);
        let times: Vec<_> = (0..5).map(|read| file.read(&mut disk, read << 20, 8192)).collect();
        assert!(times[4] > 2 * times[3], "{times:?}");
    }
}
