//! Reads the media type of a response from Content-Type, without parameters (RFC 9110 8.3).

use http::header::CONTENT_TYPE;

use super::Fields;

/// Returns the media type in Content-Type as written, without parameters. `None` if the field is absent, empty or
/// repeated.
pub fn media_type(fields: &impl Fields) -> Option<&str> {
    let value = std::str::from_utf8(fields.single(&CONTENT_TYPE)?).ok().filter(|value| value.is_ascii())?;
    let end = value.find(';').unwrap_or(value.len());
    Some(value[..end].trim()).filter(|kind| !kind.is_empty())
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    fn of(values: &[&'static str]) -> Option<String> {
        let mut fields = HeaderMap::new();
        for value in values {
            fields.append(CONTENT_TYPE, http::HeaderValue::from_static(value));
        }
        media_type(&fields).map(str::to_owned)
    }

    #[test]
    fn parameters_do_not_belong_to_it() {
        for value in ["Text/HTML", "Text/HTML;charset=utf-8", " Text/HTML ; q=\"a;b\""] {
            assert_eq!(of(&[value]).as_deref(), Some("Text/HTML"), "{value}");
        }
    }

    #[test]
    fn a_field_that_names_none_or_two_has_none() {
        for values in [&[][..], &[""], &["; q=1"], &["a/b", "a/b"]] {
            assert_eq!(of(values), None, "{values:?}");
        }
    }
}
