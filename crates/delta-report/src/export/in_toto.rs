//! Renders a run as an in-toto statement: which agent made which changes.
//!
//! Texts of the run are in it as hashes, paths of the operator not at all: a statement is made to be published.

use super::exported_run::ExportedRun;
use crate::statement::document::{
    AGENT, BuildDefinition, DELTA_TREE, GIT_COMMIT, InternalParameters, InvocationMetadata,
    JOURNAL, KIND, Provenance, RESULT, ResourceDescriptor, RunDetails, SHA256, Statement,
    StatementBuilder, WORKSPACE,
};
use crate::statement::workspace_trees::{RunChanges, WorkspaceTrees};
use delta_base::hex::sha256_hex;
use delta_run::event::image_file::ImageFile;
use delta_run::event::{EngineStart, Event, Payload, SandboxRecord};
use delta_run::run_result::RunResult;
use delta_snapshot::SnapshotStore;
use serde_json::{Map, Value as Json, json};

/// The statement of a run, whose events are the lines `journal`. `with_task` puts the texts of messages in place of their hashes.
///
/// # Errors
/// The run has changed nothing and has no result, or its snapshots cannot be read.
pub fn build_statement(
    run: &ExportedRun,
    journal: &[u8],
    with_task: bool,
) -> Result<Statement, String> {
    let starts: Vec<&EngineStart> = run.events.iter().filter_map(engine_start_of).collect();
    let Some(last_start) = starts.last() else {
        return Err("it has no ENGINE_START".to_owned());
    };
    let trees = WorkspaceTrees::from_events(&run.events);
    let snapshots = trees.map(|trees| read_changes(run, trees)).transpose()?;
    let changes = snapshots.as_ref().map(|snapshots| snapshots.changes.clone()).unwrap_or_default();
    let subject = match find_result(run) {
        Some(result) if changes.written.is_empty() => vec![result],
        None if changes.written.is_empty() && changes.removed.is_empty() => {
            return Err("it has changed no file that a snapshot contains, and has no result, so there is nothing to make a statement about".to_owned());
        }
        None if changes.written.is_empty() => {
            return Err("it has only removed files, and has no result, so there is nothing that a statement can name by its hash".to_owned());
        }
        _ => changes.written,
    };
    let internal = InternalParameters {
        answered_by: run.state.usage.iter().map(|usage| usage.model.clone()).collect(),
        sandboxes: list_distinct(
            starts.iter().map(|start| state_sandboxes(start.config.sandbox.as_ref())),
        ),
        approvals: run.events.iter().filter_map(state_approval).collect(),
        removed: changes.removed,
        left_out: changes.left_out,
    };
    let mut dependencies: Vec<ResourceDescriptor> = Vec::new();
    for start in &starts {
        let agent = start.agent_tree.map(|tree| {
            let agent = ResourceDescriptor::new(AGENT, DELTA_TREE, tree);
            state_source(start, agent.with("agent", &*start.agent_name))
        });
        dependencies.extend(agent.filter(|agent| !dependencies.contains(agent)));
    }
    let mut byproducts = vec![state_journal(run, journal)];
    if let Some(RunSnapshots { trees, commit, .. }) = snapshots {
        let mut workspace = ResourceDescriptor::new(WORKSPACE, DELTA_TREE, trees.before);
        workspace.digest.extend(commit.map(|commit| (GIT_COMMIT.to_owned(), commit)));
        dependencies.push(workspace);
        dependencies.extend(trees.found_by_processes.iter().map(|(process, tree)| {
            ResourceDescriptor::new(WORKSPACE, DELTA_TREE, tree).with("process", *process)
        }));
        byproducts.push(ResourceDescriptor::new(WORKSPACE, DELTA_TREE, trees.after));
    }
    let provenance = Provenance {
        build_definition: BuildDefinition::new(
            state_parameters(run, &starts, with_task),
            internal,
            dependencies,
        ),
        run_details: RunDetails {
            builder: StatementBuilder::new(&last_start.engine_version),
            metadata: InvocationMetadata {
                invocation_id: run.identity().run_id,
                started_on: run.state.created_at,
                finished_on: run.events.iter().rev().find_map(|event| {
                    matches!(event.payload, Payload::EngineEnd { .. }).then_some(event.timestamp)
                }),
            },
            byproducts,
        },
    };
    Ok(Statement::new(subject, provenance))
}

/// Adds where the agent was installed from. A directory or a file of this machine is left out.
fn state_source(start: &EngineStart, mut agent: ResourceDescriptor) -> ResourceDescriptor {
    let installed = start.agent_source.as_ref();
    let Some(installed) =
        installed.filter(|from| from.commit.is_some() || from.source.contains("://"))
    else {
        return agent;
    };
    agent.digest.extend(installed.commit.clone().map(|commit| (GIT_COMMIT.to_owned(), commit)));
    let agent = agent.with("source", &*installed.source);
    match &installed.reference {
        Some(reference) => agent.with("ref", &**reference),
        None => agent,
    }
}

/// What the snapshots of a run say.
struct RunSnapshots {
    trees: WorkspaceTrees,
    changes: RunChanges,
    commit: Option<String>,
}

