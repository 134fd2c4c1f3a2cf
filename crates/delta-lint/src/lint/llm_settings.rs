//! `llm-key`: API keys in `llm:`, keys of another provider, and unknown keys that are similar to known ones and go into
//! the request.
//! `endpoint`: an address that gets no key before its user allows it.

use super::{ALLOW_KEY, LintLevel, Linter, context_sources, provider_keys};
use delta_base::engine_variables::is_identifier;
use delta_base::shell_quote::shell_quote;
use delta_base::suggest;
use delta_base::url_secrets::url_secrets;
use delta_llm::llm::config::LLM_MAPPING;
use delta_llm::llm::endpoint::host_needing_trust;
use delta_words::WireForm;
use delta_yaml::diagnostic::DiagnosticReport;
use delta_yaml::yaml::{YamlDocument, YamlNode};

const RULE: &str = "llm-key";
/// The keys under which authors write the API key itself, besides the ones that the loader refuses.
const KEY_NAMES: [&str; 2] = ["key", "secret"];

pub(super) fn check_llm(doc: &YamlDocument, llm: &YamlNode, linter: &mut Linter<'_>) {
    context_sources::check_command(doc, llm, linter);
    let form = named_form(llm).unwrap_or(WireForm::OpenAi);
    check_keys(doc, llm, form, linter);
    for entry in llm.get("fallback").map(YamlNode::items).unwrap_or_default() {
        let inherited = if entry.get("base_url").is_some() { WireForm::OpenAi } else { form };
        check_keys(doc, entry, named_form(entry).unwrap_or(inherited), linter);
    }
}

fn named_form(llm: &YamlNode) -> Option<WireForm> {
    llm.get("provider").and_then(YamlNode::scalar).and_then(WireForm::parse)
}

/// Checks the keys of the section, or of an entry of its `fallback`.
fn check_keys(doc: &YamlDocument, llm: &YamlNode, form: WireForm, linter: &mut Linter<'_>) {
    for (key, value) in llm.entries() {
        let name = key.scalar().unwrap_or_default();
        if name == "base_url" && value.scalar().is_some_and(|url| !url_secrets(url).is_empty()) {
            let message = "the address contains a password or a key";
            let help = "keys belong into the environment: write it without, and set DELTA_API_KEY, or \
                        the whole address as DELTA_BASE_URL";
            linter.warn(RULE, doc.diagnostic_at(value, message, help));
        }
        if name == "base_url"
            && let Some(host) = value.scalar().and_then(|url| host_needing_trust(form, url))
        {
            let message = format!("keys go to `{host}` only when its user has allowed that");
            let help = format!(
                "mention it where you describe the agent: `delta trust --endpoint {}`",
                shell_quote(&host)
            );
            linter.report("endpoint", LintLevel::Info, doc.diagnostic_at(value, message, help));
        }
        if name == "api_key_env" && !value.scalar().is_none_or(is_identifier) {
            let message = "`api_key_env` must be the name of an environment variable";
            let help = "write the variable's name, such as `api_key_env: MY_KEY`, and keep the key out of the file";
            linter.warn(RULE, doc.diagnostic_at(value, message, help));
        } else if KEY_NAMES.contains(&name) {
            let message = format!(
                "`{name}` goes into the body of every request, and so into the records of every run"
            );
            let help =
                "put the key into DELTA_API_KEY, or name its variable: `api_key_env: MY_KEY`";
            linter.warn(RULE, doc.diagnostic_at(key, message, help));
        } else if let Some(replacement) = provider_keys::foreign_key_help(form, name) {
            let message = format!("`{name}` is not a key of the provider `{}`", form.name());
            linter.warn(RULE, doc.diagnostic_at(key, message, replacement));
        } else if let Some(nearest) = intended_key(name, &[form]) {
            let message =
                format!("delta does not know the key `{name}`, and puts it into the request");
            let help = format!(
                "did you mean `{nearest}`? if it is for the endpoint, write `x-lint-allow: [llm-key]` at the top of the file"
            );
            linter.warn(RULE, doc.diagnostic_at(key, message, help));
        }
    }
}

/// The known key of `llm` that an author probably meant by the unknown key `name`, with endpoints of one of these forms.
pub fn intended_key(name: &str, forms: &[WireForm]) -> Option<&'static str> {
    let is_known = LLM_MAPPING.key(name).is_some()
        || forms.iter().any(|form| provider_keys::is_key_of(*form, name))
        // Keys that some endpoints accept.
        || name.contains("_options")
        || name == "models";
    let known = forms.iter().flat_map(|form| provider_keys::known_keys(*form));
    suggest::nearest_names(name, known).first().copied().filter(|_| !is_known)
}

/// The keys in the `llm` of a sweep.yaml, and of its models, that are close to a known one: every run of the sweep would send
/// them. `x-lint-allow: [llm-key]` at the top of the file allows them.
pub fn find_misspelled_llm_keys(doc: &YamlDocument) -> DiagnosticReport {
    let mut report = DiagnosticReport::default();
    let allowed = doc.root.get(ALLOW_KEY).map(YamlNode::items).unwrap_or_default();
    if allowed.iter().any(|rule| rule.scalar() == Some(RULE)) {
        return report;
    }
    let models = doc.root.get("models").map(YamlNode::items).unwrap_or_default();
    for node in models.iter().chain([&doc.root]).filter_map(|node| node.get("llm")) {
        for (key, _) in node.entries() {
            let name = key.scalar().unwrap_or_default();
            if let Some(intended) = intended_key(name, &WireForm::ALL) {
                let message = format!("delta does not know the key `{name}` of `llm`");
                let help = format!(
                    "did you mean `{intended}`? if it is for the endpoint, write `{ALLOW_KEY}: [{RULE}]` at the top of the file"
                );
                report.push(doc.diagnostic_at(key, message, help));
            }
        }
    }
    report
}
