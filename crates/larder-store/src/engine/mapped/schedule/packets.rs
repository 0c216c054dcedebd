//! The packetizer: contiguous writes are collected in one page-sized, page-aligned buffer.
//!
//! A page is submitted when it is full, when the next write does not follow the last one, or when it has waited long
//! enough. If a write extends beyond the page, its further whole pages are submitted as one operation, and its last
//! piece goes into the next page. A half-full page is submitted only up to its filled part; its other half may be
//! written later, as a separate operation. So the bytes of a page on the device are never needed: operations begin and
//! end with whole slots of the layout, which the device can write individually, and never touch a neighbor's slots
//! (the read before a write that the paper's packetizer avoids cannot occur here). Owns: the bytes of the open page,
//! and their writes. Reads are not served here (an entry's commit keeps its record until all packets with a piece of it
//! are written). Invariant: bytes are submitted once, in order of position.
//!
//! Cost: one copy of each byte. Idea: STREAM-PACKETIZER, Markatos et al., USITS'99.

use crate::device::AlignedBuffer;
use std::{sync::Arc, time::Duration};

/// A write to the device that the caller must submit.
pub(crate) struct PacketTransfer {
    pub(crate) offset_bytes: u64,
    pub(crate) buffer: Arc<AlignedBuffer>,
    /// Numbers of the writes that have a piece in this I/O operation.
    pub(crate) writes: Vec<u32>,
}

/// Collects contiguous writes in a page.
pub(crate) struct Packetizer {
    page_bytes: u64,
    page: Option<OpenPage>,
}

struct OpenPage {
    /// Offset of the page on the volume. A multiple of the page's length.
    start_bytes: u64,
    buffer: AlignedBuffer,
    /// The filled range of the page, in bytes, from `from` to `to`.
    from: u64,
    to: u64,
    writes: Vec<u32>,
    opened_at: Duration,
}

/// The place to which a write, or a piece of one, goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedWrite {
    pub(crate) sequence: u32,
    pub(crate) offset_bytes: u64,
}

impl Packetizer {
    /// Creates a packetizer with pages of `page_bytes`, which must be a power of two.
    pub(crate) fn new(page_bytes: u64) -> Self {
        assert!(page_bytes.is_power_of_two());
        Self { page_bytes, page: None }
    }

    /// Adds the write with the number `sequence`. Appends packets that must be submitted now to `packets`. Returns the
    /// number of packets that contain a piece of the write, including the page that is still being collected.
    pub(crate) fn add(
        &mut self,
        PlacedWrite { sequence, offset_bytes }: PlacedWrite,
        bytes: &[u8],
        now: Duration,
        packets: &mut Vec<PacketTransfer>,
    ) -> u32 {
        assert!(!bytes.is_empty());
        if self.page.as_ref().is_some_and(|page| page.start_bytes + page.to != offset_bytes) {
            packets.extend(self.take());
        }
        let mut at = offset_bytes;
        let mut rest = bytes;
        let mut pieces = 0;
        while !rest.is_empty() {
            let page_start = at / self.page_bytes * self.page_bytes;
            let whole = rest.len() as u64 / self.page_bytes * self.page_bytes;
            let len = if at == page_start && whole > 0 {
                let buffer = Arc::new(copy(&rest[..whole as usize]));
                packets.push(PacketTransfer { offset_bytes: at, buffer, writes: vec![sequence] });
                whole
            } else {
                let len = (page_start + self.page_bytes - at).min(rest.len() as u64);
                self.fill(PlacedWrite { sequence, offset_bytes: at }, &rest[..len as usize], now);
                if at + len == page_start + self.page_bytes {
                    packets.extend(self.take());
                }
                len
            };
            pieces += 1;
            at += len;
            rest = &rest[len as usize..];
        }
        pieces
    }

    /// Removes and returns the page that is being collected, to be submitted. Returns `None` if the page is empty.
    pub(crate) fn take(&mut self) -> Option<PacketTransfer> {
        let OpenPage { start_bytes, mut buffer, from, to, writes, .. } = self.page.take()?;
        assert!(from < to && to <= self.page_bytes && !writes.is_empty(), "a page is opened for a write");
        if from == 0 {
            buffer.truncate(to as usize);
        } else {
            buffer = copy(&buffer.as_slice()[from as usize..to as usize]);
        }
        Some(PacketTransfer { offset_bytes: start_bytes + from, buffer: Arc::new(buffer), writes })
    }

