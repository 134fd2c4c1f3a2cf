//! CHANGELOG.md has the form of Keep a Changelog, which tools for releases read.

use super::root;
use regex::Regex;
use std::fs;

/// The sections of a version, in the order of <https://keepachangelog.com/en/1.1.0/>.
const SECTIONS: [&str; 6] = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];

/// The text under a heading: its number, its title, and whether it has an entry.
struct Part<'a> {
    line: usize,
    title: &'a str,
    has_entry: bool,
}

/// Reports a section that is unknown, repeated, out of order or empty.
fn check_sections(sections: &[Part], errors: &mut Vec<String>) {
    let mut next = 0;
    for section in sections {
        match SECTIONS.iter().position(|known| *known == section.title) {
            None => errors.push(format!("{}: expected one of {SECTIONS:?}", section.line)),
            Some(place) if place < next => {
                errors
                    .push(format!("{}: `{}` is too late or repeated", section.line, section.title));
            }
            Some(place) => next = place + 1,
        }
        if !section.has_entry {
            errors.push(format!("{}: `{}` has no entry", section.line, section.title));
        }
    }
}

/// Reports titles other than `[Unreleased]`, first, and `[X.Y.Z] - YYYY-MM-DD`, newest first.
fn check_versions(versions: &[Part], errors: &mut Vec<String>) {
    let form =
        Regex::new(r"^\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d{2}-\d{2})( \[YANKED\])?$").unwrap();
    let mut newer: Option<([u32; 3], String)> = None;
    for (index, version) in versions.iter().enumerate() {
        if version.title == "[Unreleased]" && index == 0 {
            continue;
        }
        let Some(found) = form.captures(version.title) else {
            errors.push(format!("{}: expected `[X.Y.Z] - YYYY-MM-DD`", version.line));
            continue;
        };
        let number = [1, 2, 3].map(|group| found[group].parse().unwrap());
        let day = found[4].to_owned();
        if let Some((newer_number, newer_day)) = &newer
            && (number >= *newer_number || day > *newer_day)
        {
            errors.push(format!("{}: a newer version is below an older one", version.line));
        }
        newer = Some((number, day));
    }
    if versions.is_empty() {
        errors.push("expected a version, found none".to_owned());
    }
}

/// What a tool could not read, each as `LINE: finding`.
fn find_errors(changelog: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let (mut versions, mut sections): (Vec<Part>, Vec<Part>) = (Vec::new(), Vec::new());
    for (index, text) in changelog.lines().enumerate() {
        let line = index + 1;
        if index == 0 && text != "# Changelog" {
            errors.push("1: expected `# Changelog`".to_owned());
        } else if let Some(title) = text.strip_prefix("## ") {
            check_sections(&sections, &mut errors);
            sections.clear();
            versions.push(Part { line, title, has_entry: false });
        } else if let Some(title) = text.strip_prefix("### ") {
            sections.push(Part { line, title, has_entry: false });
        } else if let Some(section) = sections.last_mut() {
            let is_entry = text.starts_with("- ");
            section.has_entry |= is_entry;
            let continues = section.has_entry && text.starts_with("  ");
            if !(is_entry || continues || text.is_empty()) {
                errors.push(format!("{line}: expected an entry, `- ...`"));
            }
        } else if !versions.is_empty() && !text.is_empty() {
            errors.push(format!("{line}: expected a section, `### Added`"));
        }
    }
    check_sections(&sections, &mut errors);
    check_versions(&versions, &mut errors);
    errors
}

#[test]
fn the_changelog_has_the_form_that_tools_read() {
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let errors = find_errors(&changelog);
    assert!(errors.is_empty(), "CHANGELOG.md:\n{}", errors.join("\n"));
}

#[test]
fn other_forms_of_a_changelog_are_found() {
    let good = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n### Added\n\n- a\n  b\n\n### Fixed\n\n- c\n\n## [0.1.0] - 2026-11-27\n";
    assert_eq!(find_errors(good), [""; 0]);
    for (from, to, expected) in [
        ("# Changelog", "# Changes", "1: expected `# Changelog`"),
        ("[0.2.0] - 2026-12-01", "0.2.0", "5: expected `[X.Y.Z] - YYYY-MM-DD`"),
        ("[0.2.0]", "[0.0.9]", "16: a newer version is below an older one"),
        ("2026-12-01", "2026-10-01", "16: a newer version is below an older one"),
        ("### Fixed", "### Added", "12: `Added` is too late or repeated"),
        ("### Fixed", "### Bugs", "12: expected one of"),
        ("- c", "", "12: `Fixed` has no entry"),
        ("- c", "c", "14: expected an entry, `- ...`"),
        ("### Added", "Added:", "7: expected a section, `### Added`"),
    ] {
        let errors = find_errors(&good.replacen(from, to, 1));
        assert!(errors.iter().any(|error| error.starts_with(expected)), "{from}: {errors:?}");
    }
}
