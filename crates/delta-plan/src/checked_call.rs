//! A call that fits its tool, with the proof of that: its arguments as the check returned them.
//!
//! A call is parsed and checked here, once. What comes after it (pre_tool_execution, the approval, the execution) takes
//! this type and so cannot check again. Arguments from a hook are others, and make another checked call.
//!
//! So a call costs one check, which reads the text twice: for a tree, and for the exact text of each value. That is so for
//! every kind of tool, with `approve` and behind a gate. A question costs the same once more, because the step after the
//! decision starts from the journal, maybe in another process.

use delta_agent::tool::Tool;
use delta_agent::tool::invocation::{CheckedArguments, ToolInvocation};
use delta_base::engine_variables::EngineVars;
use delta_run::state::PendingCall;
use delta_words::CallArguments;

/// A call whose arguments fit its tool.
#[derive(Debug, Clone)]
pub struct CheckedCall<'a> {
    call: PendingCall,
    tool: &'a Tool,
    arguments: CheckedArguments,
    invocation: ToolInvocation,
}

impl<'a> CheckedCall<'a> {
    /// Checks the arguments of `call`.
    ///
    /// # Errors
    /// The observation that names every problem for the LLM.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that checks the arguments of a call"
    )]
    pub(crate) fn check(
        call: PendingCall,
        tool: &'a Tool,
        vars: &EngineVars,
    ) -> Result<Self, String> {
        let arguments = tool.check_arguments(&call.arguments)?;
        let invocation = tool.invocation(&arguments, vars);
        Ok(Self { call, tool, arguments, invocation })
    }

    /// The same call with the arguments that pre_tool_execution gave in place of its own.
    ///
    /// # Errors
    /// The reason for which the call is denied: the arguments do not fit.
    pub fn with_gate_arguments(
        &self,
        arguments: CallArguments,
        vars: &EngineVars,
    ) -> Result<Self, String> {
        let call = PendingCall { arguments, ..self.call.clone() };
        Self::check(call, self.tool, vars)
            .map_err(|error| format!("the hook gave arguments that do not fit.\n{error}"))
    }

    /// The call with the text of the checked arguments.
    pub fn call(&self) -> &PendingCall {
        &self.call
    }

    /// The tool whose check the arguments have passed.
    pub fn tool(&self) -> &'a Tool {
        self.tool
    }

    /// The checked arguments.
    pub fn arguments(&self) -> &CheckedArguments {
        &self.arguments
    }

    /// The command line that the arguments make.
    pub fn invocation(&self) -> &ToolInvocation {
        &self.invocation
    }

    /// The call without its proof, for one that starts nothing.
    pub fn into_call(self) -> PendingCall {
        self.call
    }

    /// The call and what was made of it, for one about which nothing is left to decide.
    pub fn into_parts(self) -> (PendingCall, CheckedArguments, ToolInvocation) {
        (self.call, self.arguments, self.invocation)
    }
}
