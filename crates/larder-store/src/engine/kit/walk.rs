//! The items that a scan of a volume finds, every byte verified. `store check` counts them.
//!
//! Owns: [`WalkItem`], and the verification of a record and a pack. Each engine's scan finds the records; which of
//! several records of a key counts is decided elsewhere. Invariant: a flipped bit in a record, or in a pack's
//! directory, is found.

use crate::format::{
    VolumeId,
    compact::{self, CompactContent, CompactListing},
    pack::{self, PackedKind, RecordStub},
    record::{self, DecodedRecord, RecordKind},
};

/// One finding of a scan over a volume.
pub(crate) enum WalkItem<'a> {
    /// A segment that is in use.
    Segment,
    /// A valid entry.
    Record { key: &'a [u8], len_bytes: u64, expires_at: u32, epoch: u32 },
    /// A record that notes the removal of a key.
    Removal,
    /// A valid part of an entry's body.
    Part,
    /// An entry that a list of contents names, but whose place was reused or never written, because the process was
    /// killed. Lookups miss it.
    Lost,
    /// A damaged structure.
    Damage { offset_bytes: u64, what: &'static str },
    /// Progress: the bytes scanned since the last report of progress.
    Passed(u64),
}

impl<'a> WalkItem<'a> {
    /// Returns the finding for the complete and valid record at the start of `record`.
    pub(crate) fn of(decoded: &DecodedRecord, record: &'a [u8]) -> Self {
        let meta = &decoded.meta;
        match meta.kind {
            RecordKind::Tombstone => Self::Removal,
            RecordKind::Part => Self::Part,
            RecordKind::Entry | RecordKind::HeadUpdate(_) | RecordKind::InParts(_) => Self::Record {
                key: &record[decoded.key.clone()],
                len_bytes: decoded.len_bytes() as u64,
                expires_at: meta.expires_at,
                epoch: meta.epoch,
            },
        }
    }
}

/// Returns whether `bytes` certainly do not belong to the listed record, whose sequence is `sequence`: they are all
/// zero, or begin with a record of another sequence. A single flipped bit cannot cause this.
pub(crate) fn is_of_another(bytes: &[u8], sequence: u32) -> bool {
    match record::sequence_in(bytes) {
        Some(found) => (found ^ sequence).count_ones() > 1,
        None => !bytes.is_empty() && bytes.iter().all(|byte| *byte == 0),
    }
}

/// Verifies the record at the start of `bytes`. Returns the record, or the name of its part that is damaged.
pub(crate) fn verify(volume: VolumeId, bytes: &[u8]) -> std::result::Result<DecodedRecord, &'static str> {
    let decoded = DecodedRecord::decode(volume, bytes).map_err(|_| "a record's head")?;
    if decoded.len_bytes() > bytes.len() {
        return Err("a record's length");
    }
    if !decoded.verifies_here(bytes) {
        return Err("a record's body");
    }
    Ok(decoded)
}

/// Scans the compact set in `bytes`, which were read at `offset_bytes` of the volume. Passes what it finds to `meet`,
/// and returns the length of the set. Returns `None` if there is no set.
pub(crate) fn walk_compact(
    volume: VolumeId,
    offset_bytes: u64,
    bytes: &[u8],
    meet: &mut dyn FnMut(WalkItem<'_>),
) -> Option<u64> {
    let (header, listings) = compact::decode(volume, offset_bytes, bytes)?;
    for listing in &listings {
        if let Some(item) = compact_item(volume, listing, offset_bytes, bytes) {
            meet(item);
        }
    }
    Some(u64::from(header.len_bytes))
}

/// Returns the finding for an entry of a compact set. Returns `None` for a valid stub, a short record in place of an
/// entry that is stored elsewhere.
fn compact_item<'a>(
    volume: VolumeId,
    listing: &CompactListing,
    offset_bytes: u64,
    bytes: &'a [u8],
) -> Option<WalkItem<'a>> {
    match listing.content(volume, bytes) {
        None => Some(WalkItem::Damage { offset_bytes, what: "an entry of a set" }),
        Some(CompactContent::Stub(stub)) => {
            let is_sound = RecordStub::decode(volume, stub).is_some();
            (!is_sound).then_some(WalkItem::Damage { offset_bytes, what: "a stub" })
        }
        Some(CompactContent::Record { key, head, body }) => {
            let fields = listing.fields;
            Some(WalkItem::Record {
                key,
                len_bytes: (key.len() + head.len() + body.len()) as u64,
                expires_at: fields.expires_at,
                epoch: fields.epoch,
            })
        }
    }
}

/// Scans the pack in `bytes`, which were read at `offset_bytes` of the volume. Passes what it finds to `meet`, and
/// returns the length of the pack. Returns `None` if there is no pack.
pub(crate) fn walk_pack(
    volume: VolumeId,
    offset_bytes: u64,
    bytes: &[u8],
    meet: &mut dyn FnMut(WalkItem<'_>),
) -> Option<u64> {
    let Ok((header, listings)) = pack::decode(volume, offset_bytes, bytes) else {
        // One flipped bit damages either the magic or the recorded offset, not both.
        let says_its_place = bytes.get(8..16) == Some(&offset_bytes.to_le_bytes()[..]);
        if bytes.starts_with(b"LDRp") || bytes.starts_with(&compact::MAGIC) || says_its_place {
            meet(WalkItem::Damage { offset_bytes, what: "the directory of a pack" });
        }
        return None;
    };
    for listing in &listings {
        let at = offset_bytes + u64::from(listing.at);
        let record = bytes.get(listing.at as usize..(listing.at + listing.len) as usize).unwrap_or_default();
        if listing.kind != PackedKind::Entry {
            match RecordStub::decode(volume, record).filter(|stub| stub.hash.key_hash() == listing.key_hash) {
                None => meet(WalkItem::Damage { offset_bytes: at, what: "a stub" }),
                Some(_) if listing.kind == PackedKind::Tombstone => meet(WalkItem::Removal),
                Some(_) => {}
            }
            continue;
        }
        meet(match verify(volume, record) {
            Ok(decoded)
                if decoded.meta.sequence != listing.sequence || decoded.meta.hash.key_hash() != listing.key_hash =>
            {
                WalkItem::Damage { offset_bytes: at, what: "a record in the place of another" }
            }
            Ok(decoded) => WalkItem::of(&decoded, record),
            Err(what) => WalkItem::Damage { offset_bytes: at, what },
        });
    }
    Some(u64::from(header.len_bytes))
}
