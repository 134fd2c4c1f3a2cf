//! A request body in the form of Chat Completions, read for translation.

use super::NeutralBody;
use delta_words::NativeParts;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;

/// The parts of a request body.
#[derive(Debug, Default)]
pub struct NeutralRequest<'a> {
    /// The model that is asked.
    pub model: String,
    /// The tools that are offered.
    pub tools: Vec<NeutralTool<'a>>,
    /// The messages, in order.
    pub messages: Vec<NeutralMessage>,
    /// The longest answer, in tokens.
    pub max_tokens: Option<u64>,
    /// Whether the response is streamed.
    pub stream: bool,
    /// The other members, which agent.yaml or a hook wrote in terms of the form, in order.
    /// `stream_options` is not among them.
    pub others: Vec<(String, &'a RawValue)>,
}

/// A tool that is offered.
#[derive(Debug, Deserialize)]
pub struct NeutralTool<'a> {
    /// The name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    #[serde(borrow)]
    pub parameters: Option<&'a RawValue>,
}

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub enum NeutralMessage {
    /// A context block; it may also follow the conversation.
    System(NeutralContent),
    /// A message of the user or of the engine.
    User(NeutralContent),
    /// An earlier answer.
    Assistant {
        /// The text, empty if there is none.
        text: String,
        /// The calls.
        calls: Vec<NeutralCall>,
        /// What the answer contained that only its own form can express.
        native: Option<NativeParts>,
    },
    /// The result of a call. Results follow their answer at once, in the order of its calls.
    Tool {
        /// The id of the call.
        call_id: String,
        /// The observation.
        content: NeutralContent,
    },
}

/// The content of a message that is not an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct NeutralContent(pub Vec<NeutralPart>);

/// A part of a content.
#[derive(Debug, Clone, PartialEq)]
pub enum NeutralPart {
    /// A text.
    Text(String),
    /// An image or a PDF, by its URL.
    Image(String),
}

impl NeutralContent {
    /// The texts, joined.
    pub fn text(&self) -> String {
        let texts = self.0.iter().filter_map(|part| match part {
            NeutralPart::Text(text) => Some(text.as_str()),
            NeutralPart::Image(_) => None,
        });
        texts.collect()
    }
}

/// A call in an earlier answer.
#[derive(Debug, Clone, PartialEq)]
pub struct NeutralCall {
    /// The id.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments as the LLM wrote them.
    pub arguments: String,
}

impl NeutralCall {
    /// The text of the arguments as a JSON object; `{}` if they are not one: the result of the call says what was wrong.
    pub fn arguments_object(&self) -> &RawValue {
        let parsed: Option<&RawValue> = serde_json::from_str(self.arguments.trim()).ok();
        parsed
            .filter(|raw| raw.get().starts_with('{'))
            .unwrap_or_else(|| serde_json::from_str("{}").expect("an object"))
    }
}

impl<'a> NeutralRequest<'a> {
    /// Parses a request body and reads its images.
    ///
    /// # Errors
    /// It is not a Chat Completions request, or an image cannot be read.
    pub fn read(body: &NeutralBody<'a>) -> Result<Self, String> {
        let mut request = Self::parse(body.text)?;
        let Some(reader) = body.images else { return Ok(request) };
        let contents = request.messages.iter_mut().filter_map(|message| match message {
            NeutralMessage::System(content)
            | NeutralMessage::User(content)
            | NeutralMessage::Tool { content, .. } => Some(content),
            NeutralMessage::Assistant { .. } => None,
        });
        for part in contents.flat_map(|content| &mut content.0) {
            if let NeutralPart::Image(url) = part {
                reader.resolve(url)?;
            }
        }
        Ok(request)
    }

