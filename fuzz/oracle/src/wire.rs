//! Reads streams by larder-wire, as the proxy does for clients and for origins.

use bytes::Bytes;
use http::Method;
use larder_wire::{BodyDecoder, DecodedPart, HeadLimits, empty_lines_len, parse_request, parse_response};

use crate::transcript::{BodyEnd, Message, Transcript, sorted};

/// The limits of both readers.
pub(crate) const LIMITS: HeadLimits = HeadLimits { bytes_max: 64 << 10, field_count_max: 100 };

/// The sender of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    /// An origin. Its response is to a HEAD, or to a GET.
    Origin {
        is_head: bool,
    },
}

/// A reading of a stream, and the places in it.
#[derive(Default)]
pub(crate) struct WireReading {
    pub(crate) transcript: Transcript,
    /// Where each message begins, and where the refused octets do.
    pub(crate) starts: Vec<usize>,
}

/// Reads a stream that arrives in these pieces.
pub(crate) fn read<'a>(side: Side, pieces: impl IntoIterator<Item = &'a [u8]>) -> WireReading {
    let mut reader = Reader::new(side);
    for piece in pieces {
        if !reader.is_over {
            reader.take(piece);
        }
    }
    reader.finish()
}

/// The state between two pieces.
struct Reader {
    side: Side,
    reading: WireReading,
    /// An incomplete head.
    partial: Vec<u8>,
    /// Octets of `partial` that were found incomplete.
    examined: usize,
    /// The body that is being read, and whether another message may follow it.
    body: Option<(BodyDecoder, bool)>,
    /// Octets before `partial`.
    consumed: usize,
    is_over: bool,
}

impl Reader {
    fn new(side: Side) -> Self {
        Self {
            side,
            reading: WireReading::default(),
            partial: Vec::new(),
            examined: 0,
            body: None,
            consumed: 0,
            is_over: false,
        }
    }

    fn take(&mut self, piece: &[u8]) {
        let mut received = Bytes::copy_from_slice(piece);
        while !received.is_empty() && !self.is_over {
            if self.body.is_some() {
                self.take_body(&mut received);
            } else {
                received = self.take_head(&received);
            }
        }
    }

    /// Takes octets of a head. Returns those that follow it.
    fn take_head(&mut self, received: &[u8]) -> Bytes {
        let mut octets = std::mem::take(&mut self.partial);
        octets.extend_from_slice(received);
        if self.side == Side::Client {
            let skipped = empty_lines_len(&octets);
            octets.drain(..skipped);
            self.consumed += skipped;
        }
        if octets.is_empty() {
            self.examined = 0;
            return Bytes::new();
        }
        let examined = std::mem::take(&mut self.examined);
        let parsed = match self.side {
            Side::Client => self.take_request(&octets, examined),
            Side::Origin { is_head } => self.take_response(&octets, examined, is_head),
        };
        match parsed {
            Ok(Some(len)) => {
                self.consumed += len;
                let after = Bytes::copy_from_slice(&octets[len..]);
                self.note_end();
                after
            }
            Ok(None) => {
                self.examined = octets.len();
                self.partial = octets;
                Bytes::new()
            }
            Err(why) => {
                self.reading.starts.push(self.consumed);
                self.reading.transcript.refusal = Some(why);
                self.is_over = true;
                Bytes::new()
            }
        }
    }

    fn take_request(&mut self, octets: &[u8], examined: usize) -> Result<Option<usize>, String> {
        let is_first = self.reading.transcript.messages.is_empty();
        let parsed = parse_request(octets, examined, is_first, LIMITS);
        let Some((head, len)) = parsed.map_err(|refused| refused.fault.to_string())? else { return Ok(None) };
        let goes_on = head.persists() && head.method != Method::CONNECT;
        self.reading.starts.push(self.consumed);
        self.reading.transcript.messages.push(Message {
            subject: head.method.to_string(),
            target: head.target.to_string(),
            version: format!("{:?}", head.version),
            fields: sorted(&head.fields),
            ..Message::default()
        });
        self.body = Some((head.body, goes_on));
        Ok(Some(len))
    }

    fn take_response(&mut self, octets: &[u8], examined: usize, is_head: bool) -> Result<Option<usize>, String> {
        let parsed = parse_response(octets, examined, LIMITS);
        let Some((head, len)) = parsed.map_err(|fault| fault.to_string())? else { return Ok(None) };
        let is_interim = head.status.is_informational() && head.status.as_u16() != 101;
        let method = if is_head { Method::HEAD } else { Method::GET };
        let body = if is_interim {
            BodyDecoder::empty()
        } else {
            BodyDecoder::of_response(&head, &method, LIMITS).map_err(|fault| fault.to_string())?
        };
        self.reading.starts.push(self.consumed);
        self.reading.transcript.messages.push(Message {
            subject: head.status.as_str().to_owned(),
            version: format!("{:?}", head.version),
            fields: sorted(&head.fields),
            ..Message::default()
        });
        self.body = Some((body, is_interim));
        Ok(Some(len))
    }

    fn take_body(&mut self, received: &mut Bytes) {
        let Some((decoder, _)) = &mut self.body else { return };
        let before = received.len();
        let message = self.reading.transcript.messages.last_mut().expect("a body follows a head");
        match decoder.next(received) {
            Ok(DecodedPart::Data(data)) => message.body.extend_from_slice(&data),
            Ok(DecodedPart::Trailers(fields)) => message.trailers = sorted(&fields),
            Ok(DecodedPart::End | DecodedPart::More) => {}
            Err(fault) => {
                message.end = BodyEnd::Refused(fault.to_string());
                self.is_over = true;
            }
        }
        self.consumed += before - received.len();
        if !self.is_over {
            self.note_end();
        }
    }

    /// Notes the end of a body, if all of it was read.
    fn note_end(&mut self) {
        let Some((decoder, goes_on)) = &mut self.body else { return };
        if !decoder.has_ended() {
            return;
        }
        let message = self.reading.transcript.messages.last_mut().expect("a body follows a head");
        message.end = BodyEnd::Whole;
        if !decoder.is_exhausted() {
            match decoder.next(&mut Bytes::new()) {
                Ok(DecodedPart::Trailers(fields)) => message.trailers = sorted(&fields),
                Ok(_) => {}
                Err(fault) => {
                    message.end = BodyEnd::Refused(fault.to_string());
                    self.is_over = true;
                }
            }
        }
        self.is_over |= !*goes_on;
        self.body = None;
    }

    /// Ends the stream.
    fn finish(mut self) -> WireReading {
        if let Some((BodyDecoder::UntilClose, _)) = self.body {
            self.reading.transcript.messages.last_mut().expect("a body follows a head").end = BodyEnd::Whole;
        }
        if !self.is_over && self.body.is_none() {
            self.reading.starts.push(self.consumed);
        }
        self.reading
    }
}
