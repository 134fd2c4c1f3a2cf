//! JSON-RPC 2.0: the messages of the Model Context Protocol, and of the Agent Client Protocol.

use delta_base::json_repair::replace_lone_surrogates;
use serde_json::{Map, Value as Json, json};
use std::fmt;

/// The message is not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// The message is JSON, but no message of JSON-RPC.
pub const INVALID_REQUEST: i64 = -32600;
/// The method is unknown.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters do not match the method.
pub const INVALID_PARAMS: i64 = -32602;
/// The other side failed.
pub const INTERNAL_ERROR: i64 = -32603;

/// The error has no code that is a number.
pub const NO_CODE: i64 = 0;

/// The most characters of the data of an error that its words have.
const MAX_DATA_CHARS: usize = 2_000;

/// The id of a request: a number or a text, which its answer repeats.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RpcId {
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
}

impl RpcId {
    /// Reads the id of a message.
    pub fn from_json(value: &Json) -> Option<Self> {
        match value {
            // Some languages have no whole numbers.
            Json::Number(number) => {
                let float = || number.as_f64().filter(|float| float.fract() == 0.0);
                number.as_i64().or_else(|| float().map(|float| float as i64)).map(Self::Number)
            }
            Json::String(text) => Some(Self::Text(text.clone())),
            _ => None,
        }
    }

    /// Whether it is the id of the request `number`: some servers answer with its text.
    pub fn is_of_request(&self, number: i64) -> bool {
        match self {
            Self::Number(id) => *id == number,
            Self::Text(id) => id.parse() == Ok(number),
        }
    }

    /// The id as a message has it.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Number(number) => (*number).into(),
            Self::Text(text) => text.as_str().into(),
        }
    }
}

/// An error in place of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcError {
    /// The code, such as [`METHOD_NOT_FOUND`].
    pub code: i64,
    /// The reason, in words.
    pub message: String,
    /// What else the sender has to say.
    pub data: Option<Json>,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Reads the error of a message. Some servers send a text, or an object with other members, in its place.
    pub fn from_json(value: &Json) -> Self {
        let code = value.get("code").unwrap_or(&Json::Null);
        let number = code.as_i64().or_else(|| code.as_str()?.parse().ok());
        let name = code.as_str().filter(|_| number.is_none());
        let message = value.as_str().or_else(|| value.get("message")?.as_str()).unwrap_or_default();
        let message = match name {
            Some(name) => format!("{name}: {message}"),
            None => message.to_owned(),
        };
        let data = value.get("data").filter(|data| !data.is_null());
        let has_no_words = message.is_empty() && data.is_none();
        Self {
            code: number.unwrap_or(NO_CODE),
            message,
            data: data.or(if has_no_words { Some(value) } else { None }).cloned(),
        }
    }

    /// The message and the data, as far as the message does not have it.
    pub fn words(self) -> String {
        let data = match self.data {
            Some(Json::String(text)) => text,
            Some(data) => data.to_string(),
            None => return self.message,
        };
        if self.message.contains(&data) {
            return self.message;
        }
        let data: String = data.chars().take(MAX_DATA_CHARS).collect();
        if self.message.is_empty() { data } else { format!("{}: {data}", self.message) }
    }

    fn to_json(&self) -> Json {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        error
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}: {}", self.code, self.message)
    }
}

/// A message in either direction.
#[derive(Debug, Clone, PartialEq)]
pub enum RpcMessage {
    /// A request, which gets one answer.
    Request {
        /// The id for the answer.
        id: RpcId,
        /// The method.
        method: String,
        /// The parameters; `Null` without any.
        params: Json,
    },
    /// A message without an answer.
    Notification {
        /// The method.
        method: String,
        /// The parameters; `Null` without any.
        params: Json,
    },
    /// The answer to a request.
    Response {
        /// The id of the request; `None` when the other side could not read it.
        id: Option<RpcId>,
        /// The result, or the error.
        outcome: Result<Json, RpcError>,
    },
}

impl RpcMessage {
    /// A request.
    pub fn request(id: i64, method: impl Into<String>, params: Json) -> Self {
        Self::Request { id: RpcId::Number(id), method: method.into(), params }
    }

    /// A notification.
    pub fn notification(method: impl Into<String>, params: Json) -> Self {
        Self::Notification { method: method.into(), params }
    }

    /// The answer to the request `id`.
    pub fn response(id: RpcId, outcome: Result<Json, RpcError>) -> Self {
        Self::Response { id: Some(id), outcome }
    }

