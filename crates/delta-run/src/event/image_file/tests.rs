use super::*;
use proptest::prelude::*;

/// A PNG of this size, without any pixels.
fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(height.to_be_bytes());
    bytes.extend(b"\x08\0\0\0\0CRC1\0\0\0\0IENDCRC2");
    bytes
}

fn described(content: &[u8]) -> Result<(String, u32, u32), String> {
    NewImage::from_bytes(content.to_vec())
        .map(|NewImage { image, .. }| (image.media_type, image.size))
        .map(|(kind, size)| {
            size.map_or((kind.clone(), 0, 0), |size| (kind, size.width, size.height))
        })
}

#[test]
fn c_23_6_the_first_bytes_say_what_an_image_is() {
    let is = |kind: &str, width, height| Ok((kind.to_owned(), width, height));
    assert_eq!(described(&png(640, 480)), is("image/png", 640, 480));
    assert_eq!(described(b"GIF89a\x02\x01\x03\0;\0"), is("image/gif", 258, 3));
    let jpeg =
        b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc4\0\x02\xff\xc2\0\x0b\x08\0\x10\x01\x00\xff\xd9";
    assert_eq!(described(jpeg), is("image/jpeg", 256, 16));
    let lossy = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x40\x01\xf0\0";
    assert_eq!(described(lossy), is("image/webp", 320, 240));
    let lossless = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x03\x40\0\0";
    assert_eq!(described(lossless), is("image/webp", 4, 2));
    let extended = b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x09\0\0\x13\0\0";
    assert_eq!(described(extended), is("image/webp", 10, 20));
    assert_eq!(described(b""), Err("it is empty".to_owned()));
    let unknown = "it is not a PNG, JPEG, GIF or WebP image";
    assert_eq!(described(b"<svg/>"), Err(unknown.to_owned()));
    for cut in [&png(640, 480)[..20], &png(0, 480)[..], b"\xff\xd8\xff", b"GIF89a", &lossy[..27]] {
        let error = described(cut).unwrap_err();
        assert!(error.ends_with("its size in pixels is missing"), "{error}");
    }
    let whole = b"RIFF\x12\0\0\0WEBPVP8L\0\0\0\0\x2f\x03\x40\0\0\0";
    assert_eq!(described(whole), is("image/webp", 4, 2));
    for whole in [&png(640, 480)[..], jpeg, b"GIF89a\x02\x01\x03\0;", whole] {
        let cut = &whole[..whole.len() - if whole[0] == 0x89 { 9 } else { 1 }];
        let error = described(cut).unwrap_err();
        assert!(error.ends_with("its end is missing"), "{error}");
    }
}

#[test]
fn c_23_6_the_limit_is_twenty_mebibytes() {
    let mut content = png(1, 1);
    content.resize(20 << 20, 0);
    assert!(described(&content).is_ok());
    content.push(0);
    assert!(described(&content).unwrap_err().ends_with("an image may have 20 MiB"));
}

#[test]
fn c_23_6_the_same_image_is_one_file_and_a_changed_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let image = NewImage::from_bytes(png(2, 3)).unwrap();
    image.store(dir.path()).unwrap();
    image.store(dir.path()).unwrap();
    assert_eq!(durable::read_dir_no_follow(&dir.path().join(FILES_DIR)).unwrap().len(), 1);
    let reference = image.image.reference();
    let expected = format!("data:image/png;base64,{}", BASE64.encode(png(2, 3)));
    assert_eq!(read_data_url(dir.path(), &reference), Ok(Some(expected)));
    durable::replace_private_unsynced(&dir.path().join(&image.image.file), &png(9, 9)).unwrap();
    assert!(read_data_url(dir.path(), &reference).unwrap_err().ends_with("it was changed"));
    image.store(dir.path()).unwrap();
    assert!(read_data_url(dir.path(), &reference).is_ok());
}

#[test]
fn c_23_6_a_reference_leads_nowhere_but_to_files() {
    let dir = tempfile::tempdir().unwrap();
    let digits = "0".repeat(SHA256_DIGITS);
    for text in [
        "delta:files/../journal.jsonl".to_owned(),
        format!("delta:/etc/{digits}.png"),
        format!("delta:files/{digits}.svg"),
        format!("delta:files/{}.png", &digits[1..]),
        "data:image/png;base64,AAAA".to_owned(),
        "https://example.org/a.png".to_owned(),
    ] {
        assert_eq!(read_data_url(dir.path(), &text), Ok(None), "{text}");
    }
    assert!(read_data_url(dir.path(), &format!("delta:files/{digits}.png")).is_err());
}

#[test]
fn c_23_6_the_tokens_of_an_image_are_estimated_from_its_pixels() {
    let request = |sizes: &[(u32, u32)]| {
        let images: Vec<ImageFile> = sizes
            .iter()
            .map(|(width, height)| NewImage::from_bytes(png(*width, *height)).unwrap().image)
            .collect();
        json!(message_parts("see \"delta:files/x#9x9\"", &images)).to_string()
    };
    assert_eq!(image_tokens(&request(&[])), 0);
    assert_eq!(image_tokens(&request(&[(1, 1)])), 1);
    assert_eq!(image_tokens(&request(&[(750, 10), (u32::MAX, u32::MAX)])), 10 + MAX_IMAGE_TOKENS);
}

#[test]
fn c_23_6_a_pdf_is_a_document_whose_tokens_are_estimated_from_its_bytes() {
    let mut content = b"%PDF-1.7\n".to_vec();
    content.resize(3_000, b' ');
    assert_eq!(described(&content), Ok(("application/pdf".to_owned(), 0, 0)));
    let image = NewImage::from_bytes(content.clone()).unwrap().image;
    assert_eq!(image.reference(), format!("delta:files/{}.pdf#3000", image.sha256));
    assert_eq!(
        image.to_string(),
        format!("[document: application/pdf, 3 KB, files/{}.pdf]", image.sha256)
    );
    let written = serde_json::to_value(&image).unwrap();
    assert_eq!(written.get("width"), None);
    assert_eq!(serde_json::from_value::<ImageFile>(written).unwrap(), image);
    let parts = json!(message_parts("read", &[image.clone(), image])).to_string();
    assert_eq!(image_tokens(&parts), 200);
    let unknown = NewImage::from_image(content.clone()).unwrap_err();
    assert_eq!(unknown, "it is not a PNG, JPEG, GIF or WebP image");
    content.resize(50 << 20, b' ');
    assert!(described(&content).is_ok());
    content.push(0);
    assert!(described(&content).unwrap_err().ends_with("a PDF may have 50 MiB"));
}

proptest! {
    #[test]
    fn c_23_6_no_bytes_break_the_headers(start in 0..4_usize, rest in proptest::collection::vec(any::<u8>(), 0..64)) {
        let starts: [&[u8]; 4] = [b"\xff\xd8\xff", b"RIFF\0\0\0\0WEBPVP8", b"GIF89a", b"\x89PNG\r\n\x1a\n"];
        let mut content = starts[start].to_vec();
        content.extend(rest);
        let _ = NewImage::from_bytes(content);
    }
}
