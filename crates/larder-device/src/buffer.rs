//! Buffers for direct I/O: aligned to 4 KiB, and reused.
//!
//! Owns: a length in bytes over whole 4 KiB blocks, and small free lists per thread. Invariant: `len <= capacity`.
//!
//! Cost: usually none; a new buffer is zeroed once. A buffer of over 128 KiB that is not for reading costs two system
//! calls and a page fault for every 4 KiB, and returns to the system when it is dropped. For reads of that length, such
//! as chunks of long bodies, a thread keeps [`LONG_COUNT_MAX`] buffers: zeroing new ones for each read took a third of
//! the time of a long hit.

mod pool;

use memmap2::MmapMut;
use pool::PooledBuffer;
pub(crate) use pool::{BufferPool, BufferRegion};
use std::{
    cell::{Cell, RefCell},
    mem,
    sync::Arc,
};

/// Alignment of every buffer in memory, in bytes.
pub(crate) const BUFFER_ALIGNMENT_BYTES: usize = 4096;

/// Maximum length, in bytes, of a dropped buffer that goes into the lists of short buffers for reuse.
const REUSE_BYTES_MAX: usize = 128 << 10;
/// Maximum total bytes of the buffers of one size that a thread keeps. `REUSE_COUNT_MAX` limits their number.
const REUSE_CLASS_BYTES_MAX: usize = 1 << 20;
const REUSE_COUNT_MAX: usize = 64;
/// Maximum length, in bytes, of a read buffer that is kept when it is dropped: the buffer for the longest record.
const LONG_BYTES_MAX: usize = 2 << 20;
/// Maximum number of long read buffers that a thread keeps: as many as one hit of a long body reads at a time, and one
/// that is being sent.
const LONG_COUNT_MAX: usize = 4;
/// Unit of the capacity of long read buffers, in bytes. Records of about the same length can therefore share buffers.
const LONG_STEP_BYTES: usize = 64 << 10;
const SIZE_CLASS_COUNT: usize = REUSE_BYTES_MAX.ilog2() as usize - BUFFER_ALIGNMENT_BYTES.ilog2() as usize + 1;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(4096))]
struct Block([u8; BUFFER_ALIGNMENT_BYTES]);

thread_local! {
    static WAS_USED: Cell<bool> = const { Cell::new(false) };
    static LONG: RefCell<Vec<Vec<Block>>> = const { RefCell::new(Vec::new()) };
    static FREE: RefCell<[Vec<Vec<Block>>; SIZE_CLASS_COUNT]> = const { RefCell::new([const { Vec::new() }; SIZE_CLASS_COUNT]) };
}

/// An aligned buffer of fixed length for direct I/O. A new one may contain bytes of earlier operations.
///
/// ```
/// use larder_device::AlignedBuffer;
///
/// let mut buffer = AlignedBuffer::with_len(8192);
/// buffer.as_mut_slice().fill(1);
/// buffer.truncate(4096);
/// assert_eq!(buffer.as_slice(), [1; 4096]);
/// ```
pub struct AlignedBuffer {
    memory: Memory,
    len_bytes: usize,
}

impl_debug!(AlignedBuffer { len_bytes });

enum Memory {
    Blocks(Vec<Block>),
    Mapped(MmapMut),
    /// Memory that a ring of the creating thread has registered with the kernel.
    Registered(PooledBuffer, Arc<BufferPool>),
}

impl AlignedBuffer {
    /// Creates a buffer of exactly `len_bytes`. A buffer of more than 128 KiB gets a memory mapping of its own, because
    /// freeing it would otherwise leave a hole in the allocator's memory.
    pub fn with_len(len_bytes: usize) -> Self {
        if len_bytes > REUSE_BYTES_MAX { Self::apart(len_bytes) } else { Self::allocated(len_bytes) }
    }

    /// Creates a buffer of exactly `len_bytes`, more than 0, whose memory goes back to the system when it is dropped.
    /// For buffers that are needed rarely, but then in large numbers.
    pub fn apart(len_bytes: usize) -> Self {
        match MmapMut::map_anon(whole_blocks(len_bytes)) {
            Ok(mapped) => Self { memory: Memory::Mapped(mapped), len_bytes },
            Err(_) => Self::allocated(len_bytes),
        }
    }

