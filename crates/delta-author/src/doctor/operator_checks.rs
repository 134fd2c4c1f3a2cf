//! What the operator has set up: the configuration, the model, endpoints and keys.

use super::machine_checks::failed_check;
use super::{CheckStatus, DoctorCheck};
use delta_base::url_secrets::mask_url;
use delta_llm::llm::endpoint::{EnvOrigin, EnvSetting};
use delta_operator::api_key::{self, KeyCommand};
use delta_operator::failure::CommandFailure;
use delta_operator::{config, endpoints, environment};
use delta_words::WireForm;
use std::path::Path;

/// The name of the checks of endpoints.
const ENDPOINT: &str = "endpoint";

pub(super) fn check_operator() -> Vec<DoctorCheck> {
    let mut checks = vec![check_config()];
    // Nothing below can be read without it.
    if checks[0].status == CheckStatus::Fail {
        return checks;
    }
    let endpoints: Vec<DoctorCheck> =
        endpoints::LISTING_FORMS.into_iter().filter_map(check_endpoint).collect();
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
            let note =
                if Path::new(&path).exists() { "" } else { " does not exist; the defaults hold" };
            DoctorCheck::ok(NAME, format!("{path}{note}"))
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
                let help = format!(
                    "export {example}, or write `model: NAME` in {}",
                    config::file_path_text()
                );
                DoctorCheck::warn(NAME, finding, help)
            }
        },
        Err(failure) => failed_check(NAME, &failure),
    }
}

/// The endpoint of a form; `None` if the operator has set up nothing for it.
fn check_endpoint(form: WireForm) -> Option<DoctorCheck> {
    match describe_endpoint(form) {
        Ok(finding) => Some(DoctorCheck::ok(ENDPOINT, finding?)),
        Err(failure) => Some(failed_check(ENDPOINT, &failure)),
    }
}

/// The address and where the key comes from, never the key.
fn describe_endpoint(form: WireForm) -> Result<Option<String>, CommandFailure> {
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
        return Ok(Some(format!("{name}: {address}, {source}{}", proxy.unwrap_or_default())));
    }
    let from_environment = KeyCommand::from_environment().filter(|_| form == WireForm::OpenAi);
    let command = match from_environment {
        Some(command) => Some(command),
        None => KeyCommand::from_config(form)?,
    };
    Ok(command.map(|command| {
        format!(
            "{name}: {}, key from {}, not started",
            form.default_address(),
            command.source_name()
        )
    }))
}
