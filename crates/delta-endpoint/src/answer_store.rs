//! The answers that runs share: each a file that is made once, complete, under a name that says what was asked.

use delta_base::checksum::{LineChecksum, append_checksum, check_line_checksum};
use delta_base::durable::{self, FileError};
use delta_base::hex::{encode_hex, sha256_hex};
use delta_base::json::to_json;
use delta_base::random::random_bytes;
use delta_base::redact::Secrets;
use delta_words::{Reply, Usage};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::HashSet;
use std::path::PathBuf;

/// The store of the answers that a run may share.
#[derive(Debug)]
pub struct AnswerStore {
    dir: PathBuf,
    input: String,
    repeat: u32,
    secrets: Secrets,
    /// The keys of the run's answers: what it asks again, it wants to be answered again.
    used: RefCell<HashSet<String>>,
    /// The last answer of the endpoint and its key, until an event has it.
    kept: RefCell<Option<(String, Reply)>>,
}

/// The content of a file.
#[derive(Serialize, Deserialize)]
struct StoredAnswer {
    key: String,
    from: String,
    cost_usd: Option<f64>,
    reply: Reply,
}

impl AnswerStore {
    /// The store in `dir`, for a run on an input that is this repeat. An answer with one of `secrets` is not stored.
    pub fn new(dir: PathBuf, input: String, repeat: u32, secrets: Secrets) -> Self {
        Self { dir, input, repeat, secrets, used: RefCell::default(), kept: RefCell::default() }
    }

    /// The key of the answer of `model` at the address `url` to a request with this body.
    pub(crate) fn key(&self, url: &str, model: &str, body: &str) -> String {
        let url = self.secrets.redact(url);
        sha256_hex(to_json(&(url, model, body, &self.input, self.repeat)))
    }

    fn path(&self, key: &str) -> PathBuf {
        self.dir.join(&key[..2]).join(key)
    }

    /// The answer in the file, if there is one that is as it was stored.
    fn read_file(&self, key: &str) -> Option<StoredAnswer> {
        let line = durable::read_no_follow(&self.path(key)).ok()?;
        let is_intact = check_line_checksum(&line) == LineChecksum::Valid;
        let answer: StoredAnswer = serde_json::from_slice(&line).ok().filter(|_| is_intact)?;
        (answer.key == key).then_some(answer)
    }

    /// The answer with this key, as the run `run_id` gets it: for nothing, and once.
    pub(crate) fn read(&self, key: String, run_id: &str) -> Option<Reply> {
        if self.used.borrow().contains(&key) {
            return None;
        }
        let StoredAnswer { from, cost_usd, reply, .. } = self.read_file(&key)?;
        if from.rsplit_once('#').is_none_or(|(run, _)| run == run_id) {
            return None;
        }
        self.used.borrow_mut().insert(key);
        let usage = reply.usage.map(|usage| Usage { cost_usd: Some(0.0), ..usage });
        Some(Reply { usage, from: Some(from), saved_usd: cost_usd, ..reply })
    }

    /// Keeps an answer of the endpoint until an event of the run has it.
    pub(crate) fn keep(&self, key: String, reply: &Reply) {
        self.used.borrow_mut().insert(key.clone());
        *self.kept.borrow_mut() = Some((key, reply.clone()));
    }

    /// The answer that was kept last, with its key.
    pub(crate) fn take_kept(&self) -> Option<(String, Reply)> {
        self.kept.take()
    }

