//! From the result of a call to text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;

/// Stores a part that is not text under an extension, and returns where it is.
pub type StoreAttachment<'a> = &'a mut dyn FnMut(&str, &[u8]) -> Result<String, String>;

/// Whether the tool reports an error.
pub fn is_tool_error(result: &Json) -> bool {
    result.get("isError").and_then(Json::as_bool).unwrap_or(false)
}

/// The result as text: its texts one after the other, or its structured content where there is none.
pub fn render_tool_result(result: &Json, store: StoreAttachment<'_>) -> String {
    let content = result.get("content").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let mut text = String::new();
    for part in content {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&render_part(part, store));
    }
    let structured = result.get("structuredContent").filter(|value| !value.is_null());
    if let (true, Some(structured)) = (content.is_empty(), structured) {
        text = structured.to_string();
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn render_part(part: &Json, store: StoreAttachment<'_>) -> String {
    let text = |value: &Json, key: &str| {
        value.get(key).and_then(Json::as_str).unwrap_or_default().to_owned()
    };
    let mime = text(part, "mimeType");
    match part.get("type").and_then(Json::as_str) {
        Some("text") => text(part, "text"),
        Some("image" | "audio") => render_attachment(&mime, &text(part, "data"), store),
        Some("resource_link") => {
            format!("[resource {}: {}]", text(part, "uri"), text(part, "name"))
        }
        Some("resource") => {
            let resource = part.get("resource").unwrap_or(&Json::Null);
            match (resource.get("text"), resource.get("blob")) {
                (Some(Json::String(content)), _) => {
                    format!("[resource {}]\n{content}", text(resource, "uri"))
                }
                (_, Some(Json::String(blob))) => {
                    render_attachment(&text(resource, "mimeType"), blob, store)
                }
                _ => format!("[resource {}]", text(resource, "uri")),
            }
        }
        _ => part.to_string(),
    }
}

fn render_attachment(mime: &str, data: &str, store: StoreAttachment<'_>) -> String {
    let mime = if mime.is_empty() { "application/octet-stream" } else { mime };
    let Ok(bytes) = STANDARD.decode(data) else {
        return format!("[{mime}, which is not base64]");
    };
    match store(file_extension(mime), &bytes) {
        Ok(path) => format!("[{mime}, {} bytes: {path}]", bytes.len()),
        Err(problem) => format!("[{mime}, {} bytes, not kept: {problem}]", bytes.len()),
    }
}

/// The usual extension of the files of a media type.
fn file_extension(mime: &str) -> &'static str {
    match mime.split(';').next().unwrap_or_default() {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "audio/wav" | "audio/x-wav" => "wav",
        "audio/mpeg" => "mp3",
        "audio/ogg" => "ogg",
        "application/pdf" => "pdf",
        _ => "bin",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render(result: Json) -> String {
        render_tool_result(&result, &mut |extension, bytes| {
            Ok(format!("/f/{}.{extension}", bytes.len()))
        })
    }

    #[test]
    fn every_kind_of_content_becomes_text() {
        let content = json!([
            {"type": "text", "text": "one\n"}, {"type": "text", "text": "two"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "audio", "data": "%", "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "u:1", "name": "n"},
            {"type": "resource", "resource": {"uri": "u:2", "text": "body"}},
            {"type": "resource", "resource": {"uri": "u:3", "blob": "AA=="}},
            {"type": "later"},
        ]);
        let expected = "one\ntwo\n[image/png, 3 bytes: /f/3.png]\n[audio/wav, which is not base64]\n[resource u:1: n]\n\
            [resource u:2]\nbody\n[application/octet-stream, 1 bytes: /f/1.bin]\n{\"type\":\"later\"}\n";
        assert_eq!(render(json!({"content": content, "structuredContent": {"a": 1}})), expected);
        assert_eq!(render(json!({"content": [], "structuredContent": {"a": 1}})), "{\"a\":1}\n");
        assert_eq!(render(json!({"structuredContent": 5})), "5\n");
        assert_eq!(render(json!({})), "");
    }
}
