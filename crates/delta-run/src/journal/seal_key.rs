//! The operator's keys for seals: a file with a key a line, of which the first one signs and all verify.

use crate::journal::signature::{PublicKey, SignedBy, SigningKey};
use delta_base::durable::{self, FileError, FileLock};
use delta_base::hex::{decode_hex, encode_hex};
use delta_base::id::RunId;
use delta_base::random;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The length of a new key.
const NEW_KEY_BYTES: usize = 32;
/// The shortest key that is accepted.
const MIN_KEY_BYTES: usize = 16;
/// Between the keys of a process in a sandbox, which are hexadecimal digits.
const DERIVED_SEPARATOR: char = ',';

/// The operator's keys for seals.
#[derive(Clone)]
pub struct SealKey(Arc<[KeyLine]>);

/// A key, in the uses that it has.
struct KeyLine {
    mac: Hmac<Sha256>,
    /// Computed when it is needed: a file may have many keys.
    signing: OnceLock<SigningKey>,
}

impl KeyLine {
    fn new(bytes: &[u8]) -> Self {
        let mac = Hmac::new_from_slice(bytes).expect("HMAC takes a key of any length");
        Self { mac, signing: OnceLock::new() }
    }

    fn signing(&self) -> &SigningKey {
        self.signing.get_or_init(|| {
            let seed = self.mac.clone().chain_update(b"delta ed25519").finalize();
            SigningKey::from_seed(&seed.into_bytes().into())
        })
    }

    /// The authentication code of `parts`, each of which is preceded by its length.
    fn code(&self, parts: &[&[u8]]) -> String {
        encode_hex(&self.mac.clone().chain_update(join_parts(parts)).finalize().into_bytes())
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey")
    }
}

/// Why the operator's keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SealKeyError {
    /// The file could not be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file has no key.
    #[error("{} has no key for seals: {reason}", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The file could not be read.
    #[error("could not read the key {}: {source}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl SealKeyError {
    /// Whether no run begins without the key: its file has to be corrected, or another attempt may succeed, because the disk is
    /// full or broken, or too many files are open.
    pub fn prevents_runs(&self) -> bool {
        use rustix::io::Errno;
        let (Self::File(FileError { source, .. }) | Self::Unusable { source, .. }) = self else {
            return true;
        };
        let code = source.raw_os_error();
        [Errno::MFILE, Errno::NFILE, Errno::NOSPC, Errno::DQUOT, Errno::IO]
            .iter()
            .any(|errno| Some(errno.raw_os_error()) == code)
    }
}

