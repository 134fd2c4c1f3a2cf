//! What the LLM reads in place of the result of a call that a hook stopped, and how much of a hook it can see.

use delta_agent::tool::observation::Observation;
use delta_run::state::RunState;

/// How many bytes of a hook's standard error are shown.
pub const SHOWN_STDERR_BYTES: usize = 8 * 1024;

/// The observation of a call after a hook has ended the run.
pub const ENDED_BY_HOOK_OBSERVATION: &str = "A hook has ended the run; this call was not run.";

/// The observation of a call when post_tool_execution failed with `on_failure: fail`.
const WITHHELD_OBSERVATION: &str = "[withheld: the hook post_tool_execution did not do its part; the tool has run, and its record is kept]";

/// The observation of a call whose output the LLM must not see.
pub fn withheld_observation(observation: Observation) -> Observation {
    let text = WITHHELD_OBSERVATION.to_owned();
    Observation { text, images: Vec::new(), is_withheld: true, ..observation }
}

/// The observation of the call `call_id`, denied in a run at `state`.
pub fn denied_observation(state: &RunState, call_id: &str, reason: &str) -> String {
    let not_run = if state.had_started(call_id) {
        "the tool was not run again; whether it took effect before is unknown"
    } else {
        "the tool was not run"
    };
    format!("Denied by the hook pre_tool_execution; {not_run}.\n{reason}")
}
