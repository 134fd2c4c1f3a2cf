use super::mapping_schema::{KeySchema, ValueShape};
use super::*;

static FILE: MappingSchema = MappingSchema::new(
    "the file",
    "",
    &[
        KeySchema::optional("name", ValueShape::Text, ""),
        KeySchema::optional("list", ValueShape::Any, ""),
        KeySchema::optional("map", ValueShape::Any, ""),
    ],
);

fn check_errors(text: &str, expected: &[&str]) {
    let mut report = DiagnosticReport::default();
    match YamlDocument::parse("a.yaml", text) {
        Ok(document) => {
            document.fields(&document.root, &FILE);
            document.drain_diagnostics(&mut report);
        }
        Err(diagnostic) => report.push(diagnostic),
    }
    let found: Vec<_> = report
        .diagnostics
        .iter()
        .map(|d| format!("{}:{} {}", d.line, d.column, d.message))
        .collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn c_1_3_errors_have_positions() {
    check_errors("name: a\nnmae: b\n", &["2:1 unknown key `nmae` in the file"]);
    check_errors("name: a\nname: b\n", &["2:1 duplicate key `name` in this mapping"]);
    check_errors("ä: é\nx-own: 1\n", &["1:1 unknown key `ä` in the file"]);
    check_errors("- a\n", &["1:1 the file must be a mapping (`key: value`), not a list"]);
    check_errors("map: {a: 1, a: 2}\n", &["1:13 duplicate key `a` in this mapping"]);
    check_errors(
        "name: a\n---\nname: b\n",
        &["2:1 a second document starts here; expected one per file"],
    );
    // The parser reports the end of the file on a line that does not exist.
    for text in ["name: a\nmap: {a: 1", "name: a\nmap: {a: 1\n"] {
        check_errors(text, &["2:6 this `{` is not closed"]);
    }
}

#[test]
fn scalars_follow_the_core_schema() {
    let check = |text: &str, expected: serde_json::Value| {
        let document = YamlDocument::parse("a.yaml", text).unwrap();
        assert_eq!(document.to_json(&document.root), Some(expected), "{text}");
    };
    use serde_json::json;
    check(
        "[yes, true, 010, 0x1F, 1.50, -3, 1e3, ~, '5', !!str 5, .5, 1.2.3, '']",
        json!(["yes", true, 10, 31, 1.5, -3, 1000.0, null, "5", "5", 0.5, "1.2.3", ""]),
    );
    check("a: &x [1, 2]\nb: *x\n", json!({"a": [1, 2], "b": [1, 2]}));
    check("", json!(null));
}

#[test]
fn spans_are_bytes() {
    let text = "é: \"ü\\\"\" # x\nd: 'a''b'   \nb: |\n  x\n  y\nc: z # c\n";
    let document = YamlDocument::parse("a.yaml", text).unwrap();
    let at = |key: &str| &text[document.root.get(key).unwrap().span.clone()];
    assert_eq!(at("é"), "\"ü\\\"\"");
    assert_eq!(at("d"), "'a''b'");
    assert_eq!(at("c"), "z");
    assert_eq!(at("b"), "x\n  y\n");
}

#[test]
fn expanded_aliases_are_bounded() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let items = vec![format!("*a{}", level - 1); 9].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    assert!(YamlDocument::parse("a.yaml", text).is_err());
}

#[test]
fn quoted_text_reads_back() {
    for text in ["", "a", "\"\\\n\t\r\0\u{7f}\u{85}\u{2028}\u{feff}ä😀", "$1 ${x} # - : *"] {
        let document = YamlDocument::parse("a.yaml", quote_yaml(text)).unwrap();
        assert_eq!(document.root.scalar(), Some(text));
    }
}

#[test]
fn c_1_3_spans_leave_out_tags_and_anchors() {
    let text = "a: !!str &x 'b'\nc: &y\n  d: 1\ne: !!seq # x\n  [1]\nf: !!str |- # y\n\n   g\nh: *x\ni: !!str\nj: &z [k]\n";
    let document = YamlDocument::parse("a.yaml", text).unwrap();
    let at = |key: &str| text[document.root.get(key).unwrap().span.clone()].trim_end();
    assert_eq!(
        ["a", "c", "e", "f", "h", "i", "j"].map(at),
        ["'b'", "d: 1", "[1]", "g", "*x", "", "[k]"]
    );
}