    /// Reads one message. Half of a character outside of the basic plane, which JavaScript writes as an escape, is replaced.
    ///
    /// # Errors
    /// The error that a server answers with, without an id.
    pub fn parse(bytes: &[u8]) -> Result<Self, RpcError> {
        let parsed: Result<Json, serde_json::Error> = match std::str::from_utf8(bytes) {
            Ok(text) => serde_json::from_str(&replace_lone_surrogates(text)),
            Err(_) => serde_json::from_slice(bytes),
        };
        let value = parsed.map_err(|error| {
            RpcError::new(PARSE_ERROR, format!("expected a JSON object on one line: {error}"))
        })?;
        Self::from_json(value)
    }

    /// Reads a message that is JSON already.
    ///
    /// # Errors
    /// As for [`RpcMessage::parse`].
    pub fn from_json(value: Json) -> Result<Self, RpcError> {
        let invalid = |message: &str| RpcError::new(INVALID_REQUEST, message);
        let Json::Object(mut message) = value else {
            return Err(invalid("expected one JSON object, found another value"));
        };
        if message.get("jsonrpc").and_then(Json::as_str) != Some("2.0") {
            return Err(invalid("expected `\"jsonrpc\": \"2.0\"`"));
        }
        let id = match message.get("id") {
            None | Some(Json::Null) => None,
            Some(id) => Some(
                RpcId::from_json(id)
                    .ok_or_else(|| invalid("expected a text or a whole number as `id`"))?,
            ),
        };
        if let Some(method) = message.get("method") {
            let method = method.as_str().ok_or_else(|| invalid("expected a text as `method`"))?;
            let method = method.to_owned();
            let params = message.remove("params").unwrap_or_default();
            return Ok(match id {
                Some(id) => Self::Request { id, method, params },
                None => Self::Notification { method, params },
            });
        }
        let outcome = match (message.remove("result"), message.get("error")) {
            (_, Some(error)) if !error.is_null() => Err(RpcError::from_json(error)),
            (Some(result), _) => Ok(result),
            (None, _) => return Err(invalid("expected `method`, `result` or `error`")),
        };
        Ok(Self::Response { id, outcome })
    }

    /// The message as a JSON object.
    pub fn to_json(&self) -> Json {
        let mut message = Map::new();
        message.insert("jsonrpc".into(), "2.0".into());
        match self {
            Self::Request { id, method, params } => {
                message.insert("id".into(), id.to_json());
                insert_call(&mut message, method, params);
            }
            Self::Notification { method, params } => insert_call(&mut message, method, params),
            Self::Response { id, outcome } => {
                message.insert("id".into(), id.as_ref().map_or(Json::Null, RpcId::to_json));
                match outcome {
                    Ok(result) => message.insert("result".into(), result.clone()),
                    Err(error) => message.insert("error".into(), error.to_json()),
                };
            }
        }
        Json::Object(message)
    }

    /// The message as one line, with its line end. JSON has no raw line ends inside.
    pub fn to_line(&self) -> String {
        format!("{}\n", self.to_json())
    }
}

fn insert_call(message: &mut Map<String, Json>, method: &str, params: &Json) {
    message.insert("method".into(), method.into());
    if !params.is_null() {
        message.insert("params".into(), params.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_a_line() {
        let error = RpcError { code: -1, message: "no\nway".into(), data: Some(json!([1])) };
        let messages = [
            RpcMessage::request(7, "tools/list", Json::Null),
            RpcMessage::Request {
                id: RpcId::Text("a".into()),
                method: "m".into(),
                params: json!({"x": "line\nbreak"}),
            },
            RpcMessage::notification("notifications/initialized", Json::Null),
            RpcMessage::response(RpcId::Number(1), Ok(json!({}))),
            RpcMessage::Response { id: None, outcome: Err(error) },
        ];
        for message in messages {
            let line = message.to_line();
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            assert_eq!(RpcMessage::parse(line.as_bytes()), Ok(message));
        }
    }

    #[test]
    fn what_is_no_message_is_refused_with_a_code() {
        let cases: [(&str, i64); 7] = [
            ("", PARSE_ERROR),
            ("{\"jsonrpc\":", PARSE_ERROR),
            ("[]", INVALID_REQUEST),
            ("{\"method\":\"m\"}", INVALID_REQUEST),
            ("{\"jsonrpc\":\"2.0\"}", INVALID_REQUEST),
            ("{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"m\"}", INVALID_REQUEST),
            ("{\"jsonrpc\":\"2.0\",\"method\":5}", INVALID_REQUEST),
        ];
        for (text, code) in cases {
            let refused = RpcMessage::parse(text.as_bytes()).map_err(|error| error.code);
            assert_eq!(refused, Err(code), "{text}");
        }
    }
}
