//! The changes between two revisions: commits, or the hunks of a patch.

/// A commit or a hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainChange {
    /// The abbreviated commit, or the file of the hunk with its line.
    pub id: String,
    /// The subject of the commit, or the first changed line.
    pub title: String,
}

/// A hunk of a patch.
#[derive(Debug, PartialEq, Eq)]
pub struct Hunk {
    /// Its file with its line, and its first changed line.
    pub change: ChainChange,
    /// What it adds to the patch of the hunks before it; the first hunk of a file has the head of the file.
    pub patch: Vec<u8>,
}

/// The hunks of a patch between the directories `roots`, in its order. A file without lines, such as a binary file, is one hunk.
pub fn split_hunks(patch: &[u8], roots: [&str; 2]) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut file = String::new();
    // Whether the file has had the first of its hunks.
    let mut has_lines = false;
    for line in patch.split_inclusive(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end_matches('\n');
        if let Some(names) = text.strip_prefix("diff --git ") {
            file = file_name(names, roots);
            has_lines = false;
            let change = ChainChange { id: file.clone(), title: String::new() };
            hunks.push(Hunk { change, patch: Vec::new() });
        } else if let Some(ranges) = text.strip_prefix("@@ ") {
            let change = ChainChange { id: hunk_id(&file, ranges), title: String::new() };
            match hunks.last_mut() {
                Some(hunk) if !has_lines => hunk.change = change,
                _ => hunks.push(Hunk { change, patch: Vec::new() }),
            }
            has_lines = true;
        } else if has_lines
            && let Some(hunk) = hunks.last_mut()
            && hunk.change.title.is_empty()
        {
            hunk.change.title = text.to_owned();
        }
        if let Some(hunk) = hunks.last_mut() {
            hunk.patch.extend_from_slice(line);
        }
    }
    hunks
}

/// The file in `a/OLD/FILE b/NEW/FILE`, of which both are of one directory where the other has no such file; everything if it is
/// written in another way.
fn file_name(names: &str, roots: [&str; 2]) -> String {
    let name = roots.iter().find_map(|root| names.split_once(&format!(" b{root}/")));
    name.map_or(names, |(_, name)| name).to_owned()
}

/// `FILE:LINE`, with the line in the new file; `ranges` is what follows `@@ `.
fn hunk_id(file: &str, ranges: &str) -> String {
    let new_range = ranges.split(' ').nth(1).unwrap_or_default().trim_start_matches('+');
    let line = new_range.split(',').next().unwrap_or_default();
    format!("{file}:{line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_its_hunks_one_after_the_other() {
        let patch = b"diff --git a/t/1/a.md b/t/2/a.md
index 1..2 100644
--- a/t/1/a.md
+++ b/t/2/a.md
@@ -1 +1 @@
-first
+First
@@ -9,0 +10,2 @@ below
+diff --git a/x b/x
+@@ -1 +1 @@
diff --git a/t/1/icon b/t/2/icon
old mode 100644
new mode 100755
diff --git a/t/1/gone b/t/1/gone
deleted file mode 100644
";
        let hunks = split_hunks(patch, ["/t/1", "/t/2"]);
        let patches: Vec<u8> = hunks.iter().flat_map(|hunk| hunk.patch.clone()).collect();
        assert_eq!(patches, patch);
        let changes: Vec<_> = hunks
            .iter()
            .map(|hunk| (hunk.change.id.as_str(), hunk.change.title.as_str()))
            .collect();
        let added = "+diff --git a/x b/x";
        assert_eq!(changes, [("a.md:1", "-first"), ("a.md:10", added), ("icon", ""), ("gone", "")]);
    }
}
