//! `delta init`: a new agent from a template. It makes files that are not there, and never changes one that is.

use super::failure::Failure;
use super::schema::Name as Schema;
use super::{drive, stdout};
use crate::durable;
use crate::signal::Cancel;
use crate::terminal;
use crate::text::{printable, shell_word};
use clap::{Args, ValueEnum};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make a new agent from a template
///
/// Writes agent.yaml, system_prompt.md, context.yaml, a script that stands in for the LLM, schemas for editors, and what
/// else the template has. Nothing is overwritten: the directory must be new, or empty but for .git. Its path goes to stdout.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct InitArgs {
    /// The directory of the agent, whose last part is the agent's name; the current one by default
    name: Option<PathBuf>,
    /// What to begin with (asked for at a terminal)
    #[arg(short, long, value_enum)]
    template: Option<Template>,
    /// Never ask: take the template `minimal`
    #[arg(short, long)]
    yes: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta init my-agent                    asks for the template
  delta init -t file-ops agents/editor
  cd \"$(delta init -y my-agent)\" && delta run --model script:script.yaml -m \"What is here?\"";

/// What an agent is begun with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Template {
    /// One tool, the place to begin
    Minimal,
    /// Each form of a tool once
    HelloWorld,
    /// Reads, writes, lists and searches files
    FileOps,
    /// Tries an HTTP API with curl
    ApiTester,
}

/// A file of a template: where it goes, and what is in it.
type File = (&'static str, &'static str);

