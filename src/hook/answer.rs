//! What a hook says by how it ends and what it prints: the one protocol of all eight.
//!
//! Pure. A gate is read so that nothing but consent is consent: its standard output is blank or one JSON object of the
//! known form, and everything else keeps it shut.

use super::{Configured, Hook, OnFailure};
use crate::process::{Capture, End, Finished, signal_name};
use crate::text;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};

/// Why a hook did not do its part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// In words that go on after "the hook ...".
    pub reason: String,
    /// Whether it printed a JSON object that is no answer. `on_failure: ignore` is about hooks that fail; an answer that
    /// was not understood is never taken for consent.
    pub misunderstood: bool,
}

impl Failure {
    /// A JSON object that is no answer.
    pub fn misunderstood(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), misunderstood: true }
    }

    /// The failure of a program whose answer is wrong too.
    fn with(self, answer: Option<&Self>) -> Self {
        Self { misunderstood: answer.is_some_and(|answer| answer.misunderstood), ..self }
    }

    /// Whether a gate opens all the same.
    pub fn is_ignored(&self, on_failure: OnFailure) -> bool {
        on_failure == OnFailure::Ignore && !self.misunderstood
    }
}

/// What a pre_tool_execution hook decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The call goes on.
    Proceed,
    /// It goes on with these arguments, which are not checked yet.
    Replace(String),
    /// It does not, for this reason.
    Deny(String),
}

