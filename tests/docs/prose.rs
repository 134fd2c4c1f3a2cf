//! The prose of the documents, templates, examples and sources is plain English: none of it has the habits listed here.
//!
//! Each finding is printed as `FILE:LINE: habit: text`, with what to write instead. `PROSE_ROOTS=src,crates` checks other
//! roots than [`COVERED`] and ignores [`PENDING`], for example to count the findings in the sources:
//! `PROSE_ROOTS=src,crates cargo nextest run --test docs prose`.

use super::texts;
use regex::Regex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Component, Path};

/// The files and directories whose prose is checked. `src` and `crates` check comments and string literals of Rust.
const COVERED: &[&str] = &["README.md", "docs", "examples", "src", "crates", "build.rs"];

/// Files and directories in [`COVERED`] that are not checked yet. `*` is any one name.
const PENDING: &[&str] = &[];

struct Habit {
    name: &'static str,
    pattern: &'static str,
    /// Uses of the same words that are good English.
    except: &'static str,
    instead: &'static str,
}

const fn habit(
    name: &'static str,
    pattern: &'static str,
    except: &'static str,
    instead: &'static str,
) -> Habit {
    Habit { name, pattern, except, instead }
}

/// All patterns ignore case and see one line without its code spans and link targets.
const HABITS: &[Habit] = &[
    habit("stands", r"\b(stands?|stood)\b", r"\b(stands?|stood) (in )?for\b", "is in, is at"),
    habit("lies", r"\blies\b|\blie (in|at|on|below|beside|between|outside)\b", "", "is in, is at"),
    habit("goes on", r"\b(go|goes|going|went|gone) on\b", "", "continue, resume"),
    habit(
        "takes up",
        r"\b(take|takes|taken|taking|took) ((it|them|one|this|the run|a run) )?up\b",
        r"\btak(e|es|en|ing) up space\b",
        "resume",
    ),
    habit("carries out", r"\bcarr(y|ies|ied|ying) ((it|them) )?out\b", "", "run"),
    habit("puts back", r"\b(put|puts|putting) (\w+ )?back\b", "", "restore, roll back"),
    habit("told", r"\btold\b|\btells? of\b", "", "prints, reports, sees"),
    habit("says so", r"\b(says?|said) (so|of|nothing)\b", "", "reports, prints a warning"),
    habit("whoever", r"\bwho(m|so)?ever\b", "", "the caller, the user"),
    habit("somebody", r"\b(some|any|every|no)body\b", "", "the caller, the user, a process"),
    habit("people", r"\bpeople\b", "", "users"),
    habit(
        "that of",
        r"\b(that|those) of\b",
        r"\b(so|notes?|means?|such) that of\b",
        "repeat the noun",
    ),
    habit("those that", r"\bthose (that|which|who|whom|whose)\b", "", "use the noun"),
    habit("what of it", r"\bwhat of (it|them|that|these|those)\b", "", "the part that"),
    habit(
        "is no",
        r"\b(is|are|was|were|be|been) no \w",
        r"\b(there (is|are|was|were|be|can be|may be|will be|has been)|is|are|was|were) no longer\b|\bthere ((can|may|must|will|would) be|has been|is|are|was|were) no\b",
        "is not a",
    ),
    habit(
        "it is here that",
        r"\bit is (here|there|then|now|this|these|only \w+|(in|at|by|with|from) \w+) that\b",
        "",
        "name it first",
    ),
    habit(
        "of the LLM's",
        r"\b(of|by) (the|an?) (LLM|agent|engine|tool|shell|run|hook|process|program|user|author|caller|system)'s($|[.,;:)]| (own|is|are|and|or|that|which|has|was|were)\b)",
        r"'s own [a-z]",
        "of the LLM",
    ),
    habit("behind", r"\bbehind\b", r"\bbehind (a|the) (proxy|firewall|gate|gateway)\b", "after"),
    habit("beside", r"\bbeside\b", "", "next to, in addition to"),
    habit("reckon", r"\breckon(s|ed|ing)?\b", "", "estimate, compute"),
    habit(
        "is there",
        r"\b(is|are|was|were) (not |no longer )?there([.,;:)]|$)|\bthere already\b",
        "",
        "exists, is missing",
    ),
    habit("is wanted", r"\b(is|are|was|were|not) wanted\b", "", "is required, expected"),
    habit("begun", r"\bbegun\b", "", "started"),
    habit("anew", r"\banew\b", "", "again"),
    habit("all the same", r"\ball the same\b", "", "still"),
    habit("for want of", r"\bfor want of\b", "", "because there is no"),
    habit(
        "place of",
        r"\b(take|takes|taken|taking|took|in) the place of\b",
        "",
        "replace, instead of",
    ),
    habit("time is up", r"\btime (is|was|were) (up|over)\b", "", "timeout, deadline"),
    habit("leaves with", r"\b(leaves?|left) with (\d|code|exit|an?|another)\b", "", "exits with"),
    habit(", for it", r", for (it|they|no|nothing|there|then|only)\b", "", "because"),
    habit("please", r"\bplease\b", "", "say what to do"),
    habit(
        "end of an id",
        r"\bbeginning or end of (it|(the|its|an) id)\b",
        "",
        "a unique prefix or suffix",
    ),
    habit(
        "leaves the run",
        r"\b(leaves?|left|leaving) the run\b",
        r"\bleaves? the run \*?(INTERRUPTED|FAILED|ungraded|packed|waiting)\b",
        "exits",
    ),
    habit("of whose", r"\bof whose\b", "", "two sentences"),
    habit("agrees with records", r"\bagrees? with (its|the) records\b", "", "matches its records"),
];

