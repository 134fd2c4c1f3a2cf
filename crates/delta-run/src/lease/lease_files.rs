//! The directory `lease/` of a run that is owned by turns: its names and formats, and what a reader finds in it.
//!
//! ```text
//! lease/000018                  turn 18: a hard link to the token of the claim that took it
//! lease/token.E.NONCE           who made claim E of the run, as JSON
//! lease/journal.E.NONCE.jsonl   the whole run; only that claim's process appends to it
//! lease/beat.E.NONCE            a counter that this process changes while it is alive
//! lease/budget.E.NONCE.jsonl    its ledger, if the run has limits
//! ```
//!
//! A client of a network file system may still find nothing under a name that it has asked for before the file was made.
//! So nothing here asks whether a name exists: the directory is listed.

use crate::event::{self, Payload};
use crate::lease::turns::{EventMark, JournalView, TokenClaim};
use crate::run_files::{JOURNAL_FILE, LEASE_DIR};
use delta_base::{durable, hex};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The beginning of the names of ledgers in it.
pub(crate) const LEDGER_KIND: &str = "budget";

/// The longest and the shortest time between two beats that a token can ask for.
const BEAT_INTERVALS: (u64, u64) = (10, 600_000);

/// Who made a claim of a run. One line of JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseToken {
    /// The number of the claim: higher than the number of each one before it.
    pub(crate) epoch: u32,
    /// 16 hexadecimal digits that no other claim has.
    pub(crate) nonce: String,
    /// The turn with which the run was claimed.
    pub(crate) first_turn: u64,
    /// The events that its journal had at that time.
    pub(crate) event_count: u64,
    /// The name of the host.
    pub(crate) host: String,
    /// The boot of its kernel; empty if it is unknown.
    pub(crate) boot_id: String,
    /// The PID namespace of the process; empty if it is unknown.
    pub(crate) pid_ns: String,
    /// The process id.
    pub(crate) pid: u32,
    /// When the process started, in clock ticks since the boot: unlike a time of day it never changes.
    pub(crate) start_ticks: u64,
    /// The name of its journal in `lease/`.
    pub(crate) journal: String,
    /// The name of its beat in `lease/`.
    pub(crate) beat: String,
    /// The time between two beats, in milliseconds.
    pub(crate) beat_ms: u64,
}

impl LeaseToken {
    /// The claim, for the decisions; `None` if the token has no nonce.
    pub(crate) fn claim(&self) -> Option<TokenClaim> {
        let nonce = parse_nonce(&self.nonce)?;
        Some(TokenClaim { nonce, first_turn: self.first_turn, event_count: self.event_count })
    }

    /// The name of the file of this claim that starts with `kind`.
    pub(crate) fn file_name(&self, kind: &str) -> String {
        format!("{kind}.{}.{}", self.epoch, self.nonce)
    }

    /// The time between two beats.
    pub(crate) fn beat_interval(&self) -> Duration {
        Duration::from_millis(self.beat_ms.clamp(BEAT_INTERVALS.0, BEAT_INTERVALS.1))
    }

    /// The file as it is written.
    pub(crate) fn to_line(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

/// A nonce as tokens and TURN events have it.
pub(crate) fn nonce_text(nonce: u64) -> String {
    hex::encode_hex(&nonce.to_be_bytes())
}

fn parse_nonce(text: &str) -> Option<u64> {
    let bytes: [u8; 8] = hex::decode_hex(text)?.try_into().ok()?;
    Some(u64::from_be_bytes(bytes))
}

/// What the beat of a claim says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beat {
    /// The process was alive when the counter had this value.
    Count(u64),
    /// The process has given up the run after this number of events.
    Left(u64),
}

impl Beat {
    /// The file, always of the same length: it is overwritten in place.
    pub(crate) fn to_line(self) -> String {
        let text = match self {
            Self::Count(count) => count.to_string(),
            Self::Left(events) => format!("left {events}"),
        };
        format!("{text:<31}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        match text.trim().strip_prefix("left ") {
            Some(events) => Some(Self::Left(events.parse().ok()?)),
            None => Some(Self::Count(text.trim().parse().ok()?)),
        }
    }
}

/// The events of a claim's journal that count.
#[derive(Debug)]
pub(crate) struct CountedJournal {
    /// Its file.
    pub(crate) path: PathBuf,
    /// What it shows.
    pub(crate) view: JournalView,
    /// The bytes of the events that count.
    pub(crate) length: u64,
    /// Whether whole events follow that do not count.
    pub(crate) has_uncounted: bool,
}

/// The directory `lease/` of a run.
#[derive(Debug, Clone)]
pub(crate) struct LeaseFiles {
    dir: PathBuf,
}

impl LeaseFiles {
    /// The files of the run in `run_dir`, whether there are any or not.
    pub(crate) fn new(run_dir: &Path) -> Self {
        Self { dir: run_dir.join(LEASE_DIR) }
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The name of a turn.
    pub(crate) fn turn_path(&self, turn: u64) -> PathBuf {
        self.dir.join(format!("{turn:06}"))
    }

    /// The newest turn, 0 if there is none. `None` without the directory.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn newest_turn(&self) -> io::Result<Option<u64>> {
        let entries = match durable::read_dir_no_follow(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            entries => entries?,
        };
        let turns = entries.iter().filter_map(|entry| {
            let name = entry.name.to_str()?;
            let is_number = name.len() >= 6 && name.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| name.parse::<u64>().ok())?
        });
        Ok(Some(turns.max().unwrap_or(0)))
    }

