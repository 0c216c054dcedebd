//! Encodes and decodes stored heads and markers of variants.
//!
//! The first byte names the kind and version. An entry of an unknown version counts as absent. Values that can be
//! derived from the fields are not stored, so they cannot disagree with the fields. Cost: decoding shares the input
//! buffer and keeps it alive. It checks the lines of the fields once, and allocates nothing for them. Versions 1 and 2,
//! which had a table of names, are read but no longer written.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::{BodyPlace, DerivedFacts, FIELD_COUNT_MAX, Head, StoredFields, StoredHead};
use crate::{
    DecodeError, SelectingFields, Timestamp, VaryMarker, VaryRule,
    codec::{CodecReader, NUMBER_LEN_MAX, push_bytes, push_name, push_number, push_signed},
    facts::Facts,
    freshness::Receipt,
    targeted::TargetList,
    vary::{RULE_COUNT_MAX, SELECTING_COUNT_MAX},
};

impl Head {
    /// Encodes the entry to the bytes that [`Head::decode`] reads.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Response(head) => head.encode(),
            Self::VaryMarker(marker) => marker.encode(),
        }
    }

    /// Decodes an entry that [`Head::encode`] wrote. The fields share `bytes` and keep them alive. Directives are
    /// read from the fields in `targets`.
    ///
    /// # Errors
    /// The bytes are corrupt or of another version: the caller treats the entry as absent.
    pub fn decode(bytes: Bytes, targets: &TargetList) -> Result<Self, DecodeError> {
        let mut reader = CodecReader::new(bytes);
        let head = match reader.byte()? {
            KIND_RESPONSE_1 => Self::Response(StoredHead::decode_from(&mut reader, targets, decode_named_fields)?),
            KIND_RESPONSE_2 => {
                let purge_count = reader.number()?;
                let head = StoredHead::decode_from(&mut reader, targets, decode_named_fields)?;
                Self::Response(head.after_purges(purge_count))
            }
            KIND_RESPONSE_3 => {
                let purge_count = reader.number()?;
                let head = StoredHead::decode_from(&mut reader, targets, decode_lines)?;
                Self::Response(head.after_purges(purge_count))
            }
            KIND_VARY_MARKER_1 => Self::VaryMarker(decode_marker(&mut reader)?),
            _ => return Err(DecodeError::Version),
        };
        reader.finish()?;
        Ok(head)
    }
}

impl StoredHead {
    /// Encodes the bytes that [`Head::decode`] reads.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_len_max());
        out.push(KIND_RESPONSE_3);
        push_number(&mut out, self.purge_count);
        self.encode_into(&mut out);
        out
    }

    /// Returns a length that the encoded head does not exceed, without encoding it.
    pub fn encoded_len_max(&self) -> usize {
        let parts = self.selecting.parts();
        let selecting = parts.map(|(name, value)| name.as_str().len() + value.map_or(0, |value| value.len()));
        let selecting = selecting.map(|len| len + SELECTING_OVERHEAD_MAX).sum::<usize>();
        selecting + self.fields.all_octets().len() + FIXED_LEN_MAX
    }

    /// Decodes a response's head.
    ///
    /// # Errors
    /// The same as for [`Head::decode`], or the entry is not a response.
    pub fn decode(bytes: Bytes, targets: &TargetList) -> Result<Self, DecodeError> {
        match Head::decode(bytes, targets)? {
            Head::Response(head) => Ok(head),
            Head::VaryMarker(_) => Err(DecodeError::Version),
        }
    }

    fn encode_into(&self, out: &mut Vec<u8>) {
        push_number(out, u64::from(self.status().as_u16()));
        push_signed(out, self.response_time().as_millis());
        push_signed(out, self.response_time().millis_since(self.request_time));
        push_number(out, u64::from(self.age_secs));
        match self.body {
            BodyPlace::Whole { len } => {
                out.push(BODY_WHOLE);
                push_number(out, len);
            }
            BodyPlace::Chunks { len, representation } => {
                out.push(BODY_CHUNKS);
                push_number(out, len);
                push_number(out, representation);
            }
        }
        push_number(out, self.selecting.parts().count() as u64);
        for (name, value) in self.selecting.parts() {
            push_name(out, name);
            out.push(u8::from(value.is_some()));
            push_bytes(out, value.map(|value| &value[..]).unwrap_or_default());
        }
        push_number(out, self.fields.octets().len() as u64);
        push_bytes(out, self.fields.all_octets());
    }

    fn decode_from(
        reader: &mut CodecReader,
        targets: &TargetList,
        decode_fields: impl FnOnce(&mut CodecReader) -> Result<StoredFields, DecodeError>,
    ) -> Result<Self, DecodeError> {
        let status = reader.number()?;
        let status = u16::try_from(status).ok().and_then(|status| StatusCode::from_u16(status).ok());
        let status = status.ok_or(DecodeError::Invalid)?;
        let response_time = Timestamp::from_millis(reader.signed()?);
        let request_time = response_time.plus_millis(reader.signed()?.saturating_neg());
        let age_secs = u32::try_from(reader.number()?).map_err(|_| DecodeError::Invalid)?;
        let body = match reader.byte()? {
            BODY_WHOLE => BodyPlace::Whole { len: reader.number()? },
            BODY_CHUNKS => BodyPlace::Chunks { len: reader.number()?, representation: reader.number()? },
            _ => return Err(DecodeError::Invalid),
        };
        let selecting = decode_selecting(reader)?;
        let fields = decode_fields(reader)?;
        let answered_cookie = selecting.answered_cookie();
        let receipt = Receipt { status, age_secs, request_time, response_time, answered_cookie };
        let derived = DerivedFacts::of(
            &receipt,
            &Facts::of_unchecked(&fields, fields.checked_lines(), fields.ruling_text(), targets)?,
        );
        Ok(Self::from_parts(&receipt, fields, selecting, targets, derived).with_body(body))
    }
}