/// The files of a template that lie in `templates/`.
macro_rules! files {
    ($dir:literal: $($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../templates/", $dir, "/", $path)))),*]
    };
}

/// What every template has.
const COMMON: &[File] = &[
    ("context.yaml", include_str!("../../templates/common/context.yaml")),
    (".gitignore", include_str!("../../templates/common/gitignore")),
];

/// The agent's name in the templates.
const PLACEHOLDER: &str = "my-agent";

impl Template {
    fn files(self) -> &'static [File] {
        match self {
            Self::Minimal => {
                files!(
                    "minimal": "agent.yaml", "system_prompt.md", "script.yaml", "README.md",
                    "tests/looks.yaml",
                )
            }
            Self::HelloWorld => files!(
                "hello-world": "agent.yaml", "system_prompt.md", "script.yaml", "README.md",
                "tools/greet.sh", "tests/greets.yaml",
            ),
            Self::FileOps => files!(
                "file-ops": "agent.yaml", "system_prompt.md", "script.yaml", "README.md",
                "tools/inside", "tools/save", "tools/search", "tests/stays-inside.yaml",
            ),
            Self::ApiTester => files!(
                "api-tester": "agent.yaml", "system_prompt.md", "script.yaml", "README.md",
                "tools/request", "tools/check-status", "tests/only-http.yaml",
            ),
        }
    }

    /// A message for the first run.
    fn task(self) -> &'static str {
        match self {
            Self::Minimal => "What is here?",
            Self::HelloWorld => "Ada",
            Self::FileOps => "Water the plants",
            Self::ApiTester => "http://127.0.0.1:8000/",
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Makes an agent; gives the exit code.
pub fn init(args: &InitArgs) -> ExitCode {
    let dir = args.name.clone().unwrap_or_else(|| PathBuf::from("."));
    let name = match agent_name(&dir) {
        Ok(name) => name,
        Err(message) => return super::usage_error("init", &message),
    };
    let default = args.yes.then_some(Template::Minimal);
    let template = args.template.or(default);
    if template.is_none() && !terminal::can_ask() {
        let names = Template::value_variants().iter().map(|template| template.name());
        let names = names.collect::<Vec<_>>().join(", ");
        let message = format!(
            "no terminal to ask for the template: give `-t TEMPLATE` ({names}), or `-y` for minimal"
        );
        return super::usage_error("init", &message);
    }
    match perform(&dir, &name, template) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.complain(),
    }
}

fn perform(dir: &Path, name: &str, template: Option<Template>) -> Result<(), Failure> {
    refuse_occupied(dir)?;
    let template = match template {
        Some(template) => template,
        None => choose(&drive::cancel()?)?,
    };
    let mut made = Made::default();
    if let Err(error) = write(dir, name, template, &mut made) {
        let left = made.take_back();
        let hint = (!left.is_empty()).then(|| format!("left behind: {}", shown(&left)));
        return Err(Failure::from(error).with_hint(hint));
    }
    stdout::write(&format!("{}\n", dir.display()));
    let agent = shell_word(&dir.to_string_lossy());
    let task = shell_word(template.task());
    stdout::complain(&format!(
        "The agent `{name}` is made, from the template {}.",
        template.name()
    ));
    stdout::complain("Try it without a key:");
    stdout::complain(&format!("  delta run --agent {agent} --model script:script.yaml -m {task}"));
    stdout::complain("With the model in its agent.yaml:");
    stdout::complain(&format!("  DELTA_API_KEY=... delta run --agent {agent} -m {task}"));
    Ok(())
}

/// The name of the agent in `dir`: the last part of its path.
fn agent_name(dir: &Path) -> Result<String, String> {
    let real = match dir.file_name() {
        Some(_) => dir.to_owned(),
        // `.` and `..` have a name only where they lead.
        None => dir.canonicalize().map_err(|error| format!("{}: {error}", dir.display()))?,
    };
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    let fine = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        && name.len() <= 64
        // In YAML that is no text.
        && !name.eq_ignore_ascii_case("null");
    match fine {
        true => Ok(name.into_owned()),
        false => Err(format!(
            "`{}` is no name for an agent: write `delta init NAME` with 1 to 64 letters, digits, `.`, `_` or `-`, beginning with a letter",
            printable(&name)
        )),
    }
}

/// What is there is somebody's work.
fn refuse_occupied(dir: &Path) -> Result<(), Failure> {
    let hint = "name a directory that is not there yet: `delta init NAME`";
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries.flatten(),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !dir.is_symlink() => return Ok(()),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::NotFound) =>
        {
            return Err(Failure::exists(format!("{} is not a directory", dir.display()), hint));
        }
        Err(source) => {
            let error = durable::FileError { action: "read", path: dir.to_owned(), source };
            return Err(error.into());
        }
    };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.file_name().into()).collect();
    found.retain(|name| name != Path::new(".git"));
    found.sort();
    if found.is_empty() {
        return Ok(());
    }
    let message =
        format!("{} is not empty, and nothing is overwritten: {}", dir.display(), shown(&found));
    Err(Failure::exists(message, hint))
}

/// Some paths for a message.
fn shown(paths: &[PathBuf]) -> String {
    const MOST: usize = 5;
    let mut names: Vec<String> =
        paths.iter().take(MOST).map(|path| printable(&path.to_string_lossy())).collect();
    if paths.len() > MOST {
        names.push(format!("{} more", paths.len() - MOST));
    }
    names.join(", ")
}

fn choose(cancel: &Cancel) -> Result<Template, Failure> {
    let all = Template::value_variants();
    let mut prompt = String::from("Template?\n");
    for (index, template) in all.iter().enumerate() {
        let value = template.to_possible_value();
        let about = value.as_ref().and_then(|value| value.get_help()).map(ToString::to_string);
        let about = about.unwrap_or_default();
        prompt.push_str(&format!("  {}) {:<13}{about}\n", index + 1, template.name()));
    }
    prompt.push_str("choose [1]> ");
    loop {
        let answer = terminal::ask(&prompt, cancel).map_err(|error| {
            let hint = "name one with `-t TEMPLATE`, or give `-y` for minimal";
            Failure::unanswered("no template was chosen", &error, hint)
        })?;
        let answer = answer.trim();
        let number = if answer.is_empty() { Some(1) } else { answer.parse::<usize>().ok() };
        let by_number = number.and_then(|number| all.get(number.checked_sub(1)?).copied());
        if let Some(template) = by_number.or_else(|| Template::from_str(answer, true).ok()) {
            return Ok(template);
        }
        prompt = format!("`{answer}` is not among them; a number or a name> ");
    }
}