    /// The ledger of the last claim that has one; `None` if none has.
    pub(crate) fn last_ledger(&self) -> Option<PathBuf> {
        let entries = durable::read_dir_no_follow(&self.dir).unwrap_or_default();
        let ledgers = entries.iter().filter_map(|entry| {
            let name = entry.name.to_str()?;
            let rest = name.strip_prefix(LEDGER_KIND)?.strip_prefix('.')?;
            let (epoch, _) = rest.strip_suffix(".jsonl")?.split_once('.')?;
            Some((epoch.parse::<u32>().ok()?, name))
        });
        ledgers.max().map(|(_, name)| self.path(name))
    }

    /// The token of a turn.
    ///
    /// # Errors
    /// It cannot be read, or it is none.
    pub(crate) fn read_token(&self, turn: u64) -> io::Result<LeaseToken> {
        let bytes = durable::read_small_no_follow(&self.turn_path(turn))?;
        let token: LeaseToken = serde_json::from_slice(&bytes)?;
        // The names come from a file in the run directory.
        for name in [&token.journal, &token.beat] {
            if name.contains('/') || name.starts_with('.') {
                return Err(io::Error::other(format!("the name `{name}` leads elsewhere")));
            }
        }
        Ok(token)
    }

    /// The beat of a claim.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read_beat(&self, token: &LeaseToken) -> io::Result<Beat> {
        let bytes = durable::read_small_no_follow(&self.path(&token.beat))?;
        let beat = std::str::from_utf8(&bytes).ok().and_then(Beat::parse);
        beat.ok_or_else(|| io::Error::other("it is not a beat"))
    }

    fn counted_journal(&self, run_dir: &Path) -> io::Result<(PathBuf, Option<u64>)> {
        let newest = self.newest_turn()?.unwrap_or(0);
        if newest == 0 {
            return Ok((run_dir.join(JOURNAL_FILE), None));
        }
        let journal = self.read_journal(&self.read_token(newest)?, newest)?;
        Ok((journal.path, journal.has_uncounted.then_some(journal.length)))
    }

    /// Reads which events of the journal of `token` count, when `newest` is the newest turn.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub(crate) fn read_journal(
        &self,
        token: &LeaseToken,
        newest: u64,
    ) -> io::Result<CountedJournal> {
        let claim = token.claim().ok_or_else(|| io::Error::other("the token has no nonce"))?;
        let path = self.path(&token.journal);
        let mut reader = BufReader::with_capacity(64 * 1024, durable::open_no_follow(&path)?);
        let mut ends = vec![0];
        let mut marks = Vec::new();
        let mut line = Vec::new();
        // What is not an event ends the journal here; reading the events shows whether it is damage.
        while reader.read_until(b'\n', &mut line)? > 0
            && let Some(mark) = mark_of_line(&line, ends.len() as u64)
        {
            marks.push(mark);
            ends.push(ends[ends.len() - 1] + line.len() as u64);
            line.clear();
        }
        let view = JournalView::from_events(marks.iter().copied(), &claim, newest);
        let count = usize::try_from(view.event_count).unwrap_or(usize::MAX).min(marks.len());
        let has_uncounted = count < marks.len();
        Ok(CountedJournal { path, view, length: ends[count], has_uncounted })
    }
}

