//! The keys that each provider takes in the body of a request, as far as they are common, and what to write in place of a
//! key of another provider.

use delta_llm::llm::config::LLM_MAPPING;
use delta_words::WireForm;

const CHAT_KEYS: &[&str] = &[
    "top_p",
    "top_k",
    "min_p",
    "stop",
    "seed",
    "n",
    "max_completion_tokens",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "response_format",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "reasoning",
    "verbosity",
    "prompt_cache_key",
    "service_tier",
    "safety_identifier",
    "user",
    "metadata",
    "store",
    "thinking",
    "models",
    "provider",
    "transforms",
    "extra_body",
    "safe_prompt",
    "prompt_mode",
    "chat_template_kwargs",
    "modalities",
    "prediction",
    "web_search_options",
    "include_reasoning",
    "reasoning_format",
    "keep_alive",
];
const ANTHROPIC_KEYS: &[&str] = &[
    "thinking",
    "output_config",
    "stop_sequences",
    "tool_choice",
    "metadata",
    "service_tier",
    "top_p",
    "top_k",
    "container",
    "context_management",
    "mcp_servers",
    "inference_geo",
    "speed",
];
const RESPONSES_KEYS: &[&str] = &[
    "reasoning",
    "text",
    "tool_choice",
    "parallel_tool_calls",
    "truncation",
    "top_p",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "top_logprobs",
    "user",
    "background",
    "prompt",
];
const GEMINI_KEYS: &[&str] =
    &["generationConfig", "safetySettings", "toolConfig", "cachedContent", "labels"];

fn body_keys(form: WireForm) -> &'static [&'static str] {
    match form {
        WireForm::OpenAi => CHAT_KEYS,
        WireForm::Anthropic => ANTHROPIC_KEYS,
        WireForm::Responses => RESPONSES_KEYS,
        WireForm::Gemini => GEMINI_KEYS,
    }
}

/// Whether a provider takes the key.
pub(super) fn is_key_of(form: WireForm, key: &str) -> bool {
    body_keys(form).contains(&key)
}

/// The keys of the section `llm:` for a provider.
pub(super) fn known_keys(form: WireForm) -> impl Iterator<Item = &'static str> {
    LLM_MAPPING.key_names().chain(body_keys(form).iter().copied())
}

/// What to write in place of a key of another provider; `None` if the key is none.
pub(super) fn foreign_key_help(form: WireForm, key: &str) -> Option<&'static str> {
    const LENGTH: &str = "write `max_tokens: N`";
    const NO_SUCH_KEY: &str =
        "remove the key: the endpoint rejects a request with it, or ignores it";
    if is_key_of(form, key) || LLM_MAPPING.key(key).is_some() {
        return None;
    }
    let is_length = matches!(
        key,
        "max_output_tokens" | "max_completion_tokens" | "max_tokens_to_sample" | "maxOutputTokens"
    );
    let is_reasoning = matches!(
        key,
        "reasoning" | "reasoning_effort" | "thinking" | "output_config" | "thinkingConfig"
    );
    let is_format =
        matches!(key, "response_format" | "text" | "responseSchema" | "responseMimeType");
    let is_stop = matches!(key, "stop" | "stop_sequences" | "stopSequences");
    let is_of_chat_alone = matches!(
        key,
        "n" | "seed" | "logit_bias" | "logprobs" | "frequency_penalty" | "presence_penalty"
    );
    if is_length {
        return Some(LENGTH);
    }
    match form {
        WireForm::OpenAi => match key {
            "output_config" | "thinkingConfig" => Some("write `reasoning_effort: high`"),
            "generationConfig" => Some("write its settings as keys of `llm`, such as `top_p: 0.9`"),
            "text" | "responseSchema" | "responseMimeType" => {
                Some("write `response_format: {...}`")
            }
            "stop_sequences" | "stopSequences" => Some("write `stop: [...]`"),
            _ => None,
        },
        WireForm::Anthropic if is_reasoning => Some("write `output_config: {effort: high}`"),
        WireForm::Anthropic if is_format => {
            Some("write `output_config: {format: {type: json_schema, schema: {...}}}`")
        }
        WireForm::Anthropic if is_stop => Some("write `stop_sequences: [...]`"),
        WireForm::Anthropic => match key {
            "parallel_tool_calls" => {
                Some("write `tool_choice: {type: auto, disable_parallel_tool_use: true}`")
            }
            "generationConfig" => Some(NO_SUCH_KEY),
            _ => is_of_chat_alone.then_some(NO_SUCH_KEY),
        },
        WireForm::Responses if is_reasoning => Some("write `reasoning: {effort: high}`"),
        WireForm::Responses if is_format => Some("write `text: {format: {...}}`"),
        WireForm::Responses => {
            (is_stop || is_of_chat_alone || key == "generationConfig").then_some(NO_SUCH_KEY)
        }
        WireForm::Gemini if is_reasoning => {
            Some("write `generationConfig: {thinkingConfig: {thinkingLevel: high}}`")
        }
        WireForm::Gemini if is_format => Some(
            "write `generationConfig: {responseMimeType: application/json, responseJsonSchema: {...}}`",
        ),
        WireForm::Gemini if is_stop => Some("write `generationConfig: {stopSequences: [...]}`"),
        WireForm::Gemini => match key {
            "top_p" | "topP" => Some("write `generationConfig: {topP: 0.9}`"),
            "top_k" | "topK" => Some("write `generationConfig: {topK: 40}`"),
            "seed" => Some("write `generationConfig: {seed: 1}`"),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_foreign_to_the_providers_that_do_not_take_it() {
        let is_foreign = |form, key| foreign_key_help(form, key).is_some();
        for form in WireForm::ALL {
            for key in known_keys(form) {
                assert!(!is_foreign(form, key), "{key} of {}", form.name());
            }
            assert_eq!(is_foreign(form, "max_output_tokens"), form != WireForm::Responses);
            assert!(!is_foreign(form, "a_key_of_tomorrow"));
        }
        assert!(is_foreign(WireForm::Anthropic, "reasoning_effort"));
        assert!(is_foreign(WireForm::Gemini, "response_format"));
        assert!(is_foreign(WireForm::Responses, "stop"));
        assert!(is_foreign(WireForm::OpenAi, "generationConfig"));
    }
}