    /// Stores an answer, unless another run has stored one. Durable.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn publish(
        &self,
        key: String,
        from: String,
        cost_usd: Option<f64>,
        reply: Reply,
    ) -> Result<(), FileError> {
        let path = self.path(&key);
        let shard = self.dir.join(&key[..2]);
        let answer = StoredAnswer { key, from, cost_usd, reply };
        let line = append_checksum(to_json(&answer) + "\n");
        // A server may repeat what it was sent.
        if self.secrets.occur_in(&line) {
            return Ok(());
        }
        durable::ensure_shared_dir_synced(&shard)?;
        let nonce = encode_hex(&random_bytes::<6>());
        let draft = shard.join(format!(".{}.{nonce}.tmp", answer.key));
        durable::create_private_synced(&draft, &mut line.as_bytes())?;
        let linked = durable::link_exclusive_synced(&draft, &path);
        let _ = durable::remove_file_no_follow(&draft);
        match linked {
            // Whatever it returns, the file counts: another run may have been first, or the reply of a server was lost.
            Err(_) if self.read_file(&answer.key).is_some() => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                durable::replace_private_tagged_synced(&path, &nonce, line.as_bytes())
            }
            linked => linked.map_err(FileError::at("create", &path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn store(dir: &std::path::Path, input: &str, repeat: u32) -> AnswerStore {
        let secrets = Secrets::default();
        secrets.add("sk-secret-key");
        AnswerStore::new(dir.to_owned(), input.to_owned(), repeat, secrets)
    }

    fn reply(content: &str) -> Reply {
        let usage = Usage { input_tokens: 7, cost_usd: Some(0.5), ..Usage::default() };
        Reply { content: Some(content.to_owned()), usage: Some(usage), ..Reply::default() }
    }

    #[test]
    fn c_34_22_everything_that_was_asked_is_in_the_key_and_no_secret_is() {
        let dir = tempfile::tempdir().unwrap();
        let key = |url, model, body, input, repeat| {
            store(dir.path(), input, repeat).key(url, model, body)
        };
        let keys = [
            key("http://a", "m", "{}", "i", 1),
            key("http://b", "m", "{}", "i", 1),
            key("http://a", "n", "{}", "i", 1),
            key("http://a", "m", "{} ", "i", 1),
            key("http://a", "m", "{}", "j", 1),
            key("http://a", "m", "{}", "i", 2),
        ];
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        let text = r#"["http://a","m","{}","i",1]"#;
        assert_eq!(keys[0], sha256_hex(text));
        let with_key = key("http://a?k=sk-secret-key", "m", "{}", "i", 1);
        assert_eq!(with_key, sha256_hex(r#"["http://a?k=[redacted]","m","{}","i",1]"#));
        let one = store(dir.path(), "i", 1);
        one.publish(keys[0].clone(), "r#4".to_owned(), None, reply("sk-secret-key")).unwrap();
        assert!(one.read_file(&keys[0]).is_none());
    }

    #[test]
    fn c_34_22_an_answer_is_the_first_that_was_stored_whole_and_comes_once() {
        let dir = tempfile::tempdir().unwrap();
        let key = store(dir.path(), "i", 1).key("http://a", "m", "{}");
        thread::scope(|scope| {
            for run in 0..4 {
                let (dir, key) = (dir.path(), key.clone());
                scope.spawn(move || {
                    let from = format!("r{run}#4");
                    let content = format!("of {run}");
                    store(dir, "i", 1).publish(key, from, Some(0.5), reply(&content)).unwrap();
                });
            }
        });
        let names = || {
            let shard = std::fs::read_dir(dir.path().join(&key[..2])).unwrap();
            shard.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
        };
        assert_eq!(names(), [key.as_str()]);
        let other = store(dir.path(), "i", 1);
        let first = other.read(key.clone(), "r9").unwrap();
        let run = first.from.as_deref().unwrap().strip_suffix("#4").unwrap();
        let usage = Usage { input_tokens: 7, cost_usd: Some(0.0), ..Usage::default() };
        assert_eq!(first.content, Some(run.replace('r', "of ")));
        assert_eq!((first.usage, first.saved_usd), (Some(usage), Some(0.5)));
        assert!(other.read(key.clone(), "r9").is_none(), "a second request is asked");
        assert!(store(dir.path(), "i", 1).read(key.clone(), run).is_none(), "its own answer");
        // Torn, changed, or under another name: asked again, and replaced.
        let path = other.path(&key);
        let line = std::fs::read(&path).unwrap();
        let changed = String::from_utf8(line.clone()).unwrap().replace("of ", "by ");
        for damaged in [&line[..line.len() / 2], changed.as_bytes(), b""] {
            std::fs::write(&path, damaged).unwrap();
            assert!(store(dir.path(), "i", 1).read(key.clone(), "r9").is_none());
        }
        other.publish(key.clone(), "r9#4".to_owned(), None, reply("again")).unwrap();
        assert_eq!(
            store(dir.path(), "i", 1).read(key.clone(), "r8").unwrap().content.unwrap(),
            "again"
        );
        assert_eq!(names(), [key.as_str()]);
    }
}
