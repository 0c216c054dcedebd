//! The patterns of sentences that English readers tend to read twice, as regular expressions.
//!
//! Each rule matches sentences of this project that needed a second reading, and almost none in ripgrep, redb, lsm-tree
//! and pingora. The rules find only about half of the sentences that a reader marks.

use super::texts::{Place, Prose};
use regex::Regex;

/// The part of a text that a rule reads.
#[derive(Clone, Copy)]
enum Scope {
    /// The first paragraph of an item's documentation.
    FirstParagraph,
    /// The first paragraph of a function's documentation.
    FunctionDoc,
    /// Each sentence.
    Sentence,
    /// Each sentence of a Markdown document.
    DocumentSentence,
}

/// A pattern. A match does not count if the text after it matches `unless_followed_by`.
struct Pattern {
    rule: &'static str,
    scope: Scope,
    matches: &'static str,
    unless_followed_by: &'static str,
}

const fn pattern(rule: &'static str, scope: Scope, matches: &'static str) -> Pattern {
    Pattern { rule, scope, matches, unless_followed_by: NEVER }
}

/// Matches no text.
const NEVER: &str = r"[^\s\S]";

/// A participle or infinitive after a causative verb and its object, as in "has readers wait" for "makes readers wait".
const CAUSATIVE: &str = r"\b(?:[Hh]as|[Hh]ave|had) (?:it|them|others|answers|clients|origins|(?:a|an|the|its) [\w-]+(?: [\w-]+)?|[a-z]+s) (?:be|go|do|say|speak|stored?|done|keep|kept|ask|asked|write|written|begin|make|made|fetch|fetched|validated|intercepted|serve|served|take|taken|trust|come|print|printed|forget|forgotten|read|looked|named|evicted|notice)\b";

const PATTERNS: [Pattern; 17] = [
    pattern(
        "doc-opens-with-wh",
        Scope::FirstParagraph,
        r"^(?:By how|For how|Of what|From what|For what|What|Which|Where|Who|Whose|How)\b",
    ),
    pattern(
        "doc-opens-with-pronoun",
        Scope::FirstParagraph,
        r"^(?:It|They|These|Its|Their)\b|^(?:Whether|How|What|Where|When|Why) (?:it|they|its|their)\b|^[A-Z][a-z]+s (?:it|them|one|these)\.?$",
    ),
    pattern(
        "function-doc-without-verb",
        Scope::FunctionDoc,
        r"^(?:(?:[A-Z][a-z]*[^s\W]|[AI]|This|Its|Whose|Always)[ ,.]|\[|`)",
    ),
    Pattern {
        rule: "headless-who",
        scope: Scope::Sentence,
        matches: r"\b(?:for|of|to|by|with|and|but|so that) who(?:ever)?\b",
        unless_followed_by: r"^ else",
    },
    Pattern {
        rule: "headless-who",
        scope: Scope::Sentence,
        matches: r"(?:^|[.;:] )[Ww]ho(?:ever)? ",
        unless_followed_by: r"^[^.]*\?",
    },
    Pattern {
        rule: "causative-has",
        scope: Scope::Sentence,
        matches: r"(?:^|[.;] )Has ",
        unless_followed_by: r"^(?:been|[^a-z\[`])",
    },
    pattern("causative-has", Scope::Sentence, CAUSATIVE),
    Pattern {
        rule: "so-many",
        scope: Scope::Sentence,
        matches: r"\b[Ss]o (?:many|long|often|much)\b",
        unless_followed_by: r"^ (?:that|as|more|less|so)|^[^.;]* (?:that|as) ",
    },
    pattern(
        "gone-by-had",
        Scope::Sentence,
        r"\b(?:gone|goes?|going) (?:by|without)\b|\b(?:can|cannot|could|to) be had\b|\bbecom?[ea]s? of\b|\bwhat (?:it|that|this|they) comes? to\b|\bcomes? of\b",
    ),
    Pattern {
        rule: "told",
        scope: Scope::Sentence,
        matches: r"\b(?:is|are|be|was|were) told\b",
        unless_followed_by: r"^ (?:right|apart)",
    },
    pattern("told", Scope::Sentence, r"\btells? of\b|, and told\b|\btold (?:by|in|with)\b"),
    Pattern { rule: "beside-anew", scope: Scope::Sentence, matches: r"\bbesides\b", unless_followed_by: r"^ the" },
    pattern(
        "beside-anew",
        Scope::Sentence,
        r"\banew\b|\bof late\b|\bbeside\b|\b[Ee]lse (?:the|it|they|one|a|no|all|that|none)\b|[;,] else\b|\bfor ever\b|\bfrom then on\b",
    ),
    pattern("two-whats", Scope::Sentence, r"\b[Ww]hat\b[^.?]*\bwhat\b"),
    Pattern {
        rule: "docs-free-relative",
        scope: Scope::DocumentSentence,
        matches: r"\b[Ww]hat\b",
        unless_followed_by: r"^ (?:is|are) (?:new|left)\b|^[^.]*\?",
    },
    Pattern {
        rule: "docs-free-relative",
        scope: Scope::DocumentSentence,
        matches: r"\b[Ww]ho(?:ever)?\b",
        unless_followed_by: r"^[^.]*\?",
    },
    pattern("docs-over-35-words", Scope::DocumentSentence, r"^(?:\S+\s+){35}\S"),
];