/// What a pre_llm_request hook puts in the place of what would be sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Replacement {
    /// Of the whole request body.
    Request(Map<String, Json>),
    /// Of its messages.
    Messages(Vec<Json>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolAnswer {
    #[serde(default, deserialize_with = "given")]
    decision: Option<Decision>,
    #[serde(default, deserialize_with = "given")]
    reason: Option<String>,
    #[serde(default, deserialize_with = "given")]
    arguments: Option<Box<RawValue>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Decision {
    Allow,
    Deny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestAnswer {
    #[serde(default, deserialize_with = "given")]
    request: Option<Map<String, Json>>,
    #[serde(default, deserialize_with = "given")]
    messages: Option<Vec<Json>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResponseAnswer {
    #[serde(default, deserialize_with = "given")]
    response: Option<Map<String, Json>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObservationAnswer {
    #[serde(default, deserialize_with = "given")]
    observation: Option<String>,
}

/// A value that, when its key is there, must be one: `null` is none.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// Why the program of a hook failed, if it did.
pub fn ending(finished: &Finished, configured: &Configured) -> Option<Failure> {
    let how = match &finished.end {
        End::Exited(0) => return None,
        End::Exited(code) => format!("left with exit code {code}"),
        End::Killed(signal) => format!("was killed by {}", signal_name(*signal)),
        End::TimedOut => format!("was not done after {} ms", configured.timeout_ms),
        End::Cancelled => "was interrupted".to_owned(),
        End::NotStarted { reason, .. } => format!("could not be started: {reason}"),
    };
    let stderr = shown(&finished.stderr);
    let said = if stderr.is_empty() { String::new() } else { format!(":\n{stderr}") };
    Some(Failure { reason: format!("{how}{said}"), misunderstood: false })
}

/// What a pre_tool_execution hook decided, and how it failed, if it did.
pub fn verdict(finished: &Finished, configured: &Configured) -> (Verdict, Option<Failure>) {
    let said = said::<ToolAnswer>(Hook::PreToolExecution, &finished.stdout);
    let stderr = shown(&finished.stderr);
    // A clear no counts, however the program ended.
    if let Ok(Some(ToolAnswer { decision: Some(Decision::Deny), reason, .. })) = said {
        let reason = reason.filter(|reason| !reason.trim().is_empty()).unwrap_or(stderr);
        let none = "the hook gave no reason".to_owned();
        return (Verdict::Deny(if reason.is_empty() { none } else { reason }), None);
    }
    let failure = match (ending(finished, configured), said) {
        (Some(failure), said) => failure.with(said.err().as_ref()),
        (None, Err(failure)) => failure,
        (None, Ok(None)) => return (Verdict::Proceed, None),
        (None, Ok(Some(answer))) => match (answer.arguments, answer.decision, answer.reason) {
            (Some(arguments), ..) => return (Verdict::Replace(arguments.get().to_owned()), None),
            (None, None, Some(_)) => {
                Failure::misunderstood("gave a `reason` and no `decision`, which is no answer")
            }
            (None, ..) => return (Verdict::Proceed, None),
        },
    };
    if failure.is_ignored(configured.on_failure) {
        return (Verdict::Proceed, Some(failure));
    }
    let reason = match finished.end {
        // The Unix way to say no: the reason is what it printed.
        End::Exited(1..) if !stderr.is_empty() => stderr,
        _ => format!("the hook {}", failure.reason),
    };
    (Verdict::Deny(reason), Some(failure))
}

/// What a pre_llm_request hook wants sent, when that is something else.
pub fn replacement(
    finished: &Finished,
    configured: &Configured,
) -> Result<Option<Replacement>, Failure> {
    let Some(answer) = answer_of::<RequestAnswer>(Hook::PreLlmRequest, finished, configured)?
    else {
        return Ok(None);
    };
    let wrong =
        |why: String| Failure::misunderstood(format!("gave a request that cannot be sent: {why}"));
    match (answer.request, answer.messages) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Failure::misunderstood(
            "gave `request` and `messages`, and only one of them counts",
        )),
        (None, Some(messages)) => {
            check_messages(&messages).map_err(wrong)?;
            Ok(Some(Replacement::Messages(messages)))
        }
        (Some(request), None) => {
            let Some(Json::Array(messages)) = request.get("messages") else {
                return Err(wrong("it has no list of `messages`".to_owned()));
            };
            check_messages(messages).map_err(wrong)?;
            if !request.get("model").is_some_and(Json::is_string) {
                return Err(wrong("it has no `model`".to_owned()));
            }
            Ok(Some(Replacement::Request(request)))
        }
    }
}

/// The response that a post_llm_response hook puts in the place of the one that came.
pub fn response(finished: &Finished, configured: &Configured) -> Result<Option<Json>, Failure> {
    let answer = answer_of::<ResponseAnswer>(Hook::PostLlmResponse, finished, configured)?;
    Ok(answer.and_then(|answer| answer.response).map(Json::Object))
}

/// The observation that a post_tool_execution hook puts in the place of the tool's.
pub fn observation(
    finished: &Finished,
    configured: &Configured,
) -> Result<Option<String>, Failure> {
    let answer = answer_of::<ObservationAnswer>(Hook::PostToolExecution, finished, configured)?;
    Ok(answer.and_then(|answer| answer.observation))
}

/// The answer of a hook whose program did well.
fn answer_of<T: DeserializeOwned>(
    hook: Hook,
    finished: &Finished,
    configured: &Configured,
) -> Result<Option<T>, Failure> {
    let said = said(hook, &finished.stdout);
    match (ending(finished, configured), said) {
        (Some(failure), said) => Err(failure.with(said.err().as_ref())),
        (None, said) => said,
    }
}

/// The answer on standard output. Blank is none; at a hook that is no gate, so is text that does not begin like an
/// object.
fn said<T: DeserializeOwned>(hook: Hook, stdout: &Capture) -> Result<Option<T>, Failure> {
    let broken = |reason: String| Err(Failure { reason, misunderstood: false });
    let start = stdout.whole.as_deref().unwrap_or(&stdout.head).trim_ascii_start();
    if start.is_empty() && stdout.whole.is_some() || !hook.is_gate() && !start.starts_with(b"{") {
        return Ok(None);
    }
    let Some(whole) = &stdout.whole else {
        return broken("printed more than an answer may be (64 MiB)".to_owned());
    };
    let Ok(text) = std::str::from_utf8(whole) else {
        return broken("printed bytes that are not UTF-8 in the place of an answer".to_owned());
    };
    if !start.starts_with(b"{") {
        return broken(format!(
            "printed something that is not one JSON object: {}\n(standard output is for the answer alone; what people are to read goes to standard error)",
            text::one_line(text.trim(), 200)
        ));
    }
    let text = text::mend_surrogates(text);
    serde_json::from_str(&text).map(Some).map_err(|error| {
        let misunderstood = serde_json::from_str::<IgnoredAny>(&text).is_ok();
        let what = if misunderstood { "an object that is no answer" } else { "invalid JSON" };
        let why = if misunderstood { text::of_json(&error) } else { error.to_string() };
        let reason = format!("printed {what} ({why}): {}", text::one_line(text.trim(), 200));
        Failure { reason, misunderstood }
    })
}

/// A conversation that a strict endpoint accepts: each call has one result, directly after the message that makes it.
fn check_messages(messages: &[Json]) -> Result<(), String> {
    if messages.is_empty() {
        return Err("it has no message".to_owned());
    }
    let mut open: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let number = index + 1;
        let Some(role) = message.get("role").and_then(Json::as_str) else {
            return Err(format!("message {number} is no object with a `role`"));
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

/// What a hook printed to standard error, for a message.
fn shown(stderr: &Capture) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (head, tail) = (text(&stderr.head), text(&stderr.tail));
    let gap = if tail.is_empty() { "" } else { "\n[...]\n" };
    format!("{head}{gap}{tail}").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn printed(end: End, stdout: &[u8], stderr: &[u8]) -> Finished {
        let capture = |bytes: &[u8]| Capture {
            bytes: bytes.len() as u64,
            whole: Some(bytes.to_vec()),
            head: bytes.to_vec(),
            ..Capture::default()
        };
        let duration = Duration::ZERO;
        Finished { end, duration, stdout: capture(stdout), stderr: capture(stderr) }
    }

    fn configured(on_failure: OnFailure) -> Configured {
        Configured { command: Vec::new(), timeout_ms: 1, on_failure, pass_env: Vec::new() }
    }

    /// Pieces of answers, whole and torn.
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

    /// Whether a reader of JSON that knows nothing of hooks would call this consent.
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
            let finished = printed(End::Exited(code), &stdout, b"");
            let (verdict, _) = verdict(&finished, &configured(OnFailure::Fail));
            let passed = !matches!(verdict, Verdict::Deny(_));
            prop_assert!(!passed || (code == 0 && is_consent(&stdout)));
        }

        #[test]
        fn c_9_4_what_did_not_leave_with_0_is_no_consent(stdout in output(), how in 0..4) {
            let end = match how {
                0 => End::Killed(9),
                1 => End::TimedOut,
                2 => End::Cancelled,
                _ => End::NotStarted { code: 127, reason: "it is not there".to_owned() },
            };
            let finished = printed(end, &stdout, b"");
            let (verdict, failure) = verdict(&finished, &configured(OnFailure::Fail));
            prop_assert!(matches!(verdict, Verdict::Deny(_)));
            let clear_no = failure.is_none();
            prop_assert!(!clear_no || String::from_utf8_lossy(&stdout).contains("\"deny\""));
            prop_assert!(replacement(&finished, &configured(OnFailure::Fail)).is_err());
        }
    }

    #[test]
    fn c_9_3_messages_that_a_strict_endpoint_refuses_are_refused() {
        let check = |text: &str| check_messages(&serde_json::from_str::<Vec<Json>>(text).unwrap());
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
