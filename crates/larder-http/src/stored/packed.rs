//! The form of a stored response in memory: the facts of its head in a few bytes, its fields, and its body, in one
//! buffer.
//!
//! Unlike the form in the store (see [`super::encoding`]), it has the facts that follow from the fields, so that a hit
//! parses no directive and no date. Invariant: only [`StoredHead::pack`] writes it and the same process reads it, so it
//! has no version and no invalid form. Cost: about 30 bytes for the facts of a usual response. Unpacking reads ten
//! numbers, and allocates nothing unless the response varies.

use bytes::{Buf as _, Bytes};
use http::StatusCode;

use super::{
    BodyPlace, StoredFields, StoredHead,
    reader::{COMPLETE, PackedReader},
};
use crate::{
    SelectingFields, Timestamp,
    codec::{CodecReader, push_bytes, push_name, push_number, push_signed},
    freshness::{Freshness, Lifetime},
    targeted::TargetList,
};

impl StoredHead {
    /// Copies this head to a buffer, to which its body may be appended.
    ///
    /// ```
    /// # use http::{HeaderMap, StatusCode};
    /// # use larder_http::{BodyPlace, ReceivedHead, StoredHead, TargetList, Timestamp};
    /// # let now = Timestamp::from_secs(1_800_000_000);
    /// # let (status, fields) = (StatusCode::OK, HeaderMap::new());
    /// # let received = ReceivedHead { status, fields, request_time: now, response_time: now };
    /// # let place = BodyPlace::Whole { len: 5 };
    /// # let head = StoredHead::new(received, place, Default::default(), &TargetList::default());
    /// let mut packed = head.pack();
    /// packed.extend_from_slice(b"hello");
    /// let (unpacked, body) = StoredHead::unpack(packed.into(), &TargetList::default());
    /// assert_eq!((unpacked, &body[..]), (head, &b"hello"[..]));
    /// ```
    pub fn pack(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_len_max() + FACTS_LEN_MAX);
        self.pack_facts(&mut out);
        self.fields.push_short(&mut out);
        out
    }

    /// Returns the head that [`StoredHead::pack`] wrote, and the body behind it. Both share `packed`. Later updates of
    /// the head read directives from the fields in `targets`.
    ///
    /// # Panics
    /// When the octets are not from [`StoredHead::pack`].
    #[inline]
    pub fn unpack(mut packed: Bytes, targets: &TargetList) -> (Self, Bytes) {
        let mut reader = PackedReader { rest: &packed };
        let flags = reader.fixed::<FLAGS_BYTES>() as u32;
        let is = |bit: Flag| flags & bit.mask() != 0;
        let response_time = Timestamp::from_millis(reader.fixed::<MOMENT_BYTES>().cast_signed());
        let request_time = response_time.plus_millis(reader.signed().saturating_neg());
        let date = Timestamp::from_millis(response_time.as_millis().wrapping_add(reader.signed()));
        let lifetime = match (is(Flag::IsExplicit), is(Flag::IsHeuristic)) {
            (true, _) => Lifetime::Explicit { millis: reader.signed() },
            (false, true) => Lifetime::Heuristic { unmodified_millis: reader.signed() },
            (false, false) => Lifetime::Absent,
        };
        let modified = is(Flag::HasLastModified).then(|| date.as_millis().wrapping_sub(reader.signed()));
        let (age_secs, initial_age_millis) =
            if is(Flag::HasAge) { (reader.number() as u32, reader.signed()) } else { (0, 0) };
        let purge_count = if is(Flag::HasPurgeCount) { reader.number() } else { 0 };
        let len = reader.number();
        let body = match is(Flag::IsInChunks) {
            true => BodyPlace::Chunks { len, representation: reader.number() },
            false => BodyPlace::Whole { len },
        };
        let rare = if is(Flag::HasRareFacts) { reader.rare_facts() } else { RareFacts::default() };
        let has_selecting = is(Flag::HasSelectingFields);
        let status = StatusCode::from_u16((flags >> STATUS_SHIFT) as u16).expect("it was a status");
        let freshness = Freshness {
            lifetime,
            status,
            initial_age_millis,
            response_time,
            date,
            last_modified: modified.map(Timestamp::from_millis),
            no_cache: is(Flag::NoCache),
            is_unconfirmed: is(Flag::IsUnconfirmed),
            ignores_client: is(Flag::IgnoresClient),
            obeys_reload: is(Flag::ObeysReload),
            is_verified: is(Flag::IsVerified),
            checks_authorization: is(Flag::ChecksAuthorization),
            is_ruled: is(Flag::IsRuled),
            excludes_cookies: is(Flag::ExcludesCookies),
            conditions: rare.conditions,
            lifetime_millis_max: rare.lifetime_millis_max,
            forbids_stale: is(Flag::ForbidsStale),
            is_personal: is(Flag::IsPersonal),
            purged_at: rare.purged_at,
            stale_while_revalidate_secs: rare.stale_while_revalidate_secs,
            stale_if_error_secs: rare.stale_if_error_secs,
        };
        let facts_len = packed.len() - reader.rest.len();
        packed.advance(facts_len);
        let selecting = if has_selecting { take_selecting(&mut packed) } else { SelectingFields::default() };
        let mut reader = PackedReader { rest: &packed };
        let short_len = reader.number() as usize;
        let number_len = packed.len() - reader.rest.len();
        packed.advance(number_len);
        let fields = StoredFields::of_short(packed.split_to(short_len));
        let targets = targets.clone();
        let has_entity_tag = is(Flag::HasEntityTag);
        let head =
            Self { fields, age_secs, request_time, body, selecting, freshness, has_entity_tag, purge_count, targets };
        (head, packed)
    }

    /// Appends everything except for the fields and the body.
    fn pack_facts(&self, out: &mut Vec<u8>) {
        let freshness = &self.freshness;
        let rare = RareFacts::of(freshness);
        let set = self.flags(&rare);
        out.extend_from_slice(&set.to_le_bytes());
        let is = |bit: Flag| set & bit.mask() != 0;
        out.extend_from_slice(&freshness.response_time.as_millis().to_le_bytes());
        push_signed(out, freshness.response_time.millis_since(self.request_time));
        push_signed(out, freshness.date.as_millis().wrapping_sub(freshness.response_time.as_millis()));
        match freshness.lifetime {
            Lifetime::Explicit { millis } | Lifetime::Heuristic { unmodified_millis: millis } => {
                push_signed(out, millis);
            }
            Lifetime::Absent => {}
        }
        if let Some(modified) = freshness.last_modified {
            push_signed(out, freshness.date.as_millis().wrapping_sub(modified.as_millis()));
        }
        if is(Flag::HasAge) {
            push_number(out, self.age_secs.into());
            push_signed(out, freshness.initial_age_millis);
        }
        if is(Flag::HasPurgeCount) {
            push_number(out, self.purge_count);
        }
        push_number(out, self.body.len());
        if let BodyPlace::Chunks { representation, .. } = self.body {
            push_number(out, representation);
        }
        if is(Flag::HasRareFacts) {
            rare.push(out);
        }
        if is(Flag::HasSelectingFields) {
            push_number(out, self.selecting.parts().count() as u64);
            for (name, value) in self.selecting.parts() {
                push_name(out, name);
                out.push(u8::from(value.is_some()));
                push_bytes(out, value.map(|value| &value[..]).unwrap_or_default());
            }
        }
    }

    /// Returns the flags that are set, and the status in the bits above them.
    fn flags(&self, rare: &RareFacts) -> u32 {
        let freshness = &self.freshness;
        let flags = [
            (Flag::NoCache, freshness.no_cache),
            (Flag::IsUnconfirmed, freshness.is_unconfirmed),
            (Flag::IgnoresClient, freshness.ignores_client),
            (Flag::ObeysReload, freshness.obeys_reload),
            (Flag::IsVerified, freshness.is_verified),
            (Flag::ChecksAuthorization, freshness.checks_authorization),
            (Flag::IsRuled, freshness.is_ruled),
            (Flag::ExcludesCookies, freshness.excludes_cookies),
            (Flag::ForbidsStale, freshness.forbids_stale),
            (Flag::IsPersonal, freshness.is_personal),
            (Flag::HasEntityTag, self.has_entity_tag),
            (Flag::IsExplicit, matches!(freshness.lifetime, Lifetime::Explicit { .. })),
            (Flag::IsHeuristic, matches!(freshness.lifetime, Lifetime::Heuristic { .. })),
            (Flag::HasLastModified, freshness.last_modified.is_some()),
            (Flag::HasAge, self.age_secs != 0 || freshness.initial_age_millis != 0),
            (Flag::HasPurgeCount, self.purge_count != 0),
            (Flag::IsInChunks, matches!(self.body, BodyPlace::Chunks { .. })),
            (Flag::HasRareFacts, *rare != RareFacts::default()),
            (Flag::HasSelectingFields, self.selecting != SelectingFields::default()),
        ];
        let set = flags.into_iter().filter(|(_, is_set)| *is_set).fold(0, |all, (flag, _)| all | flag.mask());
        set | u32::from(freshness.status.as_u16()) << STATUS_SHIFT
    }
}

