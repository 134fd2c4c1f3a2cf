//! The `config` of ENGINE_START: a summary of the agent's configuration in the journal.
//!
//! It is written once per process, and every reader takes its fields from here. What an older or newer delta wrote can be
//! read: a key that is absent or has another shape is `None`, and unknown keys are kept.

use super::sandbox_record::SandboxRecord;
use crate::event::approval::OperatorApproval;
use crate::limits::Limits;
use crate::state::ASK_HUMAN_TOOL;
use delta_base::id::SnapshotId;
use delta_words::{Pricing, WireForm};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;

/// The rules of this version. Since 2, a request can force a call, built-in tools are described in few words, and their
/// arguments are taken as for other tools; since 3, more endings of answers and more calls written as text are known, and only
/// arguments that are wrong are named. A replay follows the rules that a process recorded.
pub const CURRENT_RULES: u32 = 3;

/// A summary of the configuration of one process. The agent's files are copied to agent/.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunConfig {
    /// The LLM.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub llm: Option<LlmSummary>,
    /// The names of the agent's own tools, in the order of agent.yaml.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The names of the tools that the engine provides.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub builtins: Option<Vec<String>>,
    /// The rules for requests, answers and the calls of built-in tools, [`CURRENT_RULES`]; absent in runs of earlier versions, which
    /// had others.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub rules: Option<u32>,
    /// The names of the hooks.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Vec<String>>,
    /// The hashes of what is locked of the MCP servers, by their names.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub mcp: Option<BTreeMap<String, String>>,
    /// The copy of the agent's files.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub kept: Option<AgentCopy>,
    /// What the operator said about approvals, if anything.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub approve: Option<OperatorApproval>,
    /// The sandboxes of the tools, as enforced, if there are any.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxRecord>,
    /// The run that this one repeats, for `delta replay --mode tools`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayOf>,
    /// The run directory, if it is not in the workspace.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub run_dir: Option<String>,
    /// What the LLM sees in place of the first message.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub task_template: Option<String>,
    /// The stage in which the process works, if the run is staged.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub stage: Option<RunStage>,
    /// The limits that options gave to this process or an earlier one, which hold for the later ones too.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// The public half of the key that the sandboxes of the process give the runs that tools start in them.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub inner_key: Option<String>,
    /// The keys that this version does not know.
    #[serde(flatten)]
    pub unknown: Map<String, Json>,
}

/// The stage of a run: its tools see and change the workspace, which itself does not change until `delta apply`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStage {
    /// The snapshot of the workspace without the staged changes. A path that differs from it cannot be applied.
    pub base: SnapshotId,
}

/// The LLM that a process uses.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LlmSummary {
    /// A wire form, `script`, `command` or `recorded`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The name of the model.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The provider of the recorded answers, for the provider `recorded`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub recorded: Option<String>,
    /// The value of `--model`, if it selected the LLM.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
    /// The values of `--llm`.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
    /// The models that are asked when this one does not answer.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<LlmSummary>,
    /// What a token costs, if it is known.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Option::is_none")]
    pub pricing: Option<Pricing>,
    /// The keys that this version does not know.
    #[serde(flatten)]
    pub unknown: Map<String, Json>,
}

/// The copy of the agent's files in the run directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentCopy {
    /// The path of the directory, relative to the run directory.
    pub dir: String,
    /// The CRC-32 of each file in the directory, by file name, in runs of earlier versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub crc: BTreeMap<String, String>,
    /// The SHA-256 of each file, likewise.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sha256: BTreeMap<String, String>,
}

/// The run that a replay repeats.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayOf {
    /// The id of the run, as text: it is shown and never looked up.
    pub run_id: String,
    /// The absolute path of the run's workspace.
    #[serde(default)]
    pub work_dir: String,
    /// Whether the recorded process ended before its limit of iterations, unlike this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends_early: bool,
}

impl LlmSummary {
    /// The prices that the process took from elsewhere than agent.yaml, if it did.
    pub fn operator_prices(&self) -> Option<&Pricing> {
        self.pricing.as_ref().filter(|pricing| !pricing.is_from_agent())
    }
}

impl RunConfig {
    /// The name or file of the operator's sandbox, if one was chosen with `--sandbox` or a setting.
    pub fn chosen_sandbox(&self) -> Option<&str> {
        self.sandbox.as_ref()?.chosen_sandbox()
    }

    /// The name of the model, if it was recorded.
    pub fn model(&self) -> Option<&str> {
        self.llm.as_ref()?.model.as_deref()
    }

    /// The provider, if it was recorded.
    pub fn provider(&self) -> Option<&str> {
        self.llm.as_ref()?.provider.as_deref()
    }

    /// The value of `--model`, if it selected the LLM.
    pub fn model_option(&self) -> Option<&str> {
        self.llm.as_ref()?.option.as_deref()
    }

    /// The values of `--llm`.
    pub fn llm_settings(&self) -> &[String] {
        self.llm.as_ref().map_or(&[], |llm| &llm.settings)
    }

    /// The LLM, and each LLM of its `fallback`, in the order in which they are asked.
    pub fn models(&self) -> impl Iterator<Item = &LlmSummary> {
        self.llm.iter().flat_map(|first| std::iter::once(first).chain(&first.fallback))
    }

    /// Whether the agent itself defines a tool `name`.
    pub fn has_tool(&self, name: &str) -> bool {
        self.tools.iter().flatten().any(|tool| tool == name)
    }

