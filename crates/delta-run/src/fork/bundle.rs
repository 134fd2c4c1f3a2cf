//! A run as one file, with which it moves or is copied to another place: a tar.gz with `transfer.json`, the contents of its
//! files, and last `sent.jsonl`, the lines that close the run where it was. Over a connection it is not packed.
//!
//! The archive may come from anywhere: it has regular files only, exactly the ones that `transfer.json` declares, in that order
//! and with these lengths and hashes, so a reader needs no more memory and no more room than was declared.

use crate::event::{JournalHead, SentRun};
use crate::journal::seal_key::{SealKey, SealedBytes};
use crate::journal::signature::{PublicKey, SignedBy};
use crate::run_files::JOURNAL_FILE;
use crate::sweep::packed::run_archive::{append_named, new_header};
use delta_base::durable::{self, FileError};
use delta_base::hex::{decode_hex, encode_hex, sha256_hex, sha256_hex_of_reader};
use delta_base::id::{RunId, SnapshotId};
use delta_base::random::random_bytes;
use delta_snapshot::SNAPSHOT_DIR_NAME;
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use tar::{Archive, Builder, EntryType};

/// The version of the format.
const FORMAT: u32 = 1;
/// The first entry.
pub const MANIFEST_NAME: &str = "transfer.json";
/// The last entry.
pub const LINES_NAME: &str = "sent.jsonl";
/// The first byte of a gzip file.
const GZIP_MAGIC: u8 = 0x1f;
/// The most files of a run that is sent.
const MAX_MEMBERS: usize = 100_000;
/// The longest `transfer.json`: some 300 bytes for each member.
const MAX_MANIFEST_BYTES: u64 = 32 * 1024 * 1024;
/// The longest `sent.jsonl`, which has two events, and a third one of a run that is owned by turns.
const MAX_LINES_BYTES: u64 = 256 * 1024;
/// The longest name of an entry.
const MAX_NAME_BYTES: u64 = 4096;
/// The bytes of the id of a transfer.
const NONCE_BYTES: usize = 16;
/// What belongs to a run wherever it is, of the files of its directory.
const RUN_FILES: [&str; 4] = [JOURNAL_FILE, "budget.jsonl", "engine.log", "io.pack"];
/// The same of its directories.
const RUN_DIRS: [&str; 4] = ["agent", "files", "interaction", "io"];
/// What `--records none` leaves out.
const RECORDS: [&str; 3] = ["io", "io.pack", "engine.log"];

/// What `transfer.json` declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the format.
    delta_transfer: u32,
    /// The id of the transfer.
    pub nonce: String,
    /// The run.
    pub run_id: RunId,
    /// The public key of the sender.
    pub from: String,
    /// The public key of who alone receives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Whether the run continues where it arrives; otherwise it is a copy.
    #[serde(rename = "move")]
    pub moves: bool,
    /// The end of the journal before it was sent.
    pub head: JournalHead,
    /// The snapshot of the workspace; absent if the files stay.
    pub tree: Option<SnapshotId>,
    /// The snapshot whose contents are not in the archive.
    pub base: Option<SnapshotId>,
    /// The hash of the agent directory.
    pub agent: Option<SnapshotId>,
    /// What does not go with it.
    pub left: Vec<String>,
    /// The files, in the order of the archive.
    pub members: Vec<Member>,
    /// The signature of all this.
    #[serde(skip_serializing_if = "Option::is_none")]
    seal: Option<String>,
}

/// A file of a run that is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// `objects/SHA256`, or `run/` and its name in the run directory.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// The SHA-256 of its content.
    pub sha256: String,
}

/// Why an archive is not taken.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// It is not what a sender writes.
    #[error("the archive is damaged: {0}")]
    Damaged(String),
    /// It is another kind of file.
    #[error("this is not a file that `delta send` has written: {0}")]
    Foreign(String),
    /// It was not read to its end.
    #[error("the archive broke off: {0}")]
    BrokenOff(io::Error),
    /// A file could not be written or read here.
    #[error(transparent)]
    File(#[from] FileError),
}