impl SealKey {
    /// Reads the keys in the file `path`. Creates it with one if it is missing; of several processes that do this at once, all
    /// get the same key.
    ///
    /// # Errors
    /// The file cannot be read or written, belongs to another user, or has a key that is too short.
    pub fn load_or_create(path: &Path) -> Result<Self, SealKeyError> {
        match durable::read_regular(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                durable::create_private_once(path, new_key_line().as_bytes())?;
            }
            _ => {}
        }
        let unusable = |source| SealKeyError::Unusable { path: path.to_owned(), source };
        let bytes = durable::read_regular(path).map_err(unusable)?;
        let metadata = path.metadata().map_err(unusable)?;
        if !durable::is_own_or_roots(&metadata) {
            let reason = format!("it belongs to user {}", metadata.uid());
            return Err(unusable(io::Error::other(reason)));
        }
        Self::parse(&bytes).map_err(|reason| SealKeyError::NoKey { path: path.to_owned(), reason })
    }

    /// Writes a new first key into the file `path`, which then seals; the other keys still verify. Of several processes that do
    /// this at once, none loses the key of another.
    ///
    /// # Errors
    /// As for [`SealKey::load_or_create`]; also when another process does the same, or the file has one key that is more than a
    /// line.
    pub fn add_new(path: &Path) -> Result<Self, SealKeyError> {
        Self::load_or_create(path)?;
        let unusable = |source| SealKeyError::Unusable { path: path.to_owned(), source };
        // A link to the file stays one.
        let path = path.canonicalize().map_err(unusable)?;
        let lock = FileLock::try_acquire(&path.with_added_extension("lock"))?;
        let Some(_lock) = lock else {
            let reason = "another process writes a new key: repeat the command";
            return Err(unusable(io::Error::other(reason)));
        };
        let bytes = durable::read_regular(&path).map_err(unusable)?;
        if !are_key_lines(&bytes) {
            let reason = "it has one key that is more than a word: move the file away, and its runs become foreign";
            return Err(unusable(io::Error::other(reason)));
        }
        let bytes = [new_key_line().as_bytes(), &bytes].concat();
        durable::replace_private_synced(&path, &bytes)?;
        Self::parse(&bytes).map_err(|reason| SealKeyError::NoKey { path: path.to_owned(), reason })
    }

    /// The keys in the content of a file: a word a line, blank lines apart. Anything else, such as a PEM file, is one key: its
    /// lines are not secrets by themselves.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let keys: Vec<&[u8]> = if are_key_lines(bytes) {
            key_lines(bytes).collect()
        } else {
            vec![bytes.trim_ascii()]
        };
        let short = keys.iter().position(|key| key.len() < MIN_KEY_BYTES);
        match short {
            Some(index) if keys.len() > 1 => {
                Err(format!("key {} has fewer than {MIN_KEY_BYTES} bytes", index + 1))
            }
            None if !keys.is_empty() => Ok(keys.into_iter().map(KeyLine::new).collect()),
            _ => Err(format!("it has fewer than {MIN_KEY_BYTES} bytes")),
        }
    }

    /// The keys for the runs that tools in a sandbox of the run `run_id` in `run_dir` start, as hexadecimal digits. They are
    /// the same for every process of the run, seal nothing else, and do not lead back to these keys.
    pub fn derive_for_inner_runs(&self, run_id: &RunId, run_dir: &Path) -> String {
        let run_dir = run_dir.as_os_str().as_encoded_bytes();
        let parts = [b"delta inner runs", run_id.as_str().as_bytes(), run_dir];
        let keys: Vec<String> = self.0.iter().map(|key| key.code(&parts)).collect();
        keys.join(&DERIVED_SEPARATOR.to_string())
    }

    /// The keys that [`SealKey::derive_for_inner_runs`] gave; `None` if one is too short.
    pub fn from_derived(text: &str) -> Option<Self> {
        let keys = text.split(DERIVED_SEPARATOR).map(|digits| {
            decode_hex(digits)
                .filter(|bytes| bytes.len() >= MIN_KEY_BYTES)
                .map(|key| KeyLine::new(&key))
        });
        keys.collect()
    }

    /// The public half of the key that seals.
    pub fn public_key(&self) -> PublicKey {
        self.0[0].signing().public_key()
    }

    /// The public halves of all keys.
    pub fn public_keys(&self) -> impl Iterator<Item = PublicKey> {
        self.0.iter().map(|key| key.signing().public_key())
    }

    /// Signs a message. Only the messages of seals begin with a NUL byte.
    pub fn sign_message(&self, message: &[u8]) -> SignedBy {
        let key = self.0[0].signing();
        SignedBy { key: key.public_key(), signature: key.sign(message) }
    }

    /// A hash of the variable `name` with this value, in 16 hexadecimal digits. Without the key, no guess of the value can be checked.
    pub fn hash_variable(&self, name: &[u8], value: &[u8]) -> String {
        let mut hash = self.0[0].code(&[b"delta environment", name, value]);
        hash.truncate(16);
        hash
    }

    /// The seal of what `covered` says.
    pub(crate) fn seal(&self, covered: &SealedBytes) -> String {
        self.sign_message(&covered.signed_message()).to_string()
    }

    /// Whether `seal` is the seal of what `covered` says, of this version or an earlier one, in a time that does not depend on
    /// where they differ.
    pub(crate) fn is_valid(&self, covered: &SealedBytes, seal: &str) -> bool {
        let Some(signed) = SignedBy::parse(seal) else {
            let is_written_so = !seal.bytes().any(|digit| digit.is_ascii_uppercase());
            let Some(code) = decode_hex(seal).filter(|_| is_written_so) else { return false };
            let message = covered.authenticated_message();
            return self
                .0
                .iter()
                .any(|key| key.mac.clone().chain_update(&message).verify_slice(&code).is_ok());
        };
        let key = self.0.iter().find(|key| key.signing().public_key() == signed.key);
        key.is_some_and(|key| {
            // To sign again takes half the time of a verification.
            let expected = key.signing().sign(&covered.signed_message());
            Sha256::digest(expected.as_bytes()) == Sha256::digest(signed.signature.as_bytes())
        })
    }
}

