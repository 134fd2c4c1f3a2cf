//! Secrets in URLs: the password before the host, keys in the query, and in the path of an endpoint.
//!
//! A URL is sent as it is, and shown and recorded without them.

use super::redact::{REDACTED, Secrets};
use std::borrow::Cow;
use std::ops::Range;

/// Parameters of endpoints whose values are public.
const PUBLIC_PARAMETERS: [&str; 7] =
    ["alt", "api-version", "api_version", "limit", "pageSize", "region", "version"];

/// Parts of the names of parameters whose values are secrets.
const SECRET_NAMES: [&str; 9] =
    ["key", "token", "secret", "password", "passwd", "pwd", "auth", "credential", "sig"];

/// The URL as it is shown and recorded: the password, what looks like a key in the path, and the values of the query, but
/// for some well-known parameters, are replaced by `[redacted]`.
pub fn mask_url(url: &str) -> String {
    let Some(start) = url.find("://") else { return url.to_owned() };
    let ranges = endpoint_secret_ranges(url, start + 3);
    replace_ranges(url, &ranges, |_| REDACTED.to_owned())
}

/// The secrets in a URL, long enough for [`Secrets`]: a short one with what is next to it.
pub fn url_secrets(url: &str) -> Vec<String> {
    let Some(start) = url.find("://") else { return Vec::new() };
    let ranges = endpoint_secret_ranges(url, start + 3).into_iter();
    // An account may be named by such digits, and files may name it too.
    let ranges = ranges.filter(|range| !is_hexadecimal_id(&url[range.clone()]));
    ranges.map(|range| searchable_secret(url, range)).collect()
}

/// The secret at `range` of a URL, or if it is short the part of the URL that it ends.
fn searchable_secret(url: &str, range: Range<usize>) -> String {
    if range.len() >= Secrets::MIN_LENGTH {
        return url[range].to_owned();
    }
    let part = url[..range.start].rfind(['/', '?', '&', ';']).map_or(0, |at| at + 1);
    url[part..range.end].to_owned()
}

/// A line with `*` in place of each letter of a password or a key in its URLs, so that its columns stay.
pub fn blank_url_secrets(line: &str) -> Cow<'_, str> {
    let mut ranges = Vec::new();
    for (scheme_end, _) in line.match_indices("://") {
        let start = scheme_end + 3;
        let length = line[start..].find(is_end_of_url).unwrap_or(line.len() - start);
        ranges.extend(secret_ranges(line, start..start + length, has_secret_name));
    }
    // A URL in the query of another one is a part of a range already.
    ranges.sort_by_key(|range| range.start);
    ranges.dedup_by(|next, range| next.start < range.end);
    if ranges.is_empty() {
        return Cow::Borrowed(line);
    }
    Cow::Owned(replace_ranges(line, &ranges, |secret| "*".repeat(secret.chars().count())))
}

fn is_end_of_url(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>')
}

/// Whether the value of a parameter of an endpoint's address is a secret: any that is not known to be public.
fn is_secret_of_endpoint(parameter: &str) -> bool {
    !PUBLIC_PARAMETERS.contains(&parameter)
}

/// Whether the value of a parameter of any URL is a secret.
fn has_secret_name(parameter: &str) -> bool {
    let name = parameter.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// Where the secrets are in the URL of an endpoint, whose host begins at `start`.
fn endpoint_secret_ranges(url: &str, start: usize) -> Vec<Range<usize>> {
    let mut ranges = secret_ranges(url, start..url.len(), is_secret_of_endpoint);
    let end = url[start..].find(['?', '#']).map_or(url.len(), |at| start + at);
    let path = url[start..end].find('/').map_or(end, |at| start + at);
    let mut at = path;
    for segment in url[path..end].split('/') {
        if looks_like_key(segment) {
            ranges.push(at..at + segment.len());
        }
        at += segment.len() + 1;
    }
    ranges.sort_by_key(|range| range.start);
    ranges
}

/// Whether a part of a path is a key rather than a name: it begins as keys do, or has so many letters and digits in a row
/// that no name has.
fn looks_like_key(segment: &str) -> bool {
    const MIN_KEY_LENGTH: usize = 16;
    const MIN_RUN_LENGTH: usize = 20;
    let has_key_prefix = ["sk-", "pk-", "key-", "token-"].iter().any(|it| segment.starts_with(it));
    has_key_prefix && segment.len() >= MIN_KEY_LENGTH
        || segment.split(|c: char| !c.is_ascii_alphanumeric()).any(|run| {
            run.len() >= MIN_RUN_LENGTH
                && run.contains(|c: char| c.is_ascii_digit())
                && run.contains(|c: char| c.is_ascii_alphabetic())
        })
}

fn is_hexadecimal_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Where the secrets are in a URL whose part after `://` is at `url` in `text`.
fn secret_ranges(text: &str, url: Range<usize>, is_secret: fn(&str) -> bool) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let rest = &text[url.clone()];
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    if let Some((user, _)) = authority.rsplit_once('@') {
        let password = user.find(':').map_or(0, |at| at + 1);
        ranges.push(url.start + password..url.start + user.len());
    }
    let before_fragment = rest.find('#').unwrap_or(rest.len());
    let Some(query) = rest[..before_fragment].find('?') else {
        return without_empty(ranges);
    };
    let mut start = url.start + query + 1;
    for parameter in rest[query + 1..before_fragment].split(['&', ';']) {
        let (name, value_at) = match parameter.split_once('=') {
            Some((name, _)) => (name, name.len() + 1),
            // A key alone.
            None => ("", 0),
        };
        if is_secret(name) {
            ranges.push(start + value_at..start + parameter.len());
        }
        start += parameter.len() + 1;
    }
    without_empty(ranges)
}

