//! What the fold needs of the events of a call, out of their lines and without a copy of their texts.
//!
//! They are nearly all of a long journal. A line is taken only where its check value is right: then every byte of it is as
//! [`super::Event::to_line`] wrote it, and what is long in it is not looked through but found from both of its ends. Any
//! other line, be it damaged or of another hand, is left to [`super::Event::of_line`].

use crate::crc;
use crate::time::Timestamp;
use std::str::FromStr;

/// An event of a call.
#[derive(Debug, PartialEq)]
pub struct Glance<'a> {
    /// Its number.
    pub seq: u64,
    /// When it was recorded.
    pub timestamp: Timestamp,
    /// The call.
    pub call_id: &'a str,
    /// What is known of it now.
    pub news: News<'a>,
}

/// What an event says of a call.
#[derive(Debug, PartialEq)]
pub enum News<'a> {
    /// It is about to be carried out.
    Begun {
        /// Whether there is a command line.
        starts: bool,
        /// The io/ file that the run of the tool will have.
        execution: Option<&'a str>,
    },
    /// It has a result, and does not end the run.
    Answered {
        /// What the LLM sees, in JSON as `serde_json` writes it.
        observation: &'a str,
    },
}

impl<'a> Glance<'a> {
    /// Looks at a line, its newline apart.
    pub fn of_line(line: &'a str) -> Option<Self> {
        let is_request = line.starts_with(REQUEST);
        if !is_request && !line.starts_with(RESULT) {
            return None;
        }
        let mut rest = Rest(crc::unsealed(line)?);
        let seq = rest.cut(if is_request { REQUEST } else { RESULT })?.number()?;
        let timestamp = Timestamp::parse(rest.cut(",\"timestamp\":")?.plain()?)?;
        rest.cut(",\"iteration\":")?.number::<u32>()?;
        let call_id = rest.cut(",\"call_id\":")?.plain()?;
        rest.cut(",\"tool_name\":")?.plain()?;
        let news = if is_request { rest.request()? } else { rest.result()? };
        Some(Self { seq, timestamp, call_id, news })
    }
}

/// How the lines of the two events begin.
const REQUEST: &str = "{\"type\":\"ACTION_REQUEST\",\"seq\":";
const RESULT: &str = "{\"type\":\"ACTION_RESULT\",\"seq\":";