    /// Returns when the page that is being collected was begun; `None` if no page is being collected.
    pub(crate) fn opened_at(&self) -> Option<Duration> {
        self.page.as_ref().map(|page| page.opened_at)
    }

    fn fill(&mut self, PlacedWrite { sequence, offset_bytes: at }: PlacedWrite, bytes: &[u8], now: Duration) {
        let page_bytes = self.page_bytes;
        let page = self.page.get_or_insert_with(|| OpenPage {
            start_bytes: at / page_bytes * page_bytes,
            buffer: AlignedBuffer::with_len(page_bytes as usize),
            from: at % page_bytes,
            to: at % page_bytes,
            writes: Vec::new(),
            opened_at: now,
        });
        assert_eq!(page.start_bytes + page.to, at, "the page goes on where it ended");
        let to = page.to as usize + bytes.len();
        page.buffer.as_mut_slice()[page.to as usize..to].copy_from_slice(bytes);
        page.to = to as u64;
        page.writes.push(sequence);
    }
}

fn copy(bytes: &[u8]) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::with_len(bytes.len());
    buffer.as_mut_slice().copy_from_slice(bytes);
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Duration = Duration::from_secs(1);

    fn write(sequence: u32, offset_bytes: u64) -> PlacedWrite {
        PlacedWrite { sequence, offset_bytes }
    }

    fn shape(packets: &[PacketTransfer]) -> Vec<(u64, usize, &[u32])> {
        packets.iter().map(|packet| (packet.offset_bytes, packet.buffer.len(), &packet.writes[..])).collect()
    }

    #[test]
    fn contiguous_writes_share_a_page_and_whole_pages_go_at_once() {
        let mut packetizer = Packetizer::new(4096);
        let mut sent = Vec::new();
        assert_eq!(packetizer.add(write(1, 4096), &[1; 1024], NOW, &mut sent), 1);
        assert_eq!(packetizer.add(write(2, 5120), &[2; 2048], NOW, &mut sent), 1);
        assert!(sent.is_empty() && packetizer.opened_at() == Some(NOW));
        // 1024 bytes complete the page, two pages are submitted directly, 512 bytes begin the next page.
        assert_eq!(packetizer.add(write(3, 7168), &[3; 1024 + 8192 + 512], NOW, &mut sent), 3);
        assert_eq!(shape(&sent), [(4096, 4096, &[1, 2, 3][..]), (8192, 8192, &[3])]);
        assert_eq!(sent[0].buffer.as_slice(), [&[1; 1024][..], &[2; 2048], &[3; 1024]].concat());
        sent.clear();
        // A write elsewhere: the half-full page is submitted first.
        assert_eq!(packetizer.add(write(4, 512), &[4; 512], NOW, &mut sent), 1);
        assert_eq!(shape(&sent), [(16_384, 512, &[3][..])]);
        assert_eq!(packetizer.take().map(|packet| (packet.offset_bytes, packet.buffer.len())), Some((512, 512)));
        assert!(packetizer.take().is_none() && packetizer.opened_at().is_none());
    }

    proptest! {
        #[test]
        fn every_byte_goes_out_once_and_where_it_belongs(
            writes in prop::collection::vec((0_u64..3, 1_usize..40), 1..60)
        ) {
            let mut packetizer = Packetizer::new(4096);
            let mut sent = Vec::new();
            let mut at = 0_u64;
            let mut expected = Vec::new();
            let mut pieces = std::collections::HashMap::new();
            for (sequence, (gap, sectors)) in (1_u32..).zip(writes) {
                at += gap * 512;
                let bytes = vec![sequence as u8; sectors * 512];
                pieces.insert(sequence, packetizer.add(write(sequence, at), &bytes, NOW, &mut sent));
                expected.push((at, bytes));
                at += sectors as u64 * 512;
            }
            sent.extend(packetizer.take());
            let mut volume = vec![0_u8; at as usize];
            for packet in &sent {
                let range = packet.offset_bytes as usize..packet.offset_bytes as usize + packet.buffer.len();
                prop_assert!(volume[range.clone()].iter().all(|byte| *byte == 0), "sent twice");
                volume[range].copy_from_slice(packet.buffer.as_slice());
                packet.writes.iter().for_each(|write| *pieces.get_mut(write).unwrap() -= 1);
            }
            for (at, bytes) in expected {
                prop_assert_eq!(&volume[at as usize..at as usize + bytes.len()], &bytes[..]);
            }
            prop_assert!(pieces.values().all(|left| *left == 0), "all pieces went out");
        }
    }
}