impl BundleError {
    /// What a failure to read the first entry means: another kind of file, unless this one is cut.
    fn of_first_entry(self) -> Self {
        match self {
            Self::Damaged(reason) => Self::Foreign(reason),
            Self::BrokenOff(error) if error.kind() != io::ErrorKind::UnexpectedEof => {
                Self::Foreign("it is not a tar.gz".to_owned())
            }
            error => error,
        }
    }
}

/// A new id of a transfer.
pub fn new_nonce() -> String {
    encode_hex(&random_bytes::<NONCE_BYTES>())
}

/// The id of a move to `destination` of a run whose journal ends so: an attempt that broke off before the run was closed and the
/// next one are one transfer, so that complete members are not sent twice.
pub fn nonce_of_move(head: JournalHead, destination: &str) -> String {
    let JournalHead { seq, chain } = head;
    let mut digits = sha256_hex(format!("delta transfer {seq} {} {destination}", chain.as_str()));
    digits.truncate(2 * NONCE_BYTES);
    digits
}

impl Manifest {
    /// A manifest that is not signed yet.
    pub fn new(nonce: String, run_id: RunId, head: JournalHead) -> Self {
        Self {
            delta_transfer: FORMAT,
            nonce,
            run_id,
            from: String::new(),
            to: None,
            moves: true,
            head,
            tree: None,
            base: None,
            agent: None,
            left: Vec::new(),
            members: Vec::new(),
            seal: None,
        }
    }

    /// Takes over what SENT has.
    pub fn describe(&mut self, sent: &SentRun) {
        self.to.clone_from(&sent.to);
        self.moves = !sent.copy;
        self.tree = sent.tree;
        self.base = sent.base;
        self.agent = sent.agent;
        self.left.clone_from(&sent.left);
    }

    /// Whether SENT is of this transfer.
    pub fn is_of(&self, sent: &SentRun) -> bool {
        let mut other = self.clone();
        other.describe(sent);
        sent.nonce == self.nonce && other == *self
    }

    /// Signs it.
    #[must_use]
    pub fn signed(mut self, key: &SealKey) -> Self {
        self.from = key.public_key().to_string();
        self.seal = Some(key.seal(&self.sealed_bytes()));
        self
    }

    fn sealed_bytes(&self) -> SealedBytes {
        SealedBytes::of_transfer(&[&Self { seal: None, ..self.clone() }.to_json()])
    }

    /// The content of `transfer.json`.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Parses `transfer.json`, whose sender has signed it.
    ///
    /// # Errors
    /// It is something else; the message says what.
    pub fn parse(json: &[u8]) -> Result<Self, BundleError> {
        let damaged = |reason: String| BundleError::Damaged(format!("{MANIFEST_NAME}: {reason}"));
        let manifest: Self =
            serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
        if manifest.delta_transfer != FORMAT {
            let version = manifest.delta_transfer;
            return Err(damaged(format!(
                "its version is {version}, and this delta reads {FORMAT}"
            )));
        }
        let has_nonce = decode_hex(&manifest.nonce).is_some_and(|nonce| nonce.len() == NONCE_BYTES);
        let from = PublicKey::parse(&manifest.from).map_err(damaged)?;
        let signed = manifest.seal.as_deref().and_then(SignedBy::parse);
        let is_signed = signed
            .is_some_and(|signed| signed.key == from && manifest.sealed_bytes().is_signed(&signed));
        if !has_nonce || !is_signed {
            return Err(damaged("its seal is not valid".to_owned()));
        }
        let mut paths = BTreeSet::new();
        for member in &manifest.members {
            if member.target(Path::new("")).is_none() || !paths.insert(&member.path) {
                return Err(damaged(format!("`{}` is not a file of a run", member.path)));
            }
        }
        if paths.len() > MAX_MEMBERS || !paths.iter().any(|path| *path == &journal_member()) {
            let count = paths.len();
            return Err(damaged(format!("it has {count} files, or no journal")));
        }
        Ok(manifest)
    }
}

