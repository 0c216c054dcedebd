//! The summaries of all sets, written at a clean close and taken at the next start, once.
//!
//! Pages of 4 KiB, each with the number of the snapshot (the front's last sequence) and its own; the first is
//! the header. Invariants: a snapshot is taken only if every page of it is whole and the front has nothing newer;
//! it is gone durably before anything else is written. Cost: 4 bytes a set and 1% for the pages.

use super::TinyEngine;
use crate::{
    Result,
    device::AlignedBuffer,
    format::bytes::{Fields, FieldsMut},
    index::tiny_sets::SetSummaries,
    units::BLOCK_BYTES,
};
use std::sync::Arc;

const MAGIC: [u8; 4] = *b"LDRm";
const HEADER_BYTES: usize = 24;
const WORDS_PER_PAGE: usize = (BLOCK_BYTES as usize - HEADER_BYTES) / 4;
/// Pages that are read or written together.
const PAGES_AT_ONCE: u64 = 64;

/// What a snapshot says.
pub(super) struct Known {
    pub(super) words: Vec<u32>,
    pub(super) set_entries: u64,
}

/// Room for a snapshot of `sets`.
pub(super) fn area_bytes(sets: &SetSummaries) -> u64 {
    (1 + sets.words().len().div_ceil(WORDS_PER_PAGE) as u64) * BLOCK_BYTES
}

/// Writes the snapshot: pages first, the header when they are durable.
pub(super) async fn write(engine: &Arc<TinyEngine>) -> Result<()> {
    let (words, set_entries, number) = {
        let state = engine.lock();
        (state.sets.words().to_vec(), state.set_entries, state.front.last_sequence())
    };
    let area = engine.volume.shape.index_area();
    let pages: Vec<&[u32]> = words.chunks(WORDS_PER_PAGE).collect();
    if area.end - area.start < (pages.len() as u64 + 1) * BLOCK_BYTES {
        // The store was made for larger entries; the next start reads the sets instead.
        return Ok(());
    }
    for (batch_index, batch) in pages.chunks(PAGES_AT_ONCE as usize).enumerate() {
        let mut buffer = AlignedBuffer::with_len(batch.len() * BLOCK_BYTES as usize);
        let first = batch_index as u64 * PAGES_AT_ONCE + 1;
        for (index, (page, words)) in buffer.as_mut_slice().chunks_mut(BLOCK_BYTES as usize).zip(batch).enumerate() {
            encode_page(engine, page, number, first + index as u64, words);
        }
        engine.volume.write(area.start + first * BLOCK_BYTES, Arc::new(buffer)).await?;
    }
    engine.volume.sync().await?;
    let mut buffer = AlignedBuffer::with_len(BLOCK_BYTES as usize);
    let header = [set_entries as u32, (set_entries >> u32::BITS) as u32, words.len() as u32];
    encode_page(engine, buffer.as_mut_slice(), number, 0, &header);
    engine.volume.write(area.start, Arc::new(buffer)).await
}

/// Takes the snapshot, if there is one and it is of the front's last sequence; it is gone afterwards.
pub(super) async fn take(engine: &TinyEngine, last_sequence: u32) -> Option<Known> {
    let area = engine.volume.shape.index_area();
    let block = engine.volume.read(area.start, BLOCK_BYTES).await.ok()?;
    let header = decode_page(engine, &block, last_sequence, 0)?;
    let &[low, high, word_count] = header.get(..3)? else { return None };
    let expected = engine.lock().sets.words().len();
    let known = if word_count as usize == expected { read_words(engine, last_sequence, expected).await } else { None };
    let mut empty = AlignedBuffer::with_len(BLOCK_BYTES as usize);
    empty.as_mut_slice().fill(0);
    engine.volume.write(area.start, Arc::new(empty)).await.ok()?;
    engine.volume.sync().await.ok()?;
    known.map(|words| Known { words, set_entries: u64::from(high) << u32::BITS | u64::from(low) })
}

async fn read_words(engine: &TinyEngine, number: u32, word_count: usize) -> Option<Vec<u32>> {
    let area = engine.volume.shape.index_area();
    let page_count = word_count.div_ceil(WORDS_PER_PAGE) as u64;
    if area.end - area.start < (page_count + 1) * BLOCK_BYTES {
        return None;
    }
    let mut words = Vec::with_capacity(page_count as usize * WORDS_PER_PAGE);
    for first in (1..=page_count).step_by(PAGES_AT_ONCE as usize) {
        let count = PAGES_AT_ONCE.min(page_count + 1 - first);
        let bytes = engine.volume.read(area.start + first * BLOCK_BYTES, count * BLOCK_BYTES).await.ok()?;
        for (index, page) in bytes.chunks(BLOCK_BYTES as usize).enumerate() {
            words.extend(decode_page(engine, page, number, first + index as u64)?);
        }
    }
    words.truncate(word_count);
    Some(words)
}

fn encode_page(engine: &TinyEngine, page: &mut [u8], number: u32, index: u64, words: &[u32]) {
    page.fill(0);
    let mut fields = FieldsMut::new(page);
    fields.put(&MAGIC).put(&[0; 4]).put(&number.to_le_bytes()).put(&[0; 4]).put(&index.to_le_bytes());
    for word in words {
        fields.put(&word.to_le_bytes());
    }
    let checksum = engine.volume.id.checksum(&[&page[8..]]);
    page[4..8].copy_from_slice(&checksum.to_le_bytes());
}

/// The words of a page, whole and of this snapshot.
fn decode_page(engine: &TinyEngine, page: &[u8], number: u32, index: u64) -> Option<Vec<u32>> {
    let mut fields = Fields::new(page);
    if fields.array()? != MAGIC || fields.u32()? != engine.volume.id.checksum(&[page.get(8..)?]) {
        return None;
    }
    let (found_number, _, found_index) = (fields.u32()?, fields.u32()?, fields.u64()?);
    if (found_number, found_index) != (number, index) {
        return None;
    }
    let mut words = Vec::with_capacity(WORDS_PER_PAGE);
    while let Some(word) = fields.u32() {
        words.push(word);
    }
    Some(words)
}
