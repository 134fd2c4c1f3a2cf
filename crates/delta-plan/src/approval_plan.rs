//! Whether a call may start, decided from the agent's rules, the operator's options and the journal. Pure, so that a
//! replay decides as the run did. For the same reason, the wording of the observations is a format.

use crate::checked_call::CheckedCall;
use delta_agent::tool::approval::{ApprovalAction, ApprovalPolicy};
use delta_base::engine_variables::EngineVars;
use delta_base::redact::is_redaction_of;
use delta_base::time::Timestamp;
use delta_run::event::approval::{
    ApprovalDecision, ApprovalRequest, ApprovalSource, AskedApproval,
};
use delta_run::state::{PendingCall, RunState};
use delta_words::CallArguments;
use serde_json::Value as Json;

/// Whether a call may start.
#[derive(Debug, PartialEq, Eq)]
pub enum ApprovalPlan {
    /// Its tool needs no approval.
    NotRequired,
    /// It is approved.
    Approved {
        /// Who approved it.
        by: ApprovalSource,
        /// When it was approved; `None` for now.
        at: Option<Timestamp>,
        /// The number of the rule that allows it.
        rule: Option<u32>,
    },
    /// A person has to approve it.
    Ask {
        /// The number of the rule that asks.
        rule: Option<u32>,
    },
    /// It must not start; the LLM gets this observation.
    Deny(String),
}

/// Decides whether `checked`, the call as pre_tool_execution left it, may start.
pub fn plan_approval(
    state: &RunState,
    checked: &CheckedCall<'_>,
    vars: &EngineVars,
) -> ApprovalPlan {
    let call = checked.call();
    let tool = checked.tool();
    let operator = state.operator_approval();
    let operator_asks = operator.is_some_and(|operator| operator.asks_for(&tool.name));
    let policy = tool.approval_policy();
    let approval = state.asked_approval(&call.id);
    if matches!(policy, ApprovalPolicy::Never) && !operator_asks && approval.is_none() {
        return ApprovalPlan::NotRequired;
    }
    let verdict = policy.verdict(&tool.parameters, checked.arguments());
    let rule = verdict.rule;
    match verdict.action {
        ApprovalAction::Deny(reason) => {
            let first = not_started(state, call, "Denied by a rule of the agent; ");
            return ApprovalPlan::Deny(with_reason(first, reason.as_deref()));
        }
        ApprovalAction::Allow if !operator_asks && approval.is_none() => {
            return match policy {
                ApprovalPolicy::Never => ApprovalPlan::NotRequired,
                _ => ApprovalPlan::Approved { by: ApprovalSource::Rule, at: None, rule },
            };
        }
        ApprovalAction::Allow | ApprovalAction::Ask => {}
    }
    if let Some(AskedApproval { request, decision: Some((decision, at)), .. }) = approval {
        let is_same = request.command_sha256 == tool.command_sha256(checked.invocation(), vars)
            && is_as_shown(request, checked);
        return apply_decision(state, call, decision, *at, is_same);
    }
    if operator.is_some_and(|operator| operator.all) {
        return ApprovalPlan::Approved { by: ApprovalSource::Flag, at: None, rule: None };
    }
    if let Some(since) = state.tool_approved_since(&tool.name) {
        let by = ApprovalSource::Terminal;
        return ApprovalPlan::Approved { by, at: Some(since), rule: None };
    }
    // The number of a rule that would allow the call does not matter: the operator asks.
    let rule = rule.filter(|_| matches!(verdict.action, ApprovalAction::Ask));
    ApprovalPlan::Ask { rule }
}

const NOT_THE_APPROVED_COMMAND: &str =
    "What would start is no longer what was approved, because the agent or the call has changed; ";

fn apply_decision(
    state: &RunState,
    call: &PendingCall,
    decision: &ApprovalDecision,
    at: Timestamp,
    is_same: bool,
) -> ApprovalPlan {
    match (decision.approved, is_same) {
        (true, true) => ApprovalPlan::Approved { by: decision.by, at: Some(at), rule: None },
        (true, false) => ApprovalPlan::Deny(not_started(state, call, NOT_THE_APPROVED_COMMAND)),
        (false, _) => {
            let first = not_started(state, call, "Denied by the operator; ");
            ApprovalPlan::Deny(with_reason(first, decision.reason.as_deref()))
        }
    }
}

/// Whether the person was shown this call: the journal may have been changed.
fn is_as_shown(request: &ApprovalRequest, checked: &CheckedCall<'_>) -> bool {
    let argv = &checked.invocation().argv;
    let words = request.argv.iter().zip(argv);
    request.tool_name == checked.call().tool
        && request.argv.len() == argv.len()
        && words.into_iter().all(|(recorded, word)| is_redaction_of(recorded, word))
        && is_redacted_json(&request.tool_args, checked.arguments().json())
}

/// Whether `redacted` is `value`, but for secrets in its strings.
fn is_redacted_json(redacted: &Json, value: &Json) -> bool {
    match (redacted, value) {
        (Json::String(redacted), Json::String(text)) => is_redaction_of(redacted, text),
        (Json::Array(redacted), Json::Array(items)) => {
            redacted.len() == items.len()
                && redacted.iter().zip(items).all(|(one, other)| is_redacted_json(one, other))
        }
        (Json::Object(redacted), Json::Object(fields)) => {
            redacted.len() == fields.len()
                && redacted.iter().all(|(name, one)| {
                    fields.get(name).is_some_and(|other| is_redacted_json(one, other))
                })
        }
        _ => redacted == value,
    }
}

fn not_started(state: &RunState, call: &PendingCall, why: &str) -> String {
    let outcome = if state.had_started(&call.id) {
        "the tool was not run again; whether it took effect before is unknown."
    } else {
        "the tool was not run."
    };
    format!("{why}{outcome}")
}

fn with_reason(first: String, reason: Option<&str>) -> String {
    reason.map_or_else(|| first.clone(), |reason| format!("{first}\n{reason}"))
}

/// The call as pre_tool_execution left it, if this process has asked for its approval: then the gate has seen it already.
/// Another process asks the gate again, because the hook may have changed. It is also asked again if the arguments no longer
/// fit, because the journal has redacted a part of them.
pub fn call_after_gate<'a>(
    state: &RunState,
    checked: &CheckedCall<'a>,
    vars: &EngineVars,
) -> Option<CheckedCall<'a>> {
    let approval = state.asked_approval(&checked.call().id)?;
    let epoch = state.start.as_ref()?.epoch;
    if approval.epoch != epoch || approval.decision.is_none() {
        return None;
    }
    let tool_args = &approval.request.tool_args;
    // The text of the LLM keeps the digits of its numbers.
    if tool_args == checked.arguments().json() {
        return Some(checked.clone());
    }
    checked.with_gate_arguments(CallArguments::new(tool_args.to_string()), vars).ok()
}
