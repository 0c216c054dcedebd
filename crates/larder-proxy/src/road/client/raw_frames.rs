//! Tracks a connection's HTTP/2 frames, in parallel with h2 (RFC 9113 4.1, 10.5).
//!
//! h2 answers frames that request nothing as fast as they arrive. It also waits for the end of a header block for as
//! long as the connection lasts. It reports neither. Owns: the position in the octets, and the counts in the current
//! interval. h2 checks the frames, and the connection is closed elsewhere. Invariant: only a frame's
//! head is kept. Cost: a few comparisons per frame; payloads are skipped.

/// Parses the frame headers of an HTTP/2 connection, as octets arrive.
#[derive(Debug)]
pub(crate) struct RawFrames {
    preface_left: usize,
    /// The octets received so far of the current frame's header, and their number.
    head: [u8; HEAD_BYTES],
    head_len: usize,
    payload_left: usize,
    /// Whether a header block has begun and not ended, so that a request's head is incomplete.
    in_block: bool,
    /// Whether the current frame ends a header block.
    ends_block: bool,
    last_stream: u32,
    counted: FrameCounts,
}

/// Number of frames of each kind since the last call of [`RawFrames::take`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameCounts {
    /// Frames that neither open a request nor carry its body.
    pub(crate) idle: u32,
    /// Frames that open a stream.
    pub(crate) opened: u32,
}

impl Default for RawFrames {
    fn default() -> Self {
        Self {
            preface_left: PREFACE_BYTES,
            head: [0; HEAD_BYTES],
            head_len: 0,
            payload_left: 0,
            in_block: false,
            ends_block: false,
            last_stream: 0,
            counted: FrameCounts::default(),
        }
    }
}

impl RawFrames {
    /// Processes received octets.
    pub(crate) fn push(&mut self, mut octets: &[u8]) {
        let count = self.preface_left.min(octets.len());
        self.preface_left -= count;
        octets = &octets[count..];
        loop {
            let count = self.payload_left.min(octets.len());
            self.payload_left -= count;
            octets = &octets[count..];
            if self.payload_left > 0 {
                return;
            }
            if std::mem::take(&mut self.ends_block) {
                self.in_block = false;
            }
            if octets.is_empty() {
                return;
            }
            let count = (HEAD_BYTES - self.head_len).min(octets.len());
            self.head[self.head_len..self.head_len + count].copy_from_slice(&octets[..count]);
            self.head_len += count;
            octets = &octets[count..];
            if self.head_len < HEAD_BYTES {
                return;
            }
            self.head_len = 0;
            self.begin_frame();
        }
    }

    /// Returns whether the head of a request is incomplete.
    pub(crate) fn is_in_block(&self) -> bool {
        self.in_block
    }

    /// Returns the counts since the previous call, and resets them.
    pub(crate) fn take(&mut self) -> FrameCounts {
        std::mem::take(&mut self.counted)
    }

    fn begin_frame(&mut self) {
        let [high, middle, low, kind, flags, stream @ ..] = self.head;
        self.payload_left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        let stream = u32::from_be_bytes(stream) & STREAM_MASK;
        match kind {
            HEADERS | CONTINUATION => {
                self.in_block = true;
                self.ends_block = flags & END_HEADERS != 0;
                if kind == HEADERS && stream > self.last_stream {
                    self.last_stream = stream;
                    self.counted.opened += 1;
                }
            }
            DATA if self.payload_left > 0 || flags & END_STREAM != 0 => {}
            _ => self.counted.idle += 1,
        }
    }
}

const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
const STREAM_MASK: u32 = u32::MAX >> 1;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend_from_slice(&[kind, flags]);
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        frame
    }

    /// Returns the counts for these frames, and whether a header block is open at the end. The frames are fed in pieces
    /// of every length.
    fn counted(frames: &[Vec<u8>]) -> (FrameCounts, bool) {
        let octets = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frames.concat()].concat();
        let mut outcomes = (1..=octets.len()).map(|piece_len| {
            let mut raw = RawFrames::default();
            octets.chunks(piece_len).for_each(|piece| raw.push(piece));
            (raw.take(), raw.is_in_block())
        });
        let first = outcomes.next().unwrap();
        assert!(outcomes.all(|outcome| outcome == first));
        first
    }

    #[test]
    fn frames_that_ask_for_nothing_are_counted_and_requests_are_not() {
        let settings = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
        let ping = frame(6, 0, 0, &[0; 8]);
        let update = frame(8, 0, 1, &[0, 0, 0, 1]);
        let priority = frame(2, 0, 1, &[0; 5]);
        assert_eq!(counted(&[settings, ping, update, priority]), (FrameCounts { idle: 4, opened: 0 }, false));
        let request = [frame(HEADERS, END_HEADERS, 1, b"fields"), frame(DATA, 0, 1, b"body"), frame(DATA, 1, 1, b"")];
        assert_eq!(counted(&request), (FrameCounts { idle: 0, opened: 1 }, false));
        assert_eq!(counted(&[frame(DATA, 0, 1, b"")]).0.idle, 1);
    }

    #[test]
    fn header_block_is_open_until_its_last_octet() {
        let begun = frame(HEADERS, 0, 1, b"some");
        assert!(counted(std::slice::from_ref(&begun)).1);
        assert!(counted(&[begun.clone(), frame(CONTINUATION, 0, 1, b"more")]).1);
        let whole = [begun, frame(CONTINUATION, END_HEADERS, 1, b"rest")];
        assert_eq!(counted(&whole), (FrameCounts { idle: 0, opened: 1 }, false));
        let mut cut = frame(HEADERS, END_HEADERS, 1, b"fields");
        cut.pop();
        assert!(counted(&[cut]).1);
    }

    #[test]
    fn trailers_open_no_stream() {
        let frames = [frame(HEADERS, END_HEADERS, 1, b"a"), frame(HEADERS, END_HEADERS | END_STREAM, 1, b"b")];
        assert_eq!(counted(&frames).0.opened, 1);
    }
}
