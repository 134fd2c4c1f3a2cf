//! A run as a page: one HTML file that holds everything, asks nobody for anything, and takes no word of the run for code.
//!
//! The page's own script and style are the only ones that its policy lets through, by their hashes; what the run said
//! is data in an element that nothing in it can end, and the script shows it as text only.

use crate::time::Timestamp;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::path::PathBuf;

mod files;
mod hidden;
mod iteration;
mod requests;
mod run;
mod tree;
mod workspace;

/// How every page begins, and by which one is known.
pub const MARK: &str = "<!doctype html><!-- delta view -->";

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const BODY: &str = include_str!("page.html");

/// What is to be shown.
#[derive(Debug)]
pub struct Wanted {
    /// The directories of the runs, absolute.
    pub run_dirs: Vec<PathBuf>,
    /// Whether the requests are shown too.
    pub requests: bool,
}

/// Everything that the page shows.
#[derive(Debug, Serialize)]
struct Data {
    /// Of the program that made it.
    version: &'static str,
    made_at: Timestamp,
    /// The runs that were asked for, by their places in `runs`.
    roots: Vec<usize>,
    runs: Vec<run::Run>,
}

/// The page of runs, with those that were begun inside them.
pub fn page(wanted: &Wanted, now: Timestamp) -> String {
    let (runs, roots) = tree::collect(wanted);
    let answers: Vec<String> = runs.iter().flat_map(|run| run.sensitive.clone()).collect();
    let data = Data { version: env!("CARGO_PKG_VERSION"), made_at: now, roots, runs };
    let text = match answers.is_empty() {
        true => serde_json::to_string(&data).unwrap_or_default(),
        false => {
            let mut value = serde_json::to_value(&data).unwrap_or(Json::Null);
            hidden::hide(&mut value, &answers);
            value.to_string()
        }
    };
    let title = data.runs.first().map_or("delta", |run| run.id.as_str());
    assemble(title, &inert(&text))
}

/// `json` in a form that no reader of HTML takes for anything but text.
fn inert(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + json.len() / 16);
    for c in json.chars() {
        match c {
            // Outside of its texts JSON has none of these.
            '<' | '>' | '&' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out
}

/// The hash of a script or a style, as a policy names it.
fn hash(text: &str) -> String {
    BASE64_STANDARD.encode(Sha256::digest(text.as_bytes()))
}

/// The whole file. `title` is a run's id, and so a plain name.
fn assemble(title: &str, data: &str) -> String {
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(STYLE)
    );
    format!(
        "{MARK}\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title} · delta</title>\n<style>{STYLE}</style></head>\n{BODY}\
         <script type=\"application/json\" id=\"data\">{data}</script>\n\
         <script>{SCRIPT}</script>\n</body></html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_18_3_no_text_ends_the_element_that_holds_it() {
        let text =
            "</script><!--<script>]]>&lt;\u{2028}\u{2029}\u{85}\u{0}\u{feff}\\u003c\"'ä\u{1f600}";
        let json = inert(&serde_json::to_string(&[text]).unwrap());
        let found = |c: char| "<>&\u{2028}\u{2029}\u{85}\u{feff}".contains(c) || c < ' ';
        assert!(!json.contains(found), "{json}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&json).unwrap(), [text]);
    }

    #[test]
    fn c_18_3_the_policy_names_the_script_and_the_style_that_are_there() {
        let page = assemble("r", "{}");
        let between = |from: &str, to: &str| {
            let (_, rest) = page.rsplit_once(from).unwrap();
            rest.split_once(to).unwrap().0.to_owned()
        };
        let (script, style) = (between("<script>", "</script>"), between("<style>", "</style>"));
        for (kind, text) in [("script-src", script), ("style-src", style)] {
            assert!(page.contains(&format!("{kind} 'sha256-{}';", hash(&text))), "{kind}");
        }
        assert_eq!(page.matches("default-src 'none';").count(), 1);
        assert!(!SCRIPT.contains("innerHTML") && !SCRIPT.contains("</"), "text becomes text only");
    }
}
