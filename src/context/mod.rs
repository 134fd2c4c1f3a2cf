//! context.yaml, and the messages that it makes of files, generators and the conversation (the specification's
//! ContextBuilder).
//!
//! What the LLM sees is a function of the journal, the configuration and the files that context.yaml names.

use crate::conversation::Conversation;
use crate::llm::Message;
use crate::process::{Command, End};
use crate::signal::Cancel;
use crate::vars::Vars;
use crate::yaml::{Document, Fields, Node};
use std::borrow::Cow;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The content that the message for a missing context.yaml shows.
pub const DEFAULT_MANIFEST: &str = "\
sources:
  - type: file
    id: system_prompt
    path: '${AGENT_HOME}/system_prompt.md'
  - type: file
    id: workspace_guide
    path: '${CWD}/DELTA.md'
    on_missing: skip
  - type: journal
    id: conversation_history
";

/// The file that says what the agent is.
pub const SYSTEM_PROMPT: &str = "system_prompt.md";

/// The environment variable by which what a generator leaves behind is found when its time is up.
pub const MARK: (&str, &str) = ("DELTA_GENERATOR", "1");

/// The clock that stamps files may lag behind by this much.
const FILE_CLOCK: Duration = Duration::from_millis(20);

/// A loaded context.yaml.
#[derive(Debug, Clone)]
pub struct Manifest {
    sources: Vec<Source>,
}

#[derive(Debug, Clone)]
enum Source {
    File { id: Option<String>, path: String, skip_missing: bool },
    Computed { id: Option<String>, generator: Generator, output: String, skip_missing: bool },
    Journal { max_iterations: Option<usize> },
}

/// A command that writes a file for the context.
#[derive(Debug, Clone)]
pub struct Generator {
    /// The program and its arguments; engine variables are still to be filled in.
    pub command: Vec<String>,
    /// Milliseconds before it is ended.
    pub timeout_ms: u64,
    /// Key variables that it is given all the same.
    pub pass_env: Vec<String>,
}

/// Why there is no context.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The stop was asked for while a generator ran.
    #[error("interrupted")]
    Cancelled,
    /// A source gives nothing.
    #[error("context source `{source_id}`: {reason}")]
    Source {
        /// Its id, or the name of its file.
        source_id: String,
        /// Why.
        reason: String,
    },
}

impl Manifest {
    /// Reads context.yaml; what is wrong goes into the document's report.
    pub fn read(doc: &Document) -> Option<Self> {
        let fields = doc.fields(&doc.root, "context.yaml", &["sources"])?;
        let node = doc.require(fields, "sources", "context.yaml", "[{type: journal}]")?;
        let items = doc.list(node, "`sources`")?;
        if items.is_empty() {
            doc.fault(node, "`sources` is empty, so the LLM would see nothing", None);
        }
        Some(Self { sources: items.iter().filter_map(|item| Source::read(doc, item)).collect() })
    }

    /// The messages of the next request.
    ///
    /// `launch` gives a generator its surroundings.
    pub fn build<'a>(
        &self,
        vars: &Vars,
        conversation: &'a Conversation,
        cancel: &Cancel,
        launch: &dyn Fn(&Generator) -> crate::process::Launch,
    ) -> Result<Vec<Message<'a>>, ContextError> {
        let mut messages = Vec::new();
        for source in &self.sources {
            match source {
                Source::Journal { max_iterations } => {
                    messages.extend(conversation.messages(*max_iterations))
                }
                Source::File { id, path, skip_missing } => {
                    let path = resolve(path, vars);
                    messages.extend(block(id.as_deref(), &path, *skip_missing)?);
                }
                Source::Computed { id, generator, output, skip_missing } => {
                    let path = resolve(output, vars);
                    let name = name_of(id.as_deref(), &path);
                    generate(generator, &path, vars, cancel, launch).map_err(|failure| {
                        match failure {
                            None => ContextError::Cancelled,
                            Some(reason) => {
                                ContextError::Source { source_id: name.into_owned(), reason }
                            }
                        }
                    })?;
                    messages.extend(block(id.as_deref(), &path, *skip_missing)?);
                }
            }
        }
        Ok(messages)
    }
}