fn journal_member() -> String {
    format!("run/{JOURNAL_FILE}")
}

/// The file of an object in a run directory.
fn object_path(run_dir: &Path, digits: &str) -> PathBuf {
    let objects = run_dir.join(SNAPSHOT_DIR_NAME).join("objects");
    objects.join(&digits[..2]).join(&digits[2..])
}

impl Member {
    /// Declares the first `bytes` of a file, or all of it.
    ///
    /// # Errors
    /// The file cannot be read.
    fn of_file(path: String, source: &Path, bytes: Option<u64>) -> Result<Self, FileError> {
        let failed = |error| FileError::at("read", source)(error);
        let file = durable::open_no_follow(source).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let bytes = bytes.unwrap_or(length);
        let sha256 = sha256_hex_of_reader(file.take(bytes)).map_err(failed)?;
        Ok(Self { path, bytes, sha256 })
    }

    /// Where the file is in a run directory; `None` if no run has such a file.
    fn target(&self, run_dir: &Path) -> Option<PathBuf> {
        if let Some(digits) = self.path.strip_prefix("objects/") {
            let id = SnapshotId::parse(digits).filter(|_| digits == self.sha256);
            return id.map(|_| object_path(run_dir, digits));
        }
        let name = self.path.strip_prefix("run/")?;
        let (first, rest) =
            name.split_once('/').map_or((name, None), |(first, _)| (first, Some(())));
        let known: &[&str] = if rest.is_some() { &RUN_DIRS } else { &RUN_FILES };
        // One spelling: no name appears twice, and a control character cannot hide in a list.
        let is_plain = name.split('/').all(|part| !matches!(part, "" | "." | ".."));
        let is_visible = !name.contains(char::is_control);
        let path = durable::join_beneath(run_dir, name).ok()?;
        (known.contains(&first) && is_plain && is_visible).then_some(path)
    }

    /// Whether the run directory has it already, all of it. More may follow it, in a journal alone.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn is_complete_in(&self, run_dir: &Path) -> bool {
        let Some(path) = self.target(run_dir) else { return false };
        let Ok(file) = durable::open_no_follow(&path) else { return false };
        let is_long_enough = file.metadata().is_ok_and(|metadata| metadata.len() >= self.bytes);
        is_long_enough
            && sha256_hex_of_reader(file.take(self.bytes)).is_ok_and(|hash| hash == self.sha256)
    }

    /// Writes it into a run directory.
    ///
    /// # Errors
    /// The content is not what is declared, or cannot be read or written.
    pub fn store(&self, run_dir: &Path, source: &mut dyn Read) -> Result<(), BundleError> {
        let Some(path) = self.target(run_dir) else { return Err(self.damaged()) };
        path.parent().map_or(Ok(()), durable::ensure_private_dir)?;
        // What an earlier attempt has left of it.
        let _ = durable::remove_file_no_follow(&path);
        let mut content = HashedReader { source, hash: Sha256::new(), length: 0, failure: None };
        let written = durable::create_private_from_unsynced(&path, &mut content);
        if let Some(failure) = content.failure.take() {
            return Err(BundleError::BrokenOff(failure));
        }
        written?;
        let hash = encode_hex(&content.hash.finalize());
        if content.length == self.bytes && hash == self.sha256 {
            return Ok(());
        }
        let _ = durable::remove_file_no_follow(&path);
        Err(self.damaged())
    }

    fn damaged(&self) -> BundleError {
        BundleError::Damaged(format!("`{}` is not what {MANIFEST_NAME} declares", self.path))
    }
}