impl FromIterator<KeyLine> for SealKey {
    fn from_iter<T: IntoIterator<Item = KeyLine>>(keys: T) -> Self {
        Self(keys.into_iter().collect())
    }
}

fn new_key_line() -> String {
    format!("{}\n", encode_hex(&random::random_bytes::<NEW_KEY_BYTES>()))
}

fn key_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty())
}

/// Whether every line is one word of printable characters, or blank.
fn are_key_lines(bytes: &[u8]) -> bool {
    key_lines(bytes).all(|line| line.iter().all(u8::is_ascii_graphic))
}

/// The parts, each preceded by its length.
fn join_parts(parts: &[&[u8]]) -> Vec<u8> {
    let mut joined = Vec::new();
    for part in parts {
        joined.extend_from_slice(&(part.len() as u64).to_be_bytes());
        joined.extend_from_slice(part);
    }
    joined
}

/// What a seal covers. Its first part is a label, so that no seal is one of something else.
#[derive(Debug)]
pub(crate) struct SealedBytes {
    /// The label of a seal of an earlier version.
    earlier_label: &'static [u8],
    /// The label of a signature; `None` for what only earlier versions wrote.
    label: Option<&'static [u8]>,
    parts: Vec<u8>,
}

impl SealedBytes {
    /// A line of a journal with a chain value.
    pub fn of_line(parts: &[&[u8]]) -> Self {
        Self {
            earlier_label: b"delta chain",
            label: Some(b"delta seal 2"),
            parts: join_parts(parts),
        }
    }

    /// A message to a run.
    pub fn of_message(parts: &[&[u8]]) -> Self {
        let label = Some(&b"delta message 2"[..]);
        Self { earlier_label: b"delta message", label, parts: join_parts(parts) }
    }

    /// What a run is sent with.
    pub fn of_transfer(parts: &[&[u8]]) -> Self {
        let label = Some(&b"delta transfer 1"[..]);
        Self { earlier_label: b"delta transfer", label, parts: join_parts(parts) }
    }

    /// What earlier versions sealed in a line without a chain value.
    pub fn of_earlier_line(label: &'static [u8], parts: &[&[u8]]) -> Self {
        Self { earlier_label: label, label: None, parts: join_parts(parts) }
    }

    /// Whether who has the key of the signature has signed this.
    pub fn is_signed(&self, signed: &SignedBy) -> bool {
        self.label.is_some() && signed.key.verifies(&self.signed_message(), &signed.signature)
    }

    fn authenticated_message(&self) -> Vec<u8> {
        [&join_parts(&[self.earlier_label]), &self.parts[..]].concat()
    }

