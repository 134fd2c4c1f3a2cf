//! Messages as Markdown, and what hostile Markdown cannot do.

use super::super::DELTA;
use super::browser::Browser;
use super::{TOOLS, data, view};
use serde_json::{Value, json};
use std::net::TcpListener;
use test_support::needs;
use test_support::sandbox::Sandbox;

const ASK: &str = "- call: [{tool: ask_human, args: {prompt: \"**Which** one?\"}}]\n";

/// A script whose only answer is `text`.
fn answering(text: &str) -> Sandbox {
    Sandbox::scripted(DELTA, "", &format!("- say: {}\n", json!(text)))
}

fn opened(sandbox: &Sandbox) -> Browser {
    view(sandbox, &[]).expect_code(0);
    let mut browser = Browser::start();
    browser.open(&sandbox.path("r.html"), "");
    browser.settle();
    browser
}

fn text_of(browser: &mut Browser, selector: &str) -> Value {
    browser.value(&format!("document.querySelector({selector:?}).textContent"))
}

#[test]
fn c_18_9_messages_are_rendered_and_a_switch_shows_them_as_they_are() {
    if !needs::browser() {
        return;
    }
    let answer = "# Plan\n\n1. *one*\n2. `two`\n\n| a | b |\n|--:|---|\n| 1 | ~~x~~ |\n\n- [x] done\n\n```sh\nls <b>\n```\nA [page](https://example.com/p) **bold** word & entity &lt;.";
    let sandbox = Sandbox::scripted(DELTA, "", &format!("{ASK}- say: {}\n", json!(answer)));
    sandbox.run("Do *this*:\n\n- now", &[]).expect_code(101);
    let mut browser = opened(&sandbox);
    assert_eq!(text_of(&mut browser, "#top .ask strong"), "Which");
    assert_eq!(text_of(&mut browser, "#top .task em"), "this");
    sandbox.delta(["continue", "r", "-w", "work", "-m", "the **last**"]).output().expect_code(0);
    let mut browser = opened(&sandbox);
    let kinds = "(box => [...new Set([...box.querySelectorAll('*')].map(one => one.tagName.toLowerCase()))].sort().join(' '))(document.querySelector('#i2 .said .md'))";
    let expected = "a code del div em li ol p pre span strong table td th tr ul";
    assert_eq!(browser.value(kinds), expected);
    let link = "(a => [a.href, a.rel, a.target, a.nextSibling.textContent])(document.querySelector('#i2 a.link'))";
    let expected = json!([
        "https://example.com/p",
        "noreferrer noopener",
        "_blank",
        " (https://example.com/p)"
    ]);
    assert_eq!(browser.value(link), expected);
    assert_eq!(text_of(&mut browser, "#i2 .said pre"), "sh\nls <b>\n");
    browser.value("document.querySelectorAll('.call details').forEach(one => one.fill())");
    assert_eq!(text_of(&mut browser, "#i1 .call strong"), "Which");
    let shown = "document.querySelector('#i2 .said .t').textContent";
    assert!(browser.value(shown).as_str().unwrap().ends_with("bold word & entity <."));
    // The data has the text once: a tree only refers to it.
    let iteration = data(&sandbox)["runs"][0]["iterations"][1].clone();
    assert_eq!(iteration["thought"], answer);
    assert!(!iteration["markdown"].to_string().contains("bold"));

    let hits = |browser: &mut Browser, needle: &str| {
        browser.value(&format!("document.getElementById('query').value = {needle:?}; seek(); document.getElementById('count').textContent"))
    };
    let hit = "[...CSS.highlights.get('hit')][0].toString()";
    assert_eq!(hits(&mut browser, "bold word & entity <"), "1 / 1");
    assert_eq!(browser.value(hit), "bold word & entity <");
    assert_eq!(hits(&mut browser, "**bold"), "no matches");
    browser.value("document.getElementById('query').value = ''; search()");
    browser.press("m", "m");
    browser.settle();
    assert_eq!(browser.value(shown), answer);
    assert_eq!(hits(&mut browser, "**bold"), "1 / 1");
    assert_eq!(browser.value(hit), "**bold");
    assert_eq!(text_of(&mut browser, "#top .task .t"), "Do *this*:\n\n- now");
    // The page remembers it. Chromium hands what a page stores to the next page a little later.
    let is_remembered = (0..20).any(|_| {
        browser.open(&sandbox.path("r.html"), "");
        browser.settle();
        browser.value(shown) == answer
    });
    assert!(is_remembered);
    browser.value("document.getElementById('markdown').click()");
    assert_eq!(browser.value("document.querySelectorAll('#i2 .said strong').length"), 1);
}

