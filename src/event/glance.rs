//! What the fold needs of the events of a call, out of their lines and without a copy of their texts.
//!
//! They are nearly all of a long journal. A line is taken only where every byte of it is as [`super::Event::to_line`]
//! writes it; any other, be it damaged or of another hand, is left to [`super::Event::of_line`].

use crate::time::Timestamp;
use std::str::FromStr;

/// How deep the arguments of a call may be nested here.
const DEEPEST: u8 = 32;

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
        let mut rest = Rest { line, at: 0 };
        let begun = rest.eat("{\"type\":\"ACTION_REQUEST\"");
        if !begun {
            rest.expect("{\"type\":\"ACTION_RESULT\"")?;
        }
        let seq = rest.field(",\"seq\":")?.number()?;
        let timestamp = Timestamp::parse(rest.field(",\"timestamp\":")?.plain()?)?;
        rest.field(",\"iteration\":")?.number::<u32>()?;
        let call_id = rest.field(",\"call_id\":")?.plain()?;
        rest.field(",\"tool_name\":")?.text()?;
        let news = if begun { rest.request()? } else { rest.result()? };
        if rest.eat(",\"crc\":") {
            rest.text()?;
        }
        rest.expect("}")?;
        (rest.at == line.len()).then_some(Self { seq, timestamp, call_id, news })
    }
}

/// What of a line has not been looked at.
struct Rest<'a> {
    line: &'a str,
    at: usize,
}

impl<'a> Rest<'a> {
    fn request(&mut self) -> Option<News<'a>> {
        self.field(",\"tool_args\":")?.value(DEEPEST)?;
        let starts = self.eat(",\"argv\":");
        if starts {
            self.list(b'[', b']', Self::text)?;
        }
        Some(News::Begun { starts, execution: self.execution()? })
    }

    fn result(&mut self) -> Option<News<'a>> {
        let observation = self.field(",\"observation_content\":")?.text()?;
        if self.eat(",\"exit_code\":") {
            let negative = self.eat("-");
            let code: i32 = self.number()?;
            // `-0` is a number with a fraction.
            if negative && code == 0 {
                return None;
            }
        }
        self.field(",\"duration_ms\":")?.number::<u64>()?;
        self.execution()?;
        self.expect(",\"truncated\":")?;
        (self.eat("false") || self.eat("true")).then_some(News::Answered { observation })
    }

    fn execution(&mut self) -> Option<Option<&'a str>> {
        if self.eat(",\"execution\":") { self.plain().map(Some) } else { Some(None) }
    }

    /// Goes on behind `expected`, if that is what comes next.
    fn eat(&mut self, expected: &str) -> bool {
        let found = self.line.as_bytes()[self.at..].starts_with(expected.as_bytes());
        if found {
            self.at += expected.len();
        }
        found
    }

    fn expect(&mut self, expected: &str) -> Option<()> {
        self.eat(expected).then_some(())
    }

    fn field(&mut self, name: &str) -> Option<&mut Self> {
        self.expect(name)?;
        Some(self)
    }

    fn next(&self) -> Option<u8> {
        self.line.as_bytes().get(self.at).copied()
    }

    fn digits(&mut self) -> Option<&'a str> {
        let rest = &self.line[self.at..];
        let count = rest.bytes().take_while(u8::is_ascii_digit).count();
        self.at += count;
        let fit = count == 1 || count > 1 && !rest.starts_with('0');
        fit.then(|| &rest[..count])
    }

    fn number<T: FromStr>(&mut self) -> Option<T> {
        self.digits()?.parse().ok()
    }

    /// A text without anything in it that JSON writes in another way.
    fn plain(&mut self) -> Option<&'a str> {
        let text = self.text()?;
        let inner = &text[1..text.len() - 1];
        (!inner.contains('\\')).then_some(inner)
    }

    /// A text in its quotes.
    fn text(&mut self) -> Option<&'a str> {
        if self.next()? != b'"' {
            return None;
        }
        let begin = self.at;
        self.at += 1;
        loop {
            self.at += ordinary(&self.line.as_bytes()[self.at..]);
            match self.next()? {
                b'"' => break,
                b'\\' => self.at += escape(&self.line.as_bytes()[self.at + 1..])? + 1,
                _ => return None,
            }
        }
        self.at += 1;
        Some(&self.line[begin..self.at])
    }

    /// Any value; the numbers that are written with an exponent are left to whoever reads any.
    fn value(&mut self, depth: u8) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match self.next()? {
            b'"' => self.text().map(drop),
            b'[' => self.list(b'[', b']', |rest| rest.value(depth)),
            b'{' => self.list(b'{', b'}', |rest| rest.member(depth)),
            b't' => self.expect("true"),
            b'f' => self.expect("false"),
            b'n' => self.expect("null"),
            _ => {
                self.eat("-");
                let whole = self.digits()?.len();
                let begin = self.at;
                if self.eat(".") {
                    self.at += self.line[self.at..].bytes().take_while(u8::is_ascii_digit).count();
                }
                (self.at - begin != 1 && whole < 19).then_some(())
            }
        }
    }

    fn member(&mut self, depth: u8) -> Option<()> {
        self.text()?;
        self.field(":")?.value(depth)
    }

    fn list<T>(
        &mut self,
        open: u8,
        close: u8,
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<()> {
        if self.next()? != open {
            return None;
        }
        self.at += 1;
        if self.next()? == close {
            self.at += 1;
            return Some(());
        }
        loop {
            item(self)?;
            let end = self.next()?;
            self.at += 1;
            if end == close {
                return Some(());
            }
            if end != b',' {
                return None;
            }
        }
    }
}

