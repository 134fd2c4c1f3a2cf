//! The source `agents_md`: the AGENTS.md files from the root of the repository down to the workspace.
//!
//! The author of these files is not the author of the agent. None of them can fail a run, and none can lead to a file
//! that it is not: a symlink counts only within the repository, and above the workspace only files of the user.

use super::context_mapping::{CONDITION_KEY, HEADING_KEY, ID_KEY, MAX_TOKENS_KEY, TYPE_KEY};
use super::source_text::{NOT_UTF8, SourceText};
use delta_base::durable;
use delta_yaml::yaml::mapping_schema::{DefaultValue, KeySchema, ValueShape};
use delta_yaml::yaml::{MappingFields, MappingSchema, YamlDocument, YamlNode};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// The `type` of the source in context.yaml.
pub const AGENTS_MD_TYPE: &str = "agents_md";
/// The name of a file without `names`, and of a source without `id`.
pub(super) const AGENTS_MD_FILE: &str = "AGENTS.md";
const INTRODUCTION: &str = "Instructions of this repository, from its root to the workspace. Where two files disagree, the later one counts.\n";
const REST_NOTE: &str = "\n\n[the rest of this file is left out]";

/// The keys of the source.
pub(super) static AGENTS_MD_MAPPING: MappingSchema = MappingSchema::new(
    "an `agents_md` source",
    "The AGENTS.md files from the root of the repository down to the workspace, as one system message.",
    &[
        TYPE_KEY,
        ID_KEY,
        HEADING_KEY,
        KeySchema::optional(
            "names",
            ValueShape::List(&ValueShape::Text),
            "The names of the files; the first that a directory has counts. Default: `[AGENTS.md]`.",
        ),
        KeySchema::with_default(
            "max_bytes",
            ValueShape::Integer(1..1 << 26),
            DefaultValue::Integer(32_768),
            "The maximum number of bytes of all files together; the nearest ones come first.",
        ),
        MAX_TOKENS_KEY,
        CONDITION_KEY,
    ],
);

/// Which files a source collects.
#[derive(Debug, Clone)]
pub(super) struct AgentsMdSource {
    names: Vec<String>,
    max_bytes: usize,
}

/// The text of the files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AgentsMdText {
    pub(super) content: String,
    /// What was left out, in words; the same words while the files are the same.
    pub(super) left_out: Option<String>,
}

/// Why there is no text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoAgentsMd {
    pub(super) reason: String,
    /// As in [`AgentsMdText`].
    pub(super) left_out: Option<String>,
}

impl AgentsMdSource {
    /// Reads the keys of the source; problems are added to the report of `doc`.
    pub(super) fn read(doc: &YamlDocument, fields: MappingFields<'_>) -> Option<Self> {
        let mut names = fields.texts("names");
        let items = fields.non_null("names").map(YamlNode::items).unwrap_or_default();
        for (item, name) in items.iter().zip(&names) {
            if !is_name_below(name) {
                let help = "name a file in a directory, such as `AGENTS.md` or `.github/copilot-instructions.md`";
                let message = format!("`{name}` is not the name of a file below a directory");
                doc.report(item, message, help);
            }
        }
        if names.is_empty() {
            names.push(AGENTS_MD_FILE.to_owned());
        }
        Some(Self { names, max_bytes: usize::try_from(fields.integer("max_bytes")?).ok()? })
    }