    /// Parses a request body.
    ///
    /// # Errors
    /// It is not a Chat Completions request; the text says what was expected.
    pub fn parse(body: &'a str) -> Result<Self, String> {
        let members: RequestMembers<'a> =
            serde_json::from_str(body).map_err(|error| format!("the request: {error}"))?;
        let mut request = Self::default();
        for (name, value) in members.0 {
            match name.as_str() {
                "stream_options" => {}
                "model" => request.model = parse_member(&name, value)?,
                "stream" => request.stream = value.get() == "true",
                "max_tokens" => {
                    request.max_tokens = parse_member(&name, value)?;
                }
                "tools" => {
                    let tools: Vec<RawTool<'a>> = parse_member(&name, value)?;
                    request.tools = tools.into_iter().map(|tool| tool.function).collect();
                }
                "messages" => {
                    let messages: Vec<RawMessage<'a>> = parse_member(&name, value)?;
                    let messages = messages.into_iter().zip(1..);
                    request.messages = messages
                        .map(|(message, number)| {
                            message
                                .translate()
                                .map_err(|error| format!("message {number}: {error}"))
                        })
                        .collect::<Result<_, _>>()?;
                }
                _ => request.others.push((name, value)),
            }
        }
        Ok(request)
    }
}

/// The index of the message that begins the running turn. A message of the user that follows results at once is a part of the
/// turn, because endpoints read both as one message.
pub fn turn_start(messages: &[NeutralMessage]) -> usize {
    let users =
        (0..messages.len()).filter(|index| matches!(messages[*index], NeutralMessage::User(_)));
    let mut starts = users.filter(|index| {
        let before = messages[..*index].iter().rev();
        let mut before = before.skip_while(|message| matches!(message, NeutralMessage::System(_)));
        !matches!(before.next(), Some(NeutralMessage::Tool { .. }))
    });
    starts.next_back().unwrap_or(0)
}

fn parse_member<'a, T: Deserialize<'a>>(name: &str, value: &'a RawValue) -> Result<T, String> {
    serde_json::from_str(value.get()).map_err(|error| format!("`{name}` of the request: {error}"))
}

/// The members of an object in order, each as text.
struct RequestMembers<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for RequestMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = RequestMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(RequestMembers(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

#[derive(Deserialize)]
struct RawTool<'a> {
    #[serde(borrow)]
    function: NeutralTool<'a>,
}

#[derive(Deserialize)]
struct RawMessage<'a> {
    role: String,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    tool_calls: Option<Vec<RawCall>>,
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(default)]
    native: Option<NativeParts>,
}

#[derive(Deserialize)]
struct RawCall {
    #[serde(default)]
    id: String,
    function: RawCallFunction,
}

#[derive(Deserialize)]
struct RawCallFunction {
    name: String,
    #[serde(default)]
    arguments: String,
}

impl RawMessage<'_> {
    fn translate(self) -> Result<NeutralMessage, String> {
        let content = parse_content(self.content).map_err(|error| error.to_string())?;
        Ok(match self.role.as_str() {
            "system" | "developer" => NeutralMessage::System(content),
            "user" => NeutralMessage::User(content),
            "assistant" => {
                let calls = self.tool_calls.unwrap_or_default().into_iter();
                let calls = calls.map(|RawCall { id, function }| NeutralCall {
                    id,
                    name: function.name,
                    arguments: function.arguments,
                });
                NeutralMessage::Assistant {
                    text: content.text(),
                    calls: calls.collect(),
                    native: self.native,
                }
            }
            "tool" => {
                let call_id = self.tool_call_id.ok_or("a result has no `tool_call_id`")?;
                NeutralMessage::Tool { call_id, content }
            }
            role => {
                return Err(format!(
                    "expected the role `system`, `user`, `assistant` or `tool`, found `{role}`"
                ));
            }
        })
    }
}

