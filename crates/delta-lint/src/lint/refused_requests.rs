//! `refused`: what the loader accepts and an endpoint of the form answers with status 400, whatever the model is.

use super::Linter;
use delta_agent::agent::{Agent, FinishTool};
use delta_base::quantity::parse_count;
use delta_llm::llm::LlmConfig;
use delta_words::{ANTHROPIC_MAX_TOKENS, WireForm};
use delta_yaml::yaml::{YamlDocument, YamlNode};
use serde_json::Value as Json;

const RULE: &str = "refused";
/// The smallest budget of `thinking`.
const MIN_THINKING_TOKENS: u64 = 1024;
/// The shortest answer of `responses`.
const MIN_OUTPUT_TOKENS: u64 = 16;
/// With this beta, the budget of `thinking` counts for several blocks.
const INTERLEAVED_BETA: &str = "interleaved-thinking";

/// Checks the section `llm`.
pub(super) fn check_settings(doc: &YamlDocument, llm: &YamlNode, linter: &mut Linter<'_>) {
    let provider = llm.get("provider").and_then(YamlNode::scalar);
    let settings = Settings { doc, llm };
    match provider.and_then(WireForm::parse) {
        Some(WireForm::Anthropic) => settings.check_thinking(linter),
        Some(WireForm::Responses) => settings.check_reasoning(linter),
        Some(WireForm::Gemini) => settings.check_thinking_config(linter),
        Some(WireForm::OpenAi) | None => {}
    }
}

/// Checks the schema of `finish`, which is the one schema that agent.yaml writes itself.
pub(super) fn check_finish(doc: &YamlDocument, agent: &Agent, linter: &mut Linter<'_>) {
    let FinishTool::Schema(schema) = &agent.finish else { return };
    let Some((key, _)) = doc.root.entry("finish") else { return };
    let Some(word) = refused_combination(&agent.llm, &schema.json) else { return };
    let message = format!("the schema has `{word}` at its top, which the endpoint refuses");
    let help = "put it into a property, as in `{type: object, properties: {result: {...}}}`";
    linter.warn(RULE, doc.diagnostic_at(key, message, help));
}

/// The combination of schemas at the top of the schema of a tool, where the endpoint of one of the models refuses it.
pub(super) fn refused_combination(llm: &LlmConfig, schema: &Json) -> Option<&'static str> {
    let mut forms = llm.models().filter_map(LlmConfig::wire_form);
    let refuses = forms.any(|form| matches!(form, WireForm::Anthropic | WireForm::Responses));
    let mut words = ["oneOf", "anyOf", "allOf"].into_iter();
    words.find(|word| refuses && schema.get(word).is_some())
}

/// The section `llm` of a file.
struct Settings<'a> {
    doc: &'a YamlDocument,
    llm: &'a YamlNode,
}

impl<'a> Settings<'a> {
    fn node(&self, path: &[&str]) -> Option<&'a YamlNode> {
        path.iter().try_fold(self.llm, |node, name| node.get(name)).filter(|node| !node.is_null())
    }

    fn text(&self, path: &[&str]) -> Option<&'a str> {
        self.node(path)?.scalar()
    }

    fn count(&self, path: &[&str]) -> Option<u64> {
        let text = self.text(path)?;
        text.parse().ok().or_else(|| parse_count(text))
    }

    fn warn(&self, linter: &mut Linter<'_>, path: &[&str], message: &str, help: &str) {
        let Some(node) = self.node(path) else { return };
        linter.warn(RULE, self.doc.diagnostic_at(node, message, help));
    }

    /// `thinking` of Messages.
    fn check_thinking(&self, linter: &mut Linter<'_>) {
        if matches!(self.text(&["thinking", "type"]), None | Some("disabled")) {
            return;
        }
        let budget = ["thinking", "budget_tokens"];
        let max_tokens = self.count(&["max_tokens"]).unwrap_or(ANTHROPIC_MAX_TOKENS);
        let headers = self.node(&["headers"]).map(YamlNode::entries).unwrap_or_default();
        let is_interleaved = headers
            .iter()
            .any(|(_, value)| value.scalar().is_some_and(|text| text.contains(INTERLEAVED_BETA)));
        match self.count(&budget) {
            Some(tokens) if tokens < MIN_THINKING_TOKENS => {
                let message = "the endpoint refuses a budget of less than 1024 tokens";
                self.warn(linter, &budget, message, "write 1024 or more, or leave `thinking` out");
            }
            Some(tokens) if tokens >= max_tokens && !is_interleaved => {
                let message = format!(
                    "the endpoint refuses a budget that is not less than `max_tokens`, {max_tokens}"
                );
                let help = "raise `max_tokens`, which counts the thinking too, or lower the budget";
                self.warn(linter, &budget, &message, help);
            }
            _ => {}
        }
        if self.text(&["temperature"]).is_some_and(|text| text.parse() != Ok(1.0_f64)) {
            let message = "the endpoint refuses a `temperature` other than 1 with `thinking`";
            self.warn(linter, &["temperature"], message, "remove one of them");
        }
        let message = "the endpoint refuses `top_k` with `thinking`";
        self.warn(linter, &["top_k"], message, "remove one of them");
        let choices: [&[&str]; 3] =
            [&["tool_choice"], &["tool_choice", "first"], &["tool_choice", "then"]];
        for path in choices {
            let kind = self.node(path).and_then(|node| node.get("type").unwrap_or(node).scalar());
            if matches!(kind, Some("any" | "tool" | "required")) {
                let message = "the endpoint refuses a forced tool with `thinking`";
                self.warn(linter, path, message, "write `tool_choice: {type: auto}`");
            }
        }
    }

    /// `reasoning` of Responses.
    fn check_reasoning(&self, linter: &mut Linter<'_>) {
        let effort = self.text(&["reasoning", "effort"]);
        if effort.is_some_and(|effort| effort != "none") {
            for name in ["temperature", "top_p"] {
                let message = format!("the endpoint refuses `{name}` of a model that reasons");
                let help = "remove it, or write `reasoning: {effort: none}`";
                self.warn(linter, &[name], &message, help);
            }
        }
        for name in ["max_tokens", "max_output_tokens"] {
            if self.count(&[name]).is_some_and(|tokens| tokens < MIN_OUTPUT_TOKENS) {
                let message = "the endpoint refuses answers of less than 16 tokens";
                self.warn(linter, &[name], message, "write 16 or more");
            }
        }
    }

    /// `thinkingConfig` of Gemini.
    fn check_thinking_config(&self, linter: &mut Linter<'_>) {
        let budget = ["generationConfig", "thinkingConfig", "thinkingBudget"];
        if self.node(&["generationConfig", "thinkingConfig", "thinkingLevel"]).is_some() {
            let message = "the endpoint refuses `thinkingBudget` together with `thinkingLevel`";
            let help = "remove one of them: gemini-3 takes a level, gemini-2.5 a budget";
            self.warn(linter, &budget, message, help);
        }
    }
}
