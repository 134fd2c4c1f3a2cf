//! Entries of `hide` whose paths do not exist. An agent whose secrets come and go needs them, so each is a warning for the
//! author, who may have misspelled a name.

use crate::profile::resolution::absolute_profile_path;
use delta_base::engine_variables::EngineVars;
use delta_base::suggest;
use std::fs;
use std::path::{Path, PathBuf};

/// An entry of `hide` whose path does not exist, without a `?` at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingHidden {
    /// The entry as it is written.
    pub text: String,
    /// The path that does not exist.
    pub path: PathBuf,
    /// An entry that is almost the same, and exists.
    pub similar: Option<String>,
}

impl MissingHidden {
    /// Checks an entry; `None` if it exists, or may be missing.
    pub fn find(text: &str, vars: &EngineVars, home: Option<&Path>) -> Option<Self> {
        if text.ends_with('?') {
            return None;
        }
        // Without a home directory, the profile is refused.
        let path = absolute_profile_path(text, vars, home)?;
        if path.symlink_metadata().is_ok() {
            return None;
        }
        let similar = similar_name(&path).map(|name| {
            let directory = text.trim_end_matches('/').rfind('/').map_or("", |end| &text[..=end]);
            format!("{directory}{name}")
        });
        Some(Self { text: text.to_owned(), path, similar })
    }

    /// What to write instead.
    pub fn help(&self) -> String {
        let text = &self.text;
        match &self.similar {
            Some(similar) => {
                format!("did you mean `{similar}`? write `{text}?` if it may be missing")
            }
            None => format!("write `{text}?` if it may be missing"),
        }
    }
}

/// The name in the directory of `path` that differs from its own by a letter or two.
fn similar_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let entries = fs::read_dir(path.parent()?).ok()?.filter_map(Result::ok);
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    // `.env.example` is not what `.env` was meant for.
    names.retain(|other| other.chars().count().abs_diff(name.chars().count()) <= 1);
    names.sort_unstable();
    let nearest = suggest::nearest_names(name, names.iter().map(String::as_str));
    nearest.first().map(|name| (*name).to_owned())
}