impl Source {
    fn read(doc: &Document, node: &Node) -> Option<Self> {
        let open = doc.open_fields(node, "a source")?;
        let kind_node = doc.require(open, "type", "a source", "file")?;
        let kind = doc.text(kind_node, "`type`")?;
        let keys: &[&str] = match kind {
            "file" => &["type", "id", "path", "on_missing"],
            "computed_file" => &["type", "id", "generator", "output_path", "on_missing"],
            "journal" => &["type", "id", "max_iterations"],
            other => {
                let help = crate::text::did_you_mean(other, ["file", "computed_file", "journal"]);
                doc.fault(kind_node, format!("`{other}` is not a type of source"), Some(help));
                return None;
            }
        };
        let fields = doc.fields(node, &format!("a `{kind}` source"), keys)?;
        let id = fields.given("id").and_then(|node| doc.text(node, "`id`")).map(str::to_owned);
        let path = |key: &str, example: &str| {
            let node = doc.require(fields, key, &format!("a `{kind}` source"), example)?;
            doc.text(node, &format!("`{key}`")).map(str::to_owned)
        };
        let skip_missing = read_on_missing(doc, fields);
        match kind {
            "file" => Some(Self::File {
                id,
                path: path("path", "'${CWD}/DELTA.md'")?,
                skip_missing: skip_missing?,
            }),
            "computed_file" => {
                let output = path("output_path", "'${RUN_DIR}/summary.md'");
                let generator = doc.require(
                    fields,
                    "generator",
                    "a `computed_file` source",
                    "{command: [PROGRAM]}",
                );
                let generator = generator.and_then(|node| Generator::read(doc, node));
                Some(Self::Computed {
                    id,
                    generator: generator?,
                    output: output?,
                    skip_missing: skip_missing?,
                })
            }
            _ => {
                let limit = fields
                    .given("max_iterations")
                    .map(|node| doc.integer(node, "`max_iterations`", 1..1 << 32));
                let max_iterations = match limit {
                    None => None,
                    Some(limit) => Some(usize::try_from(limit?).unwrap_or(usize::MAX)),
                };
                Some(Self::Journal { max_iterations })
            }
        }
    }
}

fn read_on_missing(doc: &Document, fields: Fields<'_>) -> Option<bool> {
    let Some(node) = fields.given("on_missing") else { return Some(false) };
    match node.scalar() {
        Some("skip") => Some(true),
        Some("error") => Some(false),
        _ => {
            doc.fault(node, "`on_missing` must be `skip` or `error`", None);
            None
        }
    }
}

impl Generator {
    fn read(doc: &Document, node: &Node) -> Option<Self> {
        let fields = doc.fields(node, "a generator", &["command", "timeout_ms", "pass_env"])?;
        let command_node = doc.require(fields, "command", "a generator", "[PROGRAM, ARG]")?;
        let command = doc.texts(command_node, "`command`")?;
        if command.first().is_none_or(String::is_empty) {
            doc.fault(
                command_node,
                "`command` names no program",
                Some("write `[PROGRAM, ARG, ...]`".to_owned()),
            );
            return None;
        }
        let timeout =
            fields.given("timeout_ms").map(|node| doc.integer(node, "`timeout_ms`", 1..1 << 32));
        let pass_env = fields.given("pass_env").map(|node| doc.texts(node, "`pass_env`"));
        Some(Self {
            command,
            timeout_ms: timeout.map_or(Some(30_000), |given| given)?,
            pass_env: pass_env.map_or(Some(Vec::new()), |given| given)?,
        })
    }
}

/// A path of context.yaml: variables filled in, relative to the agent directory.
fn resolve(path: &str, vars: &Vars) -> PathBuf {
    let path = vars.agent_home.join(vars.fill(path));
    let prompt = path.parent() == Some(&vars.agent_home) && path.ends_with(SYSTEM_PROMPT);
    if prompt { or_text_form(path) } else { path }
}

