//! The names with which this proxy marks forwarded messages.

use http::{Version, header};
use larder_cache::http::answer::marks::{ResponseMarks, is_sent};
use larder_http::{StoredHead, fields::via::Pseudonym};
use larder_wire::{push_field, push_status_line};

/// The fields that are added to messages.
pub(crate) struct ResponseMarkers {
    /// This proxy's name in Via and CDN-Loop.
    pub(crate) pseudonym: Pseudonym,
    /// Whether a member of Via is added to requests.
    pub(crate) add_via: bool,
    pub(crate) add_x_forwarded: bool,
    pub(crate) add_forwarded: bool,
    /// The marks in responses. The name in Cache-Status is also that in Proxy-Status.
    pub(crate) response: ResponseMarks,
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
        if let Some(via) = &self.response.via {
            push_field(&mut lines, &header::VIA, via);
        }
        lines
    }
}