/// Tells a failure to read the archive from one to write the file.
struct HashedReader<'a> {
    source: &'a mut dyn Read,
    hash: Sha256,
    length: u64,
    failure: Option<io::Error>,
}

impl Read for HashedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.source.read(buffer) {
            Ok(count) => {
                self.hash.update(&buffer[..count]);
                self.length += count as u64;
                Ok(count)
            }
            Err(error) => {
                let kind = error.kind();
                self.failure = Some(error);
                Err(kind.into())
            }
        }
    }
}

/// What of a run is sent.
#[derive(Debug)]
pub struct Contents {
    /// The objects of snapshots.
    pub objects: BTreeSet<SnapshotId>,
    /// Whether its records are sent.
    pub records: bool,
    /// How much of its journal.
    pub journal_bytes: u64,
}

/// A file that is sent, with its path here.
#[derive(Debug)]
pub struct SentFile {
    /// What is declared of it.
    pub member: Member,
    /// The file here.
    pub source: PathBuf,
}

/// Lists what is sent of the run in `run_dir`, whose journal is `journal`.
///
/// # Errors
/// A file cannot be read, or there are too many.
pub fn list_sent_files(
    run_dir: &Path,
    journal: &Path,
    contents: &Contents,
) -> Result<Vec<SentFile>, FileError> {
    let mut sources = vec![(journal_member(), journal.to_owned(), Some(contents.journal_bytes))];
    let is_sent = |name: &&&str| contents.records || !RECORDS.contains(name);
    for name in RUN_FILES[1..].iter().filter(is_sent) {
        if durable::is_file_no_follow(&run_dir.join(name)) {
            sources.push((format!("run/{name}"), run_dir.join(name), None));
        }
    }
    for name in RUN_DIRS.iter().filter(is_sent) {
        add_directory(&run_dir.join(name), &format!("run/{name}"), &mut sources)?;
    }
    for id in &contents.objects {
        let digits = id.to_string();
        let path = object_path(run_dir, &digits);
        sources.push((format!("objects/{digits}"), path, None));
    }
    if sources.len() > MAX_MEMBERS {
        let reason = format!("it has {} files, and at most {MAX_MEMBERS} are sent", sources.len());
        return Err(FileError::at("send", run_dir)(io::Error::other(reason)));
    }
    let files = sources.into_iter().map(|(path, source, bytes)| {
        Ok(SentFile { member: Member::of_file(path, &source, bytes)?, source })
    });
    files.collect()
}

fn add_directory(
    dir: &Path,
    path: &str,
    sources: &mut Vec<(String, PathBuf, Option<u64>)>,
) -> Result<(), FileError> {
    for entry in durable::read_dir_no_follow(dir).unwrap_or_default() {
        let source = dir.join(&entry.name);
        let Some(name) = entry.name.to_str() else {
            let reason = io::Error::other("its name is not UTF-8");
            return Err(FileError::at("send", &source)(reason));
        };
        let path = format!("{path}/{name}");
        if entry.is_dir() {
            add_directory(&source, &path, sources)?;
        } else if entry.is_file() {
            sources.push((path, source, None));
        }
    }
    Ok(())
}

/// All objects of the snapshots of a run.
pub fn list_objects(run_dir: &Path) -> BTreeSet<SnapshotId> {
    let objects = run_dir.join(SNAPSHOT_DIR_NAME).join("objects");
    let mut ids = BTreeSet::new();
    for entry in durable::read_dir_no_follow(&objects).unwrap_or_default() {
        let Some(start) = entry.name.to_str().filter(|_| entry.is_dir()) else { continue };
        let files = durable::read_dir_no_follow(&objects.join(start)).unwrap_or_default();
        let names = files.iter().filter_map(|file| file.name.to_str());
        ids.extend(names.filter_map(|name| SnapshotId::parse(&format!("{start}{name}"))));
    }
    ids
}

/// Writes an archive.
pub struct BundleWriter<W: Write>(Builder<W>);

