//! A call of the LLM that has no end yet: what was sent, and what has arrived of the answer, in a file next to the record
//! that the call will have.
//!
//! The first line is the record of a call without an answer, every other line a [`CallPart`]. The file is gone when an
//! event counts the call; a file that a dead process has left is what the next one knows of its last call.

use super::formats::{HashedRequest, LlmCallRecord};
use super::record_files::read_record_bytes;
use super::{RecordWriter, RequestBody, WrittenRecord, list_record_files, sha256_hex};
use crate::event::spending::reported_amount;
use crate::limits::BudgetAmount;
use crate::limits::token_estimate::estimate_tokens;
use delta_base::durable::{self, DraftFile, FileError};
use delta_base::redact::Secrets;
use delta_base::time::Timestamp;
use delta_base::{checksum, json};
use delta_words::{ArrivedAnswer, Attempt, Pricing, Usage};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The end of the name of such a file.
pub const OPEN_CALL_SUFFIX: &str = ".open";
const DIR: &str = "io/invocations";
/// Why the record of a call has no response whose process has died.
const DEATH: &str = "the process died before the answer was complete";

/// What happens to a call until it has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallPart<'a> {
    /// What the estimates need: the tokens of the request, and the prices, if they are known.
    Basis {
        /// The estimated tokens of the request.
        input_tokens: u64,
        /// The prices of the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pricing: Option<Cow<'a, Pricing>>,
    },
    /// The next piece of the text.
    Text(Cow<'a, str>),
    /// The next piece of the reasoning.
    Reasoning(Cow<'a, str>),
    /// The next piece of the arguments of a call.
    Arguments(Cow<'a, str>),
    /// What the endpoint has reported so far.
    Usage(Cow<'a, Usage>),
    /// An attempt has failed. The parts before have what had arrived of its answer.
    Failed(Cow<'a, Attempt>),
    /// The request goes out again.
    Sent {},
    /// The call has ended, and used this.
    Used(Cow<'a, [Usage]>),
}

/// A call as far as it has come.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UnansweredState {
    model: String,
    input_tokens: u64,
    pricing: Option<Pricing>,
    attempts: Vec<Attempt>,
    is_waiting: bool,
    arrived: ArrivedAnswer<'static>,
    reported: Option<Usage>,
    ended: Option<Vec<Usage>>,
}

impl UnansweredState {
    /// A call of `model` that has just been made.
    pub fn new(model: &str) -> Self {
        Self { model: model.to_owned(), ..Self::default() }
    }

    /// Adds what happens next.
    pub fn add(&mut self, part: &CallPart<'_>) {
        let arrived = &mut self.arrived;
        match part {
            CallPart::Basis { input_tokens, pricing } => {
                self.input_tokens = *input_tokens;
                self.pricing = pricing.as_deref().cloned();
            }
            CallPart::Text(piece) => arrived.text.to_mut().push_str(piece),
            CallPart::Reasoning(piece) => arrived.reasoning.to_mut().push_str(piece),
            CallPart::Arguments(piece) => arrived.arguments.to_mut().push_str(piece),
            CallPart::Usage(usage) => self.reported = Some(usage.clone().into_owned()),
            CallPart::Failed(attempt) => {
                let mut attempt = attempt.clone().into_owned();
                let arrived = std::mem::take(&mut self.arrived);
                attempt.arrived = Some(arrived).filter(|arrived| !arrived.is_empty());
                self.attempts.push(attempt);
                self.reported = None;
                self.is_waiting = true;
            }
            CallPart::Sent {} => self.is_waiting = false,
            CallPart::Used(usages) => self.ended = Some(usages.clone().into_owned()),
        }
    }

    /// What the attempts that failed used: as the endpoint reported it, or else estimated where an answer had started.
    pub fn lost(&self) -> impl Iterator<Item = &Usage> {
        self.attempts.iter().filter_map(|attempt| attempt.usage.as_ref())
    }

    /// The attempts that failed, with what each had received and used.
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// What has arrived of the answer that was waited for last; `None` if nothing has.
    pub fn arrived(&self) -> Option<&ArrivedAnswer<'static>> {
        Some(&self.arrived).filter(|arrived| !arrived.is_empty())
    }

    /// What the call has used so far: what failed attempts used, the request, and what has arrived of the answer.
    pub fn usages(&self) -> Vec<Usage> {
        match &self.ended {
            Some(usages) => usages.clone(),
            None => {
                let current = (!self.is_waiting).then(|| self.estimate());
                self.lost().cloned().chain(current).collect()
            }
        }
    }

    /// The request and what has arrived of the answer: four bytes are a token, unless the endpoint has reported more.
    fn estimate(&self) -> Usage {
        let output_tokens = estimate_tokens(self.arrived.length());
        let reported = self.reported.clone().unwrap_or_default();
        let mut usage = Usage {
            model: self.model.clone(),
            input_tokens: self.input_tokens.max(reported.input_tokens),
            output_tokens: output_tokens.max(reported.output_tokens),
            ..reported
        };
        if let Some(pricing) = &self.pricing {
            usage.cost_usd = pricing.call_cost(&usage);
        }
        usage
    }

    /// How the call ended, in words.
    pub fn describe(&self) -> String {
        let usages = self.usages();
        let [input, output] = [
            usages.iter().map(|usage| usage.input_tokens).sum::<u64>(),
            usages.iter().map(|usage| usage.output_tokens).sum(),
        ];
        format!("an interrupted LLM call used an estimated {input} tokens in, {output} out")
    }
}

/// A call that this process makes. When it is dropped, its file is removed.
#[derive(Debug)]
pub struct UnansweredCall {
    file: DraftFile,
    /// The path of the record that the call will have, relative to the run directory.
    pub(super) name: String,
    path: PathBuf,
    started_at: Option<Timestamp>,
    secrets: Secrets,
    /// What has happened so far.
    pub answer: UnansweredState,
}

impl UnansweredCall {
    /// Records what happens. A part that cannot be written is missing if the process dies; the call continues.
    pub fn add(&mut self, part: &CallPart<'_>) {
        self.answer.add(part);
        let _ = self.file.write(self.secrets.redact_string(part_line(part)).as_bytes());
    }

    /// Records that an attempt has failed. If an answer had started, it used what the endpoint reported, or else the estimate.
    pub fn add_failure(&mut self, mut attempt: Attempt, has_answer: bool) {
        if has_answer && attempt.usage.is_none() {
            attempt.usage = Some(self.answer.estimate());
        }
        self.add(&CallPart::Failed(Cow::Owned(attempt)));
    }

    /// When the call was made.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.started_at
    }

    /// The absolute path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn part_line(part: &CallPart<'_>) -> String {
    json::to_json(part) + "\n"
}

impl RecordWriter {
    /// Records that a call is about to be made. `record` is the one of the call without an answer.
    ///
    /// # Errors
    /// The file cannot be created, so the call must not be made: nothing would be known of it.
    pub fn open_call(
        &mut self,
        record: &LlmCallRecord<'_>,
        body: &mut RequestBody,
        basis: &CallPart<'_>,
    ) -> Result<UnansweredCall, FileError> {
        let started_at = record.started_at.map(Timestamp::to_compact).unwrap_or_default();
        let stem = self.reserve_stem("invocations", &format!("{started_at}_{}", record.iteration));
        let sha256 = body.sha256();
        let record = LlmCallRecord { error: Some(DEATH.into()), ..record.clone() };
        let (request, _) = self.shorten_request(body, None);
        let text = record.to_line(&sha256, &request) + &part_line(basis);
        let path = self.run_dir.join(format!("{DIR}/{stem}{OPEN_CALL_SUFFIX}"));
        let mut file = DraftFile::create(&path)?;
        file.write(self.secrets.redact_string(text).as_bytes())?;
        let mut answer = UnansweredState::new(&record.model);
        answer.add(basis);
        let secrets = self.secrets.clone();
        let name = format!("{DIR}/{stem}.json");
        Ok(UnansweredCall { file, name, path, started_at: record.started_at, secrets, answer })
    }
}

/// A call whose process has died.
#[derive(Debug)]
pub struct DeadCall {
    path: PathBuf,
    /// The path of its record, relative to the run directory.
    pub name: String,
    /// When it was made.
    pub started_at: Option<Timestamp>,
    record: String,
    /// What had happened.
    pub answer: UnansweredState,
}

impl DeadCall {
    /// The calls that dead processes have left in the directory of a run, oldest first. The caller owns the run.
    pub fn find_all(run_dir: &Path) -> Vec<Self> {
        let names = list_record_files(run_dir, DIR).into_keys();
        let stems = names.filter_map(|name| Some(name.strip_suffix(OPEN_CALL_SUFFIX)?.to_owned()));
        stems.filter_map(|stem| Self::read(run_dir, &stem)).collect()
    }

    fn read(run_dir: &Path, stem: &str) -> Option<Self> {
        let file = format!("{DIR}/{stem}{OPEN_CALL_SUFFIX}");
        let bytes = read_record_bytes(run_dir, &file).ok()?;
        let (line, answer) = parse_open_call(&bytes).unwrap_or_default();
        let record: LlmCallRecord<'_> = serde_json::from_str(&line).unwrap_or_default();
        let started_at = record.started_at;
        let name = format!("{DIR}/{stem}.json");
        Some(Self { path: run_dir.join(file), name, started_at, record: line, answer })
    }

    /// Writes the record of the call, unless its process has: without an answer, with what had arrived of it.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn write_record(&self, run_dir: &Path) -> Result<Option<WrittenRecord>, FileError> {
        if let Some(sha256) = super::hash_written_record(run_dir, &self.name) {
            return Ok(Some(WrittenRecord { name: self.name.clone(), sha256 }));
        }
        // What was cut off before the call was made has nothing that a record could have.
        let Ok(request) = serde_json::from_str::<HashedRequest<'_>>(&self.record) else {
            return Ok(None);
        };
        let Ok(mut record) = serde_json::from_str::<LlmCallRecord<'_>>(&self.record) else {
            return Ok(None);
        };
        let Some((hash, request)) = request.request_sha256.zip(request.request) else {
            return Ok(None);
        };
        let usages = self.answer.usages();
        record.usage = usages.last().map(Cow::Borrowed);
        record.attempts = Cow::Borrowed(&self.answer.attempts);
        record.arrived = self.answer.arrived().map(Cow::Borrowed);
        let text = checksum::append_checksum(record.to_line(&hash, request.get()));
        durable::replace_private_unsynced(&run_dir.join(&self.name), text.as_bytes())?;
        Ok(Some(WrittenRecord { name: self.name.clone(), sha256: sha256_hex(&text) }))
    }

    /// Removes the file, when an event counts the call durably.
    pub fn remove(&self) {
        // A file that stays is removed by the next process, which finds that the call counts.
        let _ = durable::remove_file_no_follow(&self.path);
    }
}

