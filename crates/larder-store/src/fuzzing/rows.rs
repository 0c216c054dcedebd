//! The structures of policies other than `log`: bins, sessions and position files, snapshots, packs, compact sets and
//! stubs.

use super::{FuzzTarget, VOLUME, sealed};
use crate::{
    format::{
        bin::{BIN_HEADER_BYTES, BinHeader, RestsOfGroup},
        compact::{self, CompactContent, CompactEntry, CompactFields, CompactHeader},
        journal::{self, MapChange, PageHeader},
        pack::{self, DirectoryRefusal, PackHeader, PackedKind, PackedRecord, RecordStub, STUB_BYTES},
        positions::{self, sheet_bytes},
        session::RunSession,
        snapshot::{self, MapRecovery, SnapshotEntry, SnapshotHeader},
    },
    hash::{FullHash, KeyHash},
    units::{BLOCK_BYTES, SetNumber},
};

/// The fuzz targets for structures of policies other than `log`.
pub(super) const TARGETS: [FuzzTarget; 9] = [
    FuzzTarget { name: "bin", run: bin, samples: bin_samples },
    FuzzTarget { name: "session", run: session, samples: session_samples },
    FuzzTarget { name: "positions", run: sheet, samples: sheet_samples },
    FuzzTarget { name: "journal", run: journal_page, samples: journal_samples },
    FuzzTarget { name: "snapshot", run: snapshot_header, samples: snapshot_header_samples },
    FuzzTarget { name: "page", run: page, samples: page_samples },
    FuzzTarget { name: "pack", run: pack, samples: pack_samples },
    FuzzTarget { name: "compact", run: compact_set, samples: compact_samples },
    FuzzTarget { name: "stub", run: stub, samples: stub_samples },
];

/// Offset on the volume that the decoder gets as the place of a bin.
const BIN_AT: u64 = 3 << 20;

fn bin(bytes: &[u8]) -> bool {
    let mut placed = bytes.to_vec();
    placed.resize(bytes.len().max(BIN_HEADER_BYTES), 0);
    placed[44..52].copy_from_slice(&BIN_AT.to_le_bytes());
    for header in [bytes.to_vec(), sealed(&placed, b"LDRb", 8, BIN_HEADER_BYTES)]
        .iter()
        .filter_map(|bytes| BinHeader::decode(VOLUME, bytes, BIN_AT))
    {
        let mut again = vec![0; BIN_HEADER_BYTES];
        header.encode(VOLUME, &mut again);
        assert_eq!(BinHeader::decode(VOLUME, &again, BIN_AT), Some(header));
    }
    BinHeader::decode(VOLUME, bytes, BIN_AT).is_some()
}

fn bin_samples() -> Vec<Vec<u8>> {
    let hash = FullHash(u128::MAX / 3);
    let offset_bytes = BIN_AT;
    let rests = RestsOfGroup { blocks_before: 3, blocks: 300 };
    let header = BinHeader { hash, sequence: 7 << 40, record_bytes: 70_000, rest_at: 1 << 50, offset_bytes, rests };
    let mut bytes = vec![0; 512];
    header.encode(VOLUME, &mut bytes);
    vec![bytes]
}

fn session(bytes: &[u8]) -> bool {
    let right = sealed(bytes, b"LDRs", 8, 32);
    if let Some(session) = RunSession::newest(VOLUME, &right) {
        assert!(session.offset_bytes() < 2 * BLOCK_BYTES);
    }
    RunSession::newest(VOLUME, bytes).is_some()
}

fn session_samples() -> Vec<Vec<u8>> {
    let block = |generation| {
        let mut block = vec![0; BLOCK_BYTES as usize];
        RunSession { generation, first_sequence: 77, ring_next: 1 << 33 }.encode(VOLUME, &mut block);
        block
    };
    vec![block(4), [block(6), block(5)].concat()]
}

/// The set to which sheets of a position file belong.
const SET: SetNumber = SetNumber(77);

fn sheet(bytes: &[u8]) -> bool {
    let mut right = bytes.to_vec();
    right.resize(sheet_bytes(8) as usize, 0);
    right[4..8].copy_from_slice(&(SET.0 as u32).to_le_bytes());
    let checksum = VOLUME.checksum(&[&right[4..]]);
    right[..4].copy_from_slice(&checksum.to_le_bytes());
    let places = positions::decode(VOLUME, SET, &right).expect("it is sealed");
    let mut again = vec![0; right.len()];
    positions::encode(VOLUME, SET, &places, &mut again);
    assert_eq!(positions::decode(VOLUME, SET, &again), Some(places));
    positions::decode(VOLUME, SET, bytes).is_some()
}

fn sheet_samples() -> Vec<Vec<u8>> {
    let mut bytes = vec![0; sheet_bytes(8) as usize];
    positions::encode(VOLUME, SET, &[Some(1 << 33), None, Some(9)], &mut bytes);
    vec![bytes]
}