    /// Creates a buffer of exactly `len_bytes` for a read. If possible, its memory is registered with the kernel by a
    /// ring of the calling thread. It never gets a new mapping, because the page faults would cost more than copying a
    /// long body.
    pub(crate) fn for_reading(len_bytes: usize) -> Self {
        // At thread exit the flag may be gone, and is not needed any more.
        let _ = WAS_USED.try_with(|was_used| was_used.set(true));
        match BufferPool::take(len_bytes) {
            Some((pooled, pool)) => Self { memory: Memory::Registered(pooled, pool), len_bytes },
            None if len_bytes > REUSE_BYTES_MAX => Self::long(len_bytes),
            None => Self::allocated(len_bytes),
        }
    }

    fn long(len_bytes: usize) -> Self {
        let blocks = kept_long(len_bytes).unwrap_or_else(|| blocks(len_bytes.next_multiple_of(LONG_STEP_BYTES)));
        Self { memory: Memory::Blocks(blocks), len_bytes }
    }

    fn allocated(len_bytes: usize) -> Self {
        let blocks = reused(len_bytes)
            .unwrap_or_else(|| blocks(size_class(len_bytes).map_or(whole_blocks(len_bytes), class_bytes)));
        Self { memory: Memory::Blocks(blocks), len_bytes }
    }

    /// Returns the buffer's index in `pool`; `None` if it is not from this pool.
    pub(crate) fn index_in(&self, pool: &Arc<BufferPool>) -> Option<u16> {
        match &self.memory {
            Memory::Registered(pooled, own) if Arc::ptr_eq(own, pool) => Some(pooled.index),
            _ => None,
        }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len_bytes
    }

    /// Returns whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Shortens the buffer to `len_bytes`. Does nothing if it is shorter.
    pub fn truncate(&mut self, len_bytes: usize) {
        self.len_bytes = self.len_bytes.min(len_bytes);
    }

    /// Extends the buffer to the length of its memory, at most 4095 bytes more than it was created with.
    pub fn extend_to_capacity(&mut self) {
        self.len_bytes = match &self.memory {
            Memory::Blocks(blocks) | Memory::Registered(PooledBuffer { blocks, .. }, _) => {
                blocks.len() * BUFFER_ALIGNMENT_BYTES
            }
            Memory::Mapped(mapped) => mapped.len(),
        };
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        match &self.memory {
            Memory::Blocks(blocks) | Memory::Registered(PooledBuffer { blocks, .. }, _) => {
                &bytemuck::cast_slice(blocks)[..self.len_bytes]
            }
            Memory::Mapped(mapped) => &mapped[..self.len_bytes],
        }
    }

    /// Returns the bytes, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Blocks(blocks) | Memory::Registered(PooledBuffer { blocks, .. }, _) => {
                &mut bytemuck::cast_slice_mut(blocks)[..self.len_bytes]
            }
            Memory::Mapped(mapped) => &mut mapped[..self.len_bytes],
        }
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        let blocks = match &mut self.memory {
            Memory::Blocks(blocks) => mem::take(blocks),
            Memory::Mapped(_) => return,
            Memory::Registered(PooledBuffer { index, blocks }, pool) => {
                return pool.release_room(PooledBuffer { index: *index, blocks: mem::take(blocks) });
            }
        };
        let capacity = capacity_of(&blocks);
        if capacity > REUSE_BYTES_MAX {
            return keep_long(blocks);
        }
        if let Some(class) = size_class(capacity)
            && class_bytes(class) == capacity
        {
            // At thread exit the free list may be gone; then the memory is freed.
            let _ = FREE.try_with(|free| {
                if let Ok(mut free) = free.try_borrow_mut()
                    && free[class].len() < REUSE_COUNT_MAX.min(REUSE_CLASS_BYTES_MAX / capacity)
                {
                    free[class].push(blocks);
                }
            });
        }
    }
}

/// Frees the buffers that the calling thread keeps for reuse, unless it has requested a read buffer since the last
/// call. To be called regularly, so that an idle thread keeps no memory.
pub fn release_unused_buffers() {
    if WAS_USED.replace(false) {
        return;
    }
    LONG.with_borrow_mut(Vec::clear);
    FREE.with_borrow_mut(|free| free.iter_mut().for_each(Vec::clear));
}

/// Allocates zeroed memory of `capacity_bytes`, a multiple of the alignment.
fn blocks(capacity_bytes: usize) -> Vec<Block> {
    bytemuck::allocation::zeroed_vec(capacity_bytes / BUFFER_ALIGNMENT_BYTES)
}

fn reused(len_bytes: usize) -> Option<Vec<Block>> {
    let class = size_class(len_bytes)?;
    FREE.try_with(|free| free.try_borrow_mut().ok()?[class].pop()).ok()?
}

