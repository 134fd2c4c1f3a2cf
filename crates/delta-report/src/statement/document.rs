//! The types of a statement, for writing and for reading: in the order of their members, so that a run has one text, and with
//! the members of others ignored, as the specifications ask.

use delta_base::json;
use delta_base::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// The media type of a statement in an envelope.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
const PREDICATE_TYPE: &str = "https://slsa.dev/provenance/v1";
/// What delta is, and how its statements are to be read.
const BUILDER: &str = "https://crates.io/crates/delta-agents";
const BUILD_TYPE: &str = "https://crates.io/crates/delta-agents#run/v1";

/// The digest of a file.
pub const SHA256: &str = "sha256";
/// The digest of a directory: the id of its tree.
pub const DELTA_TREE: &str = "deltaTree";
/// The digest of a commit.
pub const GIT_COMMIT: &str = "gitCommit";
/// The annotation of a subject that is not a regular file.
pub const KIND: &str = "kind";
/// The [`KIND`] of a symlink, whose digest is of its target.
pub const SYMLINK: &str = "symlink";
/// The [`KIND`] of the result of a run.
pub const RESULT: &str = "result";
/// The names of what a statement refers to.
pub const AGENT: &str = "agent";
/// The same.
pub const WORKSPACE: &str = "workspace";
/// The same.
pub const JOURNAL: &str = "journal.jsonl";

/// A statement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Statement {
    #[serde(rename = "_type")]
    statement_type: String,
    /// What the run has made.
    pub subject: Vec<ResourceDescriptor>,
    #[serde(rename = "predicateType")]
    predicate_type: String,
    /// How.
    pub predicate: Provenance,
}

/// Something with a hash.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceDescriptor {
    /// The path of a subject; otherwise what it is to the run.
    #[serde(default)]
    pub name: String,
    /// Its hashes, in hexadecimal digits, by algorithm.
    #[serde(default)]
    pub digest: BTreeMap<String, String>,
    /// What else there is to say.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub annotations: Map<String, Json>,
}

impl ResourceDescriptor {
    /// What `name` names, with its hash.
    pub fn new(name: impl Into<String>, algorithm: &str, digits: impl ToString) -> Self {
        let digest = BTreeMap::from([(algorithm.to_owned(), digits.to_string())]);
        Self { name: name.into(), digest, annotations: Map::new() }
    }

    /// The same with an annotation.
    #[must_use]
    pub fn with(mut self, annotation: &str, value: impl Into<Json>) -> Self {
        self.annotations.insert(annotation.to_owned(), value.into());
        self
    }

    /// The [`KIND`] of a subject; `None` for a regular file.
    pub fn kind(&self) -> Option<&str> {
        self.annotations.get(KIND)?.as_str()
    }
}

/// The predicate.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provenance {
    /// What the run was.
    pub build_definition: BuildDefinition,
    /// This run of it.
    pub run_details: RunDetails,
}

/// What a run was.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildDefinition {
    build_type: String,
    /// What the operator has asked for.
    pub external_parameters: Map<String, Json>,
    /// What the run was allowed, and what was found out.
    pub internal_parameters: InternalParameters,
    /// The agent, and the workspace as the run and later processes of it found it.
    #[serde(default)]
    pub resolved_dependencies: Vec<ResourceDescriptor>,
}

/// What a run was allowed, and what was found out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct InternalParameters {
    /// The models that answered.
    #[serde(default)]
    pub answered_by: Vec<String>,
    /// The sandboxes that were enforced, of each process that had others than the one before; null for none.
    #[serde(default)]
    pub sandboxes: Vec<Json>,
    /// The calls that were approved or denied, and by whom.
    #[serde(default)]
    pub approvals: Vec<Json>,
    /// The paths that the run has removed.
    #[serde(default)]
    pub removed: Vec<String>,
    /// The changed paths that are not among the subjects, quoted as git does: no snapshot has their content, or their names are
    /// not UTF-8.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// A run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunDetails {
    /// The program.
    pub builder: StatementBuilder,
    /// Which run it is.
    pub metadata: InvocationMetadata,
    /// The journal, and the workspace at the end.
    #[serde(default)]
    pub byproducts: Vec<ResourceDescriptor>,
}

/// The program that made a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StatementBuilder {
    id: String,
    version: BTreeMap<String, String>,
}

/// Which run it is, and when it was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InvocationMetadata {
    /// The id of the run.
    pub invocation_id: String,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_on: Option<Timestamp>,
    /// When its last process exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_on: Option<Timestamp>,
}

impl BuildDefinition {
    /// The definition of a run.
    pub fn new(
        external_parameters: Map<String, Json>,
        internal_parameters: InternalParameters,
        resolved_dependencies: Vec<ResourceDescriptor>,
    ) -> Self {
        let build_type = BUILD_TYPE.to_owned();
        Self { build_type, external_parameters, internal_parameters, resolved_dependencies }
    }
}

impl StatementBuilder {
    /// delta in this version.
    pub fn new(version: &str) -> Self {
        let version = BTreeMap::from([("delta".to_owned(), version.to_owned())]);
        Self { id: BUILDER.to_owned(), version }
    }
}

impl Statement {
    /// A statement about `subject`.
    pub fn new(subject: Vec<ResourceDescriptor>, predicate: Provenance) -> Self {
        Self {
            statement_type: STATEMENT_TYPE.to_owned(),
            subject,
            predicate_type: PREDICATE_TYPE.to_owned(),
            predicate,
        }
    }

    /// Reads the statement of a run of delta.
    ///
    /// # Errors
    /// It is something else; the message has what is expected.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let statement: Self = serde_json::from_slice(text)
            .map_err(|error| format!("it is not a statement: {error}"))?;
        let types = [
            ("_type", &statement.statement_type, STATEMENT_TYPE),
            ("predicateType", &statement.predicate_type, PREDICATE_TYPE),
            ("buildType", &statement.predicate.build_definition.build_type, BUILD_TYPE),
        ];
        for (member, value, expected) in types {
            if value != expected {
                return Err(format!("`{member}` is {value}: expected {expected}"));
            }
        }
        if statement.subject.is_empty() {
            return Err("it has no subject".to_owned());
        }
        Ok(statement)
    }

    /// The text, without a newline.
    pub fn to_text(&self) -> String {
        json::to_json(self)
    }

    /// What the run has used under this name.
    pub fn dependencies<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = &'a ResourceDescriptor> {
        let used = &self.predicate.build_definition.resolved_dependencies;
        used.iter().filter(move |dependency| dependency.name == name)
    }

    /// What the run has left under this name.
    pub fn byproduct(&self, name: &str) -> Option<&ResourceDescriptor> {
        self.predicate.run_details.byproducts.iter().find(|byproduct| byproduct.name == name)
    }
}
