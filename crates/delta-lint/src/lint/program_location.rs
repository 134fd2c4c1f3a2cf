//! `program-not-found`, `program-not-executable`, `relative-program`: programs that a command cannot start.

use super::command_view::wrapper_program::strip_path_wrappers;
use super::command_view::{self, LintWord, WordPart};
use super::program_table::SHELL_BUILTINS;
use super::{Linter, ToolSubject, shell_script};
use delta_agent::tool::{Tool, ToolSyntax};
use delta_base::engine_variables::{EngineVariable, StringPart, parse_plain_string};
use delta_process::{self as process, LaunchContext, ProgramDefect, ProgramError};
use delta_shell::ShellOutline;
use delta_yaml::yaml::{YamlDocument, YamlNode};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;

pub(super) fn check_programs(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    for command in &subject.commands {
        let wrapped = strip_path_wrappers(&command.words);
        let has_wrapper = wrapped.len() < command.words.len();
        let programs = [command.words.first(), wrapped.first().filter(|_| has_wrapper)];
        for program in programs.into_iter().flatten() {
            if !subject.has_shell() || !is_handled_by_script(subject, &program.display_text()) {
                check_program(subject, program, linter);
            }
        }
    }
}

/// Whether the shell runs the command itself, or the script checks whether the program exists.
fn is_handled_by_script(subject: &ToolSubject<'_>, name: &str) -> bool {
    let is_function = subject
        .outline
        .as_ref()
        .is_some_and(|outline| outline.functions.iter().any(|function| function == name));
    let is_probed = ["command -v ", "which ", "type ", "hash "]
        .iter()
        .any(|probe| subject.tool.template.contains(&format!("{probe}{name}")));
    is_function
        || is_probed
        || SHELL_BUILTINS.contains(&name)
        || shell_script::is_bash_command(name)
}

/// Whether a command of the tool may need a program that is missing. Cheaper than a lint, which decides.
pub(super) fn may_lack_program(tool: &Tool, launch: &LaunchContext, home: &Path) -> bool {
    // delta starts itself for it.
    if tool.mcp.is_some() {
        return false;
    }
    let outline = match tool.syntax {
        ToolSyntax::Shell => ShellOutline::from_template(&tool.template).ok(),
        ToolSyntax::Exec | ToolSyntax::Command => None,
    };
    let commands = match &outline {
        Some(outline) => command_view::outline_commands(outline, tool),
        None if tool.syntax == ToolSyntax::Shell => return false,
        None => vec![command_view::argv_command(tool)],
    };
    let programs = commands
        .iter()
        .flat_map(|command| [command.words.first(), strip_path_wrappers(&command.words).first()]);
    let Some(launch) = launch_of(tool, launch, home) else { return false };
    programs.flatten().any(|program| {
        let path = match ProgramLocation::from_parts(&program.parts) {
            Some(ProgramLocation::Fixed(name)) => name,
            Some(ProgramLocation::AgentHome(path)) => home.join(path).display().to_string(),
            Some(ProgramLocation::Relative(_)) | None => return false,
        };
        let is_in_script = outline.as_ref().is_some_and(|outline| {
            outline.functions.contains(&path)
                || SHELL_BUILTINS.contains(&&*path)
                || shell_script::is_bash_command(&path)
        });
        !is_in_script && process::find_program(&path, &launch).is_err()
    })
}

fn check_program(subject: &ToolSubject<'_>, program: &LintWord, linter: &mut Linter<'_>) {
    let Some(location) = ProgramLocation::from_parts(&program.parts) else { return };
    let Some(launch) = launch_of(subject.tool, linter.launch, linter.home) else { return };
    if let Some(problem) = location.find_problem(linter, &launch, subject.has_shell()) {
        let fragment = program.display_text();
        let diagnostic = subject.diagnostic_at(&fragment, problem.message, problem.help);
        linter.warn(problem.rule, diagnostic);
    }
}

/// How a call of the tool starts, as far as programs are looked for; `None` if only a run knows its PATH.
fn launch_of<'a>(
    tool: &Tool,
    launch: &'a LaunchContext,
    home: &Path,
) -> Option<Cow<'a, LaunchContext>> {
    let Some((name, value)) = tool.env.iter().find(|(name, _)| name == "PATH") else {
        return Some(Cow::Borrowed(launch));
    };
    let pieces = parse_plain_string(value).into_iter().map(|piece| match piece {
        StringPart::Text(text) => Some(text),
        StringPart::Variable(EngineVariable::AgentHome) => Some(home.display().to_string()),
        StringPart::Variable(_) => None,
    });
    let mut launch = launch.clone();
    launch.env.set(name, pieces.collect::<Option<String>>()?);
    Some(Cow::Owned(launch))
}

/// Checks the program of a command in agent.yaml, context.yaml or hooks.yaml that is not a tool.
pub(super) fn check_program_node(doc: &YamlDocument, node: &YamlNode, linter: &mut Linter<'_>) {
    let Some(text) = node.scalar() else { return };
    let word = LintWord::from_plain_string(text);
    let Some(location) = ProgramLocation::from_parts(&word.parts) else { return };
    if let Some(problem) = location.find_problem(linter, linter.launch, false) {
        linter.warn(problem.rule, doc.diagnostic_at(node, problem.message, problem.help));
    }
}

