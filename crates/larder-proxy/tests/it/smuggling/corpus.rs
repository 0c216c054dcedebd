//! Parses the corpus. The head of each file describes its format.

/// One case.
pub(crate) struct Case {
    pub(crate) name: String,
    /// The request's method, where the case is about its response.
    pub(crate) method: Option<String>,
    pub(crate) sent: Vec<u8>,
    /// Whether the sender closes the connection after it.
    pub(crate) ends: bool,
    pub(crate) outcomes: Vec<Outcome>,
    /// The outcome by some ways in that differ, and the reasons.
    pub(crate) others: Vec<(String, Outcome)>,
}

impl Case {
    /// Returns the expected outcomes by the way in with this name.
    pub(crate) fn outcomes_by(&self, way: &str) -> Vec<&Outcome> {
        match self.others.iter().find(|(name, _)| name == way) {
            Some((_, outcome)) => vec![outcome],
            None => self.outcomes.iter().collect(),
        }
    }
}

/// The expected outcome of a case, in order of arrival.
pub(crate) struct Outcome {
    pub(crate) words: String,
    /// Fields that must be there with their values, or must not.
    pub(crate) fields: Vec<(String, Option<Vec<u8>>)>,
}

/// Parses the cases of a file.
pub(crate) fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[') {
            let name = name.split_once(']').expect("a name is in brackets").0.to_owned();
            assert!(cases.iter().all(|case| case.name != name), "two cases are called {name}");
            cases.push(Case {
                name,
                method: None,
                sent: Vec::new(),
                ends: false,
                outcomes: Vec::new(),
                others: Vec::new(),
            });
            continue;
        }
        let case = cases.last_mut().expect("a case begins with its name");
        let kind = line.as_bytes()[0];
        let rest = line.get(2..).unwrap_or_default();
        match kind {
            b'>' => {
                case.sent.extend(unescape(rest));
                case.sent.extend(b"\r\n");
            }
            b'+' => case.sent.extend(unescape(rest)),
            b'@' => case.method = Some(rest.to_owned()),
            b'~' => case.ends = true,
            b'=' => case.outcomes.push(Outcome { words: rest.to_owned(), fields: Vec::new() }),
            b'&' => {
                let (way, words) = rest.split_once(' ').expect("a way in has an outcome");
                let words = words.split(" (").next().unwrap_or_default().to_owned();
                case.others.push((way.to_owned(), Outcome { words, fields: Vec::new() }));
            }
            b'?' | b'!' => {
                let (name, value) = match rest.split_once(": ") {
                    Some((name, value)) => (name, Some(unescape(value))),
                    None => (rest, None),
                };
                let outcome = case.outcomes.last_mut().expect("a field belongs to an outcome");
                outcome.fields.push((name.to_owned(), value));
            }
            _ => panic!("what is this: {line}"),
        }
    }
    for case in &cases {
        assert!(!case.outcomes.is_empty(), "{} has no outcome", case.name);
    }
    cases
}

/// Octets as written: `\r`, `\n`, `\t`, `\0`, `\\`, `\xHH`, and `{text*count}`.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    if let Some((before, rest)) = text.split_once('{')
        && let Some((inside, after)) = rest.split_once('}')
        && let Some((repeated, count)) = inside.rsplit_once('*')
    {
        let count = count.parse().expect("a count is a number");
        return [unescape(before), unescape(repeated).repeat(count), unescape(after)].concat();
    }
    let mut octets = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        rest = others;
        if *first != b'\\' {
            octets.push(*first);
            continue;
        }
        let (kind, others) = others.split_first().expect("something follows a backslash");
        rest = others;
        octets.push(match kind {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'0' => 0,
            b'\\' => b'\\',
            b'x' => {
                let digits = std::str::from_utf8(&others[..2]).expect("two digits follow");
                rest = &others[2..];
                u8::from_str_radix(digits, 16).expect("two digits follow")
            }
            _ => panic!("no such escape in {text}"),
        });
    }
    octets
}
