//! `imports:`, tools from other files: which files may be read, in which order, and whose tool wins.
//!
//! An import stands for everything that it brings, its own imports included; what is read later wins, and the place in
//! the list is that of the first tool of a name. A file is read once, however many import it.

use crate::diag::{Diagnostic, Report};
use crate::durable::read_regular_text as read_text;
use crate::tool::{self, Tool};
use crate::yaml::shape::{Key, Shape};
use crate::yaml::{self, Document, Fields, Mapping, Node};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A file that is imported.
pub static TOOLS: Mapping = Mapping {
    what: "an imported file",
    about: "Tools for agents that import them.",
    keys: &[
        Key::optional("tools", Shape::List(&Shape::Mapping(&tool::TOOL)), "The tools."),
        Key::optional(
            "imports",
            Shape::List(&Shape::Text),
            "Files with `tools:` of their own, relative to this one.",
        ),
    ],
    one_of: &[],
    open: false,
};

/// How deep imports may import: more than any sane library, less than the stack holds.
const DEEPEST: usize = 64;

/// The variable of [`ImportPath`].
pub const IMPORT_PATH: &str = "DELTA_IMPORT_PATH";

/// The directories outside the agent's own that the operator lets it import from.
#[derive(Debug, Default)]
pub struct ImportPath {
    /// Absolute, symlinks resolved.
    roots: Vec<PathBuf>,
    /// Why the other entries do not count.
    ignored: Vec<String>,
}

impl ImportPath {
    /// Reads the value of `DELTA_IMPORT_PATH`: directories with `:` between them.
    pub fn parse(text: &str) -> Self {
        let mut path = Self::default();
        for entry in text.split(':').filter(|entry| !entry.is_empty()) {
            // What a relative one means would change with the directory that delta is started in.
            let found = match Path::new(entry) {
                relative if relative.is_relative() => Err("it must be absolute".to_owned()),
                entry => entry.canonicalize().map_err(|error| error.to_string()),
            };
            match found {
                Ok(root) if root.is_dir() => path.roots.push(root),
                Ok(_) => path.ignored.push(ignored(entry, "it is not a directory")),
                Err(reason) => path.ignored.push(ignored(entry, &reason)),
            }
        }
        path
    }
}

fn ignored(entry: &str, reason: &str) -> String {
    format!("`{entry}` in {IMPORT_PATH} does not count: {reason}")
}

/// A tool, and its definition as YAML on one line.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) tool: Tool,
    text: String,
}

/// The reader of everything that a main file imports.
pub(super) struct Imports<'a> {
    home: &'a Path,
    allowed: &'a ImportPath,
    /// What was read already.
    files: HashMap<PathBuf, Vec<Rc<Found>>>,
    /// The files that are being read, from the main file on.
    open: Vec<PathBuf>,
    report: Report,
}

impl<'a> Imports<'a> {
    /// A reader for `main` in the agent directory `home`.
    pub(super) fn new(home: &'a Path, main: &Path, allowed: &'a ImportPath) -> Self {
        let main = main.canonicalize().unwrap_or_else(|_| main.to_owned());
        let (files, report) = (HashMap::new(), Report::default());
        Self { home, allowed, files, open: vec![main], report }
    }

    /// The tools of `doc`, which lies in `dir`: those that it imports, then its own.
    pub(super) fn tools_of(
        &mut self,
        doc: &Document,
        dir: &Path,
        fields: Fields<'_>,
    ) -> Vec<Rc<Found>> {
        let mut list = List::default();
        for node in fields.list("imports") {
            let Some(name) = doc.text(node, "an entry of `imports`") else { continue };
            match self.locate(dir, name) {
                Ok(path) => list.add(self.file(doc, node, path)),
                Err(refusal) => doc.fault(node, refusal.message, refusal.help),
            }
        }
        if let Some(node) = fields.given("tools") {
            let tools = tool::read_list(doc, node);
            // They differ in number only where something is wrong, and then nothing of it is used.
            let found = tools.into_iter().zip(node.items());
            list.add(found.map(|(tool, item)| Rc::new(Found { tool, text: yaml::flow(item) })));
        }
        list.found
    }

    /// Hands over what is wrong in the imported files; gives what the operator should know.
    pub(super) fn finish(mut self, report: &mut Report) -> Vec<String> {
        report.diagnostics.append(&mut self.report.diagnostics);
        let used = !self.files.is_empty();
        let warning = |text: &String| format!("Warning: {text}");
        self.allowed.ignored.iter().filter(|_| used).map(warning).collect()
    }

