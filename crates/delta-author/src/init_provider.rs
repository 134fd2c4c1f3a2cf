//! The provider of a new agent: the one whose key the environment has.

use delta_base::signal::CancelToken;
use delta_base::terminal;
use delta_operator::failure::CommandFailure;
use delta_operator::{config, environment};
use delta_program::stdio;
use delta_words::WireForm;
use delta_yaml::yaml::quote_yaml;

/// The providers that a template can have, in the order in which their keys are looked for, each with a model. `responses`
/// shares the keys of `openai`.
const PROVIDERS: [(WireForm, &str); 3] = [
    (WireForm::OpenAi, TEMPLATE_MODEL),
    (WireForm::Anthropic, "claude-sonnet-5-5"),
    (WireForm::Gemini, "gemini-3.5-flash"),
];

/// The model in the files of the templates, whose provider is `openai`.
const TEMPLATE_MODEL: &str = "gpt-4o";
/// The variable of the key in the files of the templates.
const TEMPLATE_KEY: &str = "DELTA_API_KEY";
/// A sentence of the templates that holds for `openai` only.
const TEMPLATE_ADDRESS: &str = " For another endpoint, add base_url: http://localhost:11434/v1";

/// The provider and the model of a new agent.
#[derive(Debug, Clone)]
pub struct InitProvider {
    form: WireForm,
    model: String,
    /// Whether the operator's settings name the model.
    pub is_operators: bool,
    /// The variable that holds the key, or should.
    pub key_variable: &'static str,
    /// Whether the variable of the key is set, or an address that may need none.
    pub is_key_set: bool,
}

impl InitProvider {
    fn new(form: WireForm, model: &str) -> Self {
        let names = form.key_variables();
        let set = names.iter().find(|name| environment::variable(name).is_some());
        let key_variable = set.copied().unwrap_or(names[0]);
        let model = model.to_owned();
        Self { form, model, is_operators: false, key_variable, is_key_set: set.is_some() }
    }

    /// The model of the operator's settings; else the provider whose key is set, of several the one that the user chooses,
    /// or the first without a terminal or with `accepts_default`.
    pub fn choose(accepts_default: bool, cancel: &CancelToken) -> Result<Self, CommandFailure> {
        if let Some((form, model, origin)) = config::model_of_new_agent()? {
            stdio::print_error_line(&format!("Note: the model is {model}, from {origin}"));
            let mut chosen = Self { is_operators: true, ..Self::new(form, &model) };
            let mut addresses = form.address_variables().iter();
            chosen.is_key_set |= addresses.any(|name| environment::variable(name).is_some());
            return Ok(chosen);
        }
        let all = PROVIDERS.map(|(form, model)| Self::new(form, model));
        let with_key: Vec<Self> =
            all.iter().filter(|provider| provider.is_key_set).cloned().collect();
        match with_key.as_slice() {
            [] => Ok(all[0].clone()),
            [only] => Ok(only.clone()),
            [first, ..] if accepts_default || !terminal::can_prompt() => {
                let names: Vec<&str> =
                    with_key.iter().map(|provider| provider.form.name()).collect();
                stdio::print_error_line(&format!(
                    "Note: keys of {} are set; agent.yaml gets `provider: {}`, the first of these",
                    names.join(", "),
                    first.form.name()
                ));
                Ok(first.clone())
            }
            several => ask_for_provider(several, cancel),
        }
    }

    /// A file of a template for this provider.
    pub fn adapt_template_text(&self, text: &str) -> String {
        let (provider, provider_entry, address) = match self.form {
            WireForm::OpenAi => (String::new(), String::new(), TEMPLATE_ADDRESS),
            form => {
                let name = form.name();
                (format!("  provider: {name}\n"), format!("provider: {name}, "), "")
            }
        };
        // Names of models with other characters are texts in YAML only in quotes.
        let is_word = self.model.starts_with(|c: char| c.is_ascii_alphabetic())
            && !self.model.ends_with(':')
            && self.model.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:@".contains(c));
        let model = if is_word { self.model.clone() } else { quote_yaml(&self.model) };
        text.replace(TEMPLATE_KEY, self.key_variable)
            .replace(TEMPLATE_ADDRESS, address)
            .replace(
                &format!("  model: {TEMPLATE_MODEL}\n"),
                &format!("{provider}  model: {model}\n"),
            )
            .replace(
                &format!("{{model: {TEMPLATE_MODEL}}}"),
                &format!("{{{provider_entry}model: {model}}}"),
            )
            .replace(&format!("={TEMPLATE_MODEL} "), &format!("={} ", self.model_option()))
    }

    /// The model as in `--model`.
    pub fn model_option(&self) -> String {
        match self.form {
            WireForm::OpenAi if !self.model.contains(':') => self.model.clone(),
            form => format!("{}:{}", form.name(), self.model),
        }
    }
}

fn ask_for_provider(
    providers: &[InitProvider],
    cancel: &CancelToken,
) -> Result<InitProvider, CommandFailure> {
    let mut prompt = String::from("Provider?\n");
    for (number, provider) in (1..).zip(providers) {
        let InitProvider { form, model, key_variable, .. } = provider;
        prompt.push_str(&format!("  {number}) {:<13}{model}, {key_variable}\n", form.name()));
    }
    prompt.push_str("choose [1]> ");
    loop {
        let answer = terminal::prompt_line(&prompt, cancel).map_err(|error| {
            let hint = "pass `-y` for the first one";
            CommandFailure::unanswered("no provider was chosen", &error, hint)
        })?;
        let answer = answer.trim();
        let number = if answer.is_empty() { Some(1) } else { answer.parse::<usize>().ok() };
        let by_number = number.and_then(|number| providers.get(number.checked_sub(1)?));
        let by_name = providers.iter().find(|provider| provider.form.name() == answer);
        if let Some(provider) = by_number.or(by_name) {
            return Ok(provider.clone());
        }
        prompt = format!("expected a number or a name, found `{answer}`> ");
    }
}
