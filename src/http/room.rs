//! The memory of a connection.

use ureq::unversioned::transport::{Buffers, LazyBuffers};

/// Room for what comes, which is ureq's, and for what is sent. ureq would fill all of that with zeroes before the first
/// request, although most requests need a small part of it; here the system gives the pages that are written to.
#[derive(Debug)]
pub(super) struct Room {
    input: LazyBuffers,
    output: Vec<u8>,
    size: usize,
}

impl Room {
    /// For so many bytes that come, and so many that are sent at once.
    pub(super) fn new(input: usize, output: usize) -> Self {
        Self { input: LazyBuffers::new(input, 1), output: Vec::new(), size: output }
    }
}

impl Buffers for Room {
    fn output(&mut self) -> &mut [u8] {
        if self.output.is_empty() {
            self.output = vec![0; self.size];
        }
        &mut self.output
    }

    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        self.output();
        (self.input.tmp_and_output().0, &mut self.output)
    }

    fn input(&self) -> &[u8] {
        self.input.input()
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        self.input.input_append_buf()
    }

    fn input_appended(&mut self, amount: usize) {
        self.input.input_appended(amount);
    }

    fn input_consume(&mut self, amount: usize) {
        self.input.input_consume(amount);
    }

    fn can_use_input(&self) -> bool {
        self.input.can_use_input()
    }
}