/// A property of a packed head that is true or false, or whether a number is there that most heads do not have.
#[derive(Clone, Copy)]
enum Flag {
    NoCache,
    IsUnconfirmed,
    IgnoresClient,
    ObeysReload,
    IsVerified,
    ChecksAuthorization,
    IsRuled,
    ExcludesCookies,
    ForbidsStale,
    IsPersonal,
    HasEntityTag,
    IsExplicit,
    IsHeuristic,
    HasLastModified,
    HasAge,
    HasPurgeCount,
    IsInChunks,
    HasRareFacts,
    HasSelectingFields,
}

impl Flag {
    const fn mask(self) -> u32 {
        1 << self as u32
    }
}

/// The facts that few heads have. `Default` has those of a head that has none.
#[derive(PartialEq)]
struct RareFacts {
    conditions: u64,
    lifetime_millis_max: i64,
    purged_at: Option<Timestamp>,
    stale_while_revalidate_secs: Option<u32>,
    stale_if_error_secs: Option<u32>,
}

impl Default for RareFacts {
    fn default() -> Self {
        Self {
            conditions: 0,
            lifetime_millis_max: i64::MAX,
            purged_at: None,
            stale_while_revalidate_secs: None,
            stale_if_error_secs: None,
        }
    }
}

impl RareFacts {
    fn of(freshness: &Freshness) -> Self {
        Self {
            conditions: freshness.conditions,
            lifetime_millis_max: freshness.lifetime_millis_max,
            purged_at: freshness.purged_at,
            stale_while_revalidate_secs: freshness.stale_while_revalidate_secs,
            stale_if_error_secs: freshness.stale_if_error_secs,
        }
    }

