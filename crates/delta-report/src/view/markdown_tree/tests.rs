use super::*;
use proptest::prelude::*;
use std::time::{Duration, Instant};

fn steps(text: &str) -> String {
    serde_json::to_string(&parse_markdown(text, |_| true)).unwrap()
}

/// The pieces of the source that the tree shows, in order, with its literals.
fn shown_text(text: &str, tree: &MarkdownTree) -> String {
    let units: Vec<u16> = text.encode_utf16().collect();
    let mut out = String::new();
    let mut rest = tree.0.iter();
    while let Some(step) = rest.next() {
        match step {
            MarkdownStep::Literal(literal) => out.push_str(literal),
            MarkdownStep::Number(1) => {
                let mut number = || match rest.next() {
                    Some(MarkdownStep::Number(number)) => *number as usize,
                    other => panic!("{other:?}"),
                };
                let start = number();
                let length = number();
                out.push_str(&String::from_utf16(&units[start..start + length]).unwrap());
            }
            MarkdownStep::Number(3) => out.push('\n'),
            MarkdownStep::Number(5 | 11 | 15 | 20) => drop(rest.next()),
            MarkdownStep::Number(_) => {}
        }
    }
    out
}

#[test]
fn c_18_9_a_tree_has_places_in_the_text_and_no_copy_of_it() {
    assert_eq!(steps("just words"), "null");
    assert_eq!(steps("two\nlines"), "null");
    assert_eq!(steps("a **b** c"), "[10,1,0,2,22,1,4,1,0,1,7,2,0]");
    assert_eq!(steps("ä😀 *b*"), "[10,1,0,4,21,1,5,1,0,0]");
    assert_eq!(steps("a [b] c *d*"), "[10,1,0,8,21,1,9,1,0,0]");
    assert_eq!(steps("a &amp; b"), "[10,1,0,3,1,7,2,0]");
    assert_eq!(steps("a &lt; b"), "[10,1,0,2,2,\"<\",1,6,2,0]");
    assert_eq!(steps("a \\* b"), "[10,1,0,2,1,3,3,0]");
    assert_eq!(steps("`` `x` ``"), "[10,24,1,3,3,0,0]");
    assert_eq!(steps("```sh\nls\n```"), "[13,\"sh\",1,6,3,0]");
    assert_eq!(steps("3. a\n4. b"), "[15,3,16,1,3,1,0,16,1,8,1,0,0]");
    assert_eq!(steps("- [x] a"), "[14,16,5,1,1,6,1,0,0]");
}

#[test]
fn c_18_9_html_is_text_and_only_web_and_mail_are_links() {
    assert_eq!(steps("<b>x</b> *y*"), "[10,1,0,9,21,1,10,1,0,0]");
    assert_eq!(steps("<script>\nx\n</script>\n\ny"), "[10,1,0,21,0,10,1,22,1,0]");
    assert!(steps("[x](https://a.b/c)").starts_with("[10,25,\"https://a.b/c\","));
    assert!(steps("[x](MAILTO:a@b.c)").starts_with("[10,25,\"MAILTO:a@b.c\","));
    let disguised = [
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](&#106;avascript:alert(1))",
        "[x](java&#10;script:alert(1))",
        "[x](java&Tab;script:alert(1))",
        "[x](&#1;javascript:alert(1))",
        "[x](<java\tscript:alert(1)>)",
        "[x](< javascript:alert(1)>)",
        "[x](\\javascript:alert(1))",
        "[x](javascript&colon;alert(1))",
        "[x](javascript://https://a.b/%0aalert(1))",
        "[x](data:text/html,<script>alert(1)</script>)",
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
        "[x](vbscript:x)",
        "[x](file:///etc/passwd)",
        "[x](blob:https://a.b/c)",
        "[x](//a.b/c)",
        "[x](#i1)",
        "[x](https:a)",
        "[x](<https://a.b/\u{202e}gpj.exe>)",
        "[x](<https://a.b/\u{200b}>)",
        "[x](https://a.b/&#10;c)",
        "<javascript:alert(1)>",
        "[![x](https://a.b/c.png)](javascript:alert(1))",
    ];
    for text in disguised {
        assert!(!steps(text).contains(",25,"), "{text}: {}", steps(text));
    }
    assert!(steps("![x](https://a.b/c.png)").starts_with("[10,27,"));
}

