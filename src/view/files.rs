//! The io/ files of a run, read with distrust: their names stand in a journal that may be anybody's, and they may be of
//! any size.

use crate::durable;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

/// Of a longer text the page holds the beginning and the end.
const WHOLE: usize = 256 * 1024;
/// So much of each.
const EDGES: (usize, usize) = (128 * 1024, 64 * 1024);
/// So much where the page is full.
const SMALL_EDGES: (usize, usize) = (4 * 1024, 4 * 1024);

/// How much more the page holds whole, in bytes; so that no number of large outputs makes it too large to open.
#[derive(Debug)]
pub struct Room(usize);

impl Room {
    /// Room for `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self(bytes)
    }

    /// Takes room for `bytes`, when there is as much.
    pub fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.0;
        self.0 -= if fits { bytes } else { 0 };
        fits
    }
}

/// A text as the page holds it: whole, or its beginning and its end.
#[derive(Debug, Default, Serialize)]
pub struct Cut {
    /// The text, or its beginning.
    pub text: String,
    /// Its end, where something between the two is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<String>,
    /// How long it is in truth, where it is not whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The file that holds it, relative to the run directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What else is to be said of it, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Cut {
    /// `text`, as much of it as there is room for.
    pub fn of(text: &str, room: &mut Room) -> Self {
        let edges = if text.len() <= WHOLE { SMALL_EDGES } else { EDGES };
        if text.len() <= edges.0 + edges.1 || (text.len() <= WHOLE && room.take(text.len())) {
            return Self { text: text.to_owned(), ..Self::default() };
        }
        let edges = if room.take(edges.0 + edges.1) { edges } else { SMALL_EDGES };
        let head = &text[..text.floor_char_boundary(edges.0)];
        let tail = &text[text.ceil_char_boundary(text.len() - edges.1)..];
        let (text, tail, bytes) = (head.to_owned(), Some(tail.to_owned()), Some(text.len() as u64));
        Self { text, tail, bytes, ..Self::default() }
    }

    /// Whether there is nothing of it.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.tail.is_none() && self.note.is_none()
    }

    /// Nothing, with the reason.
    fn missing(note: String) -> Self {
        Self { note: Some(note), ..Self::default() }
    }
}

/// A stream as a record has it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Stream {
    /// Whole.
    Text(String),
    /// In a file beside the record.
    File {
        /// Its name.
        file: String,
        /// How much was printed.
        bytes: u64,
        /// How much of it was not kept.
        #[serde(default)]
        discarded: u64,
    },
    /// Its file could not be written.
    Lost {
        /// How it began.
        head: String,
        /// How it ended.
        tail: String,
        /// How much was printed.
        bytes: u64,
        /// Why there is no file.
        error: String,
    },
}

