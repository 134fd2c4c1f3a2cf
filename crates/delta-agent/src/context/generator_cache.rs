//! `cache:` of a computed source: when its previous output can be reused.
//!
//! The inputs of an output are recorded next to it in `OUTPUT.cache.json`, so that every run that
//! uses the output knows them.

use super::{PipelineStage, resolve_context_path};
use delta_base::durable;
use delta_base::engine_variables::{EngineVariable, EngineVars, StringPart, parse_plain_string};
use delta_base::hex::{encode_hex, sha256_hex};
use delta_base::time::{Clock, Timestamp};
use delta_yaml::yaml::mapping_schema::{KeySchema, ValueShape};
use delta_yaml::yaml::{MappingSchema, YamlDocument, YamlNode};
use glob::GlobResult;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::{fs, iter};

/// The kinds of caches, by their `strategy`.
pub(super) static CACHE_KINDS: [(&str, &MappingSchema); 2] =
    [("file_hash", &FILE_HASH_MAPPING), ("age", &AGE_MAPPING)];

const STRATEGY_KEY: KeySchema =
    KeySchema::required("strategy", ValueShape::Text, "The kind of cache.");

static FILE_HASH_MAPPING: MappingSchema = MappingSchema::new(
    "a cache `file_hash`",
    "The output is reused while the command and the contents of some files are unchanged.",
    &[
        STRATEGY_KEY,
        KeySchema::required(
            "invalidate_on",
            ValueShape::List(&ValueShape::Text),
            "Patterns of the files, such as `src/**/*.py`, or directories, relative to the workspace.",
        ),
    ],
);

static AGE_MAPPING: MappingSchema = MappingSchema::new(
    "a cache `age`",
    "The output is reused for some time while the command is unchanged.",
    &[
        STRATEGY_KEY,
        KeySchema::required(
            "max_age_ms",
            ValueShape::Milliseconds(1..1 << 40),
            "The maximum age of the output in milliseconds.",
        ),
    ],
);

/// When a previous output can be reused.
#[derive(Debug, Clone)]
pub(super) enum GeneratorCache {
    FileHash(Vec<glob::Pattern>),
    Age(u64),
}

/// The contents of `OUTPUT.cache.json`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct CacheRecord {
    /// The hash of the inputs.
    of_sha256: String,
    /// The hash of the output.
    output_sha256: String,
    /// When the output was written.
    at: Timestamp,
}

/// The inputs of an output that is about to be generated.
pub(super) struct CacheKey {
    record: PathBuf,
    output: PathBuf,
    inputs_sha256: String,
}

impl GeneratorCache {
    pub(super) fn read(doc: &YamlDocument, node: &YamlNode) -> Option<Self> {
        let (strategy, mapping) = doc.tagged_mapping(node, "a cache", "strategy", &CACHE_KINDS)?;
        let fields = doc.fields(node, mapping)?;
        if strategy == "age" {
            fields.require("max_age_ms", "600000")?;
            return fields.integer("max_age_ms").map(Self::Age);
        }
        let list = fields.require("invalidate_on", "[\"src/**/*.py\"]")?;
        let mut patterns = Vec::new();
        for (text, item) in fields.texts("invalidate_on").iter().zip(list.items()) {
            super::check_path_variables(doc, item, text);
            match glob::Pattern::new(text) {
                Ok(pattern) => patterns.push(pattern),
                Err(error) => doc.report(item, format!("not a file pattern: {error}"), None),
            }
        }
        (patterns.len() == list.items().len()).then_some(Self::FileHash(patterns))
    }

    /// The patterns that match no file now, except those in the run directory, where the run
    /// creates files, and those in a workspace that does not exist yet.
    pub(super) fn unmatched(&self, vars: &EngineVars, has_workspace: bool) -> Vec<&str> {
        let Self::FileHash(patterns) = self else { return Vec::new() };
        let patterns = patterns.iter().map(glob::Pattern::as_str);
        let patterns = patterns.filter(|pattern| match leading_variable(pattern) {
            Some(EngineVariable::RunDir) => false,
            Some(EngineVariable::AgentHome) => true,
            Some(EngineVariable::Cwd) => has_workspace,
            None => has_workspace || pattern.starts_with('/'),
        });
        patterns.filter(|pattern| !matches_a_file(pattern, vars)).collect()
    }

    /// The inputs from which the output of `stages` would be generated now.
    ///
    /// # Errors
    /// The message about a file that cannot be read.
    pub(super) fn key(
        &self,
        stages: &[PipelineStage],
        vars: &EngineVars,
    ) -> Result<CacheKey, String> {
        let mut hash = Sha256::new();
        for stage in stages {
            for word in stage.generator.command.iter().chain([&stage.output]) {
                hash_part(&mut hash, vars.expand_text(word).as_bytes());
            }
        }
        let output = stages
            .last()
            .map(|stage| resolve_context_path(&stage.output, vars))
            .unwrap_or_default();
        let mut record = output.clone().into_os_string();
        record.push(".cache.json");
        let record = PathBuf::from(record);
        if let Self::FileHash(patterns) = self {
            let written = stages.iter().map(|stage| resolve_context_path(&stage.output, vars));
            let written: Vec<PathBuf> = written.chain([record.clone()]).collect();
            for path in matching_files(patterns, vars)? {
                // What the command writes itself would make every output stale.
                if written.contains(&path) {
                    continue;
                }
                let content = fs::read(&path)
                    .map_err(|error| format!("could not read {}: {error}", path.display()))?;
                hash_part(&mut hash, path.as_os_str().as_encoded_bytes());
                hash_part(&mut hash, &Sha256::digest(&content));
            }
        }
        Ok(CacheKey { record, output, inputs_sha256: encode_hex(&hash.finalize()) })
    }

