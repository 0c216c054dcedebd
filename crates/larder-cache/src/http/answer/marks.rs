//! The fields that the cache adds to the responses that it sends.

use http::{HeaderMap, HeaderValue, header};
use larder_http::{CacheStatus, StoredFields, fields::strip_hop_by_hop, ruling};

use crate::http::entry::{ADDED_FIELD_COUNT, CACHE_STATUS};

/// The entries that the cache adds to the Via and Cache-Status fields of responses.
///
/// ```
/// use http::HeaderMap;
/// use larder_cache::http::answer::marks::ResponseMarks;
/// use larder_http::{CacheStatus, cache_status::Forward};
///
/// let via = Some("1.1 cache-1".parse()?);
/// let marks = ResponseMarks { via, add_cache_status: true, cache_name: "cache-1".to_owned() };
/// let fields = marks.forwarded_fields(HeaderMap::new(), CacheStatus::forwarded(Forward::UriMiss));
/// assert_eq!(fields["via"], "1.1 cache-1");
/// assert_eq!(fields["cache-status"], "cache-1; fwd=uri-miss");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ResponseMarks {
    /// The entry that is added to Via in responses. `None` if none is added.
    pub via: Option<HeaderValue>,
    /// Whether an entry is added to Cache-Status.
    pub add_cache_status: bool,
    /// The name of the cache in Cache-Status, in the syntax of that field.
    pub cache_name: String,
}

impl ResponseMarks {
    /// Returns a copy of a stored response's fields for sending, with Via, and with room for Age and Cache-Status.
    pub fn outgoing_fields(&self, stored: &StoredFields) -> HeaderMap {
        let mut fields = stored.to_map();
        fields.reserve(ADDED_FIELD_COUNT);
        self.put_via(&mut fields);
        fields
    }

    /// Prepares the fields of an origin's response for a client: removes those of the connection, and adds those of
    /// this cache.
    pub fn forwarded_fields(&self, mut fields: HeaderMap, status: CacheStatus) -> HeaderMap {
        strip_hop_by_hop(&mut fields);
        if fields.keys().any(|name| *name == ruling::FIELD) {
            fields.remove(ruling::FIELD);
        }
        self.put_via(&mut fields);
        self.put_status(&mut fields, status);
        fields
    }

    /// Sets Age if `age_secs` is given, and appends the cache's entry to Cache-Status.
    #[inline]
    pub(super) fn put_times(&self, fields: &mut HeaderMap, age_secs: Option<u64>, status: CacheStatus) {
        if let Some(age_secs) = age_secs {
            fields.insert(header::AGE, HeaderValue::from(age_secs));
        }
        self.put_status(fields, status);
    }

    #[inline]
    pub(super) fn put_via(&self, fields: &mut HeaderMap) {
        if let Some(via) = &self.via {
            fields.append(header::VIA, via.clone());
        }
    }

    #[inline]
    fn put_status(&self, fields: &mut HeaderMap, status: CacheStatus) {
        if self.add_cache_status {
            fields.append(&CACHE_STATUS, status.to_value(&self.cache_name));
        }
    }
}
