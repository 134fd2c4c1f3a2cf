//! What servers on one's own machine tell about their models in addition to the list: llama.cpp, LM Studio and Ollama.

use super::{fetch_json, has_word, token_count};
use delta_base::signal::CancelToken;
use delta_http::append_path;
use delta_llm::llm::{Endpoint, OfferedModel};
use serde_json::{Value, json};

/// A server that tells more at addresses of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LocalServer {
    LlamaCpp,
    LmStudio,
    Ollama,
}

impl LocalServer {
    /// The server that lists a model so. No other server is asked at addresses that it may not have.
    pub(super) fn that_lists(item: &Value) -> Option<Self> {
        match item.get("owned_by")?.as_str()? {
            "llamacpp" => Some(Self::LlamaCpp),
            "organization_owner" | "organization-owner" => Some(Self::LmStudio),
            "library" => Some(Self::Ollama),
            _ => None,
        }
    }

    /// Adds to the models what the server tells. What it does not tell stays as it is.
    pub(super) fn describe(
        self,
        endpoint: &Endpoint,
        models: &mut [OfferedModel],
        cancel: &CancelToken,
    ) {
        let ask = |path: &str, body: Option<Value>| {
            let url = append_path(&server_root(&endpoint.base_url), path);
            fetch_json(endpoint, &url, body.as_ref(), cancel).ok()
        };
        match self {
            Self::LlamaCpp => {
                // A server of several models would have to load one to tell.
                let [model] = models else { return };
                let Some(props) = ask("/props", None) else { return };
                // The list has the tokens of all slots together, and a request gets one slot.
                let slot = token_count(&props, &["/default_generation_settings/n_ctx"]);
                model.max_input = slot.or(model.max_input);
                let takes_tools = props.pointer("/chat_template_caps/supports_tools");
                model.takes_tools = takes_tools.and_then(Value::as_bool);
            }
            Self::LmStudio => {
                let Some(list) = ask("/api/v0/models", None) else { return };
                for item in list.get("data").and_then(Value::as_array).into_iter().flatten() {
                    let model = models.iter_mut().find(|model| item["id"] == model.name.as_str());
                    let Some(model) = model else { continue };
                    // With how many tokens a model will be loaded is not known before.
                    model.max_input = token_count(item, &["/loaded_context_length"]);
                    model.takes_tools = has_word(item, "capabilities", "tool_use");
                }
            }
            Self::Ollama => {
                let loaded = ask("/api/ps", None).unwrap_or_default();
                let loaded = loaded.get("models").and_then(Value::as_array);
                for model in models {
                    let name = model.name.as_str();
                    let details = ask("/api/show", Some(json!({"model": name})));
                    let Some(details) = details else { return };
                    let mut items = loaded.into_iter().flatten();
                    let item = items.find(|item| item["name"] == name || item["model"] == name);
                    let in_use = item.and_then(|item| token_count(item, &["/context_length"]));
                    // The context of `model_info` is what the model could have, and not what the server gives it.
                    model.max_input = in_use.or_else(|| context_parameter(&details));
                    model.takes_tools = has_word(&details, "capabilities", "tools");
                }
            }
        }
    }
}

/// The address without the path of the interface that the server imitates.
fn server_root(base_url: &str) -> String {
    let (base, query) = base_url.split_once('?').unwrap_or((base_url, ""));
    let base = base.trim_end_matches('/');
    let root = base.strip_suffix("/v1").unwrap_or(base);
    if query.is_empty() { root.to_owned() } else { format!("{root}?{query}") }
}

/// The context that the file of a model sets: a line of a text.
fn context_parameter(details: &Value) -> Option<u64> {
    let mut lines = details.get("parameters")?.as_str()?.lines();
    lines.find_map(|line| line.trim().strip_prefix("num_ctx")?.trim().parse().ok())
}
