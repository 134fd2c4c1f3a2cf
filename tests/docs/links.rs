//! Links between documents lead somewhere.

use super::markdown::{anchors, links};
use super::{root, texts};
use std::fs;
use std::path::Path;

#[test]
fn links_between_documents_resolve() {
    let mut broken = Vec::new();
    for (file, text) in texts(&[".md"]) {
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            if let Err(why) = check(&file, &text, &link) {
                broken.push(format!("{}: {link}: {why}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

fn check(file: &Path, text: &str, link: &str) -> Result<(), String> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = root().join(file.parent().unwrap()).join(path);
    let text = match path {
        "" => text.to_owned(),
        _ if target.is_dir() || (anchor.is_empty() && target.is_file()) => return Ok(()),
        _ => fs::read_to_string(&target).map_err(|error| error.to_string())?,
    };
    match anchor.is_empty() || anchors(&text).iter().any(|known| known == anchor) {
        true => Ok(()),
        false => Err(format!("no heading gives `{anchor}`; there are {:?}", anchors(&text))),
    }
}

#[test]
fn the_summary_names_every_document() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let named = links(&summary);
    let missing: Vec<_> = texts(&[".md"])
        .into_iter()
        .filter_map(|(file, _)| Some(file.strip_prefix("docs").ok()?.display().to_string()))
        .filter(|file| file != "SUMMARY.md" && !named.contains(file))
        .collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md lacks {missing:?}");
}
