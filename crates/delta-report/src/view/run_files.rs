//! Reads files of a run directory for the page, as untrusted input: the names come from a journal that anyone may have
//! written, and the files may have any size.

use delta_base::durable;
use delta_run::record::{RecordFile, RecordedStream};
use serde::Serialize;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Component, Path};

/// Longer texts are cut in the middle.
const MAX_WHOLE_BYTES: usize = 256 * 1024;
/// The length of the head and of the tail of a cut text.
const EDGE_BYTES: (usize, usize) = (128 * 1024, 64 * 1024);
/// The same once the page is full.
const SMALL_EDGE_BYTES: (usize, usize) = (4 * 1024, 4 * 1024);

/// The bytes that the page may still hold uncut, so that many large outputs do not make it too large to open.
#[derive(Debug)]
pub struct PageCapacity(usize);

impl PageCapacity {
    pub fn new(bytes: usize) -> Self {
        Self(bytes)
    }

    /// Takes `bytes` from the capacity; `false` when it has fewer, which leaves it unchanged.
    pub fn reserve(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.0;
        self.0 -= if fits { bytes } else { 0 };
        fits
    }
}

/// A text on the page: whole, or its head and tail.
#[derive(Debug, Default, Serialize)]
pub struct PageText {
    /// The whole text, or its head.
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<String>,
    /// The full length of a text that was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The file that holds the text, relative to the run directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl PageText {
    /// Cuts `text` to what the page has room for.
    pub fn new(text: &str, capacity: &mut PageCapacity) -> Self {
        let edges = if text.len() <= MAX_WHOLE_BYTES { SMALL_EDGE_BYTES } else { EDGE_BYTES };
        if text.len() <= edges.0 + edges.1
            || (text.len() <= MAX_WHOLE_BYTES && capacity.reserve(text.len()))
        {
            return Self { text: text.to_owned(), ..Self::default() };
        }
        let edges = if capacity.reserve(edges.0 + edges.1) { edges } else { SMALL_EDGE_BYTES };
        Self {
            text: text[..text.floor_char_boundary(edges.0)].to_owned(),
            tail: Some(text[text.ceil_char_boundary(text.len() - edges.1)..].to_owned()),
            bytes: Some(text.len() as u64),
            ..Self::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.tail.is_none() && self.note.is_none()
    }
}

/// Cuts a stream of the record file `record` to what the page has room for.
pub fn cut_stream(
    stream: RecordedStream,
    run_dir: &Path,
    record: &str,
    capacity: &mut PageCapacity,
) -> PageText {
    match stream {
        RecordedStream::Text(text) => PageText::new(&text, capacity),
        RecordedStream::File { file, bytes, discarded, .. } => {
            let dir = record.rsplit_once('/').map_or("", |(dir, _)| dir);
            let mut text = read_run_file(run_dir, &format!("{dir}/{file}"), capacity);
            text.bytes = text.bytes.map(|_| bytes);
            if discarded > 0 {
                text.note = Some(format!("{discarded} bytes were not kept"));
            }
            text
        }
        RecordedStream::Lost { head, tail, bytes, error } => PageText {
            text: head,
            tail: Some(tail),
            bytes: Some(bytes),
            file: None,
            note: Some(error),
        },
    }
}

/// Reads a file of the run, cut to what the page has room for. A note says why it could not be read.
pub fn read_run_file(run_dir: &Path, name: &str, capacity: &mut PageCapacity) -> PageText {
    read_excerpt(run_dir, name, capacity).unwrap_or_else(|error| PageText {
        note: Some(format!("could not read {name}: {error}")),
        ..PageText::default()
    })
}

fn read_excerpt(run_dir: &Path, name: &str, capacity: &mut PageCapacity) -> io::Result<PageText> {
    check_run_path(name)?;
    let mut file = RecordFile::open(run_dir, name)?;
    let length = file.length();
    let is_long = length > MAX_WHOLE_BYTES as u64;
    let (head, tail) = if !is_long && capacity.reserve(length as usize) {
        (length, 0)
    } else if is_long && capacity.0 > EDGE_BYTES.0 + EDGE_BYTES.1 {
        (EDGE_BYTES.0 as u64, EDGE_BYTES.1 as u64)
    } else {
        (SMALL_EDGE_BYTES.0 as u64, SMALL_EDGE_BYTES.1 as u64)
    };
    let is_cut = head + tail < length;
    if is_cut {
        capacity.reserve((head + tail) as usize);
    }
    let (text, note) = read_text(&mut file, if is_cut { head } else { length })?;
    let mut excerpt = PageText { text, note, file: Some(name.to_owned()), ..PageText::default() };
    if is_cut {
        file.seek(SeekFrom::Start(length - tail))?;
        let (text, note) = read_text(&mut file, tail)?;
        excerpt.tail = Some(text);
        excerpt.bytes = Some(length);
        excerpt.note = excerpt.note.or(note);
    }
    Ok(excerpt)
}

/// Reads up to `bytes` bytes as text, with a note when they are not UTF-8. A character cut off at either end is dropped.
fn read_text(file: &mut RecordFile, bytes: u64) -> io::Result<(String, Option<String>)> {
    let mut buffer = Vec::new();
    file.take(bytes).read_to_end(&mut buffer)?;
    let start = buffer.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    let bytes = &buffer[start..];
    Ok(match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(error) if error.error_len().is_none() => {
            (String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned(), None)
        }
        Err(_) => {
            let note = "not UTF-8; undecodable bytes are shown as \u{fffd}".to_owned();
            (String::from_utf8_lossy(bytes).into_owned(), Some(note))
        }
    })
}

