//! An answer of another form as a response in the form of Chat Completions, which hooks, records and cassettes read.

use delta_words::{
    NativeParts, Reply, ResponseBody, SERVICE_TIER_KEY, ServiceTier, ToolCall, Usage, WireExchange,
    doubt_missing_arguments,
};
use serde::Serialize;
use serde_json::{Value, json};

/// What a codec has read from a response.
#[derive(Debug, Default)]
pub struct NeutralAnswer {
    /// The id that the endpoint gave the response.
    pub id: Option<String>,
    /// The model that answered.
    pub model: String,
    /// The text, if any.
    pub content: Option<String>,
    /// The readable reasoning, if any.
    pub reasoning: Option<String>,
    /// The text of a refusal.
    pub refusal: Option<String>,
    /// The calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// Why the model stopped, in the words of Chat Completions.
    pub finish_reason: Option<String>,
    /// The endpoint's own reason, with its words, if it withholds an answer.
    pub ending: Option<String>,
    /// The tokens, if the endpoint counted them.
    pub usage: Option<NeutralUsage>,
    /// What has to go back unchanged; `None` for an answer of text and plain calls alone.
    pub native: Option<NativeParts>,
}

/// The tokens of a call, in the sense of Chat Completions: `input` and `output` include the others.
#[derive(Debug, Clone, Copy, Default)]
pub struct NeutralUsage {
    /// All tokens of the request.
    pub input: u64,
    /// Tokens that were read from a cache.
    pub cached: u64,
    /// Tokens that were written to a cache, if the endpoint reports them.
    pub cache_write: Option<u64>,
    /// All tokens of the answer.
    pub output: u64,
    /// The tokens of the answer that are reasoning, if the endpoint reports them.
    pub reasoning: Option<u64>,
    /// What the call cost in USD, if the endpoint says it.
    pub cost: Option<f64>,
    /// The service tier that gave the answer, if the endpoint says it.
    pub tier: Option<ServiceTier>,
}

impl NeutralUsage {
    /// The usage of a reply of `model`.
    pub fn into_usage(self, model: &str) -> Option<Usage> {
        Usage::parse(&self.to_json(), model)
    }

    fn to_json(self) -> Value {
        let mut input_details = json!({"cached_tokens": self.cached});
        if let Some(written) = self.cache_write {
            input_details["cache_write_tokens"] = written.into();
        }
        let mut usage = json!({
            "prompt_tokens": self.input,
            "completion_tokens": self.output,
            "prompt_tokens_details": input_details,
        });
        if let Some(reasoning) = self.reasoning {
            usage["completion_tokens_details"] = json!({"reasoning_tokens": reasoning});
        }
        if let Some(cost) = self.cost {
            usage["cost"] = cost.into();
        }
        if let Some(tier) = self.tier {
            usage[SERVICE_TIER_KEY] = tier.reported_name().into();
        }
        usage
    }
}

impl NeutralAnswer {
    /// The reply with its response; `wire` is the response as the endpoint sent it. The loop adds what was sent.
    pub fn into_reply(mut self, wire: Value) -> Reply {
        doubt_missing_arguments(&mut self.tool_calls);
        let usage = self.usage.map(NeutralUsage::to_json);
        let response = ResponseBody::new(&NeutralResponse {
            id: self.id.as_deref(),
            object: "chat.completion",
            model: &self.model,
            choices: [NeutralChoice {
                index: 0,
                message: NeutralAnswerMessage {
                    role: "assistant",
                    content: self.content.as_deref(),
                    reasoning_content: self.reasoning.as_deref(),
                    refusal: self.refusal.as_deref(),
                    tool_calls: &self.tool_calls,
                    native: self.native.as_ref(),
                },
                finish_reason: self.finish_reason.as_deref(),
            }],
            usage: usage.as_ref(),
        });
        Reply {
            content: self.content,
            reasoning: self.reasoning,
            tool_calls: self.tool_calls,
            finish_reason: self.finish_reason,
            refusal: self.refusal,
            ending: self.ending,
            usage: usage.and_then(|usage| Usage::parse(&usage, &self.model)),
            native: self.native,
            response,
            wire: Some(Box::new(WireExchange { response: wire, ..WireExchange::default() })),
            ..Reply::default()
        }
    }
}

#[derive(Serialize)]
struct NeutralResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    object: &'static str,
    model: &'a str,
    choices: [NeutralChoice<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a Value>,
}

#[derive(Serialize)]
struct NeutralChoice<'a> {
    index: u8,
    message: NeutralAnswerMessage<'a>,
    finish_reason: Option<&'a str>,
}

#[derive(Serialize)]
struct NeutralAnswerMessage<'a> {
    role: &'static str,
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tool_calls: &'a [ToolCall],
    #[serde(skip_serializing_if = "Option::is_none")]
    native: Option<&'a NativeParts>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_words::parse_reply;

    #[test]
    fn c_23_1_the_response_says_what_the_reply_says() {
        let native = NativeParts {
            form: "anthropic".to_owned(),
            model: "m".to_owned(),
            endpoint: None,
            basis: Some("00ff".to_owned()),
            parts: json!([{"type": "thinking", "signature": "s"}]),
        };
        let answer = NeutralAnswer {
            id: Some("i".to_owned()),
            model: "m".to_owned(),
            content: Some("text".to_owned()),
            reasoning: Some("because".to_owned()),
            refusal: None,
            tool_calls: vec![ToolCall::new("c", "t", "{}")],
            finish_reason: Some("tool_calls".to_owned()),
            ending: None,
            usage: Some(NeutralUsage {
                input: 10,
                cached: 3,
                cache_write: Some(2),
                output: 5,
                reasoning: Some(4),
                cost: Some(0.5),
                tier: Some(ServiceTier::Flex),
            }),
            native: Some(native),
        };
        let reply = answer.into_reply(json!({"as": "sent"}));
        let parsed = parse_reply(&reply.response.to_value(), "other").unwrap();
        assert_eq!(parsed, Reply { wire: None, ..reply });
    }
}