    /// The files that count in `workspace`, the outermost first.
    ///
    /// # Errors
    /// There is nothing to show.
    pub(super) fn collect(&self, workspace: &Path) -> Result<AgentsMdText, NoAgentsMd> {
        let Some((workspace, owner)) = resolve_workspace(workspace) else {
            let reason = format!("there is no {}", workspace.display());
            return Err(NoAgentsMd { reason, left_out: None });
        };
        let root = repository_root(&workspace, owner);
        let mut sections: Vec<String> = Vec::new();
        let mut left_out: Vec<String> = Vec::new();
        let mut room = self.max_bytes;
        let directories = workspace.ancestors().take_while(|dir| dir.starts_with(&root));
        for (level, dir) in directories.enumerate() {
            let mut names = self.names.iter();
            let name =
                names.find(|name| durable::metadata_no_follow(&dir.join(name.as_str())).is_ok());
            let Some(name) = name else { continue };
            let label = format!("{}{name}", "../".repeat(level));
            // The operator chose the workspace, also if its files belong to another user.
            let needed_owner = (level > 0).then_some(owner);
            match read_start(&root, &dir.join(name), room, needed_owner) {
                Ok(start) if start.text.trim().is_empty() && !start.is_cut => {}
                Ok(start) => {
                    room -= start.length;
                    let text = start.text.trim_end();
                    let note = if start.is_cut { REST_NOTE } else { "" };
                    sections.push(format!("\n## {label}\n\n{text}{note}\n"));
                    if start.is_replaced {
                        left_out.push(format!("{NOT_UTF8} of {label}"));
                    }
                    if start.is_cut {
                        left_out
                            .push(format!("the end of {label} (beyond {} bytes)", self.max_bytes));
                    }
                }
                Err(error) => left_out.push(format!("{label} ({error})")),
            }
        }
        let left_out = (!left_out.is_empty()).then(|| left_out.join(", "));
        if sections.is_empty() {
            let names = self.names.join(" or ");
            let reason = format!("no {names} with text from {} to the workspace", root.display());
            return Err(NoAgentsMd { reason, left_out });
        }
        sections.reverse();
        Ok(AgentsMdText { content: format!("{INTRODUCTION}{}", sections.concat()), left_out })
    }
}

/// The canonical path and the owner of a workspace. One that does not exist is not created yet: its path is canonical as far
/// as it exists, and it will belong to this user.
fn resolve_workspace(workspace: &Path) -> Option<(PathBuf, u32)> {
    match workspace.canonicalize() {
        Ok(path) => {
            let owner = durable::metadata_no_follow(&path).ok()?.uid();
            Some((path, owner))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Some((workspace.to_owned(), durable::current_user()))
        }
        Err(_) => None,
    }
}

fn is_name_below(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    !name.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// The nearest directory above with `.git`, which is a file in a worktree or submodule; `workspace` itself without one.
fn repository_root(workspace: &Path, owner: u32) -> PathBuf {
    let root = workspace.ancestors().find(|dir| {
        durable::metadata_no_follow(&dir.join(".git"))
            .is_ok_and(|git| dir == &workspace || is_owner_trusted(&git, owner))
    });
    root.unwrap_or(workspace).to_owned()
}

/// Whether a file above the workspace counts: in a directory such as /tmp, any user can create one.
fn is_owner_trusted(file: &Metadata, workspace_owner: u32) -> bool {
    durable::is_own_or_roots(file) || file.uid() == workspace_owner
}

/// The first bytes of a file, as text.
struct FileStart {
    text: String,
    /// The number of bytes.
    length: usize,
    is_cut: bool,
    /// As in [`SourceText`].
    is_replaced: bool,
}

/// At most `limit` bytes of a file in the repository. With `workspace_owner`, a file of another user is rejected.
fn read_start(
    root: &Path,
    path: &Path,
    limit: usize,
    workspace_owner: Option<u32>,
) -> io::Result<FileStart> {
    let reject = |reason: &str| Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    let path = path.canonicalize()?;
    let Ok(name) = path.strip_prefix(root) else {
        return reject("it is a symlink that leads out of the repository");
    };
    if name.components().any(|part| is_private(part.as_os_str().as_encoded_bytes())) {
        return reject("it is a symlink to a private file");
    }
    let (bytes, file) = durable::read_start_beneath(root, name, limit as u64)?;
    if workspace_owner.is_some_and(|owner| !is_owner_trusted(&file, owner)) {
        return reject("it belongs to another user");
    }
    let is_cut = file.len() > bytes.len() as u64;
    let SourceText { text, is_replaced } = SourceText::decode(complete_start(&bytes, is_cut))?;
    Ok(FileStart { text, length: bytes.len(), is_cut, is_replaced })
}

/// Whether a file of this name, or in a directory of this name, is never an instruction.
pub(super) fn is_private(name: &[u8]) -> bool {
    name == b".git" || name == b".delta" || name.starts_with(b".env")
}

/// The first bytes of a file, without a character of which only a part was read.
fn complete_start(bytes: &[u8], is_cut: bool) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if is_cut && error.error_len().is_none() => &bytes[..error.valid_up_to()],
        _ => bytes,
    }
}
