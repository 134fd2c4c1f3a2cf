//! Answers of real endpoints, which others recorded, read in pieces of every length.
//!
//! The recordings are in the packages of others: the crate `genai` (tests/data/yakbak; MIT or Apache-2.0) and the sources
//! of PyPI's `anthropic` (tests/lib/streaming/fixtures; MIT). `.ci/run` unpacks them below target/.

use delta_llm::llm::CallProgress;
use delta_llm::llm::wire::{CodecSettings, DecodeContext, StreamAssembler, WireCodec, codec_for};
use delta_words::{Reply, Usage, WireForm};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use test_support::needs;

/// A larger file is not cut at each of its bytes, only into pieces of equal length.
const SMALL: usize = 2_500;

/// The directories of `genai` whose answers are in one of the forms; the others have Ollama's own form, Bedrock's, and
/// Google's Interactions.
const GENAI: [(&str, WireForm); 12] = [
    ("aihubmix", WireForm::OpenAi),
    ("anthropic", WireForm::Anthropic),
    ("gemini", WireForm::Gemini),
    ("github_copilot", WireForm::OpenAi),
    ("mistral", WireForm::OpenAi),
    ("open_router", WireForm::OpenAi),
    ("openai", WireForm::OpenAi),
    ("openai_resp", WireForm::Responses),
    ("opencode_go/minimax_chat", WireForm::Anthropic),
    ("opencode_go/minimax_stream", WireForm::Anthropic),
    ("opencode_go/openai_chat", WireForm::OpenAi),
    ("opencode_go/openai_stream", WireForm::OpenAi),
];

pub fn codec(form: WireForm) -> Box<dyn WireCodec> {
    let settings = CodecSettings {
        model: "m".to_owned(),
        base_url: "https://llm.example".to_owned(),
        stream: true,
        api_version: None,
    };
    codec_for(form, settings)
}

const CONTEXT: DecodeContext<'_> = DecodeContext { model: "m", basis: None };

/// What a reply is for the engine, in one line.
fn summary(reply: &Reply) -> String {
    let chars = |text: &Option<String>| text.as_ref().map_or(0, |text| text.chars().count());
    let mut line = format!(
        "{} text {} reasoning {}",
        reply.finish_reason.as_deref().unwrap_or("none"),
        chars(&reply.content),
        chars(&reply.reasoning)
    );
    for call in &reply.tool_calls {
        let length = call.function.arguments.as_json().len();
        write!(line, " call {} {length}", call.function.name).unwrap();
    }
    if let Some(native) = &reply.native {
        let count = native.parts.as_array().map_or(1, Vec::len);
        write!(line, " native {count}").unwrap();
    }
    if let Some(usage) = &reply.usage {
        let Usage { input_tokens, cached_input_tokens, output_tokens, .. } = usage;
        write!(line, " usage {input_tokens} {cached_input_tokens} {output_tokens}").unwrap();
    }
    line
}

/// Everything that a reply holds, or why there is none.
fn read(form: WireForm, pieces: &[&[u8]]) -> Result<Reply, String> {
    let mut assembler = codec(form).new_assembler();
    let mut text = String::new();
    let mut observe = |assembler: &mut dyn StreamAssembler| {
        assembler.pass_new_text(&mut |progress| {
            if let CallProgress::Text(piece) = progress {
                text.push_str(piece);
            }
        });
    };
    for piece in pieces {
        assembler.push(piece).map_err(|error| format!("{error:?}"))?;
        observe(assembler.as_mut());
    }
    assembler.finish().map_err(|error| format!("{error:?}"))?;
    observe(assembler.as_mut());
    if !assembler.is_complete() {
        return Err("not complete".to_owned());
    }
    let reply = assembler.into_reply(&CONTEXT).map_err(|error| format!("{error:?}"))?;
    assert_eq!(text, reply.content.clone().unwrap_or_default(), "C-25.4: the pieces are the text");
    Ok(reply)
}

/// The answer in the file, the same however it is cut.
fn read_in_pieces(form: WireForm, bytes: &[u8]) -> Result<Reply, String> {
    if matches!(bytes.first(), Some(b'{' | b'[')) {
        let body = serde_json::from_slice(bytes).unwrap();
        return codec(form).decode(body, &CONTEXT).map_err(|error| format!("{error:?}"));
    }
    let whole = read(form, &[bytes]);
    let expected = format!("{whole:?}");
    for length in 1..=bytes.len().min(24) {
        let pieces: Vec<&[u8]> = bytes.chunks(length).collect();
        assert_eq!(format!("{:?}", read(form, &pieces)), expected, "in pieces of {length}");
    }
    if bytes.len() <= SMALL {
        for at in 1..bytes.len() {
            let reply = read(form, &[&bytes[..at], &bytes[at..]]);
            assert_eq!(format!("{reply:?}"), expected, "cut at {at}");
        }
    }
    whole
}

/// A line for each file in `dir`, by name.
fn read_all(dir: &Path, name: &str, form: WireForm, lines: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{name}/{}", path.file_stem().unwrap().to_str().unwrap());
        if path.is_dir() {
            read_all(&path, &name, form, lines);
            continue;
        }
        let reply = read_in_pieces(form, &fs::read(&path).unwrap());
        let line = reply.map_or_else(|error| error, |reply| summary(&reply));
        lines.insert(name, line);
    }
}

/// What each answer holds: see `summary`.
const EXPECTED: &str = include_str!("recorded_answers.txt");

#[test]
fn c_23_1_recorded_answers_are_read_the_same_in_all_pieces() {
    let mut lines = BTreeMap::new();
    if let Some(dir) = needs::fetched("recorded-answers/genai") {
        for (name, form) in GENAI {
            read_all(&dir.join(name), name, form, &mut lines);
        }
    }
    if let Some(dir) = needs::fetched("recorded-answers/anthropic") {
        read_all(&dir, "anthropic-sdk", WireForm::Anthropic, &mut lines);
    }
    let mut differences = Vec::new();
    for (name, line) in &lines {
        let expected = EXPECTED.lines().filter_map(|line| line.split_once(": "));
        let expected = expected.filter(|(known, _)| known == name).map(|(_, line)| line).next();
        if expected != Some(line) {
            differences.push(format!("{name}: {line}"));
        }
    }
    assert!(differences.is_empty(), "other than expected:\n{}", differences.join("\n"));
    println!("{} recorded answers are read", lines.len());
}
