//! The names with which this proxy marks forwarded messages.

use crate::ground::cache::answer::marks::ResponseMarks;
use http::{Version, header};
use larder_http::{CacheStatus, StoredHead, decimal::push_u64, fields::via::Pseudonym};
use larder_wire::{push_field, push_status_line};

/// The names and settings with which this proxy marks the messages that it forwards.
pub(crate) struct ResponseMarkers {
    /// The name of this proxy in Via and CDN-Loop.
    pub(crate) pseudonym: Pseudonym,
    /// Whether requests get a Via field.
    pub(crate) add_via: bool,
    pub(crate) add_x_forwarded: bool,
    pub(crate) add_forwarded: bool,
    /// The settings for the fields that mark responses, such as Via. The name in Cache-Status is also used in
    /// Proxy-Status.
    pub(crate) response: ResponseMarks,
}

impl ResponseMarkers {
    /// Appends the lines of the fields Age and Cache-Status.
    pub(crate) fn push_times(&self, age_secs: Option<u64>, status: CacheStatus, lines: &mut Vec<u8>) {
        if let Some(age_secs) = age_secs {
            lines.extend_from_slice(b"age: ");
            push_u64(lines, age_secs);
            lines.extend_from_slice(b"\r\n");
        }
        if self.response.add_cache_status {
            lines.extend_from_slice(b"cache-status: ");
            status.push(lines, &self.response.cache_name);
            lines.extend_from_slice(b"\r\n");
        }
    }

    /// Appends the status line and the fields of a stored head, encoded for HTTP/1.1.
    ///
    /// Age, Cache-Status and the fields that frame the body are missing, because they differ between responses.
    pub(crate) fn push_head_lines(&self, head: &StoredHead, lines: &mut Vec<u8>) {
        push_status_line(lines, Version::HTTP_11, head.status());
        head.fields().push_lines(lines);
        if let Some(via) = &self.response.via {
            push_field(lines, &header::VIA, via);
        }
    }
}