fn write(
    dir: &Path,
    name: &str,
    template: Template,
    made: &mut Made,
) -> Result<(), durable::FileError> {
    let files = template.files().iter().chain(COMMON);
    let files = files.map(|(path, text)| ((*path).to_owned(), content(path, text, name)));
    let schemas = Schema::value_variants().iter().map(|schema| (schema.path(), schema.text()));
    for (path, text) in files.chain(schemas) {
        let file = dir.join(&path);
        made.ensure_parents(&file)?;
        durable::write_new_shared(&file, text.as_bytes(), path.starts_with("tools/"))?;
        made.0.push(file);
    }
    Ok(())
}

/// A file of a template, for the agent `name`. Editors complete and check a YAML file by what its first line names.
fn content(path: &str, text: &str, name: &str) -> String {
    let text = text.replace(PLACEHOLDER, name);
    match Schema::of_file(path) {
        Some(schema) => {
            let up = "../".repeat(path.matches('/').count());
            format!("# yaml-language-server: $schema={up}{}\n{text}", schema.path())
        }
        None => text,
    }
}

/// What was made so far, the outermost first.
#[derive(Default)]
struct Made(Vec<PathBuf>);

impl Made {
    fn ensure_parents(&mut self, file: &Path) -> Result<(), durable::FileError> {
        let parents = file.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty());
        let missing: Vec<&Path> = parents.take_while(|dir| !dir.exists()).collect();
        for dir in missing.into_iter().rev() {
            durable::ensure_dir(dir, false)?;
            self.0.push(dir.to_owned());
        }
        Ok(())
    }

    /// Removes it all; gives what could not be removed. A directory that holds something of somebody else's stays.
    fn take_back(self) -> Vec<PathBuf> {
        let remove = |path: &PathBuf| match path.is_dir() {
            true => fs::remove_dir(path),
            false => fs::remove_file(path),
        };
        self.0.into_iter().rev().filter(|path| remove(path).is_err()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::DEFAULT_MANIFEST;
    use std::collections::BTreeSet;

    /// The files below `dir`, relative to `root`.
    fn files_below(root: &Path, dir: &Path) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => found.extend(files_below(root, &path)),
                false => {
                    found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        found
    }

    #[test]
    fn c_11_4_every_file_of_a_template_is_written() {
        let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
        let mut dirs = BTreeSet::from(["common".to_owned()]);
        for template in Template::value_variants() {
            let dir = templates.join(template.name());
            let listed = template.files().iter().map(|(path, _)| (*path).to_owned()).collect();
            assert_eq!(files_below(&dir, &dir), listed);
            dirs.insert(template.name());
        }
        let there = fs::read_dir(&templates).unwrap();
        let there = there.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(dirs, there);
    }

    #[test]
    fn c_11_4_the_context_is_the_default_one() {
        let (name, text) = COMMON[0];
        let plain = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with('#');
        let lines: Vec<&str> = text.lines().filter(plain).collect();
        assert_eq!((name, lines), ("context.yaml", DEFAULT_MANIFEST.lines().collect()));
    }

    #[test]
    fn c_11_4_names_are_plain() {
        for good in ["a", "agents/my-agent", "../x.y_z", &"a".repeat(64)] {
            let last = good.rsplit('/').next().unwrap();
            assert_eq!(agent_name(Path::new(good)), Ok(last.to_owned()));
        }
        for bad in ["-a", "a b", "ä", "1", "a\nb", ".hidden", "x/a:b", "Null", &"a".repeat(65)] {
            assert!(agent_name(Path::new(bad)).is_err(), "{bad:?}");
        }
    }
}
