//! A copy of a run directory in which values are redacted, for `delta send --copy --redact`.
//!
//! Everything in a run refers to everything else by hashes, so each file is copied after the files that it names, and what
//! names a file gets the hash of the copy: contents, directories, records, and last the journal, which gets a new chain. At the end
//! all files are searched again, so that no copy with a value leaves.

use crate::event::{Event, Payload};
use crate::fork::bundle::{Contents, MANIFEST_NAME, SentFile, list_sent_files};
use crate::journal;
use crate::journal::seal::Sealer;
use crate::record::unpack_records;
use crate::run_files::JOURNAL_FILE;
use delta_base::checksum::{append_checksum, crc32_hex};
use delta_base::durable::{self, FileError};
use delta_base::hex::sha256_hex;
use delta_base::id::SnapshotId;
use delta_base::redact::{FoundSecrets, REDACTED, Secrets, StreamRedactor};
use delta_snapshot::{SnapshotError, SnapshotStore, TreeRedaction};
use serde_json::Value as Json;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};

/// The last member of a record.
const CHECKSUM_KEY: &str = "crc";

/// Why a run cannot be copied without the values.
#[derive(Debug, thiserror::Error)]
pub enum RedactionError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A snapshot is damaged.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A line of the journal needs a value, such as the id of the run.
    #[error("line {0} of the journal cannot be read without the values: {1}")]
    Line(usize, String),
    /// A value is where it cannot be redacted.
    #[error("a value remains in {0}")]
    Remains(String),
}

/// A run directory without values, which is removed when it is dropped.
#[derive(Debug)]
pub struct RedactedCopy {
    /// The directory.
    pub dir: PathBuf,
    /// The journal, before the copy is closed.
    pub lines: Vec<u8>,
    /// What was redacted.
    pub found: FoundSecrets,
    /// The names of compressed files, which keep their content.
    pub compressed: BTreeSet<String>,
    /// Whether a `.git` was left out.
    pub has_git: bool,
    secrets: Secrets,
    /// The hash and the check value of each copy that differs, by the ones of its original.
    digests: HashMap<String, String>,
}

impl Drop for RedactedCopy {
    fn drop(&mut self) {
        // It has nothing that the run does not have.
        let _ = durable::remove_dir_all_no_follow(&self.dir);
    }
}