impl<W: Write> BundleWriter<GzEncoder<W>> {
    /// An archive without entries, in a file.
    pub fn packed(output: W) -> Self {
        Self::new(GzEncoder::new(output, Compression::default()))
    }
}

impl<W: Write> BundleWriter<W> {
    /// An archive without entries, over a connection.
    pub fn new(output: W) -> Self {
        Self(Builder::new(output))
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn append(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.append_from(name, content.len() as u64, content)
    }

    /// Appends a file.
    ///
    /// # Errors
    /// The file has become shorter, or the output cannot be written.
    pub fn append_file(&mut self, file: &SentFile) -> io::Result<()> {
        let source = durable::open_no_follow(&file.source)?;
        self.append_from(&file.member.path, file.member.bytes, source)
    }

    fn append_from(&mut self, name: &str, bytes: u64, content: impl Read) -> io::Result<()> {
        let mut header = new_header(EntryType::Regular, 0o600);
        header.set_size(bytes);
        append_named(&mut self.0, header, name.as_bytes(), content.take(bytes))
    }

    /// Hands all entries so far to the reader.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn finish(self) -> io::Result<W> {
        self.0.into_inner()
    }
}

/// What a receiver does with an archive, in this order.
pub trait BundleSink {
    /// Why the archive is not received.
    type Error: From<BundleError>;

    /// Takes the manifest; returns the members that follow.
    ///
    /// # Errors
    /// The archive is not received.
    fn begin(&mut self, manifest: Manifest) -> Result<Vec<Member>, Self::Error>;

    /// Takes a member.
    ///
    /// # Errors
    /// The archive is not received.
    fn store(&mut self, member: &Member, content: &mut dyn Read) -> Result<(), Self::Error>;

    /// The last member was taken.
    ///
    /// # Errors
    /// The archive is not received.
    fn ready(&mut self) -> Result<(), Self::Error>;
}

/// Reads an archive in a file up to its last entry, whose content it returns.
///
/// # Errors
/// The archive is damaged or breaks off, or the sink does not take it.
pub fn read_packed_bundle<S: BundleSink>(
    source: impl Read,
    sink: &mut S,
) -> Result<Vec<u8>, S::Error> {
    let mut source = BufReader::new(source);
    let problem = match source.fill_buf().map(<[u8]>::first) {
        Ok(Some(&GZIP_MAGIC)) => None,
        Ok(Some(_)) => Some("it is not gzip".to_owned()),
        Ok(None) => Some("it is empty".to_owned()),
        Err(error) => Some(error.to_string()),
    };
    if let Some(problem) = problem {
        return Err(BundleError::Foreign(problem).into());
    }
    let mut archive = Archive::new(GzDecoder::new(source));
    let entries = archive.entries().map_err(BundleError::BrokenOff)?;
    let mut entries = EntryReader(entries.raw(true));
    let json = entries.read_small(MANIFEST_NAME, MAX_MANIFEST_BYTES);
    read_members(json.map_err(BundleError::of_first_entry)?, entries, sink)
}

/// Reads an archive as [`read_packed_bundle`] does, over a connection: no byte is awaited before the sink has all entries up to
/// it.
///
/// # Errors
/// The archive is damaged or breaks off, or the sink does not take it.
pub fn read_bundle<S: BundleSink>(source: impl Read, sink: &mut S) -> Result<Vec<u8>, S::Error> {
    let mut archive = Archive::new(source);
    let entries = archive.entries().map_err(BundleError::BrokenOff)?;
    let mut entries = EntryReader(entries.raw(true));
    let json = entries.read_small(MANIFEST_NAME, MAX_MANIFEST_BYTES)?;
    read_members(json, entries, sink)
}