/// The first line, and what the others add up to; `None` if the process died before it made the call.
fn parse_open_call(bytes: &[u8]) -> Option<(String, UnansweredState)> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let first = lines.next()?;
    let record: LlmCallRecord<'_> = serde_json::from_str(first).ok()?;
    let mut answer = UnansweredState::new(&record.model);
    let mut parts = lines.map_while(|line| serde_json::from_str(line).ok());
    answer.add(&parts.next()?);
    parts.for_each(|part| answer.add(&part));
    Some((first.to_owned(), answer))
}

/// What the call in the file `path` had used when its process died, without its first `settled` attempts that used something;
/// `None` if that is unknown.
pub fn read_used_amount(path: &Path, settled: usize) -> Option<BudgetAmount> {
    let (_, answer) = parse_open_call(&durable::read_no_follow(path).ok()?)?;
    Some(
        answer
            .usages()
            .iter()
            .skip(settled)
            .fold(BudgetAmount::default(), |sum, usage| sum.saturating_add(reported_amount(usage))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part() -> impl Strategy<Value = CallPart<'static>> {
        let piece = || ".{0,20}".prop_map(Cow::<str>::Owned);
        let usage = (0..100_u64, 0..100_u64).prop_map(|(input_tokens, output_tokens)| {
            let model = "m".to_owned();
            CallPart::Usage(Cow::Owned(Usage {
                model,
                input_tokens,
                output_tokens,
                ..Usage::default()
            }))
        });
        prop_oneof![
            piece().prop_map(CallPart::Text),
            piece().prop_map(CallPart::Reasoning),
            piece().prop_map(CallPart::Arguments),
            usage,
            Just(CallPart::Sent {}),
        ]
    }

    proptest! {
        /// What a killed process leaves at any byte is never less than the request, and never more than what had arrived.
        #[test]
        fn c_12_8_a_call_that_is_cut_anywhere_counts_with_what_had_arrived(
            parts in prop::collection::vec(part(), 0..12),
            cut in 0.0..1.0_f64,
        ) {
            let dir = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(dir.path().join(DIR)).unwrap();
            let mut writer = RecordWriter::new(dir.path(), Secrets::default(), None);
            let mut body = RequestBody::default();
            body.update("{\"messages\":[", &["\"ab\"".into()], "]}");
            let record = LlmCallRecord { model: "m".into(), ..LlmCallRecord::default() };
            let basis = CallPart::Basis { input_tokens: 7, pricing: None };
            let mut call = writer.open_call(&record, &mut body, &basis).unwrap();
            let begin = std::fs::read(call.path()).unwrap().len();
            parts.iter().for_each(|part| call.add(part));
            let bytes = std::fs::read(call.path()).unwrap();
            prop_assert_eq!(&parse_open_call(&bytes).unwrap().1, &call.answer);
            let tokens = |answer: &UnansweredState| -> u64 {
                answer.usages().iter().map(|usage| usage.input_tokens + usage.output_tokens).sum()
            };
            let cut = begin + ((bytes.len() - begin) as f64 * cut) as usize;
            let known = parse_open_call(&bytes[..cut]).unwrap().1;
            prop_assert!((7..=tokens(&call.answer).max(300)).contains(&tokens(&known)));
            prop_assert!(parse_open_call(&bytes[..begin - 1]).is_none());
            let path = call.path().to_owned();
            drop(call);
            prop_assert!(!path.exists());
        }
    }
}
