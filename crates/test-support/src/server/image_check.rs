//! What a strict endpoint of any form checks of an image or a PDF in a request.

/// The media types, and how the base64 of such an image begins.
const IMAGE_STARTS: [(&str, &str); 4] = [
    ("image/png", "iVBORw0KGgo"),
    ("image/jpeg", "/9j/"),
    ("image/gif", "R0lGOD"),
    ("image/webp", "UklGR"),
];

/// Checks a PDF that is in a request as a `data:` URL.
pub(super) fn check_document_url(url: &str) -> Result<(), String> {
    match url.strip_prefix("data:application/pdf;base64,") {
        Some(data) => check_document(data),
        None => Err(format!("expected a base64-encoded data URL of a PDF, found {url:?}")),
    }
}

/// Checks a PDF that is in a request as base64.
pub(super) fn check_document(data: &str) -> Result<(), String> {
    check_data(data, "application/pdf", "JVBERi")
}

/// Checks an image that is in a request as base64.
pub(super) fn check_image(media_type: &str, data: &str) -> Result<(), String> {
    let (_, start) = IMAGE_STARTS
        .iter()
        .find(|(known, _)| *known == media_type)
        .ok_or_else(|| format!("an image of the unknown media type {media_type:?}"))?;
    check_data(data, media_type, start)
}

fn check_data(data: &str, media_type: &str, start: &str) -> Result<(), String> {
    let is_format = data.starts_with(start);
    let digits = data.trim_end_matches('=');
    let is_base64 = data.len().is_multiple_of(4)
        && digits.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'));
    if !is_format || !is_base64 {
        return Err(format!("could not process a file: it is not {media_type}"));
    }
    Ok(())
}

/// Checks an image that is in a request as a `data:` URL.
pub(super) fn check_image_url(url: &str) -> Result<(), String> {
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let (media_type, data) = data.ok_or_else(|| format!("could not download the image {url:?}"))?;
    check_image(media_type, data)
}
