//! docs/reference/cli.md, made of the first lines that `--help` prints of commands and options, and of their exit codes:
//! options of several commands once, then each command with its own.

use regex::Regex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

const INTRODUCTION: &str = "# The command line

Every command has `-h, --help`.
Unless its section says otherwise, it exits with 2 after a usage error, 126 after an error in its configuration, such as a file with a mistake, and 130 if it was interrupted.
This page has one line of each command and option; `delta COMMAND --help` explains them with examples, and `delta man COMMAND` is the same as a manual page.
`delta-sessions` has `completions` and `man` too.
";

/// Options that a command has together, by the name of their paragraph. The last two have the other options of several
/// commands, and their arguments.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Which runs", &["-w, --work-dir <DIR>", "-r, --recursive [<DIR>...]"]),
    ("Limits", &["--max-cost <USD>", "--max-tokens <N>", "--max-duration <TIME>"]),
    ("Sandbox", &["--sandbox <NAME|FILE>", "--net <HOST>"]),
    (
        "Work on a sweep",
        &[
            "-j, --jobs <N>",
            "--grace <TIME>",
            "--until <TIME>",
            "--per-run <TIME>",
            "--rate <N/UNIT>",
            "--hosts <N>",
        ],
    ),
    ("Others", &[]),
    ("Arguments", &[]),
];

/// What `--help` of one command prints, without its examples.
struct CommandHelp {
    /// The command as a user types it.
    spelling: String,
    about: String,
    usage: Vec<String>,
    sections: Vec<Section>,
}

/// The lines below one heading, or a paragraph without entries.
struct Section {
    title: String,
    entries: Vec<Entry>,
}

/// An argument or an option; how it is written, and what it means.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    syntax: String,
    text: String,
}

/// The reference of the commands of these programs.
pub fn reference(programs: &[&str]) -> String {
    let mut commands = Vec::new();
    for program in programs {
        push_commands(program, &[], &mut commands);
    }
    commands.retain(|command| {
        !["delta-sessions completions", "delta-sessions man"].contains(&&*command.spelling)
    });
    let shared = shared_entries(&commands);
    let mut reference = INTRODUCTION.to_owned();
    push_groups(&mut reference, &shared);
    for command in &commands {
        push_command(&mut reference, command, &shared);
    }
    reference
}

/// Adds a command of the program `file`, and the commands below it.
fn push_commands(file: &str, words: &[String], commands: &mut Vec<CommandHelp>) {
    let program = file.rsplit('/').next().unwrap();
    let spelling = [&[program.to_owned()], words].concat().join(" ");
    // Wide enough that each line is a paragraph.
    let mut command = Command::new(file);
    command.args(words).arg("--help").env_clear().env("COLUMNS", "9999");
    let help = command.output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert_eq!(wide_examples(&help), [""; 0], "{spelling}");
    commands.push(parse(spelling, &help));
    for name in subcommands(&help) {
        push_commands(file, &[words, &[name]].concat(), commands);
    }
}

/// The examples that a terminal of 80 columns wraps: the second half of a comment would be pasted as a command.
fn wide_examples(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    let examples = lines.take_while(|line| line.starts_with("  "));
    examples.filter(|line| line.chars().count() > 80).collect()
}

/// The names of the commands, which are between the usage and the options or the programs of others, except `help`.
pub fn subcommands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| !line.ends_with("<COMMAND>")).skip(1);
    let entries =
        listed.take_while(|line| !["Options:", "Other programs:", "Examples:"].contains(line));
    let names = entries
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

