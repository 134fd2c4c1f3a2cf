//! Agent Skills: directories with a SKILL.md, whose names and descriptions the LLM sees, and which it loads by name.
//!
//! A skill in the agent directory is its author's, and every mistake in it is an error. One in the workspace is read as
//! far as it can be used, with a warning. <https://agentskills.io/specification> has the format.

use delta_base::durable;
use delta_base::engine_variables::EngineVars;
use delta_base::text::utf8_text;
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use serde::{Deserialize, Serialize};
use skill_file::SkillFile;
use std::path::{Path, PathBuf};
use std::{fs, io};

mod skill_file;

/// The name of the built-in tool.
pub const SKILL_TOOL: &str = "skill";
/// How many files of a skill [`read_skill`] lists.
const MAX_LISTED_FILES: usize = 200;
const MAX_DESCRIPTION_CHARS: usize = 1024;
const MAX_SKILL_BYTES: u64 = 1 << 20;

/// A skill that the LLM is offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skill {
    /// Its name, which is also the name of its directory.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// The directory in which its directory is; engine variables are not yet replaced.
    pub root: String,
    /// The name of its file, `SKILL.md` or `skill.md`.
    pub file: String,
}

impl Skill {
    /// The path of its SKILL.md.
    pub fn location(&self, vars: &EngineVars) -> PathBuf {
        PathBuf::from(vars.expand_text(&self.root)).join(&self.name).join(&self.file)
    }
}

/// The names that the file of a skill may have.
const SKILL_FILES: [&str; 2] = ["SKILL.md", "skill.md"];

fn find_skill_file(dir: &Path) -> Option<&'static str> {
    SKILL_FILES.into_iter().find(|name| dir.join(name).exists())
}

/// Reads the author's skills in `dir`, which agent.yaml calls `root`. Every problem is added to `report`.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn read_author_skills(
    dir: &Path,
    root: &str,
    report: &mut DiagnosticReport,
) -> io::Result<Vec<Skill>> {
    let mut skills = Vec::new();
    for name in list_directories(dir)? {
        let (file, problems) = scan_skill(&dir.join(&name), &name);
        report.diagnostics.extend(problems.diagnostics);
        if let Some(SkillFile { description: Some(description), file }) = file {
            skills.push(Skill { name, description, root: root.to_owned(), file });
        }
    }
    Ok(skills)
}

/// Reads the skills of others in `dir`, which agent.yaml calls `root`, as far as they can be used, and each problem as a warning.
/// A directory that does not exist has none. What symlinks name outside of the workspace is left out.
pub(crate) fn read_project_skills(
    dir: &Path,
    root: &str,
    workspace: &Path,
) -> (Vec<Skill>, Vec<String>) {
    let mut skills = Vec::new();
    let mut warnings = Vec::new();
    let names = match list_directories(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            warnings.push(format!("Warning: could not read {}: {error}", dir.display()));
            Vec::new()
        }
    };
    for name in names {
        let path = dir.join(&name);
        // Other files may be in such a directory, too.
        let Some(skill_file) = find_skill_file(&path) else { continue };
        if leads_out(&path.join(skill_file), dir, workspace) {
            warnings.push(format!(
                "Warning: {}: a symlink leads out of the workspace; the skill is not offered",
                path.display()
            ));
            continue;
        }
        let (file, problems) = scan_skill(&path, &name);
        let file = file.filter(|_| skill_file::is_skill_name(&name));
        let usable = file.and_then(|file| Some((file.description?, file.file)));
        let is_usable = usable.is_some();
        let effect = if is_usable { "" } else { "; the skill is not offered" };
        warnings.extend(problems.diagnostics.iter().map(|problem| {
            let Diagnostic { file, line, message, help, .. } = problem;
            let line = if *line > 0 { format!(":{line}") } else { String::new() };
            let help = help.as_ref().filter(|_| !is_usable);
            let help = help.map(|help| format!(": {help}")).unwrap_or_default();
            format!("Warning: {file}{line}: {message}{effect}{help}")
        }));
        if let Some((mut description, file)) = usable {
            if let Some((end, _)) = description.char_indices().nth(MAX_DESCRIPTION_CHARS) {
                description.truncate(end);
            }
            skills.push(Skill { name, description, root: root.to_owned(), file });
        }
    }
    (skills, warnings)
}

