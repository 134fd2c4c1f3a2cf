//! `--llm KEY=VALUE`: one key of the section `llm:`, for one run.

use delta_yaml::yaml::{self, YamlDocument, YamlNode};
use std::fmt;

/// A key of `llm:` and its value, as agent.yaml would have them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LlmSetting {
    key: String,
    /// The value as YAML on one line.
    value: String,
}

impl LlmSetting {
    /// Parses the option. Whether `llm:` has such a key, and what its value may be, is checked with agent.yaml.
    ///
    /// # Errors
    /// The text is not `KEY=VALUE` with a value in YAML.
    pub fn parse(text: &str) -> Result<Self, String> {
        let example = "such as `temperature=0.7` or `cache={ttl: 1h}`";
        let (key, value) = text
            .split_once('=')
            .filter(|(key, value)| !key.trim().is_empty() && !value.trim().is_empty())
            .ok_or_else(|| format!("expected KEY=VALUE, {example}"))?;
        // The line break ends a comment, which would hide the bracket.
        let doc = YamlDocument::parse("--llm", format!("[{value}\n]")).map_err(|_| {
            format!("expected a value in YAML, {example}; quote text: `stop='\"a: b\"'`")
        })?;
        match doc.root.items() {
            [node] => Ok(Self { key: key.trim().to_owned(), value: yaml::to_flow_yaml(node) }),
            _ => Err("expected one value; write a list as `[a, b]`".to_owned()),
        }
    }

    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The value, if it is a text or a number.
    pub fn text(&self) -> Option<String> {
        let doc = YamlDocument::parse("--llm", format!("[{}\n]", self.value)).ok()?;
        doc.root.items().first()?.scalar().map(str::to_owned)
    }

    /// The settings of a journal, as its `Display` wrote them.
    pub fn parse_recorded(texts: &[String]) -> Vec<Self> {
        texts.iter().filter_map(|text| Self::parse(text).ok()).collect()
    }

    /// The text of agent.yaml with `settings` in its `llm`, and without the key `omitted`. An agent without `llm` gets one
    /// with `model`, if there is any.
    pub fn apply_all(
        settings: &[Self],
        doc: &YamlDocument,
        model: Option<&str>,
        omitted: Option<&str>,
    ) -> String {
        let text = &doc.text;
        let llm = doc.root.get("llm");
        let mut entries: Vec<(String, String)> = Vec::new();
        for (key, value) in llm.map(YamlNode::entries).unwrap_or_default() {
            let name = key.scalar().unwrap_or_default().to_owned();
            if omitted != Some(name.as_str()) {
                entries.push((name, yaml::to_flow_yaml(value)));
            }
        }
        if let (true, Some(model)) = (entries.is_empty(), model) {
            entries.push(("model".to_owned(), yaml::quote_yaml(model)));
        }
        for setting in settings {
            entries.retain(|(key, _)| *key != setting.key);
            entries.push((setting.key.clone(), setting.value.clone()));
        }
        let entries =
            entries.iter().map(|(key, value)| format!("{}: {value}", yaml::quote_yaml(key)));
        let section = format!("{{{}}}", entries.collect::<Vec<_>>().join(", "));
        match llm.filter(|node| !node.is_null()) {
            Some(node) => {
                let end = yaml::node_end(text, node);
                format!("{}{section}{}", &text[..node.span.start], &text[end..])
            }
            None if text.trim_start().starts_with('{') => {
                text.replacen('{', &format!("{{llm: {section}, "), 1)
            }
            None => format!("{}\nllm: {section}\n", text.trim_end()),
        }
    }
}

impl fmt::Display for LlmSetting {
    /// As the value of `--llm`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(text: &str, settings: &[&str]) -> String {
        let doc = YamlDocument::parse("agent.yaml", text).unwrap();
        let settings: Vec<_> =
            settings.iter().map(|text| LlmSetting::parse(text).unwrap()).collect();
        let text = LlmSetting::apply_all(&settings, &doc, Some("chosen"), None);
        let doc =
            YamlDocument::parse("agent.yaml", text.clone()).unwrap_or_else(|_| panic!("{text}"));
        doc.to_json(&doc.root).unwrap().to_string()
    }

    #[test]
    fn a_setting_replaces_or_adds_a_key_and_leaves_the_rest() {
        let block =
            "name: a\nllm: # the model\n  model: m # why\n  temperature: 0\n\n# tools\ntools: []\n";
        let expected =
            r#"{"name":"a","llm":{"model":"m","temperature":0.7,"stop":["a: b","c"]},"tools":[]}"#;
        assert_eq!(apply(block, &["temperature=0.7", "stop=['a: b', c]"]), expected);
        let flow = "{name: a, llm: {model: m, temperature: 1}}";
        assert_eq!(
            apply(flow, &["temperature=0"]),
            r#"{"name":"a","llm":{"model":"m","temperature":0}}"#
        );
        let alias = "name: a\nx: &x {model: m}\nllm: *x\n";
        assert!(apply(alias, &["seed=1 # why"]).ends_with(r#""llm":{"model":"m","seed":1}}"#));
        let anchor = "name: a\nllm: &x\n  model: m\ny: *x\n";
        assert!(apply(anchor, &["seed=1"]).contains(r#""llm":{"model":"m","seed":1}"#));
        for none in ["name: a\n", "name: a\nllm:\n", "{name: a}"] {
            let merged = apply(none, &["seed=1", "seed=2"]);
            assert!(merged.contains(r#""llm":{"model":"chosen","seed":2}"#), "{none:?}: {merged}");
        }
    }

    #[test]
    fn what_is_not_one_value_is_refused() {
        for text in ["temperature", "=1", "temperature=", "a=[", "a=b, c", "a=}", "a= # b"] {
            assert!(LlmSetting::parse(text).is_err(), "{text}");
        }
        assert_eq!(LlmSetting::parse("a = {b: 'c'}").unwrap().to_string(), "a={b: \"c\"}");
    }
}
