//! The protocol of the hooks: what their exit status and output mean.
//!
//! Pure. A gate opens only for explicit consent: its standard output is blank or one JSON object of
//! the known form; everything else keeps it shut.
//!
//! Recorded observations of denied calls contain the reason of a failure, and a replay computes it
//! again. So the wording of the reasons is a format.

use super::{HookConfig, HookFailurePolicy, HookPoint};
use delta_base::{error_text, json_repair, terminal_text};
use delta_process::{OutputCapture, ProcessEnd, ProcessResult, signal_name};
use delta_run::event::HookEnd;
use delta_words::CallArguments;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};

/// Why a hook failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookFailure {
    /// Completes the sentence "the hook ...".
    pub reason: String,
    /// Whether it printed an answer that is not understood: a JSON object that is none, or text with an answer in it.
    /// `on_failure: ignore` covers hooks that fail; a misunderstood answer is never taken for consent.
    pub invalid_answer: bool,
}

impl HookFailure {
    /// The failure of a hook that printed a JSON object that is not a valid answer.
    pub fn invalid_answer(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), invalid_answer: true }
    }

    /// The failure of a program whose answer may be invalid as well.
    fn with_answer(self, answer: Option<&Self>) -> Self {
        Self { invalid_answer: answer.is_some_and(|answer| answer.invalid_answer), ..self }
    }

    /// Whether a gate opens despite the failure.
    pub fn is_ignored(&self, on_failure: HookFailurePolicy) -> bool {
        on_failure == HookFailurePolicy::Ignore && !self.invalid_answer
    }
}

/// The decision of a pre_tool_execution hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateVerdict {
    /// Run the call.
    Proceed,
    /// Run the call with these arguments, which are not yet checked.
    Replace(CallArguments),
    /// Do not run the call, for this reason.
    Deny(String),
    /// Do not run the call, and end the run.
    End(HookEnd),
}

/// What a hook replaces, and how it ends the run.
#[derive(Debug, PartialEq)]
pub struct HookAnswer<T> {
    /// The replacement, if there is one.
    pub replacement: Option<T>,
    /// The end of the run, if the hook ends it.
    pub end: Option<HookEnd>,
}

impl<T> HookAnswer<T> {
    const NONE: Self = Self { replacement: None, end: None };
}