/// The skill in the directory `dir`, called `name`, as far as it can be read, and its problems.
fn scan_skill(dir: &Path, name: &str) -> (Option<SkillFile>, DiagnosticReport) {
    let mut report = DiagnosticReport::default();
    let file = find_skill_file(dir).ok_or_else(|| "it has no SKILL.md".to_owned());
    let text = file.and_then(|file| Ok((read_skill_text(dir, file)?, file)));
    let file = match text {
        Ok((text, file)) => SkillFile::parse(dir, file, &text, name, &mut report),
        Err(problem) => {
            let message = format!("could not read the skill: {problem}");
            report.push(Diagnostic::for_file(dir.display().to_string(), message, None));
            None
        }
    };
    (file, report)
}

fn read_skill_text(dir: &Path, file: &str) -> Result<String, String> {
    let dir = dir.canonicalize().map_err(|error| error.to_string())?;
    let bytes = durable::read_beneath(&dir, Path::new(file), MAX_SKILL_BYTES);
    let bytes = bytes.map_err(|error| error.to_string())?;
    utf8_text(bytes)
}

/// The names of the directories in `dir` that are not hidden, sorted.
/// Whether a file below `dir` is elsewhere than in the workspace although `dir` is in the workspace by its name.
fn leads_out(file: &Path, dir: &Path, workspace: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    dir.starts_with(workspace) && !real(file).starts_with(real(workspace))
}

fn list_directories(dir: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
    let mut names: Vec<String> = entries
        .iter()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// The catalogue that the LLM sees.
pub(crate) fn catalogue(skills: &[Skill], vars: &EngineVars) -> String {
    let mut text = format!(
        "A skill is a set of instructions for one kind of task. Before you work on a task that a description names, call `{SKILL_TOOL}` with its name.\n\n<available_skills>\n"
    );
    for skill in skills {
        text.push_str(&format!(
            "<skill>\n<name>{}</name>\n<description>{}</description>\n<location>{}</location>\n</skill>\n",
            escape_markup(&skill.name),
            escape_markup(&skill.description),
            escape_markup(&skill.location(vars).to_string_lossy()),
        ));
    }
    text.push_str("</available_skills>\n");
    text
}

fn escape_markup(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The instructions of the skill `name` in one of `roots`, and the list of its files: what the LLM sees when it loads
/// the skill.
///
/// # Errors
/// No such skill, or its file cannot be read; in words.
pub fn read_skill(roots: &[PathBuf], name: &str) -> Result<String, String> {
    if !skill_file::is_skill_name(name) {
        return Err(format!("`{name}` is not the name of a skill"));
    }
    if roots.is_empty() {
        return Err(format!("there is no skill `{name}`: the agent has no directory of skills"));
    }
    let mut dirs = roots.iter().map(|root| root.join(name));
    let skill = dirs.find_map(|dir| Some((find_skill_file(&dir)?, dir)));
    let Some((file, dir)) = skill else {
        let roots: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
        return Err(format!("there is no skill `{name}` in {}", roots.join(" or ")));
    };
    let path = dir.join(file).display().to_string();
    let text = read_skill_text(&dir, file)
        .map_err(|problem| format!("could not read {path}: {problem}"))?;
    let (_, body) = skill_file::split_front_matter(&text)
        .ok_or_else(|| format!("{path} has no front matter between two lines `---`"))?;
    let mut files = Vec::new();
    list_files(&dir, Path::new(""), &mut files);
    let rest = files.len().saturating_sub(MAX_LISTED_FILES);
    files.truncate(MAX_LISTED_FILES);
    let mut output = format!("{}\n\n", body.trim());
    output.push_str(&format!("Directory of this skill: {}\n", dir.display()));
    if !files.is_empty() {
        output.push_str("Its other files, relative to that directory:\n");
        files.iter().for_each(|file| output.push_str(&format!("- {file}\n")));
    }
    if rest > 0 {
        output.push_str(&format!("[{rest} more files]\n"));
    }
    Ok(output)
}

/// Adds the files below `dir`, as paths from it, sorted; hidden ones and what symlinks lead to are left out.
fn list_files(dir: &Path, below: &Path, files: &mut Vec<String>) {
    let entries = fs::read_dir(dir.join(below)).into_iter().flatten().flatten();
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let path = below.join(&name);
        let is_skill_file =
            below.as_os_str().is_empty() && SKILL_FILES.iter().any(|file| name == *file);
        if name.as_encoded_bytes().starts_with(b".") || is_skill_file {
            continue;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => list_files(dir, &path, files),
            Ok(kind) if kind.is_file() => files.push(path.to_string_lossy().into_owned()),
            Ok(_) | Err(_) => {}
        }
    }
}