/// Parses the content of a message: a text, or a list of parts. A part of another type is an error, because to leave it out
/// would change what the model is asked.
fn parse_content(content: Option<&RawValue>) -> serde_json::Result<NeutralContent> {
    let Some(content) = content else { return Ok(NeutralContent(Vec::new())) };
    let parts = match serde_json::from_str(content.get())? {
        Value::Null => Vec::new(),
        Value::String(text) => vec![NeutralPart::Text(text)],
        Value::Array(parts) => parts.iter().map(parse_part).collect::<Result<_, _>>()?,
        _ => return Err(serde_json::Error::custom("expected a text or a list of parts")),
    };
    Ok(NeutralContent(parts))
}

fn parse_part(part: &Value) -> serde_json::Result<NeutralPart> {
    if let Some(text) = part.get("text").and_then(Value::as_str) {
        return Ok(NeutralPart::Text(text.to_owned()));
    }
    let image = part.get("image_url").map(|image| image.get("url").unwrap_or(image));
    let url = image.or_else(|| part.pointer("/file/file_data")).and_then(Value::as_str);
    url.map(|url| NeutralPart::Image(url.to_owned())).ok_or_else(|| {
        let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
        serde_json::Error::custom(format!(
            "expected a part of the type `text`, `image_url` or `file`, found `{kind}`"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_23_1_a_request_is_divided_into_its_parts() {
        let body = r#"{"model":"m","tools":[{"type":"function","function":{"name":"t","description":"d","parameters":{"b":1.0,"a":2}}}],
            "thinking":{"type":"adaptive"},"max_tokens":7,"messages":[
            {"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"u"},{"type":"image_url","image_url":{"url":"data:x"}}]},
            {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"t","arguments":"{\"x\":1.50}"}}]},
            {"role":"tool","tool_call_id":"c","content":"r"}],"stream":true,"stream_options":{}}"#;
        let request = NeutralRequest::parse(body).unwrap();
        assert_eq!((&*request.model, request.max_tokens), ("m", Some(7)));
        assert!(request.stream);
        assert_eq!(request.tools[0].parameters.unwrap().get(), r#"{"b":1.0,"a":2}"#);
        let others: Vec<_> =
            request.others.iter().map(|(name, raw)| (&**name, raw.get())).collect();
        assert_eq!(others, [("thinking", r#"{"type":"adaptive"}"#)]);
        let text = |text: &str| NeutralContent(vec![NeutralPart::Text(text.to_owned())]);
        let call = NeutralCall {
            id: "c".to_owned(),
            name: "t".to_owned(),
            arguments: "{\"x\":1.50}".to_owned(),
        };
        assert_eq!(call.arguments_object().get(), "{\"x\":1.50}");
        let parts =
            vec![NeutralPart::Text("u".to_owned()), NeutralPart::Image("data:x".to_owned())];
        assert_eq!(
            request.messages,
            [
                NeutralMessage::System(text("s")),
                NeutralMessage::User(NeutralContent(parts)),
                NeutralMessage::Assistant { text: String::new(), calls: vec![call], native: None },
                NeutralMessage::Tool { call_id: "c".to_owned(), content: text("r") },
            ]
        );
    }

    #[test]
    fn c_23_1_what_no_form_can_express_is_an_error_that_names_it() {
        let parse = |messages: &str| {
            NeutralRequest::parse(&format!("{{\"messages\":[{messages}]}}")).unwrap_err()
        };
        let error = parse(r#"{"role":"user","content":"a"},{"role":"robot","content":"a"}"#);
        assert_eq!(
            error,
            "message 2: expected the role `system`, `user`, `assistant` or `tool`, found `robot`"
        );
        let error = parse(r#"{"role":"user","content":[{"type":"input_audio"}]}"#);
        assert!(error.contains("found `input_audio`"), "{error}");
    }

    #[test]
    fn c_3_1_arguments_that_are_no_object_are_an_empty_one() {
        for arguments in ["", "{", "[1]", "\"x\"", "{} x"] {
            let call =
                NeutralCall { id: String::new(), name: String::new(), arguments: arguments.into() };
            assert_eq!(call.arguments_object().get(), "{}", "{arguments}");
        }
    }
}
