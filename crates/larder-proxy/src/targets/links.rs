//! Replaces links in a body while it passes.
//!
//! Owns: the search and the replacement, on octets. The module does not know the meaning of links. Invariants: the
//! output is the input with the links replaced, however the input was cut into pieces. Only octets that may begin a
//! link are held back. Memory: one piece. Cost: one search per piece and link.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use memchr::memmem::Finder;

/// The links to replace, each with its replacement.
pub(crate) struct LinkReplacements(Vec<LinkReplacement>);

struct LinkReplacement {
    found: Finder<'static>,
    by: Vec<u8>,
}

/// Replaces links in a body that arrives in pieces.
pub(crate) struct LinkReplacer {
    replacements: Arc<LinkReplacements>,
    /// Octets that are not output yet, because they may be the start of a link.
    held: BytesMut,
}

impl LinkReplacements {
    /// Creates the replacements from pairs of a link's prefix and its replacement. If several prefixes match at one
    /// place, the longest is replaced.
    pub(crate) fn new(mut pairs: Vec<(String, String)>) -> Self {
        pairs.retain(|(found, _)| !found.is_empty());
        pairs.sort_by_key(|(found, _)| std::cmp::Reverse(found.len()));
        let replacement = |(found, by): (String, String)| LinkReplacement {
            found: Finder::new(&found).into_owned(),
            by: by.into_bytes(),
        };
        Self(pairs.into_iter().map(replacement).collect())
    }

    /// Returns the position and the replacement of the first link in `octets`, or `None` if there is none.
    fn first_in(&self, octets: &[u8]) -> Option<(usize, &LinkReplacement)> {
        let found = self.0.iter().filter_map(|one| one.found.find(octets).map(|at| (at, one)));
        found.min_by_key(|(at, _)| *at)
    }

    /// Returns how many octets at the end of `octets` may be the start of a link that continues in the next piece.
    fn open_end(&self, octets: &[u8]) -> usize {
        let longest = |one: &LinkReplacement| {
            let needle = one.found.needle();
            let most = (needle.len() - 1).min(octets.len());
            (1..=most).rev().find(|&len| octets.ends_with(&needle[..len])).unwrap_or(0)
        };
        self.0.iter().map(longest).max().unwrap_or(0)
    }
}

impl LinkReplacer {
    pub(crate) fn new(replacements: Arc<LinkReplacements>) -> Self {
        Self { replacements, held: BytesMut::new() }
    }

    /// Processes a piece of the body. Returns the octets that can be sent now, which may be none.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Bytes {
        self.held.extend_from_slice(piece);
        let mut out = BytesMut::with_capacity(self.held.len());
        while let Some((at, one)) = self.replacements.first_in(&self.held) {
            out.extend_from_slice(&self.held[..at]);
            out.extend_from_slice(&one.by);
            let rest = self.held.split_off(at + one.found.needle().len());
            self.held = rest;
        }
        let open = self.replacements.open_end(&self.held);
        let rest = self.held.split_off(self.held.len() - open);
        out.extend_from_slice(&self.held);
        self.held = rest;
        debug_assert!(self.held.len() == open, "what may be a beginning is held, and nothing else");
        out.freeze()
    }

    /// Ends the body. Returns the octets that were held back.
    pub(crate) fn end(&mut self) -> Bytes {
        std::mem::take(&mut self.held).freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(pairs: &[(&str, &str)], pieces: &[&str]) -> String {
        let pairs = pairs.iter().map(|(found, by)| ((*found).to_owned(), (*by).to_owned())).collect();
        let mut replacing = LinkReplacer::new(Arc::new(LinkReplacements::new(pairs)));
        let mut out: Vec<u8> = pieces.iter().flat_map(|piece| replacing.push(piece.as_bytes())).collect();
        out.extend(replacing.end());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn links_are_replaced_wherever_the_body_is_cut() {
        let pairs = [("https://files.example/", "http://us/files/"), ("https://example/", "http://us/")];
        let text = "<a href=\"https://files.example/a\"> https://https://example/b https://files.exampl https:";
        let expected = "<a href=\"http://us/files/a\"> https://http://us/b https://files.exampl https:";
        assert_eq!(replaced(&pairs, &[text]), expected);
        for at in 0..=text.len() {
            assert_eq!(replaced(&pairs, &[&text[..at], &text[at..]]), expected, "cut at {at}");
        }
        let octets: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(replaced(&pairs, &octets.iter().map(String::as_str).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn what_is_put_in_is_not_replaced_again() {
        assert_eq!(
            replaced(&[("http://a/", "http://a/http://a/")], &["http://a/x http://a/"]),
            "http://a/http://a/x http://a/http://a/"
        );
        assert_eq!(replaced(&[("aab", "b")], &["aaaab", "a"]), "aaba");
        assert_eq!(replaced(&[], &["a", "b"]), "ab");
    }
}