#[test]
fn c_18_9_no_markdown_becomes_code_or_a_request() {
    if !needs::browser() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let away = format!("http://{}", listener.local_addr().unwrap());
    let hostile = format!(
        "# <script>window.probe=1</script>\n\n<script>\nwindow.probe=2\n</script>\n\n![p]({away}/a.png)\n\n<img src={away}/b onerror=window.probe=3>\n\n\
         [js](javascript:window.probe=4) [case](JAVASCRIPT:window.probe=4) \
         [data](data:text/html,<script>window.probe=4</script>) [file](file:///etc/passwd) [bidi](<https://a.b/\u{202e}moc>)\n\n\
         [![in]({away}/c.png)](vbscript:x) <javascript:window.probe=5> [https://good.example](https://evil.example/\"onclick=\"window.probe=6)\n\n\
         `code \u{202e}desrever\u{200b}`\n\n```<script>window.probe=7</script>\n</code></pre><script>window.probe=8</script>\n```\n\n\
         | <b onclick=window.probe=9>a</b> |\n|---|\n| <iframe src={away}/d> |\n"
    );
    let sandbox = answering(&hostile);
    sandbox.run("task", &[]).expect_code(0);
    let mut browser = opened(&sandbox);
    let links = browser.value("[...document.querySelectorAll('#i1 .md a')].map(a => a.href)");
    assert_eq!(links, json!(["https://evil.example/%22onclick=%22window.probe=6"]));
    let shown = text_of(&mut browser, "#i1 .md");
    let shown = shown.as_str().unwrap();
    for text in [
        "<script>window.probe=1</script>",
        "window.probe=2",
        "js (javascript:window.probe=4)",
        "bidi (https://a.b/U+202Emoc)",
        "https://good.example (https://evil.example/\"onclick=\"window.probe=6)",
        "code U+202EdesreverU+200B",
        "</code></pre><script>window.probe=8</script>",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    browser.value(
        "document.querySelectorAll('#i1 .md *').forEach(one => one.tagName !== 'A' && one.click())",
    );
    // The page follows no other scheme either, whatever its data says.
    let scripts = "['javascript:x', ' javascript:x', 'java\\tscript:x', 'data:text/html,x', 'file:///x', '//a.b', 'HTTPS://a.b'].map(target => new Markdown('x', [25, target, '', 1, 0, 1, 0]).build().querySelectorAll('a').length).join('')";
    assert_eq!(browser.value(scripts), "0000001");
    let strangers = "document.querySelectorAll('#page img, #page iframe, #page script, #page b[onclick], #page [onerror]').length";
    assert_eq!(browser.value(strangers), 0);
    assert_eq!(browser.value("typeof window.probe"), "undefined");
    assert_eq!(browser.requests().len(), 1);
    assert!(listener.accept().is_err(), "nobody came");
}

#[test]
fn c_18_9_deep_and_large_texts_are_shown_as_they_are() {
    if !needs::browser() {
        return;
    }
    let texts = [
        format!("{}deep", "> ".repeat(10_000)),
        format!("{}deep", "- ".repeat(10_000)),
        format!("{}deep", "[".repeat(10_000)),
        format!("**x** {}", "long ".repeat(200_000)),
        "**x** [entity](&#106;avascript:alert(1)) [tab](java&Tab;script:alert(1))".to_owned(),
        "**x**\n\n[//]: # (a definition is not shown)".to_owned(),
    ];
    let turn = |text: &String| {
        format!("- say: {}\n  call: [{{tool: note, args: {{text: x}}}}]\n", json!(text))
    };
    let turns: String = texts.iter().map(turn).collect();
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &format!("{turns}- say: done\n"));
    sandbox.run("task", &[]).expect_code(0);
    let mut browser = opened(&sandbox);
    browser.value("articles.forEach(fill); document.querySelectorAll('button.all').forEach(one => one.click())");
    assert_eq!(browser.value("document.querySelectorAll('.md').length"), 0);
    for (index, text) in texts.iter().enumerate() {
        let whole = text_of(&mut browser, &format!("#i{} .said .t", index + 1));
        assert_eq!(whole.as_str().unwrap(), text);
    }
}

#[test]
fn c_18_4_a_sensitive_answer_is_not_put_together_by_markdown() {
    if !needs::browser() {
        return;
    }
    let turns = "- call: [{tool: ask_human, args: {prompt: \"Token?\", sensitive: true}}]\n- say: \"ä **it** is s3cret-word, or s3&#99;ret-word, or s3**cret**-word\"\n";
    let sandbox = Sandbox::scripted(DELTA, "", turns);
    sandbox.run("the task", &[]).expect_code(101);
    sandbox.delta(["continue", "r", "-w", "work", "-m", "s3cret-word"]).output().expect_code(0);
    let mut browser = opened(&sandbox);
    let shown = text_of(&mut browser, "#i2 .said .t");
    assert_eq!(shown, "ä **it** is [hidden], or s3&#99;ret-word, or s3**cret**-word");
}

#[test]
fn c_18_9_a_diff_is_shown_as_it_is() {
    if !needs::browser() {
        return;
    }
    let diff = "--- a/list.md\n+++ b/list.md\n@@ -1,2 +1,2 @@\n- one\n-   **two**\n+ three\n";
    let sandbox = answering(diff);
    sandbox.run(&format!("Apply **this**:\n\n{diff}"), &[]).expect_code(0);
    let mut browser = opened(&sandbox);
    assert_eq!(text_of(&mut browser, "#top .result .t"), diff);
    let structure = "document.querySelectorAll('#top li, #top h1, #top h2, #top strong').length";
    assert_eq!(browser.value(structure), 0);
}