/// Takes a kept buffer whose memory is at least `len_bytes` and at most twice as long. Returns `None` if there is none.
fn kept_long(len_bytes: usize) -> Option<Vec<Block>> {
    let fits = |kept: &Vec<Block>| (len_bytes..=2 * len_bytes).contains(&capacity_of(kept));
    LONG.try_with(|long| {
        let mut long = long.try_borrow_mut().ok()?;
        let place = long.iter().position(fits)?;
        Some(long.swap_remove(place))
    })
    .ok()?
}

/// Keeps the memory of a long read buffer for reuse, if fewer than `LONG_COUNT_MAX` are kept. Otherwise it replaces the
/// shortest of them, if that is shorter.
fn keep_long(blocks: Vec<Block>) {
    if capacity_of(&blocks) > LONG_BYTES_MAX {
        return;
    }
    // At thread exit the list may be gone; then the memory is freed.
    let _ = LONG.try_with(|long| {
        let Ok(mut long) = long.try_borrow_mut() else { return };
        if long.len() < LONG_COUNT_MAX {
            return long.push(blocks);
        }
        if let Some(shortest) = long.iter_mut().min_by_key(|kept| kept.len())
            && shortest.len() < blocks.len()
        {
            *shortest = blocks;
        }
    });
}

fn capacity_of(blocks: &[Block]) -> usize {
    blocks.len() * BUFFER_ALIGNMENT_BYTES
}

fn whole_blocks(len_bytes: usize) -> usize {
    len_bytes.next_multiple_of(BUFFER_ALIGNMENT_BYTES)
}

fn size_class(len_bytes: usize) -> Option<usize> {
    if len_bytes == 0 || len_bytes > REUSE_BYTES_MAX {
        return None;
    }
    let power = len_bytes.next_power_of_two().max(BUFFER_ALIGNMENT_BYTES);
    Some((power.ilog2() - BUFFER_ALIGNMENT_BYTES.ilog2()) as usize)
}

fn class_bytes(class: usize) -> usize {
    BUFFER_ALIGNMENT_BYTES << class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_have_the_asked_length() {
        for len in [0, 1, 512, 4096, 5000, 131_072, 1 << 20] {
            for mut buffer in [AlignedBuffer::with_len(len), AlignedBuffer::for_reading(len)] {
                assert_eq!(buffer.len(), len);
                assert_eq!(buffer.as_slice().as_ptr() as usize % BUFFER_ALIGNMENT_BYTES, 0);
                buffer.as_mut_slice().fill(7);
                buffer.truncate(len / 2);
                buffer.extend_to_capacity();
                assert!(buffer.len() >= len && buffer.len() - len < BUFFER_ALIGNMENT_BYTES.max(len + 1));
            }
        }
    }

    #[test]
    fn kept_buffers_are_freed_once_nothing_was_read_in_between() {
        drop((AlignedBuffer::for_reading(1 << 20), AlignedBuffer::with_len(10_000)));
        let kept = || (LONG.with_borrow(Vec::len), FREE.with_borrow(|free| free.iter().map(Vec::len).sum::<usize>()));
        release_unused_buffers();
        assert_eq!(kept(), (1, 1), "they were used just before");
        release_unused_buffers();
        assert_eq!(kept(), (0, 0));
    }

    #[test]
    fn long_buffers_that_were_read_into_are_used_again_within_their_bound() {
        let read = |len| AlignedBuffer::for_reading(len);
        let buffer = read(1 << 20);
        let place = buffer.as_slice().as_ptr();
        drop(buffer);
        let again = read((1 << 20) - 30_000);
        assert_eq!((again.as_slice().as_ptr(), again.len()), (place, (1 << 20) - 30_000));
        let many: Vec<_> = (0..20).map(|number| read((200 + 10 * number) << 10)).collect();
        drop((again, many));
        let kept = LONG.with_borrow(|long| long.iter().map(|kept| capacity_of(kept)).collect::<Vec<_>>());
        assert_eq!(kept.len(), LONG_COUNT_MAX);
        assert!(kept.contains(&(1 << 20)), "the longest stay: {kept:?}");
        drop(read(LONG_BYTES_MAX + 1));
        assert!(LONG.with_borrow(|long| long.iter().all(|kept| capacity_of(kept) <= LONG_BYTES_MAX)));
    }

    #[test]
    fn a_dropped_buffer_is_used_again() {
        let buffer = AlignedBuffer::with_len(10_000);
        let place = buffer.as_slice().as_ptr();
        drop(buffer);
        assert_eq!(AlignedBuffer::with_len(16_000).as_slice().as_ptr(), place);
    }
}