impl Default for Stream {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl Stream {
    /// The stream of the record `record`, as much of it as there is room for.
    pub fn cut(self, run_dir: &Path, record: &str, room: &mut Room) -> Cut {
        match self {
            Self::Text(text) => Cut::of(&text, room),
            Self::File { file, bytes, discarded } => {
                let dir = record.rsplit_once('/').map_or("", |(dir, _)| dir);
                let mut cut = beside(run_dir, &format!("{dir}/{file}"), room);
                cut.bytes = cut.bytes.map(|_| bytes);
                if discarded > 0 {
                    cut.note = Some(format!("{discarded} bytes of it were not kept"));
                }
                cut
            }
            Self::Lost { head, tail, bytes, error } => {
                let (tail, bytes, note) = (Some(tail), Some(bytes), Some(error));
                Cut { text: head, tail, bytes, file: None, note }
            }
        }
    }
}

/// The file `name` of a run, as much of it as there is room for.
pub fn beside(run_dir: &Path, name: &str, room: &mut Room) -> Cut {
    let mut read = || -> Result<Cut, String> {
        let path = inside(run_dir, name)?;
        let text = |error: std::io::Error| error.to_string();
        let metadata = fs::symlink_metadata(&path).map_err(text)?;
        if !metadata.is_file() {
            return Err("it is not a regular file".to_owned());
        }
        let length = metadata.len();
        let whole = length <= WHOLE as u64 && room.take(WHOLE.min(length as usize));
        let (head, tail) = match (whole, room.0 > EDGES.0 + EDGES.1) {
            (true, _) => (length, 0),
            (false, true) if length > WHOLE as u64 => (EDGES.0 as u64, EDGES.1 as u64),
            (false, _) => (SMALL_EDGES.0 as u64, SMALL_EDGES.1 as u64),
        };
        let mut file = File::open(&path).map_err(text)?;
        if head + tail >= length {
            let (text, note) = shown(&read_some(&mut file, length).map_err(text)?);
            return Ok(Cut { text, note, file: Some(name.to_owned()), ..Cut::default() });
        }
        room.take((head + tail) as usize);
        let (first, note) = shown(&read_some(&mut file, head).map_err(text)?);
        file.seek(SeekFrom::Start(length - tail)).map_err(text)?;
        let (last, other) = shown(&read_some(&mut file, tail).map_err(text)?);
        let (tail, bytes, file) = (Some(last), Some(length), Some(name.to_owned()));
        Ok(Cut { text: first, tail, bytes, file, note: note.or(other) })
    };
    read().unwrap_or_else(|reason| Cut::missing(format!("{name} cannot be read: {reason}")))
}

fn read_some(file: &mut File, bytes: u64) -> std::io::Result<Vec<u8>> {
    let mut buffer = Vec::new();
    file.take(bytes).read_to_end(&mut buffer)?;
    Ok(buffer)
}

/// Bytes as text, and what is to be said when they are none. A character that an edge cuts apart is no such case.
fn shown(bytes: &[u8]) -> (String, Option<String>) {
    let mut start = 0;
    while start < bytes.len().min(3) && bytes[start] & 0xc0 == 0x80 {
        start += 1;
    }
    let bytes = &bytes[start..];
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(error) if error.error_len().is_none() => {
            (String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned(), None)
        }
        Err(_) => {
            let note = "it is not UTF-8; what is none is shown as \u{fffd}".to_owned();
            (String::from_utf8_lossy(bytes).into_owned(), Some(note))
        }
    }
}

/// A record of a run as text.
///
/// # Errors
/// Why it cannot be read.
pub fn record(run_dir: &Path, name: &str) -> Result<String, String> {
    let path = inside(run_dir, name)?;
    if path.is_symlink() {
        return Err("it is a symlink".to_owned());
    }
    durable::read_regular_text(&path).map_err(|error| error.to_string())
}

/// The path of a file in io/ or agent/; a name that leads elsewhere is refused.
fn inside(run_dir: &Path, name: &str) -> Result<PathBuf, String> {
    let mut parts = Path::new(name).components();
    let first = parts.next();
    let own = [Component::Normal("io".as_ref()), Component::Normal("agent".as_ref())];
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if !first.is_some_and(|part| own.contains(&part)) || !parts.all(is_plain) {
        return Err("its name leads out of the run directory".to_owned());
    }
    Ok(run_dir.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_18_1_a_large_text_keeps_its_edges() {
        let mut room = Room::new(1 << 20);
        let text = "ä".repeat(WHOLE);
        let cut = Cut::of(&text, &mut room);
        let tail = cut.tail.unwrap();
        assert_eq!(
            (cut.text.len(), tail.len(), cut.bytes),
            (EDGES.0, EDGES.1, Some(2 * WHOLE as u64))
        );
        let cut = Cut::of(&text, &mut Room::new(0));
        assert_eq!((cut.text.len(), cut.tail.unwrap().len()), SMALL_EDGES);
        assert_eq!(Cut::of("abc", &mut Room::new(0)).text, "abc");
    }

    #[test]
    fn c_18_3_no_name_leads_out_of_the_run() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("io/x")).unwrap();
        fs::write(dir.path().join("secret"), "s").unwrap();
        fs::write(dir.path().join("io/x/a.stdout"), b"ok \xff").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("io/x/link")).unwrap();
        for name in ["secret", "io/../secret", "/etc/passwd", "io/x/link", "../io/x"] {
            let cut = beside(dir.path(), name, &mut Room::new(100));
            assert!(cut.text.is_empty() && cut.note.is_some(), "{name}: {cut:?}");
            assert!(record(dir.path(), name).is_err(), "{name}");
        }
        let cut = beside(dir.path(), "io/x/a.stdout", &mut Room::new(100));
        assert_eq!(cut.text, "ok \u{fffd}");
        assert!(cut.note.unwrap().starts_with("it is not UTF-8"));
    }
}