    /// The tools of the file at `path`, which `node` of `doc` imports.
    fn file(&mut self, doc: &Document, node: &Node, path: PathBuf) -> Vec<Rc<Found>> {
        if let Some(at) = self.open.iter().position(|open| *open == path) {
            let cycle = self.open[at..].iter().chain([&path]).map(|path| self.shown(path));
            let cycle = cycle.collect::<Vec<_>>().join(" -> ");
            let help = "take one of these imports out".to_owned();
            doc.fault(node, format!("the imports go round in a circle: {cycle}"), Some(help));
            return Vec::new();
        }
        if let Some(found) = self.files.get(&path) {
            return found.clone();
        }
        if self.open.len() > DEEPEST {
            let message = format!("imports are nested more than {DEEPEST} deep");
            doc.fault(node, message, Some("import the files from one list".to_owned()));
            return Vec::new();
        }
        self.open.push(path.clone());
        let found = self.read(&path).unwrap_or_default();
        self.open.pop();
        self.files.insert(path, found.clone());
        found
    }

    fn read(&mut self, path: &Path) -> Option<Vec<Rc<Found>>> {
        let name = path.display().to_string();
        let parsed = match read_text(path) {
            Ok(text) => Document::parse(name, text),
            Err(error) => {
                let message = format!("the imported file cannot be read: {error}");
                Err(Diagnostic::of_file(name, message, None))
            }
        };
        let doc = parsed.map_err(|diagnostic| self.report.push(diagnostic)).ok()?;
        let fields = doc.fields(&doc.root, &TOOLS);
        let found = fields.map(|fields| {
            let none = ["tools", "imports"]
                .iter()
                .all(|key| fields.get(key).is_none() && fields.slip(key).is_none());
            if none {
                let help = "write `tools:`, and the tools below it".to_owned();
                doc.fault(&doc.root, "an imported file has no `tools`", Some(help));
            }
            self.tools_of(&doc, path.parent().unwrap_or(self.home), fields)
        });
        doc.finish(&mut self.report);
        found
    }

    /// The file that `name` means in a file that lies in `dir`.
    fn locate(&self, dir: &Path, name: &str) -> Result<PathBuf, Refusal> {
        if is_remote(name) {
            let help = "copy the file into the agent directory, and import it from there";
            return Err(Refusal::new("not supported: remote imports", help));
        }
        let given = dir.join(name);
        let path = given.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let help = "the path is relative to the file that it stands in";
                Refusal::new(format!("there is no file {}", given.display()), help)
            }
            _ => Refusal::plain(format!("{} cannot be imported: {error}", given.display())),
        })?;
        self.check_place(&path)?;
        match fs::metadata(&path) {
            Ok(found) if found.is_file() => Ok(path),
            Ok(_) => Err(Refusal::plain(format!("{} is not a file", path.display()))),
            Err(error) => {
                Err(Refusal::plain(format!("{} cannot be imported: {error}", path.display())))
            }
        }
    }

    fn check_place(&self, path: &Path) -> Result<(), Refusal> {
        if path.starts_with(self.home) || self.allowed.roots.iter().any(|it| path.starts_with(it)) {
            return Ok(());
        }
        let dir = path.parent().unwrap_or(path).display();
        let mut help = format!(
            "if you trust what lies there: export {IMPORT_PATH}={dir} (several directories with `:` between them)"
        );
        for reason in &self.allowed.ignored {
            help.push('\n');
            help.push_str(reason);
        }
        Err(Refusal::new(format!("{} lies outside the agent directory", path.display()), help))
    }

    /// A file as the author knows it.
    fn shown(&self, path: &Path) -> String {
        path.strip_prefix(self.home).unwrap_or(path).display().to_string()
    }
}

/// Why a file is not imported.
struct Refusal {
    message: String,
    help: Option<String>,
}

impl Refusal {
    fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: Some(help.into()) }
    }

    fn plain(message: String) -> Self {
        Self { message, help: None }
    }
}

/// Whether `name` begins with a scheme, such as `https:` or `npm:`.
fn is_remote(name: &str) -> bool {
    let scheme = name.split_once(':').map_or("", |(scheme, _)| scheme);
    scheme.len() > 1
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-'))
}

/// A list of tools in which a later one takes the place of the one that has its name.
#[derive(Default)]
struct List {
    found: Vec<Rc<Found>>,
    places: HashMap<String, usize>,
}

impl List {
    fn add(&mut self, more: impl IntoIterator<Item = Rc<Found>>) {
        for found in more {
            match self.places.get(&found.tool.name) {
                Some(&place) => self.found[place] = found,
                None => {
                    self.places.insert(found.tool.name.clone(), self.found.len());
                    self.found.push(found);
                }
            }
        }
    }
}

/// The text of a main file with the whole list of tools in the place of its imports: it loads by itself.
pub(super) fn resolved(doc: &Document, found: &[Rc<Found>]) -> String {
    let mut text = String::new();
    for (key, value) in doc.root.entries() {
        if !matches!(key.scalar(), Some("imports" | "tools")) {
            text.push_str(&yaml::flow_entry(key, value));
            text.push('\n');
        }
    }
    text.push_str(if found.is_empty() { "tools: []\n" } else { "tools:\n" });
    for found in found {
        text.push_str(&format!("  - {}\n", found.text));
    }
    text
}
