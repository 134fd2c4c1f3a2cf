//! `llm:`: keys in the file, and names that are nearly the engine's own and so go into the request.

use super::{Level, Sink, context};
use crate::llm::config::LLM;
use crate::process::Launch;
use crate::text;
use crate::tool::placeholder;
use crate::yaml::{Document, Node};
use std::path::Path;

/// Names under which people write the key itself.
const SECRETS: [&str; 6] = ["api_key", "apikey", "api-key", "apiKey", "key", "secret"];

pub(super) fn check(doc: &Document, llm: &Node, home: &Path, launch: &Launch, sink: &mut Sink) {
    context::command(doc, llm, home, launch, sink);
    for (key, value) in llm.entries() {
        let name = key.scalar().unwrap_or_default();
        let env = name == "api_key_env" && !value.scalar().is_none_or(placeholder::is_name);
        if env {
            let message =
                "`api_key_env` takes the name of an environment variable, and this is none";
            let help = "write the variable's name, such as `api_key_env: MY_KEY`, and keep the key out of the file";
            sink.add("llm-key", Level::Warning, doc.at(value, message, help.to_owned()));
        } else if SECRETS.contains(&name) {
            let message = format!(
                "`{name}` goes into the body of every request, and so into the records of every run"
            );
            let help =
                "put the key into DELTA_API_KEY, or name its variable: `api_key_env: MY_KEY`";
            sink.add("llm-key", Level::Warning, doc.at(key, message, help.to_owned()));
        } else if LLM.key(name).is_none()
            // Some endpoints know these.
            && !name.contains("_options")
            && name != "models"
            && let [near, ..] = text::nearest(name, LLM.names()).as_slice()
        {
            let message =
                format!("`{name}` is no key of the engine, and goes into the request as it is");
            let help = format!(
                "did you mean `{near}`? if it is meant for the endpoint, write `x-lint-allow: [llm-key]` at the top of the file"
            );
            sink.add("llm-key", Level::Warning, doc.at(key, message, help));
        }
    }
}