#[test]
fn c_1_3_a_byte_order_mark_and_other_line_ends_move_nothing() {
    check_errors("\u{feff}name: a\nnmae: b\n", &["2:1 unknown key `nmae` in the file"]);
    check_errors(
        "name: ü\r\nmap: {ö: é, ö: 2}\r\nnmae: b\r\n",
        &["2:13 duplicate key `ö` in this mapping", "3:1 unknown key `nmae` in the file"],
    );
    check_errors("name:\n\t- a\n", &["2:1 expected spaces, found a tab"]);
}

#[test]
fn c_1_3_characters_that_nobody_sees_are_named() {
    let blank = "found the character U+00A0, which only looks like a space";
    check_errors("map:\n  a: 1\n  b:\u{a0}2\n", &[&format!("3:5 {blank}")]);
    check_errors("list:\n\u{a0}\u{a0}- a\n", &[&format!("2:1 {blank}")]);
    check_errors("list:\n\u{a0}\u{a0}- a: 1\n    b: 2\n", &[&format!("2:1 {blank}")]);
    check_errors(
        "map:\n  a: 1\n  b:\u{200b}2\n",
        &["3:5 found the character U+200B, which is invisible"],
    );
    let document = YamlDocument::parse("a.yaml", "\u{200b}name: a\n\u{a0}map: 1\n").unwrap();
    document.fields(&document.root, &FILE);
    let mut report = DiagnosticReport::default();
    document.drain_diagnostics(&mut report);
    let helps: Vec<_> = report.diagnostics.iter().filter_map(|d| d.help.as_deref()).collect();
    let expected = ["delete the invisible character U+200B", "write a space in place of U+00A0"];
    assert_eq!(helps, expected);
    // In a text they are what the author wrote.
    check_errors("name: a\u{a0}b: c\n", &["1:10 a string that contains `: ` needs quotes"]);
}

#[test]
fn c_1_3_nul_custom_tags_and_bad_keys_are_errors() {
    check_errors("name: \"a\\0b\"\n", &["1:7 a string contains a NUL character"]);
    check_errors("name: !x a\n", &["1:7 custom tags (`!name`) are not supported"]);
    check_errors("name: *x\n", &["1:7 a string that starts with `*` needs quotes"]);
    let half = "an escape after a backslash names half of a character, or none";
    check_errors("name: \"a \\ud83d b\"\n", &[&format!("1:10 {half}")]);
    check_errors("name: \"\\ude00\\ud83d\"\n", &[&format!("1:8 {half}")]);
    check_errors("name: \"\\\\ud83d\\ude00\"\n", &[&format!("1:15 {half}")]);
    check_errors("name: \"\\ud83d\\ude00\\ud83d\"\n", &[&format!("1:20 {half}")]);
    for rest in ["map: {a: b}\n", "map: x\n", "map:\n  a: b\n"] {
        check_errors(&format!("name:a\n{rest}"), &["1:1 expected `key: value`, found `name:a`"]);
    }
    check_errors("name: a: b\n", &["1:8 a string that contains `: ` needs quotes"]);
    check_errors("map: &x {list: *x}\n", &["1:16 this alias is inside its own anchor"]);
    check_errors("<<: {a: 1}\n", &["1:1 merge keys (`<<`) are not part of YAML 1.2"]);
    check_errors("? [a]\n: b\n", &["1:3 a key must be a string", "1:3 unknown key `` in the file"]);
}

/// YAML takes every JSON.
#[test]
fn c_1_3_two_halves_of_a_character_are_one() {
    let text = "- \"\\uD83D\\uDE00 \\ud83d\\ude00é\"\n- '\\ud83d\\ude00'\n- \\uD83D\\uDE00\n- \"\\\\ud83d\"\n";
    let document = YamlDocument::parse("a.yaml", text).unwrap();
    let texts: Vec<&str> = document.root.items().iter().filter_map(YamlNode::scalar).collect();
    assert_eq!(texts, ["😀 😀é", "\\ud83d\\ude00", "\\uD83D\\uDE00", "\\ud83d"]);
    let second = &document.root.items()[1];
    assert_eq!(&text[second.span.clone()], "'\\ud83d\\ude00'");
}

