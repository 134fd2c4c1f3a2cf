//! context.yaml, and the messages that it makes of files, generators and the conversation (the specification's
//! ContextBuilder).
//!
//! What the LLM sees is a function of the journal, the configuration and the files that context.yaml names.

use crate::conversation::Conversation;
use crate::llm::Message;
use crate::process::{Command, End};
use crate::signal::Cancel;
use crate::vars::Vars;
use crate::yaml::shape::{Default, Key, Shape};
use crate::yaml::{Document, Mapping, Node};
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

/// context.yaml.
pub static CONTEXT: Mapping = Mapping {
    what: "context.yaml",
    about: "What the LLM sees, in order.",
    keys: &[Key::required(
        "sources",
        Shape::List(&Shape::Kinds { by: "type", kinds: &KINDS }),
        "Where it comes from.",
    )],
    one_of: &[],
    open: false,
};

static KINDS: [(&str, &Mapping); 3] =
    [("file", &FILE), ("computed_file", &COMPUTED_FILE), ("journal", &JOURNAL)];

const TYPE: Key = Key::required("type", Shape::Text, "What kind of source it is.");
const ID: Key = Key::optional("id", Shape::Text, "Its name, in the heading that the LLM sees.");
const SKIP: &str = "skip";
const ON_MISSING: Key = Key::with_default(
    "on_missing",
    Shape::Choice(&[SKIP, "error"]),
    Default::Text("error"),
    "What happens when the file is not there.",
);

static FILE: Mapping = Mapping {
    what: "a `file` source",
    about: "A file, as one system message.",
    keys: &[
        TYPE,
        ID,
        Key::required(
            "path",
            Shape::Text,
            "The file; `${AGENT_HOME}`, `${CWD}` and `${RUN_DIR}` are filled in.",
        ),
        ON_MISSING,
    ],
    one_of: &[],
    open: false,
};

static COMPUTED_FILE: Mapping = Mapping {
    what: "a `computed_file` source",
    about: "A file that a command writes before each request, as one system message.",
    keys: &[
        TYPE,
        ID,
        Key::required("generator", Shape::Mapping(&GENERATOR), "The command that writes it."),
        Key::required(
            "output_path",
            Shape::Text,
            "The file, best under `${RUN_DIR}`, where no other run writes.",
        ),
        ON_MISSING,
    ],
    one_of: &[],
    open: false,
};

static JOURNAL: Mapping = Mapping {
    what: "a `journal` source",
    about: "The conversation, in the LLM's own form.",
    keys: &[
        TYPE,
        ID,
        Key::optional(
            "max_iterations",
            Shape::Integer(1..1 << 32),
            "Only the last so many iterations, and always the task.",
        ),
    ],
    one_of: &[],
    open: false,
};

static GENERATOR: Mapping = Mapping {
    what: "a generator",
    about: "A command that writes a file for the context.",
    keys: &[
        Key::required("command", Shape::List(&Shape::Text), "The program and its arguments."),
        Key::with_default(
            "timeout_ms",
            Shape::Integer(1..1 << 32),
            Default::Integer(30_000),
            "Milliseconds before it is ended.",
        ),
        Key::optional(
            "pass_env",
            Shape::List(&Shape::Text),
            "Variables that hold a key and that it is given all the same, by name.",
        ),
    ],
    one_of: &[],
    open: false,
};

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
        let fields = doc.fields(&doc.root, &CONTEXT)?;
        let node = fields.require("sources", "[{type: journal}]")?;
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
        let (kind, mapping) = doc.kind(node, "a source", "type", &KINDS)?;
        let fields = doc.fields(node, mapping)?;
        let id = fields.text("id").map(str::to_owned);
        let path = |key: &str, example: &str| {
            fields.require(key, example)?;
            fields.text(key).map(str::to_owned)
        };
        match kind {
            "file" => Some(Self::File {
                id,
                path: path("path", "'${CWD}/DELTA.md'")?,
                skip_missing: fields.text("on_missing")? == SKIP,
            }),
            "computed_file" => {
                let output = path("output_path", "'${RUN_DIR}/summary.md'");
                let generator = fields.require("generator", "{command: [PROGRAM]}");
                let generator = generator.and_then(|node| Generator::read(doc, node));
                Some(Self::Computed {
                    id,
                    generator: generator?,
                    output: output?,
                    skip_missing: fields.text("on_missing")? == SKIP,
                })
            }
            _ => {
                let limit = fields.integer("max_iterations");
                let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
                Some(Self::Journal { max_iterations: limit })
            }
        }
    }
}

impl Generator {
    fn read(doc: &Document, node: &Node) -> Option<Self> {
        let fields = doc.fields(node, &GENERATOR)?;
        let command_node = fields.require("command", "[PROGRAM, ARG]")?;
        let command = fields.texts("command");
        if command.first().is_none_or(String::is_empty) {
            let help = "write `[PROGRAM, ARG, ...]`".to_owned();
            doc.fault(command_node, "`command` names no program", Some(help));
            return None;
        }
        let timeout_ms = fields.integer("timeout_ms")?;
        Some(Self { command, timeout_ms, pass_env: fields.texts("pass_env") })
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