    /// Whether the previous output can be reused.
    pub(super) fn is_fresh(&self, key: &CacheKey, clock: Clock) -> bool {
        let text = durable::read_regular(&key.record).unwrap_or_default();
        let Ok(record) = serde_json::from_slice::<CacheRecord>(&text) else { return false };
        let is_young = match self {
            Self::FileHash(_) => true,
            Self::Age(most) => {
                let age = clock().as_millis() - record.at.as_millis();
                u64::try_from(age).is_ok_and(|age| age < *most)
            }
        };
        is_young
            && record.of_sha256 == key.inputs_sha256
            && hash_file(&key.output).is_some_and(|hash| hash == record.output_sha256)
    }
}

impl CacheKey {
    /// Records the inputs of the output. A failure only means that the output is generated again.
    pub(super) fn save(&self, clock: Clock) {
        let Some(output_sha256) = hash_file(&self.output) else { return };
        let of_sha256 = self.inputs_sha256.clone();
        let record = CacheRecord { of_sha256, output_sha256, at: clock() };
        let text = serde_json::to_string(&record).unwrap_or_default();
        let _ = durable::replace_private_synced(&self.record, format!("{text}\n").as_bytes());
    }
}

/// The files that match `patterns`, sorted.
fn matching_files(patterns: &[glob::Pattern], vars: &EngineVars) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for pattern in patterns {
        for path in matches(pattern.as_str(), vars)? {
            files.push(path?);
        }
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// Whether a pattern matches a file now. If the lookup fails, the request that needs it reports the
/// error.
pub fn matches_a_file(pattern: &str, vars: &EngineVars) -> bool {
    matches(pattern, vars).is_ok_and(|mut paths| paths.next().is_some())
}

/// The files that match a pattern. Only a pattern that begins in `.delta`, where runs write all the
/// time, matches files there. A pattern that names a directory or ends in `/**` matches all files
/// inside.
fn matches(
    pattern: &str,
    vars: &EngineVars,
) -> Result<impl Iterator<Item = Result<PathBuf, String>>, String> {
    let escaped = EngineVars {
        agent_home: literal(&vars.agent_home),
        cwd: literal(&vars.cwd),
        run_dir: literal(&vars.run_dir),
    };
    let control = vars.cwd.join(".delta");
    let absolute = escaped.cwd.join(escaped.expand_text(pattern.trim_end_matches('/')));
    let looks_into_control = absolute.starts_with(literal(&control));
    let absolute = absolute.to_string_lossy();
    let (base, is_below) = match absolute.strip_suffix("/**") {
        Some(base) => (base, true),
        None => (&*absolute, false),
    };
    let descends = is_below || names_one(pattern);
    let paths = glob::glob(base).map_err(|error| error.to_string())?;
    let paths = paths.flat_map(move |path| match path {
        Ok(path) if path.is_dir() && descends => everything_below(&path),
        Ok(path) if is_below || !path.is_file() => Box::new(iter::empty()),
        path => Box::new(iter::once(path)) as Box<dyn Iterator<Item = GlobResult>>,
    });
    let paths = paths.filter(move |path| {
        path.as_ref().map_or(true, |path| looks_into_control || !path.starts_with(&control))
    });
    Ok(paths.map(|path| path.map_err(|error| error.to_string())))
}

/// All files in a directory and its subdirectories; symlinks to directories are not followed.
fn everything_below(directory: &Path) -> Box<dyn Iterator<Item = GlobResult>> {
    let pattern = literal(directory).join("**/*");
    let paths = glob::glob(&pattern.to_string_lossy()).into_iter().flatten();
    Box::new(paths.filter(|path| path.as_ref().map_or(true, |path| path.is_file())))
}

/// The variable at the beginning of a pattern.
pub fn leading_variable(pattern: &str) -> Option<EngineVariable> {
    match parse_plain_string(pattern).into_iter().next() {
        Some(StringPart::Variable(variable)) => Some(variable),
        Some(StringPart::Text(_)) | None => None,
    }
}

/// Whether the last component of a pattern is a plain name.
fn names_one(pattern: &str) -> bool {
    let last = pattern.trim_end_matches('/').rsplit('/').next();
    last.is_some_and(|last| !last.contains(['*', '?', '[']))
}

/// A directory may have brackets or stars in its name.
fn literal(path: &Path) -> PathBuf {
    PathBuf::from(glob::Pattern::escape(&path.to_string_lossy()))
}

/// Hashes a part with its length, so that parts cannot run into each other.
fn hash_part(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

fn hash_file(path: &Path) -> Option<String> {
    Some(sha256_hex(durable::read_regular(path).ok()?))
}