fn read_members<S: BundleSink>(
    manifest: Vec<u8>,
    mut entries: EntryReader<'_, impl Read>,
    sink: &mut S,
) -> Result<Vec<u8>, S::Error> {
    let members = sink.begin(Manifest::parse(&manifest)?)?;
    for member in &members {
        let mut entry = entries.next(&member.path)?;
        if entry.size() != member.bytes {
            return Err(member.damaged().into());
        }
        sink.store(member, &mut entry)?;
    }
    sink.ready()?;
    Ok(entries.read_small(LINES_NAME, MAX_LINES_BYTES)?)
}

struct EntryReader<'a, R: Read>(tar::Entries<'a, R>);

impl<'a, R: Read> EntryReader<'a, R> {
    /// The next entry, which must be the regular file `name`.
    fn next(&mut self, name: &str) -> Result<tar::Entry<'a, R>, BundleError> {
        let mut entry = self.next_entry(name)?;
        let mut path = entry.path_bytes().into_owned();
        if entry.header().entry_type() == EntryType::GNULongName {
            if entry.size() > MAX_NAME_BYTES {
                return Err(BundleError::Damaged("it has a longer name than any file".to_owned()));
            }
            path.clear();
            entry.read_to_end(&mut path).map_err(BundleError::BrokenOff)?;
            path.pop();
            entry = self.next_entry(name)?;
        }
        if entry.header().entry_type() == EntryType::Regular && path == name.as_bytes() {
            return Ok(entry);
        }
        let other = String::from_utf8_lossy(&path).escape_debug().to_string();
        Err(BundleError::Damaged(format!("expected the file `{name}`, found `{other}`")))
    }

    fn next_entry(&mut self, name: &str) -> Result<tar::Entry<'a, R>, BundleError> {
        self.0
            .next()
            .unwrap_or_else(|| {
                let reason = format!("`{name}` is missing");
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason))
            })
            .map_err(BundleError::BrokenOff)
    }

    fn read_small(&mut self, name: &str, limit: u64) -> Result<Vec<u8>, BundleError> {
        let mut entry = self.next(name)?;
        if entry.size() > limit {
            return Err(BundleError::Damaged(format!("`{name}` has more than {limit} bytes")));
        }
        let mut content = Vec::new();
        let length = entry.size();
        entry.read_to_end(&mut content).map_err(BundleError::BrokenOff)?;
        if content.len() as u64 == length {
            return Ok(content);
        }
        Err(BundleError::BrokenOff(io::ErrorKind::UnexpectedEof.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::ChainValue;
    use proptest::prelude::*;

    const JOURNAL: &[u8] = b"{}\n";

    fn member(path: &str, content: &[u8]) -> Member {
        Member { path: path.to_owned(), bytes: content.len() as u64, sha256: sha256_hex(content) }
    }

    fn key() -> SealKey {
        let dir = tempfile::tempdir().unwrap();
        SealKey::load_or_create(&dir.path().join("seal.key")).unwrap()
    }

    fn manifest(members: Vec<Member>) -> Manifest {
        let head = JournalHead { seq: 1, chain: ChainValue::after(None, b"x") };
        let mut manifest = Manifest::new(new_nonce(), RunId::parse("r").unwrap(), head);
        manifest.members = members;
        manifest
    }

    struct Stored(PathBuf);

    impl BundleSink for Stored {
        type Error = BundleError;

        fn begin(&mut self, manifest: Manifest) -> Result<Vec<Member>, BundleError> {
            Ok(manifest.members)
        }

        fn store(&mut self, member: &Member, content: &mut dyn Read) -> Result<(), BundleError> {
            member.store(&self.0, content)
        }

        fn ready(&mut self) -> Result<(), BundleError> {
            Ok(())
        }
    }

    fn archive(manifest: &Manifest, contents: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = BundleWriter::packed(Vec::new());
        writer.append(MANIFEST_NAME, &manifest.to_json()).unwrap();
        for (name, content) in contents {
            writer.append(name, content).unwrap();
        }
        writer.append(LINES_NAME, b"{}\n").unwrap();
        writer.finish().unwrap().finish().unwrap()
    }

    fn receive(archive: &[u8]) -> Result<Vec<String>, String> {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join(".delta/r");
        std::fs::create_dir_all(&root).unwrap();
        let outside = dir.path().join("outside");
        let read = read_packed_bundle(archive, &mut Stored(root.clone()));
        assert!(!outside.exists());
        read.map_err(|error| error.to_string())?;
        let mut files: Vec<String> = Vec::new();
        let mut queue = vec![root.clone()];
        while let Some(dir) = queue.pop() {
            for entry in std::fs::read_dir(dir).unwrap().flatten() {
                if entry.path().is_dir() {
                    queue.push(entry.path());
                } else {
                    let path = entry.path();
                    files.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        files.sort();
        Ok(files)
    }

    /// A header that no builder writes.
    fn entry(kind: EntryType, name: &str, link: &str, content: &[u8]) -> Vec<u8> {
        let mut header = new_header(kind, 0o600);
        header.set_link_name_literal(link.as_bytes()).unwrap();
        header.set_size(content.len() as u64);
        let mut builder = Builder::new(Vec::new());
        append_named(&mut builder, header, name.as_bytes(), content).unwrap();
        let mut bytes = builder.into_inner().unwrap();
        bytes.truncate(bytes.len() - 1024);
        bytes
    }

    fn packed(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&entries.concat()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn c_36_10_an_archive_has_exactly_the_files_that_it_declares() {
        let long = format!("run/agent/{}/{}", "x".repeat(200), "y".repeat(200));
        let object = format!("objects/{}", sha256_hex(b"o"));
        let contents: [(&str, &[u8]); 3] =
            [("run/journal.jsonl", JOURNAL), (&long, b"long"), (&object, b"o")];
        let members: Vec<Member> = contents.map(|(name, bytes)| member(name, bytes)).to_vec();
        let signed = manifest(members).signed(&key());
        let whole = archive(&signed, &contents);
        let files = receive(&whole).unwrap();
        assert_eq!(files.len(), 3, "{files:?}");
        for count in 0..3 {
            let error = receive(&archive(&signed, &contents[..count])).unwrap_err();
            assert!(error.contains("found `sent.jsonl`"), "{error}");
        }
        let others: [&[(&str, &[u8])]; 4] = [
            &[contents[1], contents[0], contents[2]],
            &[contents[0], contents[0], contents[1]],
            &[contents[0], (&long, b"other"), contents[2]],
            &[contents[0], (&long, b"lonG"), contents[2]],
        ];
        for other in others {
            receive(&archive(&signed, other)).unwrap_err();
        }
        for cut in [0, 10, whole.len() / 2, whole.len() - 20] {
            receive(&whole[..cut]).unwrap_err();
        }
    }

    #[test]
    fn c_36_10_links_devices_and_other_names_are_refused() {
        let key = key();
        for path in [
            "run/../outside",
            "run//journal.jsonl",
            "run/./journal.jsonl",
            "/outside",
            "outside",
            "run/lock",
            "run/metadata.json",
            "run/snapshots/objects/00",
            "run/agent",
            "run/io/../x",
            "run/lease/1",
            "run/messages/1",
            "run/agent/a\nb",
            "run/agent/",
            "objects/00",
            "run/io/",
        ] {
            let members = vec![member("run/journal.jsonl", JOURNAL), member(path, b"")];
            let json = manifest(members).signed(&key).to_json();
            let error = Manifest::parse(&json).unwrap_err().to_string();
            assert!(error.contains("is not a file of a run"), "{path}: {error}");
        }
        let journal = member("run/journal.jsonl", JOURNAL);
        let twice = manifest(vec![journal.clone(), journal.clone()]).signed(&key);
        Manifest::parse(&twice.to_json()).unwrap_err();
        Manifest::parse(&manifest(Vec::new()).signed(&key).to_json()).unwrap_err();
        let signed = manifest(vec![journal]).signed(&key);
        let first = entry(EntryType::Regular, MANIFEST_NAME, "", &signed.to_json());
        let kinds = [
            EntryType::Link,
            EntryType::Symlink,
            EntryType::Char,
            EntryType::Block,
            EntryType::Directory,
            EntryType::Fifo,
            EntryType::GNUSparse,
            EntryType::XHeader,
            EntryType::XGlobalHeader,
            EntryType::GNULongLink,
            EntryType::Continuous,
        ];
        for kind in kinds {
            let second = entry(kind, "run/journal.jsonl", "/outside", JOURNAL);
            let error = receive(&packed(&[first.clone(), second])).unwrap_err();
            assert!(error.contains("expected the file"), "{kind:?}: {error}");
        }
    }

    #[test]
    fn c_36_10_a_bomb_needs_no_more_room_than_was_declared() {
        let signed = manifest(vec![member("run/journal.jsonl", JOURNAL)]).signed(&key());
        let first = entry(EntryType::Regular, MANIFEST_NAME, "", &signed.to_json());
        let large = vec![0; 8 << 20];
        for second in [
            entry(EntryType::Regular, "run/journal.jsonl", "", &large),
            entry(EntryType::GNULongName, "run/journal.jsonl", "", &large),
        ] {
            receive(&packed(&[first.clone(), second])).unwrap_err();
        }
        let lines = entry(EntryType::Regular, LINES_NAME, "", &large);
        let journal = entry(EntryType::Regular, "run/journal.jsonl", "", JOURNAL);
        let error = receive(&packed(&[first, journal, lines])).unwrap_err();
        assert!(error.contains("more than 262144 bytes"), "{error}");
        let huge = entry(EntryType::Regular, MANIFEST_NAME, "", &vec![b' '; 40 << 20]);
        let error = receive(&packed(&[huge])).unwrap_err();
        assert!(error.contains("more than 33554432 bytes"), "{error}");
    }

    #[test]
    fn c_36_9_no_field_of_a_manifest_can_be_changed() {
        let signed = manifest(vec![member("run/journal.jsonl", JOURNAL)]).signed(&key());
        let json = String::from_utf8(signed.to_json()).unwrap();
        assert_eq!(Manifest::parse(json.as_bytes()).unwrap(), signed);
        for (from, to) in [
            ("\"move\":true", "\"move\":false"),
            ("\"run_id\":\"r\"", "\"run_id\":\"s\""),
            ("\"seq\":1", "\"seq\":2"),
            ("\"bytes\":3", "\"bytes\":4"),
            ("\"left\":[]", "\"left\":[\"x\"]"),
            ("\"delta_transfer\":1", "\"delta_transfer\":2"),
            ("\"tree\":null", "\"tree\":null,\"x\":1"),
        ] {
            let changed = json.replacen(from, to, 1);
            assert!(changed != json && Manifest::parse(changed.as_bytes()).is_err(), "{to}");
        }
        let other = Manifest { seal: None, ..signed.clone() }.signed(&key());
        let stolen = Manifest { from: other.from, ..signed };
        assert!(Manifest::parse(&stolen.to_json()).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_reading_an_archive_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), at in any::<prop::sample::Index>(), is_packed in any::<bool>()) {
            let signed = manifest(vec![member("run/journal.jsonl", JOURNAL)]).signed(&key());
            let mut entries = entry(EntryType::Regular, MANIFEST_NAME, "", &signed.to_json());
            entries.extend(entry(EntryType::Regular, "run/journal.jsonl", "", JOURNAL));
            let at = at.index(entries.len());
            let end = (at + bytes.len()).min(entries.len());
            entries[at..end].copy_from_slice(&bytes[..end - at]);
            let _ = receive(&if is_packed { packed(&[entries]) } else { bytes });
        }
    }
}