impl RedactedCopy {
    /// An empty copy in `dir`, which is replaced.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn create(dir: PathBuf, secrets: Secrets) -> Result<Self, FileError> {
        let _ = durable::remove_dir_all_no_follow(&dir);
        durable::ensure_private_dir(&dir)?;
        Ok(Self {
            dir,
            lines: Vec::new(),
            found: FoundSecrets::default(),
            compressed: BTreeSet::new(),
            has_git: false,
            secrets,
            digests: HashMap::new(),
        })
    }

    /// Copies the `trees` from the snapshots of a run, and all that the `lines` of its journal name.
    ///
    /// # Errors
    /// One of the trees is damaged, or an object cannot be written.
    pub fn copy_snapshots(
        &mut self,
        from: &SnapshotStore,
        to: &mut SnapshotStore,
        trees: &[SnapshotId],
        lines: &[u8],
    ) -> Result<(), RedactionError> {
        let secrets = self.secrets.clone();
        let mut redaction = TreeRedaction::new(from, &secrets);
        for tree in trees {
            redaction.copy_tree(to, *tree)?;
        }
        for tree in list_digests(lines).filter(|tree| from.contains(*tree)) {
            // Earlier snapshots can be removed, and other texts can have the hash of a file.
            let _ = redaction.copy_tree(to, tree);
        }
        let copies = redaction.copies().filter(|(id, copy)| id != copy);
        let copies = copies.map(|(id, copy)| (id.to_string(), copy.to_string()));
        self.digests.extend(copies);
        self.found.add(&redaction.found);
        self.compressed.append(&mut redaction.compressed);
        self.has_git |= redaction.has_git;
        Ok(())
    }

    /// Copies the files of a run, then its journal `lines`, with the chain and the seals of `sealer`.
    ///
    /// # Errors
    /// A file cannot be read or written, or a line of the journal cannot be read without the values.
    pub fn copy_files(
        &mut self,
        files: &[SentFile],
        lines: &[u8],
        sealer: Sealer,
    ) -> Result<(), RedactionError> {
        let journal = self.dir.join(JOURNAL_FILE);
        for file in files {
            let Some(name) = file.member.path.strip_prefix("run/") else { continue };
            if name != JOURNAL_FILE {
                let target = self.dir.join(name);
                target.parent().map_or(Ok(()), durable::ensure_private_dir)?;
                durable::copy_private_unsynced(&file.source, &target)?;
            }
        }
        unpack_records(&self.dir)?;
        durable::create_private_unsynced(&journal, b"")?;
        let contents = Contents { objects: BTreeSet::new(), records: true, journal_bytes: 0 };
        let mut copied = list_sent_files(&self.dir, &journal, &contents)?;
        // A record names the files of its streams.
        copied.sort_by_key(|file| file.member.path.ends_with(".json"));
        for file in copied.iter().filter(|file| file.source != journal) {
            self.redact_file(&file.source)?;
        }
        self.lines = self.redact_journal(lines, sealer)?;
        Ok(durable::replace_private_unsynced(&journal, &self.lines)?)
    }

    fn redact_file(&mut self, path: &Path) -> Result<(), RedactionError> {
        let bytes = durable::read_no_follow(path).map_err(FileError::at("read", path))?;
        let redacted = match std::str::from_utf8(&bytes) {
            Ok(text) if path.extension().is_some_and(|extension| extension == "json") => {
                self.redact_record(text).into_bytes()
            }
            _ => self.redact_bytes(&bytes),
        };
        if redacted != bytes {
            durable::replace_private_unsynced(path, &redacted)?;
            self.digests.insert(sha256_hex(&bytes), sha256_hex(&redacted));
            self.digests.insert(crc32_hex(&bytes), crc32_hex(&redacted));
        }
        Ok(())
    }

    /// Redacts a record, whose last member is its check value.
    fn redact_record(&mut self, text: &str) -> String {
        let Ok(Json::Object(mut record)) = serde_json::from_str(text) else {
            return self.redact_text(text);
        };
        let has_checksum = record.shift_remove(CHECKSUM_KEY).is_some();
        let open = Json::Object(record).to_string();
        let redacted = self.redact_text(&open);
        if redacted == open {
            text.to_owned()
        } else if has_checksum {
            append_checksum(redacted + "\n")
        } else {
            redacted
        }
    }

    fn redact_journal(&mut self, lines: &[u8], sealer: Sealer) -> Result<Vec<u8>, RedactionError> {
        let mut events = Vec::new();
        for (index, line) in lines.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let text = String::from_utf8_lossy(line);
            let event = Event::from_line(&text)
                .map_err(|error| RedactionError::Line(index + 1, error.to_string()))?;
            let payload = self.redact_payload(&event.payload);
            let mut payload = payload.map_err(|reason| RedactionError::Line(index + 1, reason))?;
            // It covers the original.
            payload.set_seal(None);
            events.push((event.timestamp, payload));
        }
        let mut copied = Vec::new();
        journal::append_to_lines(&mut copied, events, Some(sealer));
        Ok(copied)
    }

    /// Redacts what an event records.
    ///
    /// # Errors
    /// The event needs the value; the message says where.
    pub fn redact_payload(&mut self, payload: &Payload) -> Result<Payload, String> {
        let mut value = serde_json::to_value(payload).map_err(|error| error.to_string())?;
        self.redact_json(&mut value);
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    fn redact_json(&mut self, value: &mut Json) {
        match value {
            Json::String(text) => *text = self.redact_text(text),
            Json::Array(items) => items.iter_mut().for_each(|item| self.redact_json(item)),
            Json::Object(fields) => {
                let members = std::mem::take(fields).into_iter();
                *fields = members
                    .map(|(key, mut member)| {
                        self.redact_json(&mut member);
                        (self.redact_text(&key), member)
                    })
                    .collect();
            }
            Json::Number(number) => {
                let text = number.to_string();
                let redacted = self.redact_bytes(text.as_bytes());
                if redacted != text.as_bytes() {
                    *value = Json::String(REDACTED.to_owned());
                }
            }
            Json::Null | Json::Bool(_) => {}
        }
    }

    /// Redacts a text, also in the texts of JSON that it is, however deep: a line end in them is an escape here.
    fn redact_text(&mut self, text: &str) -> String {
        if let Some(digest) = self.digests.get(text) {
            return digest.clone();
        }
        let mut redacted = text.to_owned();
        if text.starts_with(['{', '['])
            && let Ok(original) = serde_json::from_str::<Json>(text)
        {
            let mut value = original.clone();
            self.redact_json(&mut value);
            if value != original {
                redacted = value.to_string();
            }
        }
        let bytes = self.redact_bytes(redacted.as_bytes());
        String::from_utf8(bytes).unwrap_or(redacted)
    }

    fn redact_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.secrets.redact_bytes(bytes, &mut self.found)
    }

    /// Searches what is sent once more: the contents and names of the files, and the manifest.
    ///
    /// # Errors
    /// A value remains, or a file cannot be read.
    pub fn check(&self, files: &[SentFile], manifest: &[u8]) -> Result<(), RedactionError> {
        if self.has_secret(manifest, Path::new(MANIFEST_NAME))? {
            return Err(RedactionError::Remains(MANIFEST_NAME.to_owned()));
        }
        for file in files {
            let source = durable::open_no_follow(&file.source);
            let source = source.map_err(FileError::at("read", &file.source))?;
            if self.has_secret(source, &file.source)? {
                let path = self.secrets.redact(&file.member.path).into_owned();
                return Err(RedactionError::Remains(path));
            }
        }
        Ok(())
    }

    fn has_secret(&self, mut content: impl io::Read, path: &Path) -> Result<bool, FileError> {
        let mut search = SecretSearch(self.secrets.stream_redactor());
        io::copy(&mut content, &mut search).map_err(FileError::at("read", path))?;
        search.0.flush();
        Ok(search.0.has_found_secret())
    }
}

/// An output that is only searched.
struct SecretSearch(StreamRedactor);

impl io::Write for SecretSearch {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The SHA-256 digests in a text.
fn list_digests(text: &[u8]) -> impl Iterator<Item = SnapshotId> {
    let words = text.split(|byte| !byte.is_ascii_hexdigit());
    let words = words.filter(|word| word.len() == 64).map(String::from_utf8_lossy);
    let digests: BTreeSet<SnapshotId> = words.filter_map(|word| SnapshotId::parse(&word)).collect();
    digests.into_iter()
}