impl VaryMarker {
    /// Encodes the bytes that [`Head::decode`] reads.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![KIND_VARY_MARKER_1];
        push_number(&mut out, self.rules().len() as u64);
        for rule in self.rules() {
            let VaryRule::Fields(names) = rule else {
                out.push(RULE_STAR);
                continue;
            };
            out.push(RULE_FIELDS);
            push_number(&mut out, names.len() as u64);
            names.iter().for_each(|name| push_name(&mut out, name));
        }
        out
    }
}

/// Decodes the fields of version 3: the length of their lines, then these lines and the ruling. The lines are checked
/// when the facts in them are read.
fn decode_lines(reader: &mut CodecReader) -> Result<StoredFields, DecodeError> {
    let lines_len = usize::try_from(reader.number()?).map_err(|_| DecodeError::Bound)?;
    StoredFields::read(reader.bytes()?, lines_len)
}

/// Decodes the fields of versions 1 and 2, in which the ruling is one of the fields.
fn decode_named_fields(reader: &mut CodecReader) -> Result<StoredFields, DecodeError> {
    let field_count = reader.count(FIELD_COUNT_MAX)?;
    let mut fields = HeaderMap::with_capacity(field_count);
    for _ in 0..field_count {
        let name = reader.name()?;
        let value = reader.value()?;
        fields.try_append(name, value).map_err(|_| DecodeError::Bound)?;
    }
    Ok(StoredFields::of(&fields))
}

fn decode_selecting(reader: &mut CodecReader) -> Result<SelectingFields, DecodeError> {
    // The limit is one more than a rule can name: the extra part records that the request had a Cookie.
    let count = reader.count(SELECTING_COUNT_MAX + 1)?;
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        let name = reader.name()?;
        let present = reader.byte()?;
        let value = reader.bytes()?;
        parts.push((name, (present != 0).then_some(value)));
    }
    Ok(SelectingFields::from_parts(parts))
}

fn decode_marker(reader: &mut CodecReader) -> Result<VaryMarker, DecodeError> {
    let rule_count = reader.count(RULE_COUNT_MAX)?;
    let mut rules = Vec::with_capacity(rule_count);
    for _ in 0..rule_count {
        rules.push(match reader.byte()? {
            RULE_STAR => VaryRule::Star,
            RULE_FIELDS => {
                let name_count = reader.count(SELECTING_COUNT_MAX)?;
                VaryRule::from_names((0..name_count).map(|_| reader.name()).collect::<Result<_, _>>()?)
            }
            _ => return Err(DecodeError::Invalid),
        });
    }
    Ok(VaryMarker::from_rules(rules))
}

const KIND_RESPONSE_1: u8 = 0x11;
/// Version 2 of a response: version 1, preceded by the number of purges.
const KIND_RESPONSE_2: u8 = 0x12;
/// Version 3 of a response: as version 2, but with the fields as lines, followed by the ruling.
const KIND_RESPONSE_3: u8 = 0x13;
const KIND_VARY_MARKER_1: u8 = 0x21;
const BODY_WHOLE: u8 = 0;
const BODY_CHUNKS: u8 = 1;
const RULE_STAR: u8 = 0;
const RULE_FIELDS: u8 = 1;
/// Largest number of bytes that an encoded selecting field takes in addition to its name and value: two numbers, and a
/// byte for each.
const SELECTING_OVERHEAD_MAX: usize = 2 * NUMBER_LEN_MAX + 2;
/// Largest number of bytes that an encoded head takes in addition to its fields: nine numbers, and the kinds of head
/// and body.
const FIXED_LEN_MAX: usize = 9 * NUMBER_LEN_MAX + 2;