#[test]
fn c_18_9_texts_that_are_deep_or_large_stay_as_they_are() {
    let started = Instant::now();
    let many = 10_000;
    let hostile = [
        "> ".repeat(many),
        format!("{}a", "- ".repeat(many)),
        format!("{}a", "1. ".repeat(many)),
        (0..200).map(|n| format!("{}- a\n", "  ".repeat(n))).collect(),
        "*a **".repeat(many),
        format!("{}\n{}\n{}", "|a".repeat(many), "|-".repeat(many), "|\n".repeat(many)),
        format!("[a]: https://b.c/{}\n\n{}", "d".repeat(9_000), "[a] ".repeat(many)),
        "a".repeat(1_000_000),
    ];
    for text in &hostile {
        assert!(parse_markdown(text, |_| true).is_none(), "{}", &text[..40]);
    }
    // These are wide or unclosed, not deep.
    let harmless = [
        format!("> {}", "a\n>".repeat(many)),
        "[".repeat(many),
        "![".repeat(many),
        "]".repeat(many),
        format!("{}{}", "[".repeat(many), "](a)".repeat(many)),
        "*".repeat(many),
        "_a ".repeat(many),
        "`a".repeat(many),
        (1..300).map(|n| format!("a{}", "`".repeat(n))).collect(),
        "<!--".repeat(many),
        "<a ".repeat(many),
        "<?".repeat(many),
        "&".repeat(many),
        format!("{}{}", ">".repeat(30), "\na".repeat(20_000)),
        "\\".repeat(many),
    ];
    for text in &harmless {
        if let Some(tree) = parse_markdown(text, |_| true) {
            assert!(tree.0.len() <= MAX_STEPS + 3, "{}", &text[..20]);
        }
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn c_18_9_a_text_of_which_markdown_hides_a_part_stays_as_it_is() {
    let hiding = [
        "**a**\n\n[//]: # (unseen)",
        "[x][r]\n\n[r]: javascript:alert(1)",
        "[x][r] [x][r]\n\n[r]: https://a.b\n[s]: https://a.b",
        "|a|\n|-|\n|b|unseen|",
    ];
    for text in hiding {
        assert_eq!(steps(text), "null", "{text}");
    }
    assert!(steps("[x](https://a.b 'said')").starts_with("[10,25,\"https://a.b\",\"said\","));
    assert_ne!(steps("<https://a.b/c> and <a@b.c>"), "null");
    assert_ne!(steps("- [x] a &lt; b\n\n1. c\n\n|a|\n|-|\n|b|"), "null");
}

#[test]
fn c_18_4_a_text_that_reads_as_something_hidden_stays_as_it_is() {
    let is_allowed = |plain: &str| !plain.contains("s3cret");
    assert_eq!(parse_markdown("it is s3**cret**", is_allowed), None);
    assert_eq!(parse_markdown("it is s3&#99;ret", is_allowed), None);
    assert!(parse_markdown("it is **s3**_cret", is_allowed).is_some());
}

proptest! {
    #[test]
    fn c_18_9_any_text_gives_a_tree_of_its_own_words(text in "([a-z ä😀\\n\"'*_`~<>\\[\\]()!#|&;:\\\\\\t-]|&amp;|https://|```|- |1\\. |> |\\|-\\|){0,200}") {
        if let Some(tree) = parse_markdown(&text, |_| true) {
            // No word is lost or made up; entities, and targets of links, are the exceptions.
            if !text.contains('&') && !text.contains(':') && !text.contains("[x]") {
                let letters = |text: &str| text.chars().filter(|c| c.is_alphabetic()).collect::<String>();
                let mut shown: Vec<char> = letters(&shown_text(&text, &tree)).chars().collect();
                let mut written: Vec<char> = letters(&text).chars().collect();
                // The target of a link is before its text.
                shown.sort_unstable();
                written.sort_unstable();
                prop_assert_eq!(shown, written);
            }
        }
    }
}

#[test]
fn c_18_9_a_diff_is_text_unless_it_is_in_a_code_block() {
    let diff = "--- a/x.md\n+++ b/x.md\n@@ -1 +1 @@\n-1\n+**2**\n";
    for text in
        [diff.to_owned(), format!("diff --git a/x.md b/x.md\n{diff}"), format!("# It\n\n{diff}")]
    {
        assert_eq!(steps(&text), "null", "{text}");
    }
    for text in [format!("# It\n\n```diff\n{diff}```\n"), "a\n--- b\n\n**c**".to_owned()] {
        assert_ne!(steps(&text), "null", "{text}");
    }
    let both = format!("```diff\n{diff}```\n\n{diff}");
    assert_eq!(steps(&both), "null");
}