fn without_empty(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.retain(|range| !range.is_empty());
    ranges
}

fn replace_ranges(
    text: &str,
    ranges: &[Range<usize>],
    replacement: impl Fn(&str) -> String,
) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut end = 0;
    for range in ranges {
        replaced.push_str(&text[end..range.start]);
        replaced.push_str(&replacement(&text[range.clone()]));
        end = range.end;
    }
    replaced.push_str(&text[end..]);
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_15_3_passwords_and_keys_in_a_url_are_masked() {
        for (url, masked) in [
            ("https://host/v1", "https://host/v1"),
            ("https://user:secret@host:8/v1", "https://user:[redacted]@host:8/v1"),
            ("https://token@host", "https://[redacted]@host"),
            ("https://user:@host/a@b", "https://user:@host/a@b"),
            (
                "https://host/v1?key=secret&api-version=2024-10-21&x=y#z",
                "https://host/v1?key=[redacted]&api-version=2024-10-21&x=[redacted]#z",
            ),
            ("https://host?secret", "https://host?[redacted]"),
            ("https://host/v1?key=", "https://host/v1?key="),
            ("user:secret@host", "user:secret@host"),
            ("https://host/sk-proxy-0123456789/v1", "https://host/[redacted]/v1"),
            (
                "https://host/p/aB3dE5gH7jK9mN1pQ3sT/v1?key=x#y",
                "https://host/p/[redacted]/v1?key=[redacted]#y",
            ),
            (
                "https://host/v1/0123456789abcdef0123456789abcdef/gateway/openai",
                "https://host/v1/[redacted]/gateway/openai",
            ),
            (
                "https://host/openai/deployments/gpt-4o-mini-2024-07-18-production/v1",
                "https://host/openai/deployments/gpt-4o-mini-2024-07-18-production/v1",
            ),
        ] {
            assert_eq!(mask_url(url), masked);
        }
    }

    #[test]
    fn c_15_3_a_secret_too_short_to_be_searched_for_has_what_is_next_to_it() {
        let url = "https://user:secret@host/v1?key=abc&token=0123456789";
        assert_eq!(url_secrets(url), ["user:secret", "key=abc", "0123456789"]);
        assert_eq!(url_secrets("https://host/v1?alt=sse"), Vec::<String>::new());
        assert_eq!(url_secrets("https://host/sk-proxy-0123456789/v1"), ["sk-proxy-0123456789"]);
        let account = "https://host/v1/0123456789abcdef0123456789abcdef/gateway";
        assert_eq!(url_secrets(account), Vec::<String>::new());
    }

    #[test]
    fn c_15_3_a_line_of_a_file_keeps_its_columns() {
        for (line, blanked) in [
            (
                "  base_url: \"https://me:äb@host/v1?api_key=cd\" # why",
                "  base_url: \"https://me:**@host/v1?api_key=**\" # why",
            ),
            (
                "see https://host/?q=words and http://t@h",
                "see https://host/?q=words and http://*@h",
            ),
            ("http://h/?key=http://u:p@x tail", "http://h/?key=************ tail"),
            ("no://", "no://"),
        ] {
            assert_eq!(blank_url_secrets(line), blanked);
        }
    }
}