/// Real uses: the file, and a part of the line.
const ALLOWED: &[(&str, &str)] = &[
    // A text whose words are counted.
    ("examples/map-reduce/texts/three.txt", "A run that was stopped"),
    // Formats: journals and records contain these texts, and `delta replay` compares them with what it computes again.
    ("crates/delta-agent/src/ask_human.rs", "nobody was asked"),
    ("crates/delta-agent/src/hook/answer.rs", "left with exit code {code}"),
    ("crates/delta-agent/src/hook/answer.rs", "and no `decision`, which is no answer"),
    ("crates/delta-agent/src/hook/answer.rs", "not UTF-8 in the place of an answer"),
    ("crates/delta-agent/src/hook/answer.rs", "what people are to read goes to standard error"),
    ("crates/delta-agent/src/hook/answer.rs", "an object that is no answer"),
    ("crates/delta-plan/src/call_plan.rs", "`finish`; the run goes on"),
    // What servers write.
    ("crates/delta-http/src/retry.rs", "please wait "),
    ("crates/delta-process/src/truncated_output.rs", "the whole lies in "),
    ("crates/delta-run/src/state.rs", "The working directory was put back to {state}"),
    ("crates/delta-sessions/tests/cli/sessions/shell.rs", "the whole lies in {file} "),
];

/// A line of prose, numbered from 1.
type Line = (usize, String);

/// The habits, compiled once.
struct Checker {
    habits: Vec<(&'static Habit, Regex, Regex)>,
    /// Code spans and the targets of links.
    not_prose: Regex,
}

impl Checker {
    fn new() -> Self {
        let habits = HABITS
            .iter()
            .map(|habit| (habit, ignoring_case(habit.pattern), ignoring_case(habit.except)));
        let not_prose = Regex::new(r"``[^`].*?``|`[^`]*`|\]\([^()\s]+\)").unwrap();
        Self { habits: habits.collect(), not_prose }
    }

    /// The findings of one file, each as one line.
    fn check(&self, file: &Path, lines: &[Line]) -> Vec<String> {
        let mut findings = Vec::new();
        for (number, line) in lines.iter().filter(|(_, line)| !is_allowed(file, line)) {
            let prose = self.not_prose.replace_all(line, "`code`");
            for (habit, pattern, except) in &self.habits {
                let is_found = match habit.except {
                    "" => pattern.is_match(&prose),
                    _ => pattern.is_match(&except.replace_all(&prose, "~")),
                };
                if is_found {
                    let place = format!("{}:{number}", file.display());
                    let line = line.trim();
                    findings.push(format!("{place}: {} ({}): {line}", habit.name, habit.instead));
                }
            }
        }
        findings
    }
}

#[test]
fn prose_has_no_banned_habits() {
    let chosen = std::env::var("PROSE_ROOTS").ok();
    let roots: Vec<&str> = match &chosen {
        Some(chosen) => chosen.split(',').collect(),
        None => COVERED.to_vec(),
    };
    let pending = if chosen.is_some() { &[] } else { PENDING };
    let checker = Checker::new();
    let mut findings = Vec::new();
    for (file, text) in texts(&[""]) {
        let is_in = |roots: &[&str]| roots.iter().any(|root| is_below(&file, root));
        if is_in(&roots) && !is_in(pending) {
            findings.extend(checker.check(&file, &prose_of(&file, &text)));
        }
    }
    assert!(findings.is_empty(), "\n{}\n{}", findings.join("\n"), summary(&findings));
}

/// Whether a file is the root or inside it; a `*` in the root is any one name.
fn is_below(file: &Path, root: &str) -> bool {
    let names: Vec<Component<'_>> = file.components().collect();
    let root: Vec<Component<'_>> = Path::new(root).components().collect();
    root.len() <= names.len()
        && root.iter().zip(names).all(|(part, name)| part.as_os_str() == "*" || *part == name)
}

fn prose_of(file: &Path, text: &str) -> Vec<Line> {
    let ending = file.extension().unwrap_or_default().to_string_lossy().into_owned();
    match ending.as_str() {
        "md" => markdown_lines(text),
        "rs" => rust_lines(text),
        // A file without an ending is a script.
        "" | "js" | "py" | "sh" | "txt" | "yaml" => numbered(text),
        _ => Vec::new(),
    }
}

fn numbered(text: &str) -> Vec<Line> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line.to_owned())).collect()
}

