//! From the result of a call to text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json};
use std::path::Path;

/// How the line begins that names the file of an image.
const IMAGE_LINE_START: &str = "[image: ";

/// Stores a part that is not text under an extension, and returns where it is.
pub type StoreAttachment<'a> = &'a mut dyn FnMut(&str, &[u8]) -> Result<String, String>;

/// Whether the tool reports an error.
pub fn is_tool_error(result: &Json) -> bool {
    result.get("isError").and_then(Json::as_bool).unwrap_or(false)
}

/// The result as text: its texts one after the other, then its structured content, unless the texts have it already. Without
/// `has_structured`, only a result that has nothing else shows it.
pub fn render_tool_result(
    result: &Json,
    has_structured: bool,
    store: StoreAttachment<'_>,
) -> String {
    let content = match result.get("content").unwrap_or(&Json::Null) {
        Json::Null => &[],
        Json::Array(parts) => parts.as_slice(),
        part => std::slice::from_ref(part),
    };
    let foreign = if content.is_empty() { foreign_members(result) } else { Vec::new() };
    let content = if foreign.is_empty() { content } else { &foreign };
    let mut text = String::new();
    for part in content {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&render_part(part, store));
    }
    let structured = result.get("structuredContent").filter(|value| !value.is_null());
    if let Some(structured) = structured
        && (text.trim().is_empty() || (has_structured && !is_said(structured, content)))
    {
        if text.trim().is_empty() {
            text.clear();
        } else if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&structured.to_string());
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// What a server that does not know of `content` says in its place, as one part.
fn foreign_members(result: &Json) -> Vec<Json> {
    let known = ["content", "structuredContent", "isError", "resultType", "_meta"];
    let members = result.as_object().into_iter().flatten();
    let foreign =
        members.filter(|(name, value)| !known.contains(&name.as_str()) && !value.is_null());
    let foreign: Map<String, Json> =
        foreign.map(|(name, value)| (name.clone(), value.clone())).collect();
    if foreign.is_empty() { Vec::new() } else { vec![foreign.into()] }
}

/// Whether the texts of a result say what its structured content says. SDKs write it as JSON into a text, and put what is not an
/// object under `result`; servers put a text under a name of their own.
fn is_said(structured: &Json, content: &[Json]) -> bool {
    let texts: Vec<&str> = content.iter().filter_map(|part| part.get("text")?.as_str()).collect();
    let says = |text: &str, value: &Json| match value {
        Json::String(value) if value.trim() == text.trim() => true,
        value => serde_json::from_str::<Json>(text).is_ok_and(|json| json == *value),
    };
    let members = structured.as_object().filter(|members| members.len() == 1);
    let wrapped =
        members.into_iter().flatten().find(|(name, it)| *name == "result" || it.is_string());
    let wrapped = wrapped.map(|(_, value)| value);
    std::iter::once(structured).chain(wrapped).any(|value| {
        texts.iter().any(|text| says(text, value))
            || says(&texts.concat(), value)
            || value.as_array().is_some_and(|items| {
                items.len() == texts.len()
                    && items.iter().zip(&texts).all(|(item, text)| says(text, item))
            })
    })
}

/// The names of the files in a text that [`render_tool_result`] made, in which images of the call with this `stem` are.
pub fn named_images<'a>(text: &'a str, stem: &str) -> Vec<&'a str> {
    let names = text.lines().filter_map(|line| {
        let (_, path) = line.strip_prefix(IMAGE_LINE_START)?.strip_suffix(']')?.split_once(": ")?;
        let name = Path::new(path).file_name()?.to_str()?;
        let number = name.strip_prefix(stem)?.strip_prefix('-')?.split('.').next()?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then_some(name)
    });
    names.collect()
}