fn snapshot_header(bytes: &[u8]) -> bool {
    let mut block = bytes.to_vec();
    block.resize(BLOCK_BYTES as usize, 0);
    let magic = *header_sample(None)[..4].first_chunk().expect("a block begins with four bytes");
    if let Some(header) = SnapshotHeader::decode(VOLUME, &sealed(&block, &magic, 8, block.len())) {
        let mut again = vec![0; BLOCK_BYTES as usize];
        header.encode(VOLUME, &mut again);
        assert_eq!(SnapshotHeader::decode(VOLUME, &again), Some(header));
    }
    SnapshotHeader::decode(VOLUME, bytes).is_some()
}

fn header_sample(recovery: Option<MapRecovery>) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES as usize];
    let header = SnapshotHeader {
        generation: 3,
        whole: true,
        listing_count: 7,
        next_write: 9,
        pointer: 88,
        slot_counts: vec![4, 5],
        recovery,
    };
    header.encode(VOLUME, &mut block);
    block
}

fn snapshot_header_samples() -> Vec<Vec<u8>> {
    let recovery = MapRecovery { generation: 2, place: 1, journal_from: 6, run: 2, epoch: 1 };
    vec![header_sample(None), header_sample(Some(recovery))]
}

const GENERATION: u64 = 3;
const PAGE: u32 = 1;

fn page(bytes: &[u8]) -> bool {
    let mut block = bytes.to_vec();
    block.resize(BLOCK_BYTES as usize, 0);
    let sample = page_sample(1);
    block[8..20].copy_from_slice(&sample[8..20]);
    let magic = *sample[..4].first_chunk().expect("a page begins with four bytes");
    if let Some(listings) = snapshot::decode_page(VOLUME, GENERATION, PAGE, &sealed(&block, &magic, 8, block.len())) {
        let mut again = vec![0; BLOCK_BYTES as usize];
        snapshot::encode_page(VOLUME, GENERATION, PAGE, &listings, &mut again);
        assert_eq!(snapshot::decode_page(VOLUME, GENERATION, PAGE, &again), Some(listings));
    }
    snapshot::decode_page(VOLUME, GENERATION, PAGE, bytes).is_some()
}

fn page_sample(count: u32) -> Vec<u8> {
    let listing = |n: u32| SnapshotEntry {
        key_hash: KeyHash(u64::from(n) << 40),
        place: u64::from(n) * 9,
        sectors: n + 1,
        sequence: n,
        expires_at: n * 3,
    };
    let mut block = vec![0; BLOCK_BYTES as usize];
    snapshot::encode_page(VOLUME, GENERATION, PAGE, &(0..count).map(listing).collect::<Vec<_>>(), &mut block);
    block
}

fn journal_page(bytes: &[u8]) -> bool {
    let mut block = bytes.to_vec();
    block.resize(BLOCK_BYTES as usize, 0);
    let magic = *journal_sample(1)[..4].first_chunk().expect("a page begins with four bytes");
    if let Some((header, changes)) = journal::decode_page(VOLUME, &sealed(&block, &magic, 8, block.len())) {
        let mut again = vec![0; BLOCK_BYTES as usize];
        journal::encode_page(VOLUME, &header, &changes, &mut again);
        assert_eq!(journal::decode_page(VOLUME, &again), Some((header, changes)));
    }
    journal::decode_page(VOLUME, bytes).is_some()
}

fn journal_sample(count: u32) -> Vec<u8> {
    let header = PageHeader { number: 7, run: 3, durable: 6, pointer: 9, epoch: 1 };
    let listing = |n: u32| SnapshotEntry {
        key_hash: KeyHash(u64::from(n) << 40),
        place: u64::from(n) * 9,
        sectors: n + 1,
        sequence: n,
        expires_at: 0,
    };
    let changes: Vec<_> = (0..count).map(|n| MapChange { listing: listing(n), is_gone: n.is_multiple_of(2) }).collect();
    let mut block = vec![0; BLOCK_BYTES as usize];
    journal::encode_page(VOLUME, &header, &changes, &mut block);
    block
}

fn journal_samples() -> Vec<Vec<u8>> {
    vec![journal_sample(0), journal_sample(100)]
}

fn page_samples() -> Vec<Vec<u8>> {
    vec![page_sample(0), page_sample(100)]
}

const PACK_AT: u64 = 1 << 20;