/// The lines of a document; of its fenced blocks only the comments, and of `console` and `text` blocks, which show output,
/// nothing.
fn markdown_lines(text: &str) -> Vec<Line> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for (number, line) in numbered(text) {
        if let Some(info) = line.strip_prefix("```") {
            fence = match fence {
                Some(_) => None,
                None if info.starts_with("console") || info.starts_with("text") => Some("output"),
                None => Some("code"),
            };
            continue;
        }
        match fence {
            None => lines.push((number, line)),
            Some("code") => {
                let comment = line.split_once("# ").map(|(_, comment)| comment.to_owned());
                lines.extend(comment.map(|comment| (number, comment)));
            }
            Some(_) => {}
        }
    }
    lines
}

/// The comments and the string literals of a Rust file, without its `mod tests` and without literals of one word.
fn rust_lines(text: &str) -> Vec<Line> {
    let token = Regex::new(concat!(
        r"(?s)//[^\n]*|/\*.*?\*/",
        r###"|r##".*?"##|r#".*?"#|\br"[^"]*""###,
        r#"|"(?:[^"\\]|\\.)*""#,
        r"|'(?:[^'\\\n]|\\[^'\n]{1,10}|\\')'",
    ))
    .unwrap();
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let mut lines = Vec::new();
    let mut number = 1;
    let mut seen = 0;
    for found in token.find_iter(&text[..tests]) {
        number += text[seen..found.start()].matches('\n').count();
        seen = found.start();
        let is_comment = found.as_str().starts_with('/');
        let is_prose = is_comment || (found.as_str().contains(' ') && found.len() > 4);
        let parts = found.as_str().split('\n').enumerate().filter(|_| is_prose);
        lines.extend(parts.map(|(index, part)| (number + index, part.replace("\\n", "\t"))));
    }
    lines
}

fn ignoring_case(pattern: &str) -> Regex {
    Regex::new(&format!("(?i-u){pattern}")).unwrap()
}

fn is_allowed(file: &Path, line: &str) -> bool {
    ALLOWED.iter().any(|(allowed, part)| file == Path::new(allowed) && line.contains(part))
}

/// How often each habit was found, the most frequent first.
fn summary(findings: &[String]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for habit in HABITS {
        let named = |finding: &&String| finding.contains(&format!(": {} (", habit.name));
        counts.insert(habit.name, findings.iter().filter(named).count());
    }
    let mut sorted: Vec<(&str, usize)> = counts.into_iter().filter(|(_, n)| *n > 0).collect();
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut text = format!("\n{} findings:", findings.len());
    for (name, count) in sorted {
        write!(text, " {name} {count},").unwrap();
    }
    text.trim_end_matches(',').to_owned()
}

#[test]
fn habits_are_found_and_good_english_is_not() {
    let bad = [
        ("stands", "the hook stands beside it"),
        ("lies", "the file lies in the workspace"),
        ("goes on", "the run goes on"),
        ("takes up", "a process took the run up"),
        ("told", "the LLM is told"),
        ("that of", "its name is that of the file"),
        ("is no", "a link is no file"),
        ("of the LLM's", "a value of the LLM's is one argument"),
        ("of the LLM's", "a value of the LLM's own."),
        ("is there", "replaces a file that is there."),
        ("begun", "the run was begun"),
    ];
    let checker = Checker::new();
    for (name, text) in bad {
        let found = checker.check(Path::new("x.md"), &numbered(text));
        assert!(
            found.iter().any(|line| line.contains(&format!(": {name} ("))),
            "{text}: {found:?}"
        );
    }
    let good = "A script stands in for the LLM.\nThere is no key, and it is no longer needed.\n\
        Use `stands` in code.\nThe proxy is not reachable, so that of course fails.\n\
        The names of the agent's own tools.";
    assert_eq!(checker.check(Path::new("x.md"), &numbered(good)), Vec::<String>::new());
}

#[test]
fn prose_of_each_kind_of_file_is_found() {
    let markdown = "One.\n```console\n$ stands\n```\n```yaml\na: 1 # two\n```\nThree.\n";
    let found: Vec<Line> = markdown_lines(markdown);
    let expected = [(1, "One."), (6, "two"), (8, "Three.")];
    assert_eq!(found, expected.map(|(number, text)| (number, text.to_owned())));

    let rust = "/// One.\nfn f<'a>(x: &'a str) -> char {\n    g(\"two\\n three\", \"word\", '\"'); // four\n    r#\"five \"\n six\"#\n}\n#[cfg(test)]\nmod tests {\n    // seven\n}\n";
    let found: Vec<usize> = rust_lines(rust).into_iter().map(|(number, _)| number).collect();
    assert_eq!(found, [1, 3, 3, 4, 5]);
}