/// How many bytes come before the first that cannot stand for itself in a text: a quote, a backslash, a control character.
fn ordinary(bytes: &[u8]) -> usize {
    const EACH: u64 = u64::MAX / 255;
    let mut at = 0;
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let eight = u64::from_le_bytes(*eight);
        // The lowest high bit that remains is that of the first byte of its kind; one above it may be wrong.
        let below = |bytes: u64, limit: u64| bytes.wrapping_sub(EACH * limit) & !bytes;
        let is = |byte: u8| below(eight ^ (EACH * u64::from(byte)), 1);
        let found = (is(b'"') | is(b'\\') | below(eight, 0x20)) & (EACH << 7);
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    at + bytes[at..].iter().position(special).unwrap_or(bytes.len() - at)
}

/// The length of what stands behind a backslash, where it is the one way in which `serde_json` writes a character.
fn escape(rest: &[u8]) -> Option<usize> {
    match rest {
        [b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't', ..] => Some(1),
        [b'u', b'0', b'0', b'0', b'0'..=b'7' | b'b' | b'e' | b'f', ..]
        | [b'u', b'0', b'0', b'1', b'0'..=b'9' | b'a'..=b'f', ..] => Some(5),
        _ => None,
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
            iteration in any::<u32>(), call_id in prop_oneof![Just("c1".to_owned()), text()], tool_name in text(),
            tool_args in arguments(), argv in prop::option::of(prop::collection::vec(text(), 0..4)),
            execution in prop::option::of(prop_oneof![Just("io/x.json".to_owned()), text()]),
        ) -> Payload {
            Payload::ActionRequest(Box::new(ActionRequest { iteration, call_id, tool_name, tool_args, argv, execution }))
        }
    }

    prop_compose! {
        fn result()(
            iteration in any::<u32>(), call_id in prop_oneof![Just("c1".to_owned()), text()], tool_name in text(),
            observation_content in text(), exit_code in any::<Option<i32>>(), duration_ms in any::<u64>(),
            truncated in any::<bool>(), ends in prop::option::weighted(0.1, arguments()),
        ) -> Payload {
            Payload::ActionResult(Box::new(ActionResult {
                iteration, call_id, tool_name, observation_content, exit_code, duration_ms, execution: None, truncated,
                result: ends,
            }))
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
            agrees(&line(payload))?;
        }

        #[test]
        fn a_line_that_is_no_event_is_not_glanced_at(
            payload in prop_oneof![request(), result()], at in any::<prop::sample::Index>(), length in 0..3_usize,
            other in prop_oneof![
                Just("\\"), Just("\""), Just("\\ud800"), Just("\\u0041"), Just("\\/"), Just("\n"), Just(""), Just("-"),
                Just("0"), Just(","), Just("}"), Just("]"), Just("1e999"), Just(" "), Just("."), Just("null"),
            ],
        ) {
            let mut line: Vec<char> = line(payload).chars().collect();
            let at = at.index(line.len());
            let end = line.len().min(at + length);
            line.splice(at..end, other.chars());
            agrees(&String::from_iter(line))?;
        }
    }

    #[test]
    fn what_delta_writes_is_glanced_at() {
        let lines = [
            r#"{"type":"ACTION_REQUEST","seq":2,"timestamp":"2025-10-13T14:35:22.123Z","iteration":1,"call_id":"c1","tool_name":"t","tool_args":{"a":[1,-2.5,"\n",null,true,{}]},"argv":["a","\"","\u001b"],"execution":"io/x.json","crc":"da03783d"}"#,
            r#"{"type":"ACTION_REQUEST","seq":2,"timestamp":"2025-10-13T14:35:22.123Z","iteration":1,"call_id":"c1","tool_name":"t","tool_args":{}}"#,
            r#"{"type":"ACTION_RESULT","seq":3,"timestamp":"2025-10-13T14:35:22.123Z","iteration":1,"call_id":"c1","tool_name":"t","observation_content":"a\nä\"","exit_code":-1,"duration_ms":2,"execution":"io/x.json","truncated":true,"crc":"fd5c2947"}"#,
            r#"{"type":"ACTION_RESULT","seq":3,"timestamp":"2025-10-13T14:35:22.123Z","iteration":1,"call_id":"c1","tool_name":"t","observation_content":"","duration_ms":2,"truncated":false}"#,
        ];
        for line in lines {
            assert!(agrees(line).unwrap(), "{line}");
        }
        // Other JSON of the same meaning, and what is none.
        for (written, other) in [
            ("\"a\\n", "\"a\\u000a"),
            ("\"a\\n", "\"a\\/"),
            (":2,", ":02,"),
            ("true", "null"),
            ("true,", "true,\"result\":1,"),
            (":-1", ":-0"),
        ] {
            assert_eq!(Glance::of_line(&lines[2].replace(written, other)), None, "{other}");
        }
    }
}