/// Where a run looks for a program.
enum ProgramLocation {
    /// In the agent directory, at this path.
    AgentHome(String),
    /// At an absolute path, or in PATH.
    Fixed(String),
    /// At a path relative to the workspace of the run.
    Relative(String),
}

/// Why a command cannot start its program.
#[derive(Debug, Clone)]
struct ProgramProblem {
    rule: &'static str,
    message: String,
    help: String,
}

impl ProgramLocation {
    /// The location of a program; `None` if only a run knows it.
    fn from_parts(parts: &[WordPart]) -> Option<Self> {
        match parts {
            [WordPart::Variable(EngineVariable::AgentHome), WordPart::Text(rest)] => {
                rest.strip_prefix('/').map(|path| Self::AgentHome(path.to_owned()))
            }
            [WordPart::Text(text)] if text.contains('/') && !text.starts_with('/') => {
                Some(Self::Relative(text.clone()))
            }
            [WordPart::Text(text)] => Some(Self::Fixed(text.clone())),
            _ => None,
        }
    }

    fn find_problem(
        &self,
        linter: &Linter<'_>,
        launch: &LaunchContext,
        in_script: bool,
    ) -> Option<ProgramProblem> {
        match self {
            Self::Relative(name) => relative_program_problem(name, linter.home),
            Self::AgentHome(name) => {
                let path = linter.home.join(name).display().to_string();
                linter.known_programs.find_problem(&path, name, launch, in_script)
            }
            Self::Fixed(name) => linter.known_programs.find_problem(name, name, launch, in_script),
        }
    }
}

/// By PATH and path; `None` for a program that starts.
type ProblemsByPath = HashMap<(OsString, String), Option<ProgramProblem>>;

/// The programs that were looked up: many tools run the same ones.
#[derive(Debug, Default)]
pub(super) struct KnownPrograms {
    /// Outside of scripts and in scripts.
    problems: RefCell<[ProblemsByPath; 2]>,
}

impl KnownPrograms {
    /// [`find_program_problem`], once for each PATH and path.
    fn find_problem(
        &self,
        path: &str,
        name: &str,
        launch: &LaunchContext,
        in_script: bool,
    ) -> Option<ProgramProblem> {
        let problems = &mut self.problems.borrow_mut()[usize::from(in_script)];
        let key = (launch.env.get("PATH").unwrap_or_default().to_owned(), path.to_owned());
        problems
            .entry(key)
            .or_insert_with(|| find_program_problem(path, name, launch, in_script))
            .clone()
    }
}

/// The problem of a relative path, which a run resolves in the workspace and not in the agent directory.
fn relative_program_problem(name: &str, home: &Path) -> Option<ProgramProblem> {
    if name.starts_with('~') {
        return None;
    }
    let path = name.strip_prefix("./").unwrap_or(name);
    let (message, help) = if home.join(path).is_file() {
        (
            format!(
                "`{name}` is resolved in the workspace of the run, but the file is in the agent directory"
            ),
            format!("write `${{AGENT_HOME}}/{path}`"),
        )
    } else {
        (
            format!("`{name}` is resolved in the workspace of the run, which may not contain it"),
            format!(
                "write `${{AGENT_HOME}}/{path}` if it belongs to the agent; if the workspace contains it, write `x-lint-allow: [relative-program]`"
            ),
        )
    };
    Some(ProgramProblem { rule: "relative-program", message, help })
}

/// The problem of the program at `path`, which help texts call `name`.
fn find_program_problem(
    path: &str,
    name: &str,
    launch: &LaunchContext,
    in_script: bool,
) -> Option<ProgramProblem> {
    let ProgramError { defect, reason: message } = process::find_program(path, launch).err()?;
    let rule = match defect {
        ProgramDefect::NotFound => "program-not-found",
        _ => "program-not-executable",
    };
    let help = match defect {
        ProgramDefect::NotFound => not_found_help(path, name, in_script),
        ProgramDefect::NotExecutable => format!("make it executable: `chmod +x {name}`"),
        // A shell runs such a file as a script.
        ProgramDefect::NoShebang if in_script => return None,
        ProgramDefect::CarriageReturn => {
            format!("remove the carriage returns: `sed -i 's/\\r$//' {name}`")
        }
        ProgramDefect::NoShebang | ProgramDefect::NoInterpreter => {
            "begin it with `#!/bin/sh`, or with `#!` and the path of another program that exists"
                .to_owned()
        }
    };
    Some(ProgramProblem { rule, message, help })
}

fn not_found_help(path: &str, name: &str, in_script: bool) -> String {
    if !in_script && (SHELL_BUILTINS.contains(&path) || path == "source") {
        return format!(
            "`{path}` is a shell built-in, not a program: write `shell:` instead of `exec:`"
        );
    }
    if path.starts_with('~') {
        return "write the whole path; `~` is not expanded".to_owned();
    }
    if path != name {
        return "create it, and make it executable".to_owned();
    }
    "install it on the machine that runs the agent, or write its path".to_owned()
}
