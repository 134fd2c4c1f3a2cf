//! Images on the page, and the names of PDFs: as `data:` addresses, because the page loads nothing.

use super::run_files::PageCapacity;
use delta_run::event::image_file::{self, ImageFile, PixelSize};
use serde::Serialize;
use std::path::Path;

/// The member of a [`PageImage`] that no sensitive answer is searched in: short answers occur in base64 by chance.
pub const IMAGE_DATA_KEY: &str = "image_data";

/// An image of a message or of a result.
#[derive(Debug, Serialize)]
pub struct PageImage {
    /// The line that stands for it in texts.
    text: String,
    #[serde(flatten)]
    size: Option<PixelSize>,
    /// The `data:` address; a PDF has none, because the page cannot show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    image_data: Option<String>,
    /// Why the page does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Reads the images that an event names, as far as the page has room for them.
pub fn read_page_images(
    run_dir: &Path,
    images: &[ImageFile],
    capacity: &mut PageCapacity,
) -> Vec<PageImage> {
    images.iter().map(|image| read_page_image(run_dir, image, capacity)).collect()
}

fn read_page_image(run_dir: &Path, image: &ImageFile, capacity: &mut PageCapacity) -> PageImage {
    let data = match image_file::read_data_url(run_dir, &image.reference()) {
        Ok(Some(_)) if image.size.is_none() => Ok(None),
        Ok(Some(url)) if capacity.reserve(url.len()) => Ok(Some(url)),
        Ok(Some(_)) => Err("not on the page, which would be too large".to_owned()),
        Ok(None) => Err("not a file of this run".to_owned()),
        Err(reason) => Err(reason),
    };
    let note = data.as_ref().err().cloned();
    let image_data = data.ok().flatten();
    PageImage { text: image.to_string(), size: image.size, image_data, note }
}