fn pack(bytes: &[u8]) -> bool {
    let count = bytes.get(24..28).map_or(0, |count| u32::from_le_bytes([count[0], count[1], count[2], count[3]]));
    let mut right = bytes.to_vec();
    if let Some(place) = right.get_mut(8..16) {
        place.copy_from_slice(&PACK_AT.to_le_bytes());
    }
    let right = sealed(&right, b"LDRp", 8, pack::directory_bytes((count as usize).min(1 << 16)));
    for bytes in [bytes, &right] {
        match pack::decode(VOLUME, PACK_AT, bytes) {
            Ok((header, listings)) => {
                let inside = |listing: &PackedRecord| {
                    u64::from(listing.at) + u64::from(listing.len) <= u64::from(header.len_bytes)
                };
                assert!(listings.iter().all(inside));
                let mut again = vec![0; pack::directory_bytes(listings.len())];
                pack::encode(VOLUME, header, &listings, &mut again);
                assert_eq!(pack::decode(VOLUME, PACK_AT, &again), Ok((header, listings)));
            }
            Err(DirectoryRefusal::Short(needed)) => assert!(needed > bytes.len(), "it asks for more than there is"),
            Err(DirectoryRefusal::Damaged) => {}
        }
    }
    pack::decode(VOLUME, PACK_AT, bytes).is_ok()
}

fn pack_samples() -> Vec<Vec<u8>> {
    let kinds = [PackedKind::Entry, PackedKind::Tombstone, PackedKind::Stub];
    let listing = |n: u32| PackedRecord {
        key_hash: KeyHash(u64::from(n) << 40),
        at: 1024 + n * 128,
        len: 128,
        expires_at: n,
        sequence: n + 5,
        kind: kinds[n as usize % 3],
        rank: n as u8,
    };
    let header = PackHeader { offset_bytes: PACK_AT, sequence: 9, len_bytes: 8192, oldest_sequence: 4 };
    let sample = |count| {
        let mut bytes = vec![0; 1024];
        pack::encode(VOLUME, header, &(0..count).map(listing).collect::<Vec<_>>(), &mut bytes);
        bytes
    };
    vec![sample(0), sample(30)]
}

fn compact_set(bytes: &[u8]) -> bool {
    let end = bytes.get(28..32).map_or(0, |end| u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
    let mut right = bytes.to_vec();
    if let Some(place) = right.get_mut(8..16) {
        place.copy_from_slice(&PACK_AT.to_le_bytes());
    }
    let right = sealed(&right, &compact::MAGIC, 8, (end as usize).clamp(compact::HEADER_BYTES, 1 << 16));
    for bytes in [bytes, &right] {
        let Some((header, listings)) = compact::decode(VOLUME, PACK_AT, bytes) else { continue };
        assert!(header.len_bytes as usize <= bytes.len());
        for listing in &listings {
            let _ = (listing.key(bytes), listing.stub(bytes), listing.content(VOLUME, bytes));
        }
        let content = |listing: &compact::CompactListing| {
            let content = listing.content(VOLUME, bytes)?;
            Some(CompactEntry { fields: listing.fields, content })
        };
        let Some(entries) = listings.iter().map(content).collect::<Option<Vec<_>>>() else { continue };
        let mut again = vec![0; header.len_bytes as usize];
        let used: u64 = entries.iter().map(CompactEntry::len_bytes).sum();
        if used + compact::HEADER_BYTES as u64 <= again.len() as u64 {
            compact::encode(VOLUME, header, &entries, &mut again);
            let (read, listed) = compact::decode(VOLUME, PACK_AT, &again).expect("what was written is read");
            assert_eq!((read, listed.len()), (header, listings.len()));
        }
    }
    compact::decode(VOLUME, PACK_AT, bytes).is_some()
}

fn compact_samples() -> Vec<Vec<u8>> {
    let header = CompactHeader { offset_bytes: PACK_AT, version: 3, len_bytes: 4096 };
    let fields = |rank: u8, number: u32| CompactFields {
        rank,
        epoch: number,
        site: u64::from(number) << 20,
        group: number,
        expires_at: number,
    };
    let stub = stub_samples().remove(0);
    let record = CompactContent::Record { key: b"key", head: b"head", body: &[7; 300] };
    let sample = |entries: &[CompactEntry<'_>]| {
        let mut bytes = vec![0; 4096];
        compact::encode(VOLUME, header, entries, &mut bytes);
        bytes
    };
    let entry = |rank, number, content| CompactEntry { fields: fields(rank, number), content };
    vec![
        sample(&[]),
        sample(&[entry(6, 0, record), entry(0, 9, CompactContent::Stub(&stub)), entry(7, 1 << 30, record)]),
    ]
}

fn stub(bytes: &[u8]) -> bool {
    for stub in [bytes.to_vec(), sealed(bytes, b"LDRs", 8, STUB_BYTES)]
        .iter()
        .filter_map(|bytes| RecordStub::decode(VOLUME, bytes))
    {
        let mut again = vec![0; STUB_BYTES];
        stub.encode(VOLUME, &mut again);
        assert_eq!(RecordStub::decode(VOLUME, &again), Some(stub));
    }
    RecordStub::decode(VOLUME, bytes).is_some()
}

fn stub_samples() -> Vec<Vec<u8>> {
    let stub =
        RecordStub { hash: FullHash(77), offset_bytes: 1 << 33, len_bytes: 70_000, sequence: 3, own_sequence: 4 };
    let mut bytes = vec![0; STUB_BYTES];
    stub.encode(VOLUME, &mut bytes);
    vec![bytes]
}
