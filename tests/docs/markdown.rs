//! As much of Markdown as the tests need: fenced blocks, headings, links.

use regex::Regex;

/// A fenced block.
pub struct Block {
    /// What stands behind the opening fence.
    pub info: String,
    /// Its text, newline-terminated.
    pub text: String,
    /// The number of its first line, counted from 0.
    pub first: usize,
    /// The number of the line of its closing fence.
    pub end: usize,
}

/// The fenced blocks of a document.
pub fn blocks(document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, Block)> = None;
    for (number, line) in document.lines().enumerate() {
        let fence = &line[..line.len() - line.trim_start_matches('`').len()];
        match &mut open {
            None if fence.len() >= 3 => {
                let info = line[fence.len()..].trim().to_owned();
                let block = Block { info, text: String::new(), first: number + 1, end: 0 };
                open = Some((fence, block));
            }
            None => {}
            Some((opened, _)) if fence == *opened && line == fence => {
                let (_, block) = open.take().unwrap();
                blocks.push(Block { end: number, ..block });
            }
            Some((_, block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

/// The document without its fenced blocks and code spans.
pub fn prose(document: &str) -> String {
    let mut inside = false;
    let mut out = String::new();
    for line in document.lines() {
        if line.starts_with("```") {
            inside = !inside;
        } else if !inside {
            out.push_str(line);
            out.push('\n');
        }
    }
    Regex::new("``[^`].*?``|`[^`]*`").unwrap().replace_all(&out, "code").into_owned()
}

/// The names under which the document's headings can be linked to, as GitHub makes them.
pub fn anchors(document: &str) -> Vec<String> {
    let mut inside = false;
    let mut anchors: Vec<String> = Vec::new();
    for line in document.lines() {
        if line.starts_with("```") {
            inside = !inside;
        }
        let title = line.trim_start_matches('#');
        if inside || title == line || !title.starts_with(' ') {
            continue;
        }
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let plain: String = title.trim().to_lowercase().chars().filter(kept).collect();
        let anchor = plain.replace(' ', "-");
        let again = anchors.iter().filter(|other| **other == anchor).count();
        anchors.push(if again == 0 { anchor } else { format!("{anchor}-{again}") });
    }
    anchors
}

/// The targets of the document's links.
pub fn links(document: &str) -> Vec<String> {
    let link = Regex::new(r"\]\(([^()\s]+)\)").unwrap();
    link.captures_iter(&prose(document)).map(|found| found[1].to_owned()).collect()
}
