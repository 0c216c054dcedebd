//! Snapshots of the index, in pages of the index area: how they are written and read back.
//!
//! Each page of 4 KiB has a checksum, the number of its snapshot, and its own number. The first page is the header. The
//! meaning of the words, and whether a snapshot is valid, is decided elsewhere. Invariants: words are returned only if
//! every page of the snapshot is whole; one flipped bit per page is corrected. A header names a snapshot only once all
//! of it is durable, and [`mark_used`] is durable before any write that outdates the snapshot. Cost: 1% more than the
//! words. The format is described in docs/internals/format.md.

use crate::{
    Result,
    device::AlignedBuffer,
    format::{
        bytes::{FieldReader, FieldsMut},
        mend::mended_block,
    },
    units::BLOCK_BYTES,
    volume::Volume,
};
use std::sync::Arc;

const MAGIC: [u8; 4] = *b"LDRm";
const PAGE_HEADER_BYTES: usize = 24;
const WORDS_PER_PAGE: usize = (BLOCK_BYTES as usize - PAGE_HEADER_BYTES) / 4;
/// Maximum number of pages that one operation reads or writes.
const PAGES_AT_ONCE: u64 = 64;

/// Returns the bytes that a snapshot of `word_count` words takes, with its header.
pub(crate) fn area_bytes(word_count: u64) -> u64 {
    (1 + word_count.div_ceil(WORDS_PER_PAGE as u64)) * BLOCK_BYTES
}

/// The content of a snapshot's header page.
pub(crate) struct SnapshotPage {
    /// Number of the snapshot; after [`mark_used`], the number that was passed to it.
    pub(crate) number: u32,
    /// Words whose meaning the engine defines; all 0 after [`mark_used`].
    pub(crate) words: [u32; HEADER_WORDS],
}

/// Number of header words whose meaning the engine defines.
pub(crate) const HEADER_WORDS: usize = 3;

/// Reads the header. Returns `None` if there is no valid header.
pub(crate) async fn read_header(volume: &Volume) -> Option<SnapshotPage> {
    let block = volume.read_for_start(volume.shape.index_area().start, BLOCK_BYTES).await.ok()?;
    let PageContent { number, index, words } = decode(volume, block.as_slice())?;
    let words = *words.first_chunk()?;
    (index == 0).then_some(SnapshotPage { number, words })
}

/// Writes a snapshot, and its header once the snapshot is durable. Writes nothing if the area is too small, as in a
/// store that was created for longer entries. The next start then has no snapshot.
pub(crate) async fn write(volume: &Volume, header: &SnapshotPage, words: &[u32]) -> Result<()> {
    if !write_words(volume, header.number, words).await? {
        return Ok(());
    }
    volume.sync().await?;
    write_header(volume, header).await
}

/// Overwrites the header durably, so that the volume no longer has a snapshot. Keeps `number` in the header for the
/// engine.
pub(crate) async fn mark_used(volume: &Volume, number: u32) -> Result<()> {
    write_header(volume, &SnapshotPage { number, words: [0; HEADER_WORDS] }).await?;
    volume.sync().await
}

async fn write_header(volume: &Volume, header: &SnapshotPage) -> Result<()> {
    let mut buffer = AlignedBuffer::with_len(BLOCK_BYTES as usize);
    encode(volume, buffer.as_mut_slice(), header.number, 0, &header.words);
    volume.write(volume.shape.index_area().start, Arc::new(buffer)).await
}

/// Writes the words of a snapshot behind the header. Returns `false`, without writing, if the area is too small.
async fn write_words(volume: &Volume, number: u32, words: &[u32]) -> Result<bool> {
    let area = volume.shape.index_area();
    if area.end - area.start < area_bytes(words.len() as u64) {
        return Ok(false);
    }
    let pages: Vec<&[u32]> = words.chunks(WORDS_PER_PAGE).collect();
    for (batch_index, batch) in pages.chunks(PAGES_AT_ONCE as usize).enumerate() {
        let mut buffer = AlignedBuffer::with_len(batch.len() * BLOCK_BYTES as usize);
        let first = batch_index as u64 * PAGES_AT_ONCE + 1;
        for (index, (page, words)) in buffer.as_mut_slice().chunks_mut(BLOCK_BYTES as usize).zip(batch).enumerate() {
            encode(volume, page, number, first + index as u64, words);
        }
        volume.write(area.start + first * BLOCK_BYTES, Arc::new(buffer)).await?;
    }
    Ok(true)
}

/// Reads the words of the snapshot with this `number`. Returns `None` if a page is missing or damaged.
pub(crate) async fn read_words(volume: &Volume, number: u32, word_count: u64) -> Option<Vec<u32>> {
    let area = volume.shape.index_area();
    if area.end - area.start < area_bytes(word_count) {
        return None;
    }
    let page_count = word_count.div_ceil(WORDS_PER_PAGE as u64);
    let mut words = Vec::with_capacity(page_count as usize * WORDS_PER_PAGE);
    for first in (1..=page_count).step_by(PAGES_AT_ONCE as usize) {
        let count = PAGES_AT_ONCE.min(page_count + 1 - first);
        let bytes = volume.read_for_start(area.start + first * BLOCK_BYTES, count * BLOCK_BYTES).await.ok()?;
        for (page, index) in bytes.as_slice().chunks(BLOCK_BYTES as usize).zip(first..) {
            let found = decode(volume, page)?;
            if (found.number, found.index) != (number, index) {
                return None;
            }
            words.extend(found.words);
        }
    }
    words.truncate(word_count as usize);
    Some(words)
}

fn encode(volume: &Volume, page: &mut [u8], number: u32, index: u64, words: &[u32]) {
    assert!(words.len() <= WORDS_PER_PAGE, "the words of a page fit it");
    page.fill(0);
    let mut fields = FieldsMut::new(page);
    fields.put(&MAGIC).put(&[0; 4]).put(&number.to_le_bytes()).put(&[0; 4]).put(&index.to_le_bytes());
    for word in words {
        fields.put(&word.to_le_bytes());
    }
    let checksum = volume.id.checksum(&[&page[8..]]);
    page[4..8].copy_from_slice(&checksum.to_le_bytes());
}

/// The content of a snapshot page.
struct PageContent {
    /// Number of the snapshot that the page belongs to.
    number: u32,
    /// Number of the page in its snapshot, from 0.
    index: u64,
    words: Vec<u32>,
}

/// Decodes a page, after repairing up to one flipped bit. Returns `None` if the page is not valid.
fn decode(volume: &Volume, page: &[u8]) -> Option<PageContent> {
    let sound = mended_block(volume.id, MAGIC, page)?;
    let mut fields = FieldReader::new(&sound[8..]);
    let number = fields.u32()?;
    let _ = fields.u32()?;
    let index = fields.u64()?;
    let mut words = Vec::with_capacity(WORDS_PER_PAGE);
    while let Some(word) = fields.u32() {
        words.push(word);
    }
    Some(PageContent { number, index, words })
}
