//! What a call will do, decided before anything starts. Pure, so that a replay decides as the run
//! did. For the same reason, the wording of the observations is a format.

use crate::checked_call::CheckedCall;
use crate::hook_observation::ENDED_BY_HOOK_OBSERVATION;
use crate::text_call::plain_tool_name;
use delta_agent::agent::{Agent, FinishTool};
use delta_agent::ask_human;
use delta_agent::tool::invocation::add_parameter_line;
use delta_agent::tool::{CoercedArguments, ValueSchema, schema_parameters};
use delta_base::engine_variables::EngineVars;
use delta_base::json::ExactJson;
use delta_base::{suggest, terminal_text};
use delta_run::event::HumanQuestion;
use delta_run::state::{ASK_HUMAN_TOOL, FINISH_TOOL, PendingCall, RunState};
use delta_words::CallArguments;
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::collections::HashMap;

/// The most characters that are shown of the name of an unknown tool.
const MAX_NAME_CHARS: usize = 80;

/// The observation of a call whose arguments contained a key.
const KEY_IN_CALL: &str = "The arguments of this call contain an API key, which no call may have; it was not run. \
    `[redacted]` stands for the key. A tool that needs a key gets it from its environment.";

/// The observation of a call that a message came before.
const NOT_RUN_FOR_MESSAGE: &str = "[not run: the operator sent a message]";

/// The observation of the call that finished the run.
pub const FINISHED_OBSERVATION: &str = "[the run is finished]";

/// What a call will do.
#[derive(Debug)]
pub enum CallPlan<'a> {
    /// Start a command, unless a hook denies it.
    Start(Box<CheckedCall<'a>>),
    /// Finish the run with this result.
    Finish(RecordedArguments, ExactJson),
    /// Ask the operator.
    Ask(RecordedArguments, HumanQuestion),
    /// Start nothing; the LLM gets this observation.
    Refuse(String),
}

/// The arguments of a call of a built-in tool, as ACTION_REQUEST has them.
#[derive(Debug)]
pub struct RecordedArguments {
    /// The arguments.
    pub json: Json,
    /// The names of the arguments that came as text, and were taken as what the text is.
    pub coerced: Vec<String>,
}

impl From<&CallArguments> for RecordedArguments {
    fn from(arguments: &CallArguments) -> Self {
        Self { json: arguments.to_value(), coerced: Vec::new() }
    }
}

/// Decides what `call` does in a run of `agent` at `state`.
pub fn plan_call<'a>(
    agent: &'a Agent,
    state: &RunState,
    call: &PendingCall,
    vars: &EngineVars,
) -> CallPlan<'a> {
    if state.is_ended_by_hook() {
        return CallPlan::Refuse(ENDED_BY_HOOK_OBSERVATION.to_owned());
    }
    if state.is_told_to_stop() {
        return CallPlan::Refuse(NOT_RUN_FOR_MESSAGE.to_owned());
    }
    if state.result.is_some() {
        let reason = "The run has its result already, from a call before this one.";
        return CallPlan::Refuse(reason.to_owned());
    }
    let limit = state.start.as_ref().and_then(|start| start.calls_per_answer);
    if let Some(limit) = limit.filter(|limit| call.index >= *limit as usize) {
        return CallPlan::Refuse(format!(
            "Only the first {limit} calls of an answer are run; this one was not. Repeat it in your next answer if you still need it."
        ));
    }
    let refused = |reason: String| CallPlan::Refuse(with_cut_off_note(state, reason));
    if state.was_cut_off && call.arguments.as_str().trim().is_empty() {
        // Empty arguments usually mean `{}`, but here the tool might do something the LLM never
        // asked for.
        return refused("The arguments of this call are missing; it was not run.".to_owned());
    }
    match (agent.tool(&call.tool), call.tool.as_str()) {
        (Some(_), _) if call.is_redacted => refused(KEY_IN_CALL.to_owned()),
        (Some(tool), _) => match CheckedCall::check(call.clone(), tool, vars) {
            Ok(checked) => CallPlan::Start(Box::new(checked)),
            Err(reason) if state.has_rules(2) => {
                let wrong =
                    state.has_rules(3).then(|| tool.describe_wrong_arguments(&call.arguments));
                let reason = wrong.flatten().unwrap_or(reason);
                refused(add_parameter_line(reason, &tool.parameters))
            }
            Err(reason) => refused(reason),
        },
        (None, FINISH_TOOL) if !matches!(agent.finish, FinishTool::Disabled) => {
            let schema = agent.finish.described_schema();
            check_builtin(agent, state, &call.arguments, schema, |arguments| {
                check_finish_result(agent, arguments)
            })
            .map_or_else(refused, |(arguments, result)| CallPlan::Finish(arguments, result))
        }
        (None, ASK_HUMAN_TOOL) if agent.ask_human => {
            let schema = ask_human::question_schema();
            check_builtin(agent, state, &call.arguments, schema, |arguments| {
                let arguments = arguments.clone();
                ask_human::parse_question(&PendingCall { arguments, ..call.clone() })
            })
            .map_or_else(refused, |(arguments, question)| CallPlan::Ask(arguments, question))
        }
        (None, unknown) => CallPlan::Refuse(unknown_tool_observation(agent, unknown)),
    }
}

