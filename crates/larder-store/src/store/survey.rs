//! Examines a whole store without changing it: its content, and whether every byte is valid.
//!
//! Owns: [`CheckFindings`] and its counts. The engines' scans find the records. Invariant: nothing is written to the
//! volume. Where opening a store would write, it is opened behind an overlay. Cost: [`survey`] costs an opening,
//! [`check`] reads everything once.

use super::{Store, StoreInfo, inspect, open};
use crate::{
    Error, ErrorKind, Policy, Result, Stats, StoreOptions,
    clock::has_expired,
    device::{Device, OverlayDevice},
    engine::kit::walk::WalkItem,
    families::{self, AnyEngine},
    volume::Volume,
};
use std::{path::Path, sync::Arc};

/// A damaged part of a store.
///
/// ```
/// # futures_executor::block_on(async {
/// use larder_store::{Store, StoreDamage, StoreOptions};
/// use std::{fs, os::unix::fs::FileExt};
///
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("example.larder");
/// Store::open(StoreOptions::new(&path, 16 << 20))?.close().await?;
/// let file = fs::OpenOptions::new().write(true).open(&path).expect("the store's file");
/// file.write_all_at(&[0; 4096], 0).expect("a writable file");
/// let findings = larder_store::check(&path, &mut |_, _| {})?;
/// assert_eq!(findings.damages, [StoreDamage { offset_bytes: 0, what: "a superblock" }]);
/// # Ok::<(), larder_store::Error>(())
/// # }).expect("a store in a directory of its own");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreDamage {
    /// Offset in bytes from the volume's start.
    pub offset_bytes: u64,
    /// The damaged structure.
    pub what: &'static str,
}

/// The results of [`check`]: counts of valid records, and the damaged places.
///
/// ```
/// # futures_executor::block_on(async {
/// use larder_store::{CheckFindings, Hints, Store, StoreOptions};
///
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("example.larder");
/// let store = Store::open(StoreOptions::new(&path, 16 << 20))?;
/// store.insert(b"key", "the head".into(), Hints::default())?.commit().await?;
/// store.close().await?;
/// drop(store);
/// let findings: CheckFindings = larder_store::check(&path, &mut |_, _| {})?;
/// assert_eq!((findings.entries, findings.damage_count), (1, 0));
/// # Ok::<(), larder_store::Error>(())
/// # }).expect("a store in a directory of its own");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckFindings {
    /// Valid entries, including those that were replaced but not yet overwritten.
    pub entries: u64,
    /// Total bytes of the valid entries.
    pub entry_bytes: u64,
    /// Valid entries that have expired; also counted in `entries`.
    pub expired: u64,
    /// Valid entries that were invalidated; also counted in `entries`.
    pub invalidated: u64,
    /// Number of records that note the removal of a key.
    pub removals: u64,
    /// Entries that a segment's list of contents names, but that were not written because the process was killed.
    /// Lookups miss them.
    pub lost: u64,
    /// Segments that contain data.
    pub segments: u64,
    /// Number of damaged places. `damages` lists the first of them.
    pub damage_count: u64,
    /// The first damaged places, up to [`CheckFindings::DAMAGES_MAX`].
    pub damages: Vec<StoreDamage>,
}

impl CheckFindings {
    /// Maximum number of damaged places that `damages` lists.
    pub const DAMAGES_MAX: usize = 1000;

    fn meet(&mut self, met: &WalkItem<'_>, volume: &Volume) {
        match *met {
            WalkItem::Segment => self.segments += 1,
            WalkItem::Record { len_bytes, expires_at, epoch, .. } => {
                self.entries += 1;
                self.entry_bytes += len_bytes;
                self.expired += u64::from(has_expired(expires_at, volume.clock.now_s()));
                self.invalidated += u64::from(!volume.admits(epoch));
            }
            WalkItem::Removal => self.removals += 1,
            WalkItem::Lost => self.lost += 1,
            WalkItem::Damage { offset_bytes, what } => {
                self.damage_count += 1;
                if self.damages.len() < Self::DAMAGES_MAX {
                    self.damages.push(StoreDamage { offset_bytes, what });
                }
            }
            WalkItem::Part | WalkItem::Passed(_) => {}
        }
    }
}

/// Returns the description of the store at `path`, and its statistics after a start that changes nothing on the volume.
///
/// # Errors
/// As [`crate::inspect`], and `Invalid` if there is no store.
pub fn survey(path: &Path) -> Result<(StoreInfo, Stats)> {
    let (info, device) = look(path)?;
    let options = StoreOptions { background: false, ..options(path, &info)? };
    if options.policy.layout.keeps_files() {
        // Opening this store may remove files, which an overlay would not prevent. So the engine is queried before it
        // loads anything.
        let volume = Arc::new(open::existing(device, &options)?);
        let entries = families::listed_count(&volume);
        let stats = Stats::of(&AnyEngine::new(volume)?);
        return Ok((info, Stats { entries, loaded: true, ..stats }));
    }
    let store = Store::open_on(Arc::new(OverlayDevice::new(device)), &options)?;
    Ok((info, store.stats()))
}

/// Verifies every record of the store at `path`. Calls `progress` with the bytes examined so far and the total bytes.
///
/// # Errors
/// As [`crate::inspect`], and `Invalid` if there is no store.
///
/// ```
/// # futures_executor::block_on(async {
/// use larder_store::{Store, StoreOptions};
///
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("example.larder");
/// Store::open(StoreOptions::new(&path, 16 << 20))?.close().await?;
/// let findings = larder_store::check(&path, &mut |done, total| println!("{done} of {total} bytes"))?;
/// assert_eq!(findings.damage_count, 0);
/// # Ok::<(), larder_store::Error>(())
/// # }).expect("a store in a directory of its own");
/// ```
pub fn check(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckFindings> {
    let (info, device) = look(path)?;
    let mut findings = CheckFindings::default();
    for offset_bytes in open::damaged_superblocks(&device) {
        findings.damage_count += 1;
        findings.damages.push(StoreDamage { offset_bytes, what: "a superblock" });
    }
    let volume = open::existing(device, &options(path, &info)?)?;
    let total_bytes = volume.size_bytes();
    let mut passed_bytes = 0;
    families::walk(&volume, &|| true, &mut |met| {
        findings.meet(&met, &volume);
        if let WalkItem::Passed(bytes) = met {
            passed_bytes += bytes;
            progress(passed_bytes, total_bytes);
        }
    });
    progress(total_bytes, total_bytes);
    Ok(findings)
}

pub(super) fn look(path: &Path) -> Result<(StoreInfo, Arc<dyn Device>)> {
    match inspect::look(path)? {
        (inspect::PathContent::Store(info), Some(device)) => Ok((info, device)),
        _ => Err(Error::new(ErrorKind::Invalid, format!("{} is not a Larder store", path.display()))),
    }
}

pub(super) fn options(path: &Path, info: &StoreInfo) -> Result<StoreOptions> {
    let policy: &'static Policy = info.policy.ok_or_else(|| {
        let place = format!("{} has a policy unknown to this version", path.display());
        Error::new(ErrorKind::Invalid, place)
    })?;
    let segment_size_bytes = Some(info.segment_size_bytes).filter(|&bytes| bytes != 0);
    Ok(StoreOptions { policy, segment_size_bytes, ..StoreOptions::new(path, info.size_bytes) })
}
