//! Files that grow at their end.

#[cfg(feature = "failpoints")]
use super::faults;
use super::{FileError, Result, failed, may_fail, private, start};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that only grows, and of which every acknowledged byte is durable.
#[derive(Debug)]
pub struct AppendFile {
    file: File,
    path: PathBuf,
    /// How many bytes are durable.
    length: u64,
    /// How many bytes were written behind them.
    written: u64,
    /// Set by the first error: what the kernel holds is unknown after it, and a failed sync is never retried.
    broken: Option<(&'static str, String)>,
}

impl AppendFile {
    /// Makes a file that must not be there yet. What was acknowledged of it is there after a crash when its directory has
    /// been synced too, which is the caller's to do.
    pub fn create(path: &Path) -> Result<Self> {
        may_fail().map_err(failed("create", path))?;
        let file =
            private().append(true).create_new(true).open(path).map_err(failed("create", path))?;
        Ok(Self { file, path: path.to_owned(), length: 0, written: 0, broken: None })
    }

    /// Opens a file for going on behind its first `length` bytes; what stands behind them is cut off.
    pub fn open(path: &Path, length: u64) -> Result<Self> {
        let file = private().append(true).open(path).map_err(failed("open", path))?;
        if file.metadata().map_err(failed("read", path))?.len() != length {
            file.set_len(length).and_then(|()| file.sync_all()).map_err(failed("cut", path))?;
        }
        Ok(Self { file, path: path.to_owned(), length, written: 0, broken: None })
    }

    /// Appends `bytes`; when it returns they are durable, and everything that was sent before.
    ///
    /// # Errors
    /// Any error is final: the file is cut back to what was durable before, and every later call fails too.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.send(bytes)?;
        self.sync()
    }

    /// Appends `bytes` and sets them on their way to the disk, without the wait for it: [`AppendFile::sync`] waits for what
    /// is left of the way. A process that is killed meanwhile leaves them in the file.
    ///
    /// # Errors
    /// As for [`AppendFile::append`].
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.usable()?;
        let sent = self.write(bytes).and_then(|()| start::writing(&self.file, self.length));
        self.written += bytes.len() as u64;
        sent.map_err(|error| self.give_up("write", error))
    }

    /// Makes durable what was sent.
    ///
    /// # Errors
    /// As for [`AppendFile::append`].
    pub fn sync(&mut self) -> Result<()> {
        self.usable()?;
        may_fail()
            .and_then(|()| self.file.sync_data())
            .map_err(|error| self.give_up("sync", error))?;
        self.length += std::mem::take(&mut self.written);
        Ok(())
    }

    fn usable(&self) -> Result<()> {
        let Some((action, cause)) = &self.broken else { return Ok(()) };
        let source = io::Error::other(cause.clone());
        Err(FileError { action, path: self.path.clone(), source })
    }

    fn give_up(&mut self, action: &'static str, error: io::Error) -> FileError {
        self.broken = Some((action, error.to_string()));
        // Best effort: what cannot be cut off is a torn tail, and set aside when the run is continued.
        let _ = self.file.set_len(self.length);
        failed(action, &self.path)(error)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        #[cfg(feature = "failpoints")]
        faults::may_tear(&mut self.file, bytes)?;
        may_fail()?;
        self.file.write_all(bytes)
    }
}

/// Appends a line in one write, so that the lines of several processes do not mix. Not synced.
pub fn append_line(path: &Path, line: &str) -> Result<()> {
    may_fail()
        .and_then(|()| private().append(true).create(true).open(path))
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
        .map_err(failed("write", path))
}

/// A file for notes that need not be durable, such as a log.
#[derive(Debug)]
pub struct LogFile(File);

impl LogFile {
    /// Opens the file, or makes it.
    pub fn open(path: &Path) -> Result<Self> {
        private().append(true).create(true).open(path).map(Self).map_err(failed("open", path))
    }

    /// Adds whole lines in one write; a log that cannot be written never stops a run.
    pub fn write(&mut self, lines: &str) {
        let _ = self.0.write_all(lines.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};

    #[test]
    fn what_is_sent_stands_in_the_file_and_counts_when_it_is_synced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mut file = AppendFile::create(&path).unwrap();
        file.send(b"one").unwrap();
        file.send(b"two").unwrap();
        assert_eq!((fs::read(&path).unwrap().as_slice(), file.length), (&b"onetwo"[..], 0));
        file.append(b"three").unwrap();
        assert_eq!((fs::read(&path).unwrap().as_slice(), file.length), (&b"onetwothree"[..], 11));
        // What cannot be written ends it, also when it could be again.
        file.send(b"four").unwrap();
        file.file = File::open(&path).unwrap();
        assert_eq!(file.send(b"five").unwrap_err().action, "write");
        file.file = OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(file.sync().unwrap_err().action, "write");
        assert_eq!(file.length, 11);
    }
}