/// system_prompt.txt where system_prompt.md is absent.
pub fn or_text_form(path: PathBuf) -> PathBuf {
    let text_form = path.with_extension("txt");
    let stands_in = path.ends_with(SYSTEM_PROMPT) && !path.exists() && text_form.exists();
    if stands_in { text_form } else { path }
}

fn name_of<'a>(id: Option<&'a str>, path: &'a Path) -> Cow<'a, str> {
    match id {
        Some(id) => Cow::Borrowed(id),
        None => path.file_name().unwrap_or(path.as_os_str()).to_string_lossy(),
    }
}

/// The message of a file; none when it is missing and may be.
fn block<'a>(
    id: Option<&str>,
    path: &Path,
    skip_missing: bool,
) -> Result<Option<Message<'a>>, ContextError> {
    let name = name_of(id, path);
    match fs::read(path) {
        Ok(bytes) => {
            let content = format!("# Context Block: {name}\n\n{}", String::from_utf8_lossy(&bytes));
            Ok(Some(Message::System { content: Cow::Owned(content) }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && skip_missing => Ok(None),
        Err(error) => {
            let hint = if error.kind() == io::ErrorKind::NotFound {
                " (`on_missing: skip` would leave it out)"
            } else {
                ""
            };
            let reason = format!("{} cannot be read: {error}{hint}", path.display());
            Err(ContextError::Source { source_id: name.into_owned(), reason })
        }
    }
}

/// Runs a generator. `None` as the error means that the stop was asked for.
fn generate(
    generator: &Generator,
    output: &Path,
    vars: &Vars,
    cancel: &Cancel,
    launch: &dyn Fn(&Generator) -> crate::process::Launch,
) -> Result<(), Option<String>> {
    let before = identity(output);
    // A rewrite within the same tick of the file system's clock could not be told from no rewrite at all.
    let age = fs::metadata(output)
        .and_then(|metadata| metadata.modified())
        .map(|modified| modified.elapsed());
    if let Ok(Ok(age)) = age
        && age < FILE_CLOCK
        && cancel.wait(FILE_CLOCK - age)
    {
        return Err(None);
    }
    let argv: Vec<String> = generator.command.iter().map(|word| vars.fill(word)).collect();
    let launch = launch(generator);
    let run_dir = vars.run_dir.to_string_lossy();
    let finished = crate::process::run(
        &Command {
            argv: &argv,
            launch: &launch,
            stdin: &[],
            timeout: Duration::from_millis(generator.timeout_ms),
            spool: None,
            keep: 4096,
            keep_all: false,
            marks: &[("RUN_DIR", &run_dir), MARK],
        },
        cancel,
    );
    let stderr = String::from_utf8_lossy(&finished.stderr.head).trim().to_owned();
    let said = if stderr.is_empty() { String::new() } else { format!(":\n{stderr}") };
    let program = &argv[0];
    match finished.end {
        End::Exited(0) => {}
        End::Cancelled => return Err(None),
        End::Exited(code) => {
            return Err(Some(format!(
                "the generator `{program}` left with exit code {code}{said}"
            )));
        }
        End::Killed(signal) => {
            let signal = crate::process::signal_name(signal);
            return Err(Some(format!("the generator `{program}` was killed by {signal}{said}")));
        }
        End::TimedOut => {
            let millis = generator.timeout_ms;
            return Err(Some(format!(
                "the generator `{program}` was not done after {millis} ms{said}"
            )));
        }
        End::NotStarted { reason, .. } => {
            return Err(Some(format!("the generator could not be started: {reason}")));
        }
    }
    match before {
        Some(before) if identity(output) == Some(before) => Err(Some(format!(
            "the generator `{program}` left {} as it was, so that is not its answer{said}",
            output.display()
        ))),
        _ => Ok(()),
    }
}

/// What changes when a file is written.
fn identity(path: &Path) -> Option<(u64, u64, i64, i64, i64, i64)> {
    let of =
        |m: Metadata| (m.ino(), m.size(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
    fs::metadata(path).ok().map(of)
}