/// What the names of the files of a call begin with.
pub fn attachment_stem(call_id: &str) -> String {
    let mut stem = call_id.to_owned();
    stem.retain(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    stem.truncate(80);
    stem
}

fn render_part(part: &Json, store: StoreAttachment<'_>) -> String {
    let text = |value: &Json, key: &str| {
        value.get(key).and_then(Json::as_str).unwrap_or_default().to_owned()
    };
    let mime = text(part, "mimeType");
    match part.get("type").and_then(Json::as_str) {
        Some("text") => match part.get("text") {
            Some(value) if !value.is_null() => text_or_json(value),
            _ => String::new(),
        },
        Some("image" | "audio") => render_attachment(&mime, &text(part, "data"), store),
        Some("resource_link") => {
            let more = ["title", "mimeType", "description"].map(|key| text(part, key));
            let more: String =
                more.iter().filter(|one| !one.is_empty()).map(|one| format!(", {one}")).collect();
            format!("[resource {}: {}{more}]", text(part, "uri"), text(part, "name"))
        }
        Some("resource") => {
            let resource = part.get("resource").unwrap_or(&Json::Null);
            match (resource.get("text"), resource.get("blob")) {
                (Some(Json::String(content)), _) => {
                    format!("[resource {}]\n{content}", text(resource, "uri"))
                }
                (_, Some(Json::String(blob))) => {
                    let stored = render_attachment(&text(resource, "mimeType"), blob, store);
                    format!("[resource {}]\n{stored}", text(resource, "uri"))
                }
                _ => format!("[resource {}]", text(resource, "uri")),
            }
        }
        _ => text_or_json(part),
    }
}

/// A text as it is, another value as JSON.
fn text_or_json(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn render_attachment(mime: &str, data: &str, store: StoreAttachment<'_>) -> String {
    let mime = if mime.is_empty() { "application/octet-stream" } else { mime };
    // Some servers write a `data:` URL, or break the lines.
    let data = data.split_once(";base64,").map_or(data, |(_, data)| data);
    let data: String = data.split_ascii_whitespace().collect();
    let Ok(bytes) = STANDARD.decode(&data) else {
        return format!("[{mime}, which is not base64]");
    };
    let start = if mime.starts_with("image/") { IMAGE_LINE_START } else { "[" };
    match store(file_extension(mime), &bytes) {
        Ok(path) => format!("{start}{mime}, {} bytes: {path}]", bytes.len()),
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
        render_with(result, true)
    }

    fn render_with(result: Json, has_structured: bool) -> String {
        render_tool_result(&result, has_structured, &mut |extension, bytes| {
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
        let expected = "one\ntwo\n[image: image/png, 3 bytes: /f/3.png]\n[audio/wav, which is not base64]\n[resource u:1: n]\n\
            [resource u:2]\nbody\n[resource u:3]\n[application/octet-stream, 1 bytes: /f/1.bin]\n{\"type\":\"later\"}\n";
        assert_eq!(render(json!({"content": content})), expected);
        let more = json!({"content": content, "structuredContent": {"a": 1}});
        assert_eq!(render(more.clone()), format!("{expected}{{\"a\":1}}\n"));
        assert_eq!(render_with(more, false), expected);
        assert_eq!(render(json!({"content": [], "structuredContent": {"a": 1}})), "{\"a\":1}\n");
        assert_eq!(render(json!({"structuredContent": 5})), "5\n");
        assert_eq!(render(json!({})), "");
        assert_eq!(render(json!({"content": [], "isError": true, "_meta": {"a": 1}})), "");
    }

    #[test]
    fn c_30_2_structured_content_is_said_once() {
        let texts = |texts: &[&str]| -> Vec<Json> {
            texts.iter().map(|text| json!({"type": "text", "text": text})).collect()
        };
        let cases: [(&[&str], Json, &str); 11] = [
            (&[""], json!({"a": 1}), "{\"a\":1}\n"),
            (&["2 items."], json!({"items": [1, 2]}), "2 items.\n{\"items\":[1,2]}\n"),
            (&["{\"b\": 2, \"a\": 1}"], json!({"a": 1, "b": 2}), "{\"b\": 2, \"a\": 1}\n"),
            (&["plain"], json!({"result": "plain"}), "plain\n"),
            (&["plain\n"], json!({"content": "plain\n"}), "plain\n"),
            (&["42"], json!({"result": 42}), "42\n"),
            (&["42"], json!({"count": 42}), "42\n{\"count\":42}\n"),
            (&["a", "b"], json!({"result": ["a", "b"]}), "a\nb\n"),
            (
                &["{\"n\": 1}", "{\"n\": 2}"],
                json!({"result": [{"n": 1}, {"n": 2}]}),
                "{\"n\": 1}\n{\"n\": 2}\n",
            ),
            (&["a"], json!({"result": "b"}), "a\n{\"result\":\"b\"}\n"),
            (&["hint", "[1]"], json!([1]), "hint\n[1]\n"),
        ];
        for (content, structured, expected) in cases {
            let result = json!({"content": texts(content), "structuredContent": structured});
            assert_eq!(render(result), expected, "{content:?}");
        }
        let blank = json!({"content": texts(&[" "]), "structuredContent": {"a": 1}});
        assert_eq!(render_with(blank, false), "{\"a\":1}\n");
    }

    #[test]
    fn c_30_11_only_images_of_the_call_are_taken() {
        let text = "[image: image/png, 3 bytes: /r/io/mcp/c1-1.png]\n[image: image/png, 3 bytes: /etc/c1-2.png]\n\
            [image: image/png, 3 bytes: /r/io/mcp/c10-1.png]\n[image: image/png, 3 bytes: /r/c1-x/../secret.png]\n\
            [image/png, 3 bytes: /r/io/mcp/c1-3.png]\n";
        assert_eq!(named_images(text, "c1"), ["c1-1.png", "c1-2.png"]);
        assert_eq!(attachment_stem("call:1/../x"), "call1x");
    }
}
