//! What the operator has set up: the configuration, the model, endpoints and keys.

use super::machine_checks::failed_check;
use super::{CheckStatus, DoctorCheck};
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::url_secrets::mask_url;
use delta_llm::llm::endpoint::{EnvOrigin, EnvSetting};
use delta_llm::llm::{Endpoint, OfferedModel};
use delta_operator::api_key::{self, KeyCommand};
use delta_operator::failure::CommandFailure;
use delta_operator::{config, endpoints, environment};
use delta_words::WireForm;
use std::path::Path;

/// The name of the checks of endpoints.
const ENDPOINT: &str = "endpoint";

/// The most models of an endpoint that are shown.
const MAX_SHOWN_MODELS: usize = 8;

/// What needs connections: functions of the program, because this crate opens none.
#[derive(Clone, Copy)]
pub struct EndpointAccess {
    /// Checks that requests can be made, with the proxy, the key and the headers of the endpoint. Sends none.
    pub check: fn(&Endpoint) -> Result<(), CommandFailure>,
    /// Asks the endpoint for its models.
    pub ask_for_models: fn(&Endpoint) -> Result<Vec<OfferedModel>, String>,
}

pub(super) fn check_operator(access: EndpointAccess) -> Vec<DoctorCheck> {
    let mut checks = vec![check_config()];
    // Nothing below can be read without it.
    if checks[0].status == CheckStatus::Fail {
        return checks;
    }
    let endpoints: Vec<DoctorCheck> = endpoints::LISTING_FORMS
        .into_iter()
        .filter_map(|form| check_endpoint(form, access))
        .collect();
    checks.push(check_model(!endpoints.is_empty()));
    if endpoints.is_empty() {
        let finding = "none has a key, so only scripts and recordings can play the LLM";
        checks.push(DoctorCheck::warn(ENDPOINT, finding, endpoints::endpoint_hint()));
    }
    checks.extend(endpoints);
    checks
}

fn check_config() -> DoctorCheck {
    const NAME: &str = "config";
    match config::read() {
        Ok(config) => {
            let path = config.path_text();
            let finding = match &*path {
                "" => "HOME names no directory; the defaults hold".to_owned(),
                path if Path::new(path).exists() => path.to_owned(),
                path => format!("{path} does not exist; the defaults hold"),
            };
            DoctorCheck::ok(NAME, finding)
        }
        Err(failure) => failed_check(NAME, &failure),
    }
}

/// The model of agents without `llm`, such as the built-in one.
fn check_model(has_endpoint: bool) -> DoctorCheck {
    const NAME: &str = "model";
    match config::model_selection(None) {
        Ok(models) => match models.default {
            Some(model) => DoctorCheck::ok(NAME, model.to_string()),
            None => {
                let finding = "none is chosen for the built-in agent and agents without `llm`";
                let example = if has_endpoint { "DELTA_MODEL=NAME" } else { "DELTA_MODEL=gpt-4o" };
                let mut help = format!("export {example}");
                let file = config::file_path_text();
                if !file.is_empty() {
                    help.push_str(&format!(", or write `model: NAME` in {file}"));
                }
                DoctorCheck::warn(NAME, finding, help)
            }
        },
        Err(failure) => failed_check(NAME, &failure),
    }
}

/// The endpoint of a form; `None` if the operator has set up nothing for it.
fn check_endpoint(form: WireForm, access: EndpointAccess) -> Option<DoctorCheck> {
    match describe_endpoint(form, access) {
        Ok(None) => None,
        Ok(Some((finding, None))) => Some(DoctorCheck::ok(ENDPOINT, finding)),
        Ok(Some((finding, Some(local)))) => {
            Some(check_models(finding, (access.ask_for_models)(&local)))
        }
        Err(failure) => Some(failed_check(ENDPOINT, &failure)),
    }
}

/// What an endpoint without a key says about its models.
fn check_models(finding: String, models: Result<Vec<OfferedModel>, String>) -> DoctorCheck {
    let models = match models {
        Ok(models) => models,
        Err(problem) => {
            let help = "start the server, or correct the address";
            return DoctorCheck::warn(ENDPOINT, format!("{finding}\n{problem}"), help);
        }
    };
    let mut lines = vec![finding];
    lines.extend(models.iter().take(MAX_SHOWN_MODELS).map(model_line));
    if models.len() > MAX_SHOWN_MODELS {
        lines.push(format!("{} more: `delta models`", models.len() - MAX_SHOWN_MODELS));
    }
    let finding = lines.join("\n");
    // A model for embeddings next to one that takes tools is nothing to change.
    if !models.is_empty() && models.iter().all(|model| model.takes_tools == Some(false)) {
        let help = "use a model that gets to see the tools of an agent\n\
                    llama.cpp needs `--jinja` and a chat template with tools, Ollama and LM Studio another model";
        return DoctorCheck::warn(ENDPOINT, finding, help);
    }
    DoctorCheck::ok(ENDPOINT, finding)
}

fn model_line(model: &OfferedModel) -> String {
    let context = model.max_input.map(|tokens| format!("context {tokens} tokens"));
    let tools =
        model.takes_tools.map(|it| if it { "takes tools" } else { "takes no tools" }.to_owned());
    let known: Vec<String> = context.into_iter().chain(tools).collect();
    let known = if known.is_empty() {
        "tells neither context nor tools".to_owned()
    } else {
        known.join(", ")
    };
    format!("{}: {known}", strip_terminal_controls(&model.name))
}

/// The address and where the key comes from, never the key; and the endpoint itself, if it needs none.
fn describe_endpoint(
    form: WireForm,
    access: EndpointAccess,
) -> Result<Option<(String, Option<Endpoint>)>, CommandFailure> {
    let name = form.name();
    let file_key = match form {
        WireForm::OpenAi => api_key::read_operator_key()?,
        _ => None,
    };
    let file_setting = file_key.as_ref().map(|key| EnvSetting {
        name: form.key_variables()[0].to_owned(),
        value: key.value.clone(),
        origin: EnvOrigin::KeySource(key.description.clone()),
    });
    if let Some(endpoint) = endpoints::configured_endpoint(form, file_setting.as_ref())? {
        (access.check)(&endpoint)?;
        let mut names = form.key_variables().iter();
        let variable = names.find(|name| environment::variable(name).is_some());
        let source = match (file_key, variable) {
            _ if endpoint.api_key.is_none() => "no key".to_owned(),
            (Some(key), _) => format!("key in {}", key.description),
            (None, Some(variable)) => format!("key in {variable}"),
            (None, None) => "key".to_owned(),
        };
        let proxy = endpoint.proxy_name().map(|proxy| format!(", through the proxy {proxy}"));
        let address = mask_url(&endpoint.base_url);
        let is_short = endpoint.api_key.as_ref().is_some_and(|key| key.secrets().is_empty());
        let short = if is_short { ", which is too short to be redacted" } else { "" };
        let finding = format!("{name}: {address}, {source}{short}{}", proxy.unwrap_or_default());
        let local = endpoint.api_key.is_none().then_some(endpoint);
        return Ok(Some((finding, local)));
    }
    let from_environment = KeyCommand::from_environment().filter(|_| form == WireForm::OpenAi);
    let command = match from_environment {
        Some(command) => Some(command),
        None => KeyCommand::from_config(form)?,
    };
    Ok(command.map(|command| {
        let address = form.default_address();
        let source = command.source_name();
        (format!("{name}: {address}, key from {source}, not started"), None)
    }))
}
