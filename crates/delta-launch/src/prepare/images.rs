//! The option `-a`: images and PDFs that are attached to a message.

use clap::Args;
use delta_base::shell_quote::shell_quote_path;
use delta_operator::arguments::options::RunOptions;
use delta_operator::failure::CommandFailure;
use delta_run::event::Payload;
use delta_run::event::image_file::NewImage;
use std::path::PathBuf;

/// The images and PDFs of a message.
#[derive(Debug, Clone, Default, Args)]
pub struct AttachOptions {
    /// Attach an image (PNG, JPEG, GIF, WebP) or a PDF to the message; repeatable
    #[arg(short = 'a', long = "attach", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
}

impl AttachOptions {
    /// Whether nothing is attached.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Reads the files, before anything is created.
    pub fn read(&self, options: &RunOptions) -> Result<Vec<NewImage>, CommandFailure> {
        let mut images: Vec<NewImage> = Vec::with_capacity(self.files.len());
        for file in &self.files {
            let image = NewImage::read(file).map_err(|reason| {
                let message = format!("could not attach {}: {reason}", file.display());
                let hint = "`-a` takes a PDF and a PNG, JPEG, GIF or WebP image; name any other file in the message, so that a tool reads it";
                CommandFailure::config(message, hint)
            })?;
            if let Some(limit) = image.image.exceeded_usual_limit() {
                let file = shell_quote_path(file);
                let note = format!("Note: {file} is larger than {limit}: many endpoints refuse it");
                options.print_notes(&[note]);
            }
            images.push(image);
        }
        Ok(images)
    }
}

/// Adds the images to the message of the user that `payload` is.
pub fn attach_images(
    payload: &mut Option<Payload>,
    new: &[NewImage],
) -> Result<(), CommandFailure> {
    match payload {
        Some(Payload::UserMessage { images, .. }) => {
            images.extend(new.iter().map(|new| new.image.clone()));
            Ok(())
        }
        _ if new.is_empty() => Ok(()),
        _ => Err(CommandFailure::config(
            "an answer cannot have an image or a PDF: the run waits for an answer",
            "answer without `-a`; name the file in the text",
        )),
    }
}