/// The mark of the event with the number `seq` in a line; `None` if it is not that event.
fn mark_of_line(line: &[u8], seq: u64) -> Option<EventMark> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (kind, recorded_seq, _) = event::parse_envelope(line)?;
    if recorded_seq != seq || !line.ends_with('}') {
        return None;
    }
    Some(match kind {
        "ENGINE_END" => EventMark::End,
        kind if is_act(kind) => EventMark::Act,
        "TURN" => match serde_json::from_str(line).ok()? {
            Payload::Turn { turn, from, nonce } => {
                EventMark::Turn { nonce: parse_nonce(&nonce)?, turn, from }
            }
            _ => return None,
        },
        _ => EventMark::Other,
    })
}

/// Whether an event of this type is the request of an act, which counts only with the turn that follows it.
fn is_act(kind: &str) -> bool {
    matches!(kind, "ACTION_REQUEST" | "ENGINE_END" | "ROLLBACK" | "APPLY" | "DISCARD" | "SENT")
}

/// Whether an event is the request of an act: see [`is_act`].
pub(crate) fn is_act_request(payload: &Payload) -> bool {
    matches!(
        payload,
        Payload::ActionRequest(_)
            | Payload::EngineEnd { .. }
            | Payload::Rollback { .. }
            | Payload::Apply(_)
            | Payload::Discard { .. }
            | Payload::Sent(_)
    )
}

/// The journal that counts of the run in `run_dir`, and how many of its bytes: `None` for all.
///
/// # Errors
/// `lease/` cannot be read.
pub(crate) fn find_counted_journal(run_dir: &Path) -> io::Result<(PathBuf, Option<u64>)> {
    let files = LeaseFiles::new(run_dir);
    // A name that was just listed may belong to a file that the client of a network file system does not know yet.
    files.counted_journal(run_dir).or_else(|_| files.counted_journal(run_dir))
}

/// The most bytes that are read at the end of a journal: an ENGINE_END and a TURN have some 600.
const MAX_TAIL_BYTES: u64 = 4 * 1024;

/// The journal of a run that its last owner has left with its last event: all of it counts. `None` if the end of the
/// journal does not show that.
pub(crate) fn find_left_journal(run_dir: &Path) -> Option<PathBuf> {
    let files = LeaseFiles::new(run_dir);
    let newest = files.newest_turn().ok().flatten().filter(|turn| *turn > 0)?;
    let token = files.read_token(newest).ok()?;
    // Written after the turn was taken, and after the metadata.
    let Beat::Left(events) = files.read_beat(&token).ok()? else { return None };
    let path = files.path(&token.journal);
    let tail = read_journal_tail(&path).ok()?;
    let (rest, last) = split_last_line(&tail)?;
    let (_, before) = split_last_line(rest)?;
    let EventMark::Turn { nonce, turn, .. } = mark_of_line(last, events)? else { return None };
    let is_own = nonce == token.claim()?.nonce && turn == newest;
    // A claim that recorded nothing has copied the end of the one before.
    let is_copied = newest == token.first_turn && events == token.event_count;
    let has_ended = mark_of_line(before, events.checked_sub(1)?)? == EventMark::End;
    (has_ended && (is_own || is_copied)).then_some(path)
}

fn read_journal_tail(path: &Path) -> io::Result<Vec<u8>> {
    let file = durable::open_no_follow(path)?;
    let length = file.metadata()?.len();
    let start = length.saturating_sub(MAX_TAIL_BYTES);
    let mut tail = vec![0; usize::try_from(length - start).unwrap_or_default()];
    file.read_exact_at(&mut tail, start)?;
    Ok(tail)
}

/// The last line with its newline, and what is before it.
fn split_last_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = memchr::memrchr(b'\n', bytes.strip_suffix(b"\n")?).map_or(0, |end| end + 1);
    Some(bytes.split_at(start))
}

/// The path of the journal that counts: see [`find_counted_journal`].
pub(crate) fn counted_journal_path(run_dir: &Path) -> PathBuf {
    let files = LeaseFiles::new(run_dir);
    let newest = files.newest_turn().ok().flatten().unwrap_or(0);
    match files.read_token(newest) {
        Ok(token) if newest > 0 => files.path(&token.journal),
        _ => run_dir.join(JOURNAL_FILE),
    }
}