/// The patterns, compiled.
pub(crate) struct Rules {
    compiled: Vec<CompiledPattern>,
}

struct CompiledPattern {
    rule: &'static str,
    scope: Scope,
    matches: Regex,
    unless_followed_by: Option<Regex>,
}

/// A rule that a text breaks, and the sentence that breaks it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BrokenRule {
    pub(crate) rule: &'static str,
    pub(crate) sentence: String,
}

impl Rules {
    /// Compiles all patterns.
    pub(crate) fn new() -> Self {
        let compile = |text: &str| Regex::new(text).expect("the patterns are constants that the tests compile");
        let compiled = PATTERNS.iter().map(|pattern| CompiledPattern {
            rule: pattern.rule,
            scope: pattern.scope,
            matches: compile(pattern.matches),
            unless_followed_by: (pattern.unless_followed_by != NEVER).then(|| compile(pattern.unless_followed_by)),
        });
        Self { compiled: compiled.collect() }
    }

    /// Returns the rules that `prose` breaks, each at most once per sentence.
    pub(crate) fn broken_by(&self, prose: &Prose) -> Vec<BrokenRule> {
        let sentences = prose.sentences();
        let first = [prose.first_paragraph()];
        let mut broken: Vec<BrokenRule> = Vec::new();
        for pattern in &self.compiled {
            let read: &[String] = match (pattern.scope, prose.place) {
                (Scope::FirstParagraph, Place::ItemDoc { .. }) => &first,
                (Scope::FunctionDoc, Place::ItemDoc { is_function: true }) => &first,
                (Scope::Sentence, _) | (Scope::DocumentSentence, Place::Document) => &sentences,
                _ => &[],
            };
            for sentence in read.iter().filter(|sentence| pattern.is_in(sentence)) {
                let found = BrokenRule { rule: pattern.rule, sentence: sentence.clone() };
                if !broken.contains(&found) {
                    broken.push(found);
                }
            }
        }
        broken
    }
}

impl CompiledPattern {
    fn is_in(&self, text: &str) -> bool {
        let follows = |end: usize| self.unless_followed_by.as_ref().is_some_and(|regex| regex.is_match(&text[end..]));
        self.matches.find_iter(text).any(|found| !follows(found.end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(place: Place, text: &str) -> Vec<&'static str> {
        let prose = Prose { place, line: 1, text: text.to_owned() };
        Rules::new().broken_by(&prose).into_iter().map(|broken| broken.rule).collect()
    }

    #[test]
    fn each_rule_finds_its_pattern() {
        let function = Place::ItemDoc { is_function: true };
        for (place, text, rule) in [
            (Place::ItemDoc { is_function: false }, "By how much it was late.", "doc-opens-with-wh"),
            (Place::ItemDoc { is_function: false }, "Reads them.", "doc-opens-with-pronoun"),
            (function, "The entry of a key.", "function-doc-without-verb"),
            (function, "Whether the entry is fresh.", "function-doc-without-verb"),
            (Place::ModuleDoc, "Rooms for who waits.", "headless-who"),
            (Place::ModuleDoc, "Has answers say so.", "causative-has"),
            (Place::Message, "cannot have clients trust it", "causative-has"),
            (Place::ModuleDoc, "Of 256 entries so many stay.", "so-many"),
            (Place::Message, "the volume is gone without", "gone-by-had"),
            (Place::Message, "the operator is told once", "told"),
            (Place::Message, "read it anew", "beside-anew"),
            (Place::ModuleDoc, "It says what is stored and what is not.", "two-whats"),
            (Place::Document, "It keeps what is hit.", "docs-free-relative"),
            (Place::Document, &"word ".repeat(36), "docs-over-35-words"),
        ] {
            assert_eq!(broken(place, text), [rule], "{text}");
        }
    }

    #[test]
    fn plain_sentences_pass() {
        let function = Place::ItemDoc { is_function: true };
        for (place, text) in [
            (function, "Returns the entry, if the key has one."),
            (function, "Waits until all writes are durable."),
            (Place::Document, "What is new? Who reads it?"),
            (Place::Document, "Entries stay so long as they are hit."),
            (Place::Document, &"word ".repeat(35)),
            (Place::Message, "the segment has been read, somebody else waits"),
        ] {
            assert_eq!(broken(place, text), Vec::<&str>::new(), "{text}");
        }
    }
}
