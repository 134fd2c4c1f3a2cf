//! A page as one self-contained HTML file.
//!
//! The content security policy names the hashes of the page's script and style, so the browser runs nothing else.
//! The data is JSON in an element that no text in it can close; the script turns it into text nodes only.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

/// The parts of a page.
pub struct HtmlDocument<'a> {
    /// The first bytes of the file, by which delta knows its pages.
    pub mark: &'a str,
    /// The title, any text.
    pub title: &'a str,
    /// The style sheet.
    pub style: &'a str,
    /// The body, up to the data.
    pub body: &'a str,
    /// The script, which reads the data.
    pub script: &'a str,
    /// The part of the policy that allows the page to ask for more.
    pub connections: &'a str,
}

impl HtmlDocument<'_> {
    /// Builds the file. `data` is JSON that [`escape_json_for_html`] has escaped.
    pub fn to_html(&self, data: &str) -> String {
        let Self { mark, title, style, body, script, connections } = self;
        let policy = format!(
            "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:;{connections} base-uri 'none'; form-action 'none'",
            csp_hash(script),
            csp_hash(style)
        );
        let title = escape_text(title);
        format!(
            "{mark}\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta name=\"referrer\" content=\"no-referrer\">\n\
             <title>{title} · delta</title>\n<style>{style}</style></head>\n{body}\
             <script type=\"application/json\" id=\"data\">{data}</script>\n\
             <script>{script}</script>\n</body></html>\n"
        )
    }
}

/// Escapes every character that could end the data element or change how the file is parsed.
pub fn escape_json_for_html(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + json.len() / 16);
    for c in json.chars() {
        match c {
            // JSON has these only inside strings, where `\u` escapes are allowed.
            '<' | '>' | '&' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out
}

fn escape_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The hash of a script or a style as a content security policy writes it.
fn csp_hash(text: &str) -> String {
    BASE64_STANDARD.encode(Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_18_3_no_text_ends_the_element_that_holds_it() {
        let text =
            "</script><!--<script>]]>&lt;\u{2028}\u{2029}\u{85}\u{0}\u{feff}\\u003c\"'ä\u{1f600}";
        let json = escape_json_for_html(&serde_json::to_string(&[text]).unwrap());
        let found = |c: char| "<>&\u{2028}\u{2029}\u{85}\u{feff}".contains(c) || c < ' ';
        assert!(!json.contains(found), "{json}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&json).unwrap(), [text]);
    }

    #[test]
    fn c_18_3_the_policy_names_the_script_and_the_style_that_are_there() {
        let document = HtmlDocument {
            mark: "<!doctype html>",
            title: "</title><script>",
            style: "b{color:red}",
            body: "<body>",
            script: "go()",
            connections: "",
        };
        let page = document.to_html("{}");
        for (kind, text) in [("script-src", "go()"), ("style-src", "b{color:red}")] {
            assert!(page.contains(&format!("{kind} 'sha256-{}';", csp_hash(text))), "{kind}");
        }
        assert_eq!(page.matches("default-src 'none';").count(), 1);
        assert_eq!(page.matches("<script").count(), 2, "{page}");
    }
}
