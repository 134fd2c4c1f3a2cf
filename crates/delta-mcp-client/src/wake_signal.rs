//! A signal from one thread to another that waits in `poll`.

use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::ioctl_fionbio;
use std::io::{self, PipeReader, PipeWriter, Read, Write};

/// A descriptor that becomes readable when another thread wakes its owner.
pub(crate) struct WakeSignal {
    reader: PipeReader,
    writer: PipeWriter,
}

impl WakeSignal {
    pub(crate) fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        ioctl_fionbio(&reader, true)?;
        ioctl_fionbio(&writer, true)?;
        Ok(Self { reader, writer })
    }

    /// Makes the descriptor readable until it is drained.
    pub(crate) fn wake(&self) {
        // A full pipe is readable already.
        let _ = (&self.writer).write(&[0]);
    }

    pub(crate) fn drain(&self) {
        while (&self.reader).read(&mut [0; 64]).is_ok_and(|count| count == 64) {}
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
