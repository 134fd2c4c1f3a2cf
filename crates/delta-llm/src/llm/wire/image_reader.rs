//! The bytes of the images that a request refers to.
//!
//! Where a request is kept or compared, it names an image by a reference that only the run can resolve. The codec puts a
//! `data:` URL there when it writes the wire body.

use std::path::Path;

/// Resolves the references to images in a request.
#[derive(Debug, Clone, Copy)]
pub struct ImageReader<'a> {
    run_dir: &'a Path,
    read_data_url: ReadDataUrl,
    /// The command that goes back to before the newest image; `None` if no tool gave it.
    pub undo_command: Option<&'a str>,
}

/// Returns the `data:` URL for a reference in a request of the run in a directory, and `None` for any other URL.
type ReadDataUrl = fn(&Path, &str) -> Result<Option<String>, String>;

impl<'a> ImageReader<'a> {
    /// A reader for the requests of the run in `run_dir`. `read_data_url` returns the `data:` URL for a reference, and `None`
    /// for any other URL.
    pub fn new(run_dir: &'a Path, read_data_url: ReadDataUrl) -> Self {
        Self { run_dir, read_data_url, undo_command: None }
    }

    /// Replaces a reference with the `data:` URL of the image; returns whether it was one.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn resolve(self, url: &mut String) -> Result<bool, String> {
        let data = (self.read_data_url)(self.run_dir, url)?;
        let is_reference = data.is_some();
        data.into_iter().for_each(|data| *url = data);
        Ok(is_reference)
    }
}