#[test]
fn c_1_3_hostile_sizes_are_rejected_quickly() {
    assert!(YamlDocument::parse("a.yaml", "[".repeat(100_000)).is_err());
    assert!(YamlDocument::parse("a.yaml", "- ".repeat(10_000)).is_err());
    assert!(YamlDocument::parse("a.yaml", "{a: ".repeat(10_000)).is_err());
    let keys: String = (0..60_000).map(|n| format!("k{n}: x\n")).collect();
    assert_eq!(YamlDocument::parse("a.yaml", keys).unwrap().root.entries().len(), 60_000);
    let mut report = DiagnosticReport::default();
    YamlDocument::parse("a.yaml", "a: x\n".repeat(60_000)).unwrap().drain_diagnostics(&mut report);
    assert_eq!(report.diagnostics.len(), MAX_DIAGNOSTICS);
    let anchors: String = (0..60).map(|n| format!("&a{n} [")).collect();
    assert!(
        YamlDocument::parse(
            "a.yaml",
            format!("{anchors}{}{}", "x, ".repeat(9_000), "]".repeat(60))
        )
        .is_err()
    );
}

/// A node as readers see it: its JSON, and its scalars as they are written.
fn seen(document: &YamlDocument) -> (Option<Json>, Vec<String>) {
    fn scalars(node: &YamlNode, found: &mut Vec<String>) {
        found.extend(node.scalar().map(str::to_owned));
        node.items().iter().for_each(|item| scalars(item, found));
        for (key, value) in node.entries() {
            scalars(key, found);
            scalars(value, found);
        }
    }
    let mut found = Vec::new();
    scalars(&document.root, &mut found);
    (document.to_json(&document.root), found)
}

#[track_caller]
fn reads_the_same(text: &str) {
    let document = YamlDocument::parse("a.yaml", text).unwrap();
    let line = to_flow_yaml(&document.root);
    assert!(!line.contains('\n'), "{line}");
    let again = YamlDocument::parse("b.yaml", &*line).unwrap_or_else(|d| panic!("{line}: {d}"));
    assert_eq!(seen(&again), seen(&document), "{line}");
}

#[test]
fn c_5_1_a_value_on_one_line_reads_the_same() {
    for scalar in [
        "1.10",
        "010",
        "+1",
        "-1",
        ".5",
        "1e5",
        "0x1F",
        "0o17",
        ".inf",
        "true",
        "TRUE",
        "'true'",
        "yes",
        "~",
        "null",
        "'null'",
        "''",
        "'- a'",
        "# c",
        "'#'",
        "\"a\\tb\"",
        "|\n  a\n  b\n",
        ">-\n  a\n  b\n",
        "{}",
        "[]",
        "{a: [1, {b: ~}], 'c d': x}",
        "&a [x, *a1]",
        "1.2.3",
        "12345678901234567890123",
        "2024-01-01",
        "é\u{2028}",
    ] {
        reads_the_same(&format!("first: &a1 [1]\nkey: {scalar}\n"));
    }
    reads_the_same("'true': 1\n'1': 2\n'nULL': 3\nx-y: 4\n\"a\\nb\": 5\n");
}

proptest::proptest! {
    #[test]
    fn c_5_1_a_text_on_one_line_reads_the_same(text in "\\PC{0,20}", key in "[a-zA-Z0-9 :#~.{\\-]{1,8}") {
        reads_the_same(&format!("{}: {}\n", quote_yaml(&format!("k{key}")), quote_yaml(&text)));
    }

    #[test]
    fn c_1_3_a_json_text_of_ascii_alone_is_the_same_text(text in "[\\PC\\\\😀]{0,20}") {
        let escaped: String = text
            .encode_utf16()
            .map(|unit| match char::from_u32(unit.into()) {
                Some(c) if c.is_ascii_alphanumeric() => c.to_string(),
                Some('\\') => "\\\\".to_owned(),
                _ => format!("\\u{unit:04x}"),
            })
            .collect();
        let document = YamlDocument::parse("a.yaml", format!("\"{escaped}\"")).unwrap();
        proptest::prop_assert_eq!(document.root.scalar(), Some(&*text));
    }
}