    fn signed_message(&self) -> Vec<u8> {
        [&join_parts(&[self.label.unwrap_or_default()]), &self.parts[..]].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered() -> SealedBytes {
        SealedBytes::of_line(&[b"x"])
    }

    #[test]
    fn c_20_4_all_processes_get_the_same_new_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seal.key");
        let seals: Vec<String> = std::thread::scope(|scope| {
            let load = || SealKey::load_or_create(&path).unwrap().seal(&covered());
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(seals.iter().all(|seal| *seal == seals[0]), "{seals:?}");
        let mode = std::fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&path, "short\n").unwrap();
        assert!(SealKey::load_or_create(&path).is_err());
    }

    #[test]
    fn c_36_2_the_first_line_seals_and_all_verify() {
        let [one, two] = ["1".repeat(64), "2".repeat(64)];
        let [first, second] = [&one, &two].map(|key| SealKey::parse(key.as_bytes()).unwrap());
        for text in [
            format!("{one}\n{two}\n"),
            format!("\r\n\n {one} \r\n\r\n\t\n{two}"),
            format!("{one}\r\n{two}"),
        ] {
            let both = SealKey::parse(text.as_bytes()).unwrap();
            assert_eq!(both.0.len(), 2, "{text:?}");
            assert_eq!(both.seal(&covered()), first.seal(&covered()));
            for key in [&first, &second] {
                assert!(both.is_valid(&covered(), &key.seal(&covered())));
                let earlier = key.0[0].code(&[b"delta chain", b"x"]);
                assert!(both.is_valid(&covered(), &earlier));
                assert!(!both.is_valid(&covered(), &earlier.to_uppercase().replace('1', "0")));
                assert!(!both.is_valid(&SealedBytes::of_message(&[b"x"]), &key.seal(&covered())));
            }
            assert!(!first.is_valid(&covered(), &second.seal(&covered())));
        }
        let many: Vec<String> = (100..200).map(|number| format!("{number}").repeat(10)).collect();
        let keys = SealKey::parse(many.join("\n").as_bytes()).unwrap();
        let last = SealKey::parse(many[99].as_bytes()).unwrap();
        assert!(keys.is_valid(&covered(), &last.seal(&covered())));
        let derived = |key: &SealKey| {
            let text = key.derive_for_inner_runs(&RunId::parse("r").unwrap(), Path::new("/r"));
            SealKey::from_derived(&text).unwrap()
        };
        assert!(derived(&keys).is_valid(&covered(), &derived(&last).seal(&covered())));
        assert!(!keys.is_valid(&covered(), &derived(&last).seal(&covered())));
        for wrong in [&b""[..], b"\n \r\n", b"short", b"0123456789abcdef\nshort\n"] {
            assert!(SealKey::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    /// Read line by line, a file that was one key would sign with a key that everybody knows.
    #[test]
    fn c_36_2_a_file_of_other_lines_stays_one_key() {
        let pem =
            "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA\n-----END PRIVATE KEY-----\n";
        let binary = b"\x01\x02\x03\x04\x05\x06\x07\x08\n\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11";
        for bytes in [pem.as_bytes(), binary, b"a phrase of several words\n"] {
            let key = SealKey::parse(bytes).unwrap();
            assert_eq!(key.0.len(), 1);
            let expected = KeyLine::new(bytes.trim_ascii()).code(&[b"delta chain", b"x"]);
            assert!(key.is_valid(&covered(), &expected));
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("key");
            std::fs::write(&path, bytes).unwrap();
            assert!(SealKey::add_new(&path).is_err());
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
    }

    #[test]
    fn c_36_2_a_new_key_keeps_the_former_ones_also_of_two_processes_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seal.key");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let first = SealKey::load_or_create(&path).unwrap();
        let added: Vec<SealKey> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| SealKey::add_new(&link))).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap().ok()).collect()
        });
        assert!(!added.is_empty() && link.is_symlink());
        let all = SealKey::load_or_create(&path).unwrap();
        assert_eq!(all.0.len(), added.len() + 1);
        for key in added.iter().chain([&first]) {
            assert!(all.is_valid(&covered(), &key.seal(&covered())));
        }
        assert!(added.iter().any(|key| key.public_key() == all.public_key()));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
}
