//! `cache:` of a computed source: when what was made before will do.
//!
//! What it was made of lies beside the output, in `OUTPUT.cache.json`, so that every run that uses the output knows.

use super::{Stage, resolve};
use crate::durable;
use crate::text::hex;
use crate::time::{Clock, Timestamp};
use crate::vars::Vars;
use crate::yaml::shape::{Key, Shape};
use crate::yaml::{Document, Mapping, Node};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

/// The kinds of caches, by their `strategy`.
pub(super) static KINDS: [(&str, &Mapping); 2] = [("file_hash", &FILE_HASH), ("age", &AGE)];

const STRATEGY: Key = Key::required("strategy", Shape::Text, "What is looked at.");

static FILE_HASH: Mapping = Mapping {
    what: "a cache `file_hash`",
    about: "It will do while the command and the content of some files are the same.",
    keys: &[
        STRATEGY,
        Key::required(
            "invalidate_on",
            Shape::List(&Shape::Text),
            "Patterns of the files, such as `src/**/*.py`, relative to the workspace.",
        ),
    ],
    one_of: &[],
    open: false,
};

static AGE: Mapping = Mapping {
    what: "a cache `age`",
    about: "It will do for some time, while the command is the same.",
    keys: &[
        STRATEGY,
        Key::required("max_age_ms", Shape::Integer(1..1 << 40), "Milliseconds since it was made."),
    ],
    one_of: &[],
    open: false,
};

/// When what was made before will do.
#[derive(Debug, Clone)]
pub(super) enum Cache {
    FileHash(Vec<glob::Pattern>),
    Age(u64),
}

/// What lies beside an output.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Made {
    /// Of what it was made.
    of_sha256: String,
    /// What was made.
    output_sha256: String,
    /// When.
    at: Timestamp,
}

/// What an output that is about to be made will be made of.
pub(super) struct Recipe {
    record: PathBuf,
    output: PathBuf,
    of_sha256: String,
}

impl Cache {
    pub(super) fn read(doc: &Document, node: &Node) -> Option<Self> {
        let (strategy, mapping) = doc.kind(node, "a cache", "strategy", &KINDS)?;
        let fields = doc.fields(node, mapping)?;
        if strategy == "age" {
            fields.require("max_age_ms", "600000")?;
            return fields.integer("max_age_ms").map(Self::Age);
        }
        let list = fields.require("invalidate_on", "[\"src/**/*.py\"]")?;
        let mut patterns = Vec::new();
        for (text, item) in fields.texts("invalidate_on").iter().zip(list.items()) {
            super::check_variables(doc, item, text);
            match glob::Pattern::new(text) {
                Ok(pattern) => patterns.push(pattern),
                Err(error) => doc.fault(item, format!("not a pattern of files: {error}"), None),
            }
        }
        (patterns.len() == list.items().len()).then_some(Self::FileHash(patterns))
    }

    /// What the output of `stages` would be made of now.
    ///
    /// # Errors
    /// A file that it is made of cannot be read, in words.
    pub(super) fn recipe(&self, stages: &[Stage], vars: &Vars) -> Result<Recipe, String> {
        let mut hash = Sha256::new();
        for stage in stages {
            for word in stage.generator.command.iter().chain([&stage.output]) {
                add(&mut hash, vars.fill(word).as_bytes());
            }
        }
        if let Self::FileHash(patterns) = self {
            for path in files(patterns, vars)? {
                let content = fs::read(&path)
                    .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
                add(&mut hash, path.as_os_str().as_encoded_bytes());
                add(&mut hash, &Sha256::digest(&content));
            }
        }
        let output = stages.last().map(|stage| resolve(&stage.output, vars)).unwrap_or_default();
        let mut record = output.clone().into_os_string();
        record.push(".cache.json");
        Ok(Recipe { record: record.into(), output, of_sha256: hex(&hash.finalize()) })
    }

    /// Whether what was made before will do.
    pub(super) fn will_do(&self, recipe: &Recipe, clock: Clock) -> bool {
        let text = durable::read_regular(&recipe.record).unwrap_or_default();
        let Ok(made) = serde_json::from_slice::<Made>(&text) else { return false };
        let young = match self {
            Self::FileHash(_) => true,
            Self::Age(most) => {
                let age = clock().millis() - made.at.millis();
                u64::try_from(age).is_ok_and(|age| age < *most)
            }
        };
        young
            && made.of_sha256 == recipe.of_sha256
            && hash_of(&recipe.output).is_some_and(|hash| hash == made.output_sha256)
    }
}

impl Recipe {
    /// Keeps what the output was made of. That it cannot be kept only means that it is made again.
    pub(super) fn keep(&self, clock: Clock) {
        let Some(output_sha256) = hash_of(&self.output) else { return };
        let made = Made { of_sha256: self.of_sha256.clone(), output_sha256, at: clock() };
        let text = serde_json::to_string(&made).unwrap_or_default();
        let _ = durable::replace(&self.record, format!("{text}\n").as_bytes());
    }
}

/// The files of some patterns, in order. A pattern of the workspace does not look into `.delta`, where runs write all the
/// time; one that begins there does.
fn files(patterns: &[glob::Pattern], vars: &Vars) -> Result<Vec<PathBuf>, String> {
    // A directory may have a bracket or a star in its own name.
    let literal = |path: &Path| PathBuf::from(glob::Pattern::escape(&path.to_string_lossy()));
    let escaped = Vars {
        agent_home: literal(&vars.agent_home),
        cwd: literal(&vars.cwd),
        run_dir: literal(&vars.run_dir),
    };
    let control = vars.cwd.join(".delta");
    let mut found = Vec::new();
    for pattern in patterns {
        let whole = escaped.cwd.join(escaped.fill(pattern.as_str()));
        let within = whole.starts_with(literal(&control));
        let whole = whole.to_string_lossy();
        let paths = glob::glob(&whole).map_err(|error| error.to_string())?;
        for path in paths {
            let path = path.map_err(|error| error.to_string())?;
            if path.is_file() && (within || !path.starts_with(&control)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Adds a part so that it cannot be taken for the end of the one before it.
fn add(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

fn hash_of(path: &Path) -> Option<String> {
    Some(hex(&Sha256::digest(durable::read_regular(path).ok()?)))
}
