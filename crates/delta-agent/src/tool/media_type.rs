//! What kind of data the output of a tool is, by its first bytes.

/// The first bytes of formats, and their media types.
const MAGIC_NUMBERS: [(&[u8], &str); 15] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\0", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"\x7fELF", "application/x-elf"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfe", "text/plain; charset=utf-16"),
    (b"\xfe\xff", "text/plain; charset=utf-16"),
];

/// The media type of data that begins with `head`.
pub(super) fn media_type(head: &[u8]) -> &'static str {
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        return "image/webp";
    }
    let known = MAGIC_NUMBERS.iter().find(|(magic, _)| head.starts_with(magic));
    match known {
        Some((_, media_type)) => media_type,
        None if head.contains(&0) => "application/octet-stream",
        None => "text/plain",
    }
}

/// Whether the parts of a stream that are at hand are not text: they contain a NUL, or are not UTF-8 and begin like a known
/// format. Text in another encoding is text, with some characters lost.
pub(super) fn is_binary(head: &[u8], tail: &[u8]) -> bool {
    let has_nul = head.contains(&0) || tail.contains(&0);
    has_nul || (std::str::from_utf8(head).is_err() && media_type(head) != "text/plain")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_28_5_binary_data_is_told_from_text_in_any_encoding() {
        for (head, expected) in [
            (&b"plain"[..], None),
            (b"caf\xe9 in latin 1", None),
            (b"", None),
            (b"%PDF-1.4 only text", None),
            (b"%PDF-1.4 \xe2\xe3\xcf\xd3", Some("application/pdf")),
            (b"\x1f\x8b\x08\xff", Some("application/gzip")),
            (b"a\0b", Some("application/octet-stream")),
            (b"RIFF\0\0\0\0WEBP", Some("image/webp")),
        ] {
            let actual = is_binary(head, b"").then(|| media_type(head));
            assert_eq!(actual, expected, "{head:?}");
        }
        assert!(is_binary(b"text", b"\0"));
    }
}