fn parse(spelling: String, help: &str) -> CommandHelp {
    let (about, rest) = help.split_once("Usage: ").unwrap();
    let (usage, mut rest) = rest.split_once("\n\n").unwrap_or((rest.trim_end(), ""));
    let mut usage = usage.replace(&format!("{spelling} "), "").replace("[OPTIONS] ", "");
    if usage.ends_with("<COMMAND>") {
        // The commands follow, each with its summary.
        usage.clear();
        rest = match rest.find("Options:\n") {
            Some(start) => &rest[start..],
            None => rest.split_once("\n\n").map_or("", |(_, rest)| rest),
        };
    }
    let mut sections: Vec<Section> = Vec::new();
    let mut is_example = false;
    for line in rest.lines().filter(|line| !line.trim().is_empty()) {
        if !line.starts_with(' ') {
            is_example = line.starts_with("Example") || line == "Install it:";
        }
        if !is_example {
            push_line(&mut sections, line);
        }
    }
    let usage = usage.lines().map(|line| line.trim().to_owned());
    let usage = usage.filter(|line| !["[OPTIONS]", &spelling].contains(&&**line)).collect();
    CommandHelp { spelling, about: summary(about), usage, sections }
}

/// Adds a line of help after the usage.
fn push_line(sections: &mut Vec<Section>, line: &str) {
    let text = line.trim();
    let indent = line.len() - line.trim_start().len();
    if indent == 0 {
        sections.push(Section { title: own_exit_codes(text), entries: Vec::new() });
        return;
    }
    let entries = &mut sections.last_mut().unwrap().entries;
    if indent < 8 {
        let (syntax, text) = text.split_once("  ").unwrap_or((text, ""));
        let (syntax, text) = (syntax.to_owned(), text.trim().to_owned());
        entries.push(Entry { syntax, text });
        return;
    }
    let meaning = &mut entries.last_mut().unwrap().text;
    if let Some((value, _)) = text.strip_prefix("- ").and_then(|text| text.split_once(':')) {
        *meaning = match meaning.strip_suffix(']').filter(|text| text.contains("[possible values"))
        {
            Some(values) => format!("{values}, {value}]"),
            None => format!("{meaning} [possible values: {value}]"),
        };
    } else if !text.starts_with(|first: char| first.is_uppercase()) {
        // Not another sentence, which only `--help` has.
        *meaning = format!("{meaning} {text}").trim_start().to_owned();
    } else if meaning.is_empty() {
        meaning.push_str(text);
    }
}

/// The first paragraph of what a command is, and what the others say of exit codes.
fn summary(about: &str) -> String {
    let mut paragraphs = about.trim().split("\n\n");
    let first = paragraphs.next().unwrap().trim_end_matches('.');
    let mut summary = format!("{first}.");
    for paragraph in paragraphs {
        let mut sentences = paragraph.split(". ");
        let code = sentences.find(|text| text.starts_with("The exit code is"));
        let codes = Some(paragraph).filter(|text| text.starts_with("Exit codes"));
        if let Some(codes) = codes.or(code) {
            write!(summary, "\n\n{}", own_exit_codes(codes.trim_end_matches('.'))).unwrap();
        }
    }
    summary
}

/// A line without the exit codes that the introduction explains for every command.
fn own_exit_codes(line: &str) -> String {
    let line = line.replace(" 2 usage error,", "").replace(", 2 usage error", "");
    let shared = Regex::new(concat!(
        r"(?:, 126 (?:configuration error|a file has a mistake|the plan has an error(?: or runs do not start)?|",
        r"the agent(?: or a test)? does not load))?(?:, 130 (?:interrupted|stopped))?$",
    ))
    .unwrap();
    shared.replace(&line, "").into_owned()
}

/// The entries that several commands have, by their syntax: of several texts the most frequent one.
fn shared_entries(commands: &[CommandHelp]) -> BTreeMap<String, Entry> {
    let mut counts: BTreeMap<&Entry, usize> = BTreeMap::new();
    for entry in commands.iter().flat_map(CommandHelp::entries) {
        *counts.entry(entry).or_default() += 1;
    }
    let mut shared: BTreeMap<String, (usize, Entry)> = BTreeMap::new();
    for (entry, count) in counts.into_iter().filter(|(_, count)| *count > 1) {
        let best = shared.entry(entry.syntax.clone()).or_insert((0, entry.clone()));
        if count > best.0 {
            *best = (count, entry.clone());
        }
    }
    shared.into_iter().map(|(syntax, (_, entry))| (syntax, entry)).collect()
}

