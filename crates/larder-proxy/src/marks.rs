//! The names with which this proxy marks forwarded messages.

use http::{HeaderMap, HeaderName, HeaderValue, Version, header};
use larder_http::{StoredHead, fields::via::Pseudonym, ruling};
use larder_wire::{push_field, push_status_line};

use crate::cache::entry::ADDED_FIELD_COUNT;

/// The fields that are added to messages.
pub(crate) struct ResponseMarkers {
    /// This proxy's name in Via and CDN-Loop.
    pub(crate) pseudonym: Pseudonym,
    /// Whether a member of Via is added to requests.
    pub(crate) add_via: bool,
    /// This proxy's member of Via in responses, if one is added.
    pub(crate) via: Option<HeaderValue>,
    pub(crate) add_x_forwarded: bool,
    pub(crate) add_forwarded: bool,
    pub(crate) add_cache_status: bool,
    /// This proxy's name in Cache-Status and Proxy-Status, in the syntax of these fields.
    pub(crate) cache_name: String,
}

impl ResponseMarkers {
    /// Returns the status line and the field lines of a stored head to send over HTTP/1.1. Age, Cache-Status, and the
    /// fields that frame the body, are added for each response.
    pub(crate) fn head_lines(&self, head: &StoredHead) -> Vec<u8> {
        let mut lines = Vec::new();
        push_status_line(&mut lines, Version::HTTP_11, head.status());
        for (name, value) in head.fields() {
            if is_sent(name) && *name != header::AGE && *name != header::TRANSFER_ENCODING {
                push_field(&mut lines, name, value);
            }
        }
        if let Some(via) = &self.via {
            push_field(&mut lines, &header::VIA, via);
        }
        lines
    }
}

/// Returns a stored response's fields in the form to send, with room for Age and Cache-Status.
pub(crate) fn outgoing_fields(stored: &HeaderMap, marks: &ResponseMarkers) -> HeaderMap {
    let mut fields = HeaderMap::with_capacity(stored.len() + ADDED_FIELD_COUNT);
    for (name, value) in stored {
        if is_sent(name) {
            fields.append(name.clone(), value.clone());
        }
    }
    if let Some(via) = &marks.via {
        fields.append(header::VIA, via.clone());
    }
    fields
}

/// Returns whether a stored field is sent as it is.
fn is_sent(name: &HeaderName) -> bool {
    *name != header::CONTENT_LENGTH && *name != ruling::FIELD
}
