//! What a call comes to before anything is started: pure, so that a replay decides as the run did.

use crate::agent::{Agent, Finish};
use crate::event::Question;
use crate::human;
use crate::state::{ASK_HUMAN, Call, FINISH, RunState};
use crate::text;
use crate::tool::argv::Invocation;
use crate::vars::Vars;
use serde_json::Value as Json;

/// What a call comes to.
#[derive(Debug)]
pub enum Plan {
    /// A command is started, unless a hook denies it.
    Start(Invocation),
    /// The run has its result.
    Finish(Json),
    /// A person is asked.
    Ask(Question),
    /// Nothing is started, and the LLM is told why.
    Refuse(String),
}

/// What `call` comes to in a run of `agent` that stands at `state`.
pub fn plan(agent: &Agent, state: &RunState, call: &Call, vars: &Vars) -> Plan {
    let refused = |why: String| Plan::Refuse(told(state, why));
    if state.cut_off && call.arguments.trim().is_empty() {
        // Empty arguments are otherwise `{}`, and a tool would do what nobody has asked for.
        return refused("The arguments of this call are missing; it was not run.".to_owned());
    }
    match (agent.tool(&call.tool), call.tool.as_str()) {
        (Some(tool), _) => match tool.check(&call.arguments) {
            Ok(arguments) => Plan::Start(tool.invocation(&arguments, vars)),
            Err(why) => refused(why),
        },
        (None, FINISH) if !matches!(agent.finish, Finish::Off) => {
            if state.result.is_some() {
                let why = "The run has its result already, from a call before this one.";
                return Plan::Refuse(why.to_owned());
            }
            finish_result(agent, &call.arguments).map_or_else(refused, Plan::Finish)
        }
        (None, ASK_HUMAN) => human::question(call).map_or_else(refused, Plan::Ask),
        (None, unknown) => Plan::Refuse(unknown_tool(agent, unknown)),
    }
}

/// `why`, and that the answer was cut off, when it was.
fn told(state: &RunState, why: String) -> String {
    match state.cut_off {
        true => format!(
            "{why}\nThe answer was cut off at the token limit (finish_reason `length`), so the call may be incomplete."
        ),
        false => why,
    }
}

fn unknown_tool(agent: &Agent, name: &str) -> String {
    let tools = agent.tools.iter().map(|tool| tool.name.as_str());
    let names: Vec<&str> = tools.chain(agent.builtins()).collect();
    let shown = text::one_line(&text::printable(name), 80);
    format!("There is no tool `{shown}`; {}", text::did_you_mean(name, names.iter().copied()))
}

fn finish_result(agent: &Agent, arguments: &str) -> Result<Json, String> {
    let wrong =
        |why: String| format!("Invalid arguments for tool `finish`; the run goes on:\n{why}");
    let arguments: Json = serde_json::from_str(&text::mend_surrogates(arguments))
        .map_err(|error| wrong(format!("- they are not JSON ({error})")))?;
    if let Finish::Schema { validator, .. } = &agent.finish {
        let errors: Vec<String> = validator
            .iter_errors(&arguments)
            .map(|error| match error.instance_path().as_str() {
                "" => format!("- {error}"),
                path => format!("- {path}: {error}"),
            })
            .collect();
        return if errors.is_empty() { Ok(arguments) } else { Err(wrong(errors.join("\n"))) };
    }
    match (arguments.get("result"), arguments.as_object().map(serde_json::Map::len)) {
        (Some(result @ (Json::String(_) | Json::Object(_))), Some(1)) => Ok(result.clone()),
        (Some(Json::String(_) | Json::Object(_)), _) => {
            Err(wrong("- `result` is the only parameter".to_owned()))
        }
        _ => Err(wrong("- `result` must be there, and be a string or an object".to_owned())),
    }
}

/// The arguments of a call as an ACTION_REQUEST has them: JSON, or the text that is none.
pub fn recorded_arguments(arguments: &str) -> Json {
    let read = serde_json::from_str(&text::mend_surrogates(arguments));
    read.unwrap_or_else(|_| Json::from(arguments))
}