    fn push(&self, out: &mut Vec<u8>) {
        push_number(out, self.conditions);
        push_signed(out, self.lifetime_millis_max);
        push_number(out, u64::from(self.purged_at.is_some()));
        push_signed(out, self.purged_at.unwrap_or_default().as_millis());
        for secs in [self.stale_while_revalidate_secs, self.stale_if_error_secs] {
            push_number(out, secs.map_or(0, |secs| u64::from(secs) + 1));
        }
    }
}

impl PackedReader<'_> {
    #[cold]
    fn rare_facts(&mut self) -> RareFacts {
        let conditions = self.number();
        let lifetime_millis_max = self.signed();
        let is_purged = self.number() != 0;
        let purged_at = Timestamp::from_millis(self.signed());
        let mut secs = || self.number().checked_sub(1).map(|secs| secs as u32);
        RareFacts {
            conditions,
            lifetime_millis_max,
            purged_at: is_purged.then_some(purged_at),
            stale_while_revalidate_secs: secs(),
            stale_if_error_secs: secs(),
        }
    }
}

/// Takes the selecting fields from the start of `packed`.
fn take_selecting(packed: &mut Bytes) -> SelectingFields {
    let mut reader = CodecReader::new(packed.clone());
    let count = reader.number().expect(COMPLETE);
    let parts = (0..count).map(|_| {
        let name = reader.name().expect(COMPLETE);
        let is_present = reader.byte().expect(COMPLETE) != 0;
        let value = reader.bytes().expect(COMPLETE);
        (name, is_present.then_some(value))
    });
    let selecting = SelectingFields::from_parts(parts.collect());
    let read_len = reader.position();
    packed.advance(read_len);
    selecting
}