/// The calls that run at the same time as `first`, which is the next call, with their plans: they directly follow it, and
/// the tools of all of them, `first` included, are `parallel`. There are at most `limit`, counting `first`.
pub fn plan_companions<'a: 's, 's>(
    agent: &'a Agent,
    state: &'s RunState,
    first: &'s PendingCall,
    limit: usize,
    vars: &'s EngineVars,
) -> impl Iterator<Item = (&'s PendingCall, CallPlan<'a>)> {
    let is_parallel = |call: &PendingCall| agent.tool(&call.tool).is_some_and(|tool| tool.parallel);
    let limit = if is_parallel(first) { limit.saturating_sub(1) } else { 0 };
    let calls = state.queued_after(first).take(limit).take_while(move |call| is_parallel(call));
    calls.map(|call| (call, plan_call(agent, state, call, vars)))
}

/// Adds to `reason` that the answer was cut off, if it was.
fn with_cut_off_note(state: &RunState, reason: String) -> String {
    if !state.was_cut_off {
        return reason;
    }
    format!(
        "{reason}\nThe answer was cut off at the token limit (finish_reason `length`), so the call may be incomplete."
    )
}

fn unknown_tool_observation(agent: &Agent, name: &str) -> String {
    let tools = agent.tools.iter().map(|tool| tool.name.as_str());
    let names: Vec<&str> = tools.chain(agent.builtins()).collect();
    let known_tool = names.iter().find(|known| **known == plain_tool_name(name));
    let suggestion = match known_tool {
        Some(known) => format!("did you mean `{known}`?"),
        None => suggest::did_you_mean(name, names.iter().copied()),
    };
    // Nothing is left out: the name may differ from a tool's by a blank or a control character.
    let name: String = terminal_text::escape_to_line(name).chars().take(MAX_NAME_CHARS).collect();
    format!("There is no tool `{name}`; {suggestion}")
}

/// Checks the arguments of a built-in tool with `schema`. By the rules of this version, they are taken as for other tools, and the
/// observation names the parameters.
fn check_builtin<T>(
    agent: &Agent,
    state: &RunState,
    arguments: &CallArguments,
    schema: Json,
    check: impl Fn(&CallArguments) -> Result<T, String>,
) -> Result<(RecordedArguments, T), String> {
    let problem = match check(arguments) {
        Ok(checked) => return Ok((arguments.into(), checked)),
        Err(problem) if !state.has_rules(2) => return Err(problem),
        Err(problem) => problem,
    };
    let schema = ValueSchema::of_builtin(schema);
    let coerced =
        if agent.llm.strict_arguments { None } else { schema.coerce_arguments(arguments) };
    let problem = match coerced.map(|coerced| (check(&coerced.arguments), coerced)) {
        Some((Ok(checked), CoercedArguments { arguments, names })) => {
            let recorded = RecordedArguments { json: arguments.to_value(), coerced: names };
            return Ok((recorded, checked));
        }
        // What the tool would take is not wrong.
        Some((Err(problem), _)) if state.has_rules(3) => problem,
        Some((Err(_), _)) | None => problem,
    };
    Err(add_parameter_line(problem, &schema_parameters(&schema.json)))
}

fn check_finish_result(agent: &Agent, arguments: &CallArguments) -> Result<ExactJson, String> {
    let wrong =
        |why: String| format!("Invalid arguments for tool `finish`; the run goes on:\n{why}");
    let text = arguments.as_json();
    let arguments: Json =
        arguments.parse().map_err(|error| wrong(format!("- they are not JSON ({error})")))?;
    if let FinishTool::Schema(schema) = &agent.finish {
        let errors: Vec<String> = schema
            .validator
            .find_violations(&arguments)
            .iter()
            .map(|violation| format!("- {violation}"))
            .collect();
        return if errors.is_empty() {
            Ok(ExactJson::new(arguments, text))
        } else {
            Err(wrong(errors.join("\n")))
        };
    }
    match (arguments.get("result"), arguments.as_object().map(serde_json::Map::len)) {
        (Some(result @ (Json::String(_) | Json::Object(_))), Some(1)) => {
            let entries: HashMap<String, &RawValue> =
                serde_json::from_str(text).unwrap_or_default();
            let written = entries.get("result").map_or("", |raw| raw.get());
            Ok(ExactJson::new(result.clone(), written))
        }
        (Some(Json::String(_) | Json::Object(_)), _) => {
            Err(wrong("- `result` is the only parameter".to_owned()))
        }
        _ => Err(wrong("- `result` must be there, and be a string or an object".to_owned())),
    }
}