/// What of a line has not been looked at. In a text every quote stands behind a backslash, so nothing in it looks like a
/// comma and the name of a field.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn request(&mut self) -> Option<News<'a>> {
        // The arguments, which are an object, are followed by the command line or by nothing.
        self.cut(",\"tool_args\":")?.0.strip_prefix('{')?;
        let execution = self.execution();
        let starts = self.0.ends_with(']');
        (starts || self.0.ends_with('}')).then_some(News::Begun { starts, execution })
    }

    fn result(&mut self) -> Option<News<'a>> {
        self.cut(",\"observation_content\":")?;
        self.0 = self.0.strip_suffix("false").or_else(|| self.0.strip_suffix("true"))?;
        self.cut_end(",\"truncated\":")?;
        self.execution();
        self.cut_digits()?.cut_end(",\"duration_ms\":")?;
        if !self.0.ends_with('"') {
            self.cut_digits()?.cut_end("-");
            self.cut_end(",\"exit_code\":")?;
        }
        self.0.strip_prefix('"')?.strip_suffix('"')?;
        Some(News::Answered { observation: self.0 })
    }

    /// The io/ file, where one is named at the end.
    fn execution(&mut self) -> Option<&'a str> {
        let (before, name) = self.0.strip_suffix('"')?.rsplit_once('"')?;
        let before = before.strip_suffix(",\"execution\":").filter(|_| !name.contains('\\'))?;
        self.0 = before;
        Some(name)
    }

    fn cut(&mut self, expected: &str) -> Option<&mut Self> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(self)
    }

    fn cut_end(&mut self, expected: &str) -> Option<&mut Self> {
        self.0 = self.0.strip_suffix(expected)?;
        Some(self)
    }

    fn cut_digits(&mut self) -> Option<&mut Self> {
        let before = self.0.trim_end_matches(|digit: char| digit.is_ascii_digit());
        let has_some = before.len() < self.0.len();
        self.0 = before;
        has_some.then_some(self)
    }

    fn number<T: FromStr>(&mut self) -> Option<T> {
        let (number, _) = self.0.split_once(',')?;
        self.0 = &self.0[number.len()..];
        number.parse().ok()
    }

    /// A text without anything in it that JSON writes in another way.
    fn plain(&mut self) -> Option<&'a str> {
        let (text, rest) = self.0.strip_prefix('"')?.split_once('"')?;
        self.0 = rest;
        (!text.contains('\\')).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{ActionRequest, ActionResult, Event, Payload};
    use crate::state::RunState;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// Texts with everything in them that JSON writes in its own way.
    fn text() -> impl Strategy<Value = String> {
        let special = prop_oneof![
            Just('"'),
            Just('\\'),
            Just('/'),
            Just('\u{7f}'),
            Just('\u{2028}'),
            Just('ä'),
            (0..0x20_u8).prop_map(char::from),
            any::<char>(),
            proptest::char::range('a', 'z'),
        ];
        prop::collection::vec(special, 0..40).prop_map(String::from_iter)
    }

    /// A text that is mostly as most are.
    fn name(usual: &'static str) -> impl Strategy<Value = String> {
        prop_oneof![4 => Just(usual.to_owned()), 1 => text()]
    }

    fn object() -> impl Strategy<Value = Value> {
        let members = prop::collection::vec((text(), arguments()), 0..4);
        members.prop_map(|it| Value::Object(it.into_iter().collect()))
    }

    fn arguments() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            text().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((text(), inner), 0..4)
                    .prop_map(|it| Value::Object(it.into_iter().collect())),
            ]
        })
    }

    prop_compose! {
        fn request()(
            iteration in any::<u32>(), call_id in name("c1"), tool_name in name("t"),
            tool_args in prop_oneof![4 => object(), 1 => arguments()],
            argv in prop::option::of(prop::collection::vec(text(), 0..4)), execution in prop::option::of(name("io/x.json")),
        ) -> Payload {
            Payload::ActionRequest(Box::new(ActionRequest { iteration, call_id, tool_name, tool_args, argv, execution }))
        }
    }

    prop_compose! {
        fn result()(
            iteration in any::<u32>(), call_id in name("c1"), tool_name in name("t"),
            observation_content in text(), exit_code in any::<Option<i32>>(), duration_ms in any::<u64>(),
            execution in prop::option::of(name("io/x.json")), truncated in any::<bool>(),
            ends in prop::option::weighted(0.1, arguments()),
        ) -> Payload {
            Payload::ActionResult(Box::new(ActionResult {
                iteration, call_id, tool_name, observation_content, exit_code, duration_ms, execution, truncated,
                result: ends,
            }))
        }
    }

    /// Whether it is such as most are.
    fn is_usual(payload: &Payload) -> bool {
        let names = |call: &str, tool: &str, execution: &Option<String>| {
            call == "c1" && tool == "t" && execution.as_ref().is_none_or(|name| name == "io/x.json")
        };
        match payload {
            Payload::ActionRequest(it) => {
                names(&it.call_id, &it.tool_name, &it.execution) && it.tool_args.is_object()
            }
            Payload::ActionResult(it) => {
                names(&it.call_id, &it.tool_name, &it.execution) && it.result.is_none()
            }
            _ => false,
        }
    }

    fn line(payload: Payload) -> String {
        let event = Event { seq: 7, timestamp: Timestamp::from_millis(1_760_366_122_123), payload };
        event.to_line().trim_end_matches('\n').to_owned()
    }

    /// A state with two calls, after the event of `line`; read in one way or the other.
    fn after(glance: Result<&Glance<'_>, &Event>) -> String {
        let call = |id| json!({"id": id, "type": "function", "function": {"name": "t", "arguments": "{}"}});
        let called = json!({
            "type": "THOUGHT", "seq": 6, "timestamp": "2025-10-13T14:35:22.123Z", "iteration": 1, "content": "",
            "tool_calls": [call("c1"), call(" ")],
        });
        let mut state = RunState::of([&Event::of_line(&called.to_string()).unwrap()]);
        match glance {
            Ok(glance) => state.apply_glance(glance),
            Err(event) => state.apply(event),
        }
        let times = (state.seq, state.created_at, state.updated_at, state.worked_until);
        format!("{:?} {:?} {times:?}", state.conversation.messages(None), state.next_step())
    }

    /// What is glanced at means what the whole event means.
    fn agrees(line: &str) -> Result<bool, TestCaseError> {
        let Some(glance) = Glance::of_line(line) else { return Ok(false) };
        let event = Event::of_line(line)
            .map_err(|error| TestCaseError::fail(format!("{line}: {error}")))?;
        prop_assert_eq!((glance.seq, glance.timestamp), (event.seq, event.timestamp));
        prop_assert_eq!(after(Ok(&glance)), after(Err(&event)));
        Ok(true)
    }

    proptest! {
        #[test]
        fn what_is_glanced_at_means_what_the_event_means(payload in prop_oneof![request(), result()]) {
            let is_usual = is_usual(&payload);
            prop_assert!(agrees(&line(payload))? || !is_usual);
        }

        #[test]
        fn a_line_that_was_changed_is_not_glanced_at(
            payload in prop_oneof![request(), result()], at in any::<prop::sample::Index>(), length in 0..3_usize,
            other in prop_oneof![Just("\\"), Just("\""), Just("\n"), Just(""), Just("0"), Just(","), Just("}"), Just("]")],
        ) {
            let line = line(payload);
            let mut changed: Vec<char> = line.chars().collect();
            let at = at.index(changed.len());
            let end = changed.len().min(at + length);
            changed.splice(at..end, other.chars());
            let changed = String::from_iter(changed);
            prop_assert!(changed == line || Glance::of_line(&changed).is_none(), "{}", changed);
        }
    }

    #[test]
    fn what_a_run_writes_is_glanced_at_and_nothing_else() {
        let sealed = |line: &str| crc::sealed(format!("{line}\n")).trim_end().to_owned();
        let lines = [
            r#"{"type":"ACTION_REQUEST","seq":2,"timestamp":"2025-10-13T14:35:22.123Z","iteration":1,"call_id":"c1","tool_name":"t","tool_args":{"a":[1,-2.5,"\n",null,true,{}]},"argv":["a","\"","\u001b"],"execution":"io/x.json"}"#,
            r#"{"type":"ACTION_REQUEST","seq":2,"timestamp":"2025-10-13T14:35:22.123Z","iteration":1,"call_id":"c1","tool_name":"t","tool_args":{}}"#,
            r#"{"type":"ACTION_RESULT","seq":3,"timestamp":"2025-10-13T14:35:22.123Z","iteration":1,"call_id":"c1","tool_name":"t","observation_content":"a\nä\",\"exit_code\":5","exit_code":-1,"duration_ms":2,"execution":"io/x.json","truncated":true}"#,
            r#"{"type":"ACTION_RESULT","seq":3,"timestamp":"2025-10-13T14:35:22.123Z","iteration":1,"call_id":"c1","tool_name":"t","observation_content":"","duration_ms":2,"truncated":false}"#,
        ];
        for line in lines {
            assert!(agrees(&sealed(line)).unwrap(), "{line}");
            assert_eq!(Glance::of_line(line), None, "without a check value: {line}");
        }
        let others = [
            lines[0].replace("REQUEST", "REQUESTS"),
            lines[0].replace("\"c1\"", "\"c\\n\""),
            lines[0].replace("io/x", "io/\\\\x"),
            lines[0].replace("io/x", "io/\\\"x"),
            lines[1].replace("{}}", "\"a\"}"),
            lines[1].replace("{}}", "[]}"),
            lines[1].replace("{}}", "{} }"),
            lines[2].replace("true}", "true,\"result\":1}"),
            lines[2].replace("true}", "true,\"result\":\"io/x.json\"}"),
            lines[2].replace("true}", "null}"),
        ];
        for other in others {
            assert_eq!(Glance::of_line(&sealed(&other)), None, "{other}");
        }
    }
}