impl CommandHelp {
    fn entries(&self) -> impl Iterator<Item = &Entry> {
        let entries = self.sections.iter().flat_map(|section| &section.entries);
        entries.filter(|entry| entry.syntax != "-h, --help")
    }
}

impl Entry {
    fn is_option(&self) -> bool {
        self.syntax.starts_with('-')
    }

    /// The name by which it is sorted.
    fn long(&self) -> &str {
        self.syntax.split_once(", ").map_or(&*self.syntax, |(_, long)| long)
    }

    /// The shortest way to write an option: `-w` of `-w, --work-dir <DIR>`.
    fn short(&self) -> &str {
        self.syntax.split([',', ' ', '[', '=']).next().unwrap()
    }
}

fn push_groups(reference: &mut String, shared: &BTreeMap<String, Entry>) {
    *reference += "\n## Options of several commands\n";
    for (title, members) in GROUPS {
        writeln!(reference, "\n### {title}\n").unwrap();
        let is_in_group = |entry: &Entry| match title {
            "Arguments" => !entry.is_option(),
            "Others" => {
                entry.is_option()
                    && !GROUPS.iter().any(|(_, names)| names.contains(&&*entry.syntax))
            }
            _ => members.contains(&&*entry.syntax),
        };
        push_entries(reference, shared.values().filter(|entry| is_in_group(entry)));
    }
}

fn push_entries<'a>(reference: &mut String, entries: impl Iterator<Item = &'a Entry>) {
    let mut entries: Vec<&Entry> = entries.collect();
    entries.sort_by_key(|entry| (!entry.is_option(), entry.long()));
    for entry in entries {
        writeln!(reference, "- `{}`: {}", entry.syntax, entry.text).unwrap();
    }
}

fn push_command(reference: &mut String, command: &CommandHelp, shared: &BTreeMap<String, Entry>) {
    let heading = if command.spelling.contains(' ') { "###" } else { "##" };
    writeln!(reference, "\n{heading} {}\n", command.spelling).unwrap();
    for usage in &command.usage {
        writeln!(reference, "`{usage}`\\").unwrap();
    }
    writeln!(reference, "{}", command.about).unwrap();
    let is_shared = |entry: &&Entry| shared.get(&entry.syntax) == Some(*entry);
    for section in &command.sections {
        let mut own = section.entries.iter().filter(|entry| !is_shared(entry)).peekable();
        let is_plain = ["Arguments:", "Options:", "Other options:"].contains(&&*section.title);
        if !is_plain && (own.peek().is_some() || section.entries.is_empty()) {
            writeln!(reference, "\n{}", section.title).unwrap();
        }
        let mut entries = String::new();
        push_entries(&mut entries, own.filter(|entry| entry.syntax != "-h, --help"));
        if !entries.is_empty() {
            write!(reference, "\n{entries}").unwrap();
        }
    }
    let mut options: Vec<&str> = command
        .entries()
        .filter(is_shared)
        .filter(|entry| entry.is_option())
        .map(|entry| &*entry.syntax)
        .collect();
    let mut names = Vec::new();
    for (title, members) in GROUPS.iter().filter(|(_, members)| !members.is_empty()) {
        if members.iter().all(|member| options.contains(member)) {
            options.retain(|option| !members.contains(option));
            let anchor = title.to_lowercase().replace(' ', "-");
            names.push(format!("[{}](#{anchor})", title.to_lowercase()));
        }
    }
    names.extend(options.iter().map(|syntax| format!("`{}`", shared[*syntax].short())));
    if !names.is_empty() {
        writeln!(reference, "\nAlso: {}.", names.join(", ")).unwrap();
    }
}