const STATUS_SHIFT: u32 = 20;
const FLAGS_BYTES: usize = size_of::<u32>();
const MOMENT_BYTES: usize = size_of::<Timestamp>();
const _: () = assert!((Flag::HasSelectingFields as u32) < STATUS_SHIFT && 999 < 1 << (u32::BITS - STATUS_SHIFT));
/// Largest length in bytes of the facts that only a packed head has.
const FACTS_LEN_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use http::{
        HeaderMap, HeaderValue,
        header::{ACCEPT_LANGUAGE, AGE, CACHE_CONTROL, COOKIE, ETAG, LAST_MODIFIED},
    };

    use super::*;
    use crate::{ReceivedHead, Settings, VaryRule};

    fn head(lines: &[(http::HeaderName, &'static str)], selecting: SelectingFields, body: BodyPlace) -> StoredHead {
        let fields: HeaderMap =
            lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
        let request_time = Timestamp::from_millis(1_800_000_000_123);
        let response_time = request_time.plus_millis(77);
        let received = ReceivedHead { status: StatusCode::OK, fields, request_time, response_time };
        StoredHead::new(received, body, selecting, &TargetList::default())
    }

    #[test]
    fn unpacked_head_is_the_packed_one() {
        let whole = BodyPlace::Whole { len: 4 };
        let chunks = BodyPlace::Chunks { len: 1 << 40, representation: u64::MAX };
        let request: HeaderMap =
            [(ACCEPT_LANGUAGE, HeaderValue::from_static("de")), (COOKIE, "a=b".parse().unwrap())].into_iter().collect();
        let selecting =
            VaryRule::Fields([ACCEPT_LANGUAGE].into()).select(&request, &Settings::default()).expect("no `*`");
        let plain = head(&[(CACHE_CONTROL, "max-age=60"), (ETAG, "\"1\"")], SelectingFields::default(), whole);
        let purged_at = plain.response_time().plus_secs(9);
        let heads = [
            head(&[], SelectingFields::default(), whole),
            head(&[(LAST_MODIFIED, "Sun, 06 Nov 1994 08:49:37 GMT")], SelectingFields::default(), chunks),
            head(
                &[
                    (AGE, "4294967295"),
                    (CACHE_CONTROL, "no-cache, must-revalidate, stale-if-error=0, stale-while-revalidate=4294967295"),
                ],
                selecting,
                whole,
            ),
            plain.clone().stale_since(purged_at),
            plain.clone().unconfirmed().after_purges(u64::MAX),
            plain,
        ];
        for head in heads {
            let mut packed = head.pack();
            packed.extend_from_slice(b"body");
            assert!(packed.len() <= head.encoded_len_max() + FACTS_LEN_MAX + 4);
            let (unpacked, body) = StoredHead::unpack(packed.into(), &TargetList::default());
            assert_eq!((&unpacked, &body[..]), (&head, &b"body"[..]));
        }
    }

    #[test]
    fn facts_of_a_usual_head_take_few_bytes() {
        let lines =
            [(CACHE_CONTROL, "max-age=86400"), (ETAG, "\"1\""), (LAST_MODIFIED, "Sun, 06 Nov 2022 08:49:37 GMT")];
        let head = head(&lines, SelectingFields::default(), BodyPlace::Whole { len: 2000 });
        let packed_len = head.pack().len();
        assert!(packed_len <= 36 + 6 + 6 + 5 + 15, "{packed_len}");
    }
}
