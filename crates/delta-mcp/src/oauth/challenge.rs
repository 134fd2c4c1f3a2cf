//! The header `WWW-Authenticate` of a server that refuses access (RFC 6750, RFC 9728).

use super::split_scopes;

/// What a server says about the access that it wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BearerChallenge {
    /// The address of the metadata of the resource.
    pub resource_metadata: Option<String>,
    /// The scopes that the request needs.
    pub scopes: Vec<String>,
    /// The error code.
    pub error: Option<String>,
}

impl BearerChallenge {
    /// The challenge of the scheme `Bearer` in the values of the header; `None` without one.
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut bearer: Option<Self> = None;
        let mut is_bearer = false;
        for item in values.into_iter().flat_map(split_items) {
            let item = match item.split_once(|c: char| c.is_ascii_whitespace()) {
                // A parameter that follows the name of a scheme, unless the blank is around `=`.
                Some((scheme, rest))
                    if !scheme.contains('=') && !rest.trim_start().starts_with('=') =>
                {
                    is_bearer = scheme.eq_ignore_ascii_case("bearer");
                    rest.trim_start()
                }
                _ if !item.contains('=') => {
                    is_bearer = item.eq_ignore_ascii_case("bearer");
                    ""
                }
                _ => item,
            };
            if !is_bearer {
                continue;
            }
            let challenge = bearer.get_or_insert_default();
            let Some((name, value)) = item.split_once('=') else { continue };
            let value = unquote(value.trim());
            match name.trim().to_ascii_lowercase().as_str() {
                "resource_metadata" => challenge.resource_metadata = Some(value),
                "scope" => challenge.scopes = split_scopes(&value),
                "error" => challenge.error = Some(value),
                _ => {}
            }
        }
        bearer
    }

    /// Whether the token is good, and allows too little.
    pub fn needs_more_scopes(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }
}

/// The items of a header, which commas outside of quotes separate.
fn split_items(value: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let mut start = 0;
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (index, byte) in value.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => {
                items.push(&value[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    items.push(&value[start..]);
    items.into_iter().map(str::trim).filter(|item| !item.is_empty()).collect()
}

fn unquote(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut text = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        text.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bearer_challenge_is_found_among_others() {
        let parse = |values: &[&str]| BearerChallenge::parse(values.iter().copied());
        let whole = BearerChallenge {
            resource_metadata: Some("https://a.example/m,x".into()),
            scopes: vec!["read".into(), "write".into()],
            error: Some("insufficient_scope".into()),
        };
        let text = r#"Bearer resource_metadata="https://a.example/m,x", scope="read write",error=insufficient_scope"#;
        assert_eq!(parse(&[text]), Some(whole.clone()));
        let mixed =
            format!(r#"Basic realm="x, Bearer scope=\"no\"", {text}, Digest scope="other""#);
        assert_eq!(parse(&[&mixed]), Some(whole.clone()));
        assert_eq!(parse(&["Negotiate", &text.replace("Bearer", "bearer")]), Some(whole));
        assert_eq!(parse(&["Bearer"]), Some(BearerChallenge::default()));
        assert_eq!(parse(&["Bearer scope = \"a\""]).unwrap().scopes, ["a"]);
        assert_eq!(parse(&["Basic realm=\"Bearer\"", ""]), None);
        assert_eq!(parse(&[]), None);
    }

    proptest! {
        #[test]
        fn every_header_is_read(text in "[ -~]{0,60}") {
            let _ = BearerChallenge::parse([text.as_str()]);
        }
    }
}