    /// Whether the engine provides a tool `name`.
    pub fn has_builtin(&self, name: &str) -> bool {
        self.builtins.iter().flatten().any(|builtin| builtin == name)
    }

    /// Whether the process may have offered the tool `ask_human`: the first versions did not record it.
    pub fn may_ask_human(&self) -> bool {
        self.builtins.is_none() || self.has_builtin(ASK_HUMAN_TOOL)
    }

    /// The form for which the requests were built. A replay uses the requests of the recorded provider.
    pub fn request_form(&self) -> Option<WireForm> {
        let llm = self.llm.as_ref()?;
        WireForm::parse(llm.recorded.as_ref().or(llm.provider.as_ref())?)
    }
}

/// Reads a value, or the default if the value has another shape.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Json::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> RunConfig {
        or_default(&mut serde_json::Deserializer::from_str(text)).unwrap()
    }

    fn written(config: &RunConfig) -> String {
        serde_json::to_string(config).unwrap()
    }

    #[test]
    fn c_6_1_a_configuration_is_written_back_byte_for_byte() {
        let shapes = [
            // Of the first versions, which kept no files and named no builtins.
            r#"{}"#,
            r#"{"llm":{"provider":"openai","model":"m"},"tools":["a"]}"#,
            r#"{"llm":{"provider":"recorded","model":"m","recorded":"openai","option":"m2"},"tools":[],"builtins":["finish"],"hooks":["post_run"],"kept":{"dir":"agent","crc":{"agent.yaml":"0123abcd"}},"approve":{"ask":["*"],"all":true},"replay":{"run_id":"r","work_dir":"/w"}}"#,
            r#"{"llm":{"provider":"openai","model":"m","pricing":{"from":"file","sha256":"00ff","model":"m","input":0.2,"cached_input":0.02,"cache_write":0.25,"output":1.2,"reasoning":1.2,"above":[{"tokens":272000,"input":0.4,"cached_input":0.04,"cache_write":0.5,"output":1.8,"reasoning":1.8}],"max_output":128000}}}"#,
            r#"{"sandbox":{"kernel":"6.18.0","landlock":7,"namespaces":true,"policy":[{"file":"/etc/delta/sandbox.yaml","sha256":"00ff"}],"without":["sockets"],"tools":{"a":"p1"},"generators":"p1","profiles":{"p1":{"by":"namespaces","write":["/w"],"keep":["/w/.delta"],"read":"all","hide":["/home/me/.ssh"],"home":"copy","net":["crates.io"],"env":"safe","sockets":[],"limits":{"processes":256},"holds":["files","net"],"line":"Sandbox: ..."}}}}"#,
            // Of a later version.
            r#"{"llm":{"provider":"openai","model":"m","effort":{"a":[1,2.5]}},"tools":["a"],"skills":["b"]}"#,
        ];
        for shape in shapes {
            assert_eq!(written(&read(shape)), shape);
        }
    }

    #[test]
    fn a_key_of_another_shape_counts_as_absent() {
        let config = read(
            r#"{"llm": {"model": 5, "provider": "openai"}, "tools": "a", "builtins": ["finish"]}"#,
        );
        assert_eq!((config.model(), config.provider()), (None, Some("openai")));
        assert!(config.tools.is_none() && config.has_builtin("finish"));
        assert_eq!(read("null"), RunConfig::default());
        assert_eq!(read("[1]"), RunConfig::default());
    }

    fn names() -> impl Strategy<Value = Option<Vec<String>>> {
        prop::option::of(prop::collection::vec(any::<String>(), 0..3))
    }

    prop_compose! {
        fn llm()(
            provider in any::<Option<String>>(), model in any::<Option<String>>(),
            recorded in any::<Option<String>>(), option in any::<Option<String>>(),
        ) -> LlmSummary {
            LlmSummary { provider, model, recorded, option, ..LlmSummary::default() }
        }
    }

    proptest! {
        #[test]
        fn a_configuration_reads_back_as_it_was_written(
            llm in prop::option::of(llm()), tools in names(), builtins in names(), hooks in names(),
            dir in any::<String>(), crc in prop::collection::btree_map(any::<String>(), any::<String>(), 0..3),
            replay in any::<Option<(String, String)>>(), ask in names(), all in any::<bool>(), staged in any::<bool>(), later in any::<Option<i64>>(),
        ) {
            let mcp = later.map(|_| crc.clone());
            let sha256 = later.map(|_| crc.clone()).unwrap_or_default();
            let kept = Some(AgentCopy { dir, crc, sha256 });
            let replay = replay.map(|(run_id, work_dir)| ReplayOf { run_id, work_dir, ends_early: all });
            let approve = ask.map(|ask| OperatorApproval { ask, all, renew: !all });
            let stage = staged.then(|| RunStage { base: SnapshotId::from_content(b"base") });
            let inner_key = staged.then(|| "ed25519:AAAA".to_owned());
            let unknown = later.map(|value| ("later".to_owned(), Json::from(value))).into_iter().collect();
            let sandbox = None;
            let limits = later.map(|value| Limits { max_tokens: u64::try_from(value).ok(), ..Limits::default() });
            let config =
                RunConfig { llm, tools, builtins, rules: later.map(|_| 2), hooks, mcp, kept, approve, sandbox, replay, stage, task_template: None, run_dir: None, limits, inner_key, unknown };
            let text = written(&config);
            prop_assert_eq!(written(&read(&text)), text.clone());
            prop_assert_eq!(read(&text), config);
        }
    }
}