fn read_changes(run: &ExportedRun, trees: WorkspaceTrees) -> Result<RunSnapshots, String> {
    let store: SnapshotStore = run.snapshot_store().ok_or("its snapshots are missing")?;
    let mut changes = trees.find_changes(&store).map_err(|error| error.to_string())?;
    redact_names(run, &mut changes);
    let commit = trees.find_commit(&store);
    Ok(RunSnapshots { trees, changes, commit })
}

/// Redacts the sensitive answers in the names of files. No name is then the one of a file that was written.
fn redact_names(run: &ExportedRun, changes: &mut RunChanges) {
    changes.removed = changes.removed.drain(..).map(|name| run.visible_name(name)).collect();
    changes.left_out = changes.left_out.drain(..).map(|name| run.visible_name(name)).collect();
    let written = std::mem::take(&mut changes.written);
    for file in written {
        let name = run.visible_name(file.name.clone());
        if name == file.name {
            changes.written.push(file);
        } else {
            changes.left_out.push(name);
        }
    }
}

fn engine_start_of(event: &Event) -> Option<&EngineStart> {
    match &event.payload {
        Payload::EngineStart(start) => Some(start),
        _ => None,
    }
}

/// The result of a run as a subject: a text, or JSON without spaces.
fn find_result(run: &ExportedRun) -> Option<ResourceDescriptor> {
    let result = RunResult::from_state(&run.state)?.result?;
    Some(ResourceDescriptor::new(RESULT, SHA256, sha256_hex(result.text())).with(KIND, RESULT))
}

fn state_journal(run: &ExportedRun, journal: &[u8]) -> ResourceDescriptor {
    let descriptor = ResourceDescriptor::new(JOURNAL, SHA256, sha256_hex(journal));
    let Some(last) = run.events.last() else { return descriptor };
    let descriptor = descriptor.with("seq", last.seq);
    match last.chain {
        Some(chain) => descriptor.with("chain", chain.to_string()),
        None => descriptor,
    }
}

/// What the operator has asked for.
fn state_parameters(
    run: &ExportedRun,
    starts: &[&EngineStart],
    with_task: bool,
) -> Map<String, Json> {
    let mut messages = run.events.iter().filter_map(|event| match &event.payload {
        Payload::UserMessage { content, images, .. } => {
            Some(state_message(content, images, with_task))
        }
        _ => None,
    });
    let mut parameters = Map::new();
    parameters.extend(messages.next().map(|task| ("task".to_owned(), task)));
    let messages: Vec<Json> = messages.collect();
    if !messages.is_empty() {
        parameters.insert("messages".to_owned(), messages.into());
    }
    let last = starts.last().map(|start| &start.config);
    parameters.insert("model".to_owned(), last.and_then(|config| config.model()).into());
    let options = list_distinct(starts.iter().map(|start| state_options(start)));
    parameters.insert("options".to_owned(), options.into());
    parameters
}

fn state_message(content: &str, images: &[ImageFile], with_text: bool) -> Json {
    let mut message =
        if with_text { json!({"text": content}) } else { json!({SHA256: sha256_hex(content)}) };
    if !images.is_empty() {
        message["files"] = images.iter().map(|image| json!({SHA256: image.sha256})).collect();
    }
    message
}

/// The options of a process that its journal has.
fn state_options(start: &EngineStart) -> Json {
    let config = &start.config;
    let mut options = json!({"max_iterations": start.max_iterations});
    let mut set = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            options[name] = value;
        }
    };
    set("model", config.model_option().map(Json::from));
    let settings = config.llm_settings();
    set("llm", (!settings.is_empty()).then(|| settings.into()));
    set("limits", config.limits.map(|limits| json!(limits)));
    set("approve", config.approve.as_ref().map(|approve| json!(approve)));
    set("stage", config.stage.map(|_| true.into()));
    options
}

/// The sandboxes of a process as they were enforced, without the paths of the machine; null for none.
fn state_sandboxes(record: Option<&SandboxRecord>) -> Json {
    let Some(record) = record else { return Json::Null };
    let profiles = record.profiles.iter().map(|(name, profile)| {
        let mut described = json!({"by": profile.by, "holds": profile.holds});
        if !profile.watched.is_empty() {
            described["watched"] = json!(profile.watched);
        }
        if let Some(net) = profile.keys.get("net") {
            described["net"] = net.clone();
        }
        (name.clone(), described)
    });
    json!({
        "tools": record.tools,
        "hooks": record.hooks,
        "without": record.without,
        "profiles": profiles.collect::<Map<String, Json>>(),
    })
}

/// The approval of a call that started, or the denial of one.
fn state_approval(event: &Event) -> Option<Json> {
    match &event.payload {
        Payload::ActionRequest(request) => {
            let approval = request.approval.as_ref()?;
            let mut described = json!({
                "call": request.call_id,
                "tool": request.tool_name,
                "approved": true,
                "by": approval.by,
            });
            if let Some(rule) = approval.rule {
                described["rule"] = rule.into();
            }
            Some(described)
        }
        Payload::ApprovalDecision(decision) if !decision.approved => {
            Some(json!({"call": decision.call_id, "approved": false, "by": decision.by}))
        }
        _ => None,
    }
}

/// The values, each only if it differs from the one before.
fn list_distinct(values: impl Iterator<Item = Json>) -> Vec<Json> {
    let mut values: Vec<Json> = values.collect();
    values.dedup();
    values
}
