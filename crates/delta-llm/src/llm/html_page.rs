//! The title of an HTML page that a proxy or a wrong address sends in place of JSON; without one, its first words.

use delta_base::terminal_text::truncate_to_line;

/// The most characters of a title.
const MAX_TITLE_CHARS: usize = 120;

/// What to show of `body` if it is an HTML page: its title.
pub fn describe_html(body: &str) -> Option<String> {
    let start = body.trim_start_matches('\u{feff}').trim_start();
    // Searched by bytes: to_ascii_lowercase keeps every offset.
    let lower = start.to_ascii_lowercase();
    let is_html =
        ["<!doctype html", "<html", "<head", "<body"].iter().any(|tag| lower.starts_with(tag))
            || lower.starts_with("<!--") && lower.contains("<html");
    if !is_html {
        return None;
    }
    let title = ["title", "h1"].iter().find_map(|tag| element_text(start, &lower, tag));
    Some(title.or_else(|| plain_text(start)).map_or_else(
        || "an HTML page without text".to_owned(),
        |title| format!("an HTML page, \"{title}\""),
    ))
}

/// The text of the first element `tag` that has some, on one line.
fn element_text(page: &str, lower: &str, tag: &str) -> Option<String> {
    let open = lower.find(&format!("<{tag}"))?;
    let start = open + lower[open..].find('>')? + 1;
    let end = start + lower[start..].find(&format!("</{tag}"))?;
    plain_text(&page[start..end])
}

/// The start of the text of `html`, on one line.
fn plain_text(html: &str) -> Option<String> {
    let text = decode_entities(&strip_tags(html));
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = truncate_to_line(&words.join(" "), MAX_TITLE_CHARS);
    (!text.is_empty()).then_some(text)
}

fn strip_tags(html: &str) -> String {
    let mut text = String::new();
    let mut is_tag = false;
    for c in html.chars() {
        match c {
            '<' => is_tag = true,
            '>' if is_tag => is_tag = false,
            c if !is_tag => text.push(c),
            _ => {}
        }
    }
    text
}

/// Replaces the entities that titles have; `&amp;` last, so that nothing is decoded twice.
fn decode_entities(text: &str) -> String {
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " ")];
    let text = entities.iter().fold(text.to_owned(), |text, (name, c)| text.replace(name, c));
    text.replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_25_6_an_html_body_is_described_by_its_title() {
        let check = |body: &str, expected: &str| {
            assert_eq!(describe_html(body).as_deref(), Some(expected), "{body}");
        };
        check(
            "\n<!DOCTYPE html><html><head>\n<title>\n 502  Bad\nGateway </title></head>",
            "an HTML page, \"502 Bad Gateway\"",
        );
        check("<html><TITLE lang=en>a &amp;lt; b &lt; ß</TITLE>", "an HTML page, \"a &lt; b < ß\"");
        check("<html><title></title><h1>So <b>sorry</b></h1>", "an HTML page, \"So sorry\"");
        check("<!-- x --><html><p>hi", "an HTML page, \"hi\"");
        check("<html><title>never ends", "an HTML page, \"never ends\"");
        check("<html><body></body>", "an HTML page without text");
        check(
            &format!("<html><title>{}</title>", "x".repeat(500)),
            &format!("an HTML page, \"{}…\"", "x".repeat(120)),
        );
        for body in ["", "{\"error\": \"<html>\"}", "plain text", "<xml/>"] {
            assert_eq!(describe_html(body), None, "{body}");
        }
    }
}