/// What a pre_llm_request hook sends instead.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestReplacement {
    /// Another request body.
    Request(Map<String, Json>),
    /// The same request with other messages.
    Messages(Vec<Json>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolGateAnswer {
    #[serde(default, deserialize_with = "required_value")]
    decision: Option<GateDecision>,
    #[serde(default, deserialize_with = "required_value")]
    reason: Option<String>,
    #[serde(default, deserialize_with = "required_value")]
    arguments: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "required_value")]
    end: Option<HookEnd>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GateDecision {
    Allow,
    Deny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestAnswer {
    #[serde(default, deserialize_with = "required_value")]
    request: Option<Map<String, Json>>,
    #[serde(default, deserialize_with = "required_value")]
    messages: Option<Vec<Json>>,
    #[serde(default, deserialize_with = "required_value")]
    end: Option<HookEnd>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResponseAnswer {
    #[serde(default, deserialize_with = "required_value")]
    response: Option<Map<String, Json>>,
    #[serde(default, deserialize_with = "required_value")]
    end: Option<HookEnd>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObservationAnswer {
    #[serde(default, deserialize_with = "required_value")]
    observation: Option<String>,
    #[serde(default, deserialize_with = "required_value")]
    end: Option<HookEnd>,
}

/// A key that is present needs a value: `null` is an error.
fn required_value<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Why the program of a hook failed; `None` if it succeeded.
pub fn hook_failure(finished: &ProcessResult, configured: &HookConfig) -> Option<HookFailure> {
    let how = match &finished.end {
        ProcessEnd::Exited(0) => return None,
        ProcessEnd::Exited(code) => format!("left with exit code {code}"),
        ProcessEnd::Killed(signal) => format!("was killed by {}", signal_name(*signal)),
        ProcessEnd::TimedOut => format!("was not done after {} ms", configured.timeout_ms),
        ProcessEnd::Cancelled => "was interrupted".to_owned(),
        ProcessEnd::OutOfTime => "was ended by the time limit of the run".to_owned(),
        ProcessEnd::ForMessage => "was ended for a message of the operator".to_owned(),
        ProcessEnd::NotStarted { reason, .. } => format!("could not be started: {reason}"),
    };
    let stderr = stderr_text(&finished.stderr);
    let reason = if stderr.is_empty() { how } else { format!("{how}:\n{stderr}") };
    Some(HookFailure { reason, invalid_answer: false })
}

/// The decision of a pre_tool_execution hook, and how the hook failed if it did.
pub fn parse_gate_verdict(
    finished: &ProcessResult,
    configured: &HookConfig,
) -> (GateVerdict, Option<HookFailure>) {
    let answer = parse_hook_stdout::<ToolGateAnswer>(HookPoint::PreToolExecution, finished);
    let stderr = stderr_text(&finished.stderr);
    if let (Ok(Some(ToolGateAnswer { end: Some(end), .. })), None) =
        (&answer, hook_failure(finished, configured))
    {
        return match end.check() {
            Ok(()) => (GateVerdict::End(end.clone()), None),
            Err(why) => {
                let failure = HookFailure::invalid_answer(why);
                (GateVerdict::Deny(format!("the hook {}", failure.reason)), Some(failure))
            }
        };
    }
    // An explicit denial counts however the program ended.
    if let Ok(Some(ToolGateAnswer { decision: Some(GateDecision::Deny), reason, .. })) = answer {
        let mut reason = reason.filter(|reason| !reason.trim().is_empty()).unwrap_or(stderr);
        if reason.is_empty() {
            reason.push_str("the hook gave no reason");
        }
        return (GateVerdict::Deny(reason), None);
    }
    let failure = match (hook_failure(finished, configured), answer) {
        (Some(failure), answer) => failure.with_answer(answer.err().as_ref()),
        (None, Err(failure)) => failure,
        (None, Ok(None)) => return (GateVerdict::Proceed, None),
        (None, Ok(Some(answer))) => match (answer.arguments, answer.decision, answer.reason) {
            (Some(arguments), ..) => {
                return (GateVerdict::Replace(CallArguments::new(arguments.get())), None);
            }
            (None, None, Some(_)) => {
                HookFailure::invalid_answer("gave a `reason` and no `decision`, which is no answer")
            }
            (None, ..) => return (GateVerdict::Proceed, None),
        },
    };
    if failure.is_ignored(configured.on_failure) {
        return (GateVerdict::Proceed, Some(failure));
    }
    let reason = match finished.end {
        // The Unix way to say no: the reason is on standard error.
        ProcessEnd::Exited(1..) if !stderr.is_empty() => stderr,
        _ => format!("the hook {}", failure.reason),
    };
    (GateVerdict::Deny(reason), Some(failure))
}

/// What a pre_llm_request hook sends instead of the request, if anything, or how it ends the run.
pub fn parse_request_replacement(
    finished: &ProcessResult,
    configured: &HookConfig,
) -> Result<HookAnswer<RequestReplacement>, HookFailure> {
    let Some(answer) =
        parse_successful_answer::<RequestAnswer>(HookPoint::PreLlmRequest, finished, configured)?
    else {
        return Ok(HookAnswer::NONE);
    };
    let end = checked_end(answer.end)?;
    let wrong = |why: String| {
        HookFailure::invalid_answer(format!("gave a request that cannot be sent: {why}"))
    };
    let replacement = match (answer.request, answer.messages) {
        (None, None) => None,
        (Some(_), Some(_)) => {
            return Err(HookFailure::invalid_answer(
                "gave `request` and `messages`, and only one of them counts",
            ));
        }
        (None, Some(messages)) => {
            check_message_sequence(&messages).map_err(wrong)?;
            Some(RequestReplacement::Messages(messages))
        }
        (Some(request), None) => {
            let Some(Json::Array(messages)) = request.get("messages") else {
                return Err(wrong("it has no list of `messages`".to_owned()));
            };
            check_message_sequence(messages).map_err(wrong)?;
            if !request.get("model").is_some_and(Json::is_string) {
                return Err(wrong("it has no `model`".to_owned()));
            }
            Some(RequestReplacement::Request(request))
        }
    };
    Ok(HookAnswer { replacement, end })
}

fn checked_end(end: Option<HookEnd>) -> Result<Option<HookEnd>, HookFailure> {
    if let Some(Err(why)) = end.as_ref().map(HookEnd::check) {
        return Err(HookFailure::invalid_answer(why));
    }
    Ok(end)
}

/// The response with which a post_llm_response hook replaces the LLM's, if it does, and how it ends the run.
pub fn parse_response_replacement(
    finished: &ProcessResult,
    configured: &HookConfig,
) -> Result<HookAnswer<Json>, HookFailure> {
    let answer = parse_successful_answer::<ResponseAnswer>(
        HookPoint::PostLlmResponse,
        finished,
        configured,
    )?;
    let Some(answer) = answer else { return Ok(HookAnswer::NONE) };
    let end = checked_end(answer.end)?;
    Ok(HookAnswer { replacement: answer.response.map(Json::Object), end })
}

/// The observation with which a post_tool_execution hook replaces the tool's, if it does, and how it ends the run.
pub fn parse_observation_replacement(
    finished: &ProcessResult,
    configured: &HookConfig,
) -> Result<HookAnswer<String>, HookFailure> {
    let answer = parse_successful_answer::<ObservationAnswer>(
        HookPoint::PostToolExecution,
        finished,
        configured,
    )?;
    let Some(answer) = answer else { return Ok(HookAnswer::NONE) };
    Ok(HookAnswer { replacement: answer.observation, end: checked_end(answer.end)? })
}

/// The answer of a hook whose program succeeded.
fn parse_successful_answer<T: DeserializeOwned>(
    hook: HookPoint,
    finished: &ProcessResult,
    configured: &HookConfig,
) -> Result<Option<T>, HookFailure> {
    let answer = parse_hook_stdout(hook, finished);
    match (hook_failure(finished, configured), answer) {
        (Some(failure), answer) => Err(failure.with_answer(answer.err().as_ref())),
        (None, answer) => answer,
    }
}

/// The answer on standard output. Blank output gives none; for a hook that is not a gate, neither
/// does text in which no answer begins. While a process holds the output, its answer may be to come.
fn parse_hook_stdout<T: DeserializeOwned>(
    hook: HookPoint,
    finished: &ProcessResult,
) -> Result<Option<T>, HookFailure> {
    let answer = parse_finished_answer(hook, &finished.stdout)?;
    if answer.is_none() && finished.left.held_stdout {
        let reason = "left its standard output open to a process that was still running, and printed no answer\n(start what is to work on with `> /dev/null`, and wait for what prints the answer)";
        return Err(HookFailure { reason: reason.to_owned(), invalid_answer: false });
    }
    Ok(answer)
}

fn parse_finished_answer<T: DeserializeOwned>(
    hook: HookPoint,
    stdout: &OutputCapture,
) -> Result<Option<T>, HookFailure> {
    let start = stdout.whole.as_deref().unwrap_or(&stdout.head).trim_ascii_start();
    if start.is_empty() && stdout.whole.is_some() {
        return Ok(None);
    }
    let invalid_answer = contains_answer(hook, start);
    if !hook.is_gate() && !start.starts_with(b"{") && !invalid_answer {
        return Ok(None);
    }
    let failed = |reason: String| Err(HookFailure { reason, invalid_answer });
    let Some(bytes) = &stdout.whole else {
        return failed("printed more than an answer may be (64 MiB)".to_owned());
    };
    let Ok(text) = std::str::from_utf8(bytes) else {
        return failed("printed bytes that are not UTF-8 in the place of an answer".to_owned());
    };
    if !start.starts_with(b"{") {
        return failed(format!(
            "printed something that is not one JSON object: {}\n(standard output is for the answer alone; what people are to read goes to standard error)",
            terminal_text::truncate_to_line(text.trim(), 200)
        ));
    }
    let text = json_repair::replace_lone_surrogates(text);
    serde_json::from_str(&text).map(Some).map_err(|error| {
        let is_object = serde_json::from_str::<IgnoredAny>(&text).is_ok();
        let problem = if is_object {
            format!("an object that is no answer ({})", error_text::describe_json_error(&error))
        } else {
            format!("invalid JSON ({error})")
        };
        let output = terminal_text::truncate_to_line(text.trim(), 200);
        let invalid_answer = is_object || invalid_answer;
        HookFailure { reason: format!("printed {problem}: {output}"), invalid_answer }
    })
}

/// Whether an answer of this hook seems to be in the output, complete or not: an object with one of its keys, which begins
/// a line where other text is allowed.
fn contains_answer(hook: HookPoint, output: &[u8]) -> bool {
    let keys: &[&str] = match hook {
        HookPoint::PreToolExecution => &["decision", "arguments", "end"],
        HookPoint::PreLlmRequest => &["request", "messages", "end"],
        HookPoint::PostLlmResponse => &["response", "end"],
        HookPoint::PostToolExecution => &["observation", "end"],
        _ => return false,
    };
    let text = String::from_utf8_lossy(output);
    let blanks = ['\u{feff}', ' ', '\t'];
    let lines = text.split_inclusive('\n').map(|line| line.trim_start_matches(blanks));
    let object: String = if hook.is_gate() {
        text.split_inclusive('{').skip(1).collect()
    } else {
        lines.skip_while(|line| !line.starts_with('{')).collect()
    };
    keys.iter().any(|key| object.contains(&format!("\"{key}\"")))
}

/// Checks that a strict endpoint would accept the conversation: each call has one result, directly
/// after the message that makes it.
fn check_message_sequence(messages: &[Json]) -> Result<(), String> {
    if messages.is_empty() {
        return Err("it has no message".to_owned());
    }
    let mut open: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let number = index + 1;
        let Some(role) = message.get("role").and_then(Json::as_str) else {
            return Err(format!("message {number} is not an object with a `role`"));
        };
        if role == "tool" {
            let id = message.get("tool_call_id").and_then(Json::as_str).unwrap_or_default();
            let Some(at) = open.iter().position(|call| *call == id) else {
                return Err(format!("message {number} is the result of no call before it"));
            };
            open.remove(at);
            continue;
        }
        if let Some(id) = open.first() {
            return Err(format!("the call `{id}` has no result before message {number}"));
        }
        for call in message.get("tool_calls").and_then(Json::as_array).into_iter().flatten() {
            let id = call.get("id").and_then(Json::as_str);
            open.push(id.ok_or_else(|| format!("a call in message {number} has no `id`"))?);
        }
    }
    match open.first() {
        Some(id) => Err(format!("the call `{id}` has no result")),
        None => Ok(()),
    }
}

fn stderr_text(stderr: &OutputCapture) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut out = text(&stderr.head);
    if !stderr.tail.is_empty() {
        out.push_str("\n[...]\n");
        out.push_str(&text(&stderr.tail));
    }
    out.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_process::LeftProcesses;
    use proptest::prelude::*;
    use std::time::Duration;

    fn printed(end: ProcessEnd, stdout: &[u8], stderr: &[u8]) -> ProcessResult {
        let capture = |bytes: &[u8]| OutputCapture {
            bytes: bytes.len() as u64,
            whole: Some(bytes.to_vec()),
            head: bytes.to_vec(),
            ..OutputCapture::default()
        };
        let duration = Duration::ZERO;
        let (stdout, stderr) = (capture(stdout), capture(stderr));
        ProcessResult { end, duration, stdout, stderr, left: LeftProcesses::default() }
    }

    fn configured(on_failure: HookFailurePolicy) -> HookConfig {
        HookConfig {
            command: Vec::new(),
            timeout_ms: 1,
            on_failure,
            pass_env: Vec::new(),
            sandbox: None,
            profile: None,
        }
    }

    /// Fragments of answers, complete and broken.
    fn output() -> impl Strategy<Value = Vec<u8>> {
        let pieces = [
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            " ",
            "\n",
            "null",
            "true",
            "7",
            "\"decision\"",
            "\"deny\"",
            "\"allow\"",
            "\"Deny\"",
            "\"reason\"",
            "\"arguments\"",
            "\"x\"",
            "deny",
            "{\"decision\":\"deny\"}",
            "{\"decision\":\"allow\"}",
            "\"decision\":\"allow\"",
        ];
        let piece = prop_oneof![
            9 => prop::sample::select(pieces.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..3),
        ];
        prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
    }

    /// Whether a plain JSON reader would call this consent.
    fn is_consent(stdout: &[u8]) -> bool {
        if stdout.trim_ascii().is_empty() {
            return true;
        }
        let Ok(Json::Object(answer)) = serde_json::from_slice(stdout) else { return false };
        let decision = answer.get("decision");
        let known = ["decision", "reason", "arguments"];
        decision.is_none_or(|decision| decision == "allow")
            && answer.keys().all(|key| known.contains(&key.as_str()))
            && !String::from_utf8_lossy(stdout).contains("\"deny\"")
    }

    proptest! {
        #[test]
        fn c_9_4_only_consent_is_consent(stdout in output(), code in 0..3_i32) {
            let finished = printed(ProcessEnd::Exited(code), &stdout, b"");
            let (verdict, _) = parse_gate_verdict(&finished, &configured(HookFailurePolicy::Fail));
            let passed = !matches!(verdict, GateVerdict::Deny(_));
            prop_assert!(!passed || (code == 0 && is_consent(&stdout)));
        }

        #[test]
        fn c_9_4_what_did_not_leave_with_0_is_no_consent(stdout in output(), how in 0..5) {
            let end = match how {
                0 => ProcessEnd::Killed(9),
                1 => ProcessEnd::TimedOut,
                2 => ProcessEnd::Cancelled,
                3 => ProcessEnd::OutOfTime,
                _ => ProcessEnd::NotStarted { code: 127, reason: "it is not there".to_owned() },
            };
            let finished = printed(end, &stdout, b"");
            let (verdict, failure) = parse_gate_verdict(&finished, &configured(HookFailurePolicy::Fail));
            prop_assert!(matches!(verdict, GateVerdict::Deny(_)));
            let clear_no = failure.is_none();
            prop_assert!(!clear_no || String::from_utf8_lossy(&stdout).contains("\"deny\""));
            prop_assert!(parse_request_replacement(&finished, &configured(HookFailurePolicy::Fail)).is_err());
        }
    }

    #[test]
    fn c_9_3_messages_that_a_strict_endpoint_refuses_are_refused() {
        let check =
            |text: &str| check_message_sequence(&serde_json::from_str::<Vec<Json>>(text).unwrap());
        let call = |id: &str| format!(r#"{{"role":"assistant","tool_calls":[{{"id":"{id}"}}]}}"#);
        let result = |id: &str| format!(r#"{{"role":"tool","tool_call_id":"{id}","content":""}}"#);
        let user = r#"{"role":"user","content":"x"}"#;
        assert_eq!(check(&format!("[{user},{},{},{user}]", call("a"), result("a"))), Ok(()));
        for wrong in [
            format!("[{user},{},{user}]", call("a")),
            format!("[{user},{},{}]", call("a"), result("b")),
            format!("[{user},{},{},{}]", call("a"), result("a"), result("a")),
            format!("[{user},{},{user},{}]", call("a"), result("a")),
            format!("[{},{user}]", result("a")),
            r#"[{"role":"assistant","tool_calls":[{}]}]"#.to_owned(),
            r#"[{"role":7}]"#.to_owned(),
            "[[]]".to_owned(),
        ] {
            assert!(check(&wrong).is_err(), "{wrong}");
        }
    }
}
