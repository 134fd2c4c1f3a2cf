//! The prompt of an editor: texts, files and images.

use delta_mcp::json_rpc::{INVALID_PARAMS, RpcError};
use delta_run::event::image_file::NewImage;
use serde_json::Value as Json;

/// A prompt as a run takes it.
pub struct EditorPrompt {
    /// Its texts, and the files that it contains or names.
    pub text: String,
    pub images: Vec<Vec<u8>>,
}

/// Reads the blocks of a prompt.
///
/// # Errors
/// A block is not one that delta takes, or there is neither a text nor an image.
pub fn read_prompt(blocks: &Json) -> Result<EditorPrompt, RpcError> {
    let blocks = blocks.as_array().ok_or_else(|| invalid_prompt("expected a list as `prompt`"))?;
    let mut texts = Vec::new();
    let mut images = Vec::new();
    for block in blocks {
        let field = |name: &str| block[name].as_str().unwrap_or_default();
        match field("type") {
            "text" => texts.push(field("text").to_owned()),
            "resource_link" => texts.push(format!("{}: {}", field("name"), field("uri"))),
            "resource" => {
                let resource = &block["resource"];
                let uri = resource["uri"].as_str().unwrap_or_default();
                let mime = resource["mimeType"].as_str().unwrap_or("data");
                match (resource["text"].as_str(), resource["blob"].as_str()) {
                    (Some(text), _) => texts.push(format!("{uri}:\n{text}")),
                    (None, Some(blob)) if mime.starts_with("image/") => {
                        images.push(decode_image(blob)?);
                        texts.push(format!("{uri}: the attached image"));
                    }
                    // Base64 has four characters for three bytes.
                    (None, Some(blob)) => texts.push(format!(
                        "{uri}: {mime}, {} bytes, which are not in this message; read them there",
                        blob.trim_end_matches('=').len() * 3 / 4
                    )),
                    (None, None) => {
                        return Err(invalid_prompt(
                            "expected a resource with a `text` or a `blob`",
                        ));
                    }
                }
            }
            "image" => images.push(decode_image(field("data"))?),
            other => {
                let message =
                    format!("expected text, resources and images in a prompt, found `{other}`");
                return Err(invalid_prompt(message));
            }
        }
    }
    let text = texts.join("\n\n");
    if text.trim().is_empty() && images.is_empty() {
        return Err(invalid_prompt("expected a text or an image in the prompt"));
    }
    Ok(EditorPrompt { text, images })
}

/// The content of an image, which is checked before a process starts.
fn decode_image(data: &str) -> Result<Vec<u8>, RpcError> {
    NewImage::decode_base64(data)
        .map_err(|reason| invalid_prompt(format!("could not attach the image: {reason}")))
}

fn invalid_prompt(message: impl Into<String>) -> RpcError {
    RpcError::new(INVALID_PARAMS, message)
}