/// Reads a record file of the run, or says why it cannot be read.
pub fn read_run_record(run_dir: &Path, name: &str) -> io::Result<String> {
    check_run_path(name)?;
    let file = RecordFile::open(run_dir, name)?;
    if file.length() > durable::MAX_REGULAR_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is larger than 64 MiB"));
    }
    String::from_utf8(file.read_bytes()?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Checks that a name is one of a file in io/ or agent/.
fn check_run_path(name: &str) -> io::Result<()> {
    let mut parts = Path::new(name).components();
    let is_known_dir = parts.next().is_some_and(|part| {
        ["io", "agent"].iter().any(|dir| part == Component::Normal(dir.as_ref()))
    });
    if !is_known_dir || !parts.all(|part| matches!(part, Component::Normal(_))) {
        return Err(io::Error::other("the path leads out of the run directory"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn c_18_1_a_large_text_keeps_its_edges() {
        let mut room = PageCapacity::new(1 << 20);
        let text = "ä".repeat(MAX_WHOLE_BYTES);
        let cut = PageText::new(&text, &mut room);
        let tail = cut.tail.unwrap();
        assert_eq!(
            (cut.text.len(), tail.len(), cut.bytes),
            (EDGE_BYTES.0, EDGE_BYTES.1, Some(2 * MAX_WHOLE_BYTES as u64))
        );
        let cut = PageText::new(&text, &mut PageCapacity::new(0));
        assert_eq!((cut.text.len(), cut.tail.unwrap().len()), SMALL_EDGE_BYTES);
        assert_eq!(PageText::new("abc", &mut PageCapacity::new(0)).text, "abc");
    }

    #[test]
    fn c_18_3_no_name_leads_out_of_the_run() {
        let dir = tempfile::tempdir().unwrap();
        durable::add_root(&dir.path().canonicalize().unwrap());
        fs::create_dir_all(dir.path().join("io/x")).unwrap();
        fs::write(dir.path().join("secret"), "s").unwrap();
        fs::write(dir.path().join("io/x/a.stdout"), b"ok \xff").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("io/x/link")).unwrap();
        for name in ["secret", "io/../secret", "/etc/passwd", "io/x/link", "../io/x"] {
            let cut = read_run_file(dir.path(), name, &mut PageCapacity::new(100));
            assert!(cut.text.is_empty() && cut.note.is_some(), "{name}: {cut:?}");
            assert!(read_run_record(dir.path(), name).is_err(), "{name}");
        }
        let cut = read_run_file(dir.path(), "io/x/a.stdout", &mut PageCapacity::new(100));
        assert_eq!(cut.text, "ok \u{fffd}");
        assert!(cut.note.unwrap().starts_with("not UTF-8"));
    }
}
