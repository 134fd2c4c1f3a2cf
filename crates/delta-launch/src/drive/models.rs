//! `delta models`: the models that the operator's endpoints offer, and what calls of a model cost.

mod fetch_prices;

use clap::{Args, Subcommand, ValueEnum};
use delta_base::signal::CancelToken;
use delta_base::terminal;
use delta_base::terminal_text::strip_terminal_controls;
use delta_endpoint::endpoint_provider::EndpointProvider;
use delta_endpoint::model_list;
use delta_llm::llm::endpoint::{EnvOrigin, EnvSetting};
use delta_llm::llm::price_file::{PriceFile, PriceLookup, PricedModel};
use delta_llm::llm::{Endpoint, ModelChoice, OfferedModel};
use delta_operator::api_key::{self, KeyCommand};
use delta_operator::endpoints::{
    LISTING_FORMS, configured_endpoint, endpoint_hint, model_config, operator_settings,
};
use delta_operator::failure::CommandFailure;
use delta_operator::prices::PriceSource;
use delta_operator::{cancel, environment};
use delta_program::stdio;
use delta_words::{PriceOrigin, Pricing, TokenPrices, WireForm};
use serde_json::{Value as Json, json};
use std::process::ExitCode;

/// List the models that your endpoints offer, and their prices
///
/// Asks each endpoint for which the environment has a key, or whose address it names; `.env` files are not read. A name can be
/// used with `--model`; prices are in USD per million tokens. The last column says whether the model sees tools, where the
/// endpoint reports it.
///
/// Exit codes: 0, 1 if an endpoint did not answer with a list, 126 if no endpoint is configured.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true, after_long_help = EXAMPLES)]
pub struct ModelsArgs {
    #[command(subcommand)]
    command: Option<ModelsCommand>,
    /// Output format
    #[arg(long, value_enum, default_value_t = ModelsFormat::Text)]
    format: ModelsFormat,
}

const EXAMPLES: &str = "\
Examples:
  delta models
  delta models --format json | jq -r '.[].model'
  delta models prices anthropic:claude-opus-5-5   # what a call costs
  delta models prices --fetch https://models.dev/api.json";

#[derive(Debug, Subcommand)]
enum ModelsCommand {
    /// Print the prices of models, or fetch a list of prices
    ///
    /// A price is the one of the first list that has the model: the operator's file (DELTA_PRICES, or `pricing` in
    /// config.yaml), the list that `--fetch` has fetched, the table in this program.
    ///
    /// Exit codes: 0, 1 if no list has a price of one of the models, 126 if a list cannot be used or is refused.
    Prices {
        /// Model, as in `--model`: NAME or PROVIDER:NAME
        #[arg(value_name = "MODEL", required_unless_present = "fetch", value_parser = ModelChoice::parse)]
        models: Vec<ModelChoice>,
        /// Replace the fetched list by the one at URL or in FILE, in the form of LiteLLM or models.dev [default: `prices_url` in
        /// config.yaml]
        #[arg(long, value_name = "URL|FILE", num_args = 0..=1, conflicts_with = "models")]
        fetch: Option<Option<String>>,
        /// Accept prices that are more than ten times higher or lower than before
        #[arg(long, requires = "fetch")]
        accept: bool,
        /// Output format
        #[arg(long, value_enum, default_value_t = ModelsFormat::Text)]
        format: ModelsFormat,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModelsFormat {
    /// One line for each model, or for each price
    Text,
    /// One JSON array
    Json,
}

/// Lists models or prices; returns the exit code.
pub fn models_command(args: &ModelsArgs) -> ExitCode {
    let done = match &args.command {
        None => list_offered_models(args.format),
        Some(ModelsCommand::Prices { fetch: Some(source), accept, .. }) => {
            fetch_prices::fetch_prices(source.as_deref(), *accept).map(|()| true)
        }
        Some(ModelsCommand::Prices { models, format, .. }) => print_prices(models, *format),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => failure.report(),
    }
}

/// Checks that requests to an endpoint can be made: with its proxy, its key and its headers.
///
/// # Errors
/// One of them cannot be used.
pub fn check_requests(endpoint: &Endpoint) -> Result<(), CommandFailure> {
    Ok(EndpointProvider::new(endpoint.clone(), "").map(drop)?)
}

/// What an endpoint without a key offers; asking it sends nothing secret.
///
/// # Errors
/// It did not answer with a list; contains the reason.
pub fn ask_for_models(endpoint: &Endpoint) -> Result<Vec<OfferedModel>, String> {
    let cancel = CancelToken::manual().map_err(|error| error.to_string())?;
    model_list::list_models(endpoint, &cancel)
}

/// The key of `form` that a file, a descriptor or a command has, if no variable holds one.
fn outside_key(form: WireForm, cancel: &CancelToken) -> Result<Option<EnvSetting>, CommandFailure> {
    let names = form.key_variables();
    let mut key = None;
    if form == WireForm::OpenAi {
        key = api_key::read_operator_key()?;
    }
    let has_variable = names.iter().any(|name| environment::variable(name).is_some());
    if key.is_none() && !has_variable {
        let command = KeyCommand::from_environment().filter(|_| form == WireForm::OpenAi);
        let command = command.map_or_else(|| KeyCommand::from_config(form), |it| Ok(Some(it)))?;
        key = command.map(|command| command.run(cancel)).transpose()?;
    }
    Ok(key.zip(names.first()).map(|(key, name)| EnvSetting {
        name: (*name).to_owned(),
        value: key.value,
        origin: EnvOrigin::KeySource(key.description),
    }))
}

/// A model with its provider, and what is known about it.
struct ListedModel {
    model: String,
    offered: OfferedModel,
    priced: Option<PricedModel>,
}

impl ListedModel {
    fn max_input(&self) -> Option<u64> {
        self.offered.max_input.or_else(|| self.priced.as_ref()?.max_input)
    }

    fn max_output(&self) -> Option<u64> {
        self.offered.max_output.or_else(|| self.priced.as_ref()?.max_output)
    }

    fn pricing(&self) -> Option<&Pricing> {
        self.priced.as_ref()?.pricing.as_ref().ok()
    }
}

/// Whether every endpoint answered.
fn list_offered_models(format: ModelsFormat) -> Result<bool, CommandFailure> {
    let cancel = cancel::install_cancel()?;
    let sources = PriceSource::all().collect::<Result<Vec<_>, _>>()?;
    let lists = parse_all(&sources)?;
    let mut models = Vec::new();
    let mut is_complete = true;
    let mut is_configured = false;
    for form in LISTING_FORMS {
        let key = outside_key(form, &cancel)?;
        let Some(endpoint) = configured_endpoint(form, key.as_ref())? else { continue };
        is_configured = true;
        match model_list::list_models(&endpoint, &cancel) {
            Ok(offered) => {
                for offered in offered {
                    models.push(describe_model(&endpoint, offered, &lists)?);
                }
            }
            Err(problem) => {
                is_complete = false;
                stdio::print_error_line(&format!("error: {}: {problem}", form.name()));
            }
        }
    }
    if !is_configured {
        return Err(no_endpoint_failure());
    }
    match format {
        ModelsFormat::Text => stdio::print_text(&render_models(&models)),
        ModelsFormat::Json => {
            let list: Vec<Json> = models.iter().map(model_json).collect();
            stdio::print_json(&format!("{:#}\n", Json::from(list)))
        }
    };
    Ok(is_complete)
}

fn describe_model(
    endpoint: &Endpoint,
    offered: OfferedModel,
    lists: &[ParsedSource<'_>],
) -> Result<ListedModel, CommandFailure> {
    let choice = ModelChoice::of_form(endpoint.form, &offered.name);
    let config = model_config(&choice)?;
    let mut priced = None;
    for (source, list) in lists {
        if let PriceLookup::Entry(model) = source.find(list, &config, &endpoint.base_url)? {
            priced = Some(*model);
            break;
        }
    }
    Ok(ListedModel { model: choice.to_string(), offered, priced })
}

/// A list of prices and its entries.
type ParsedSource<'a> = (&'a PriceSource, PriceFile<'a>);

fn parse_all(sources: &[PriceSource]) -> Result<Vec<ParsedSource<'_>>, CommandFailure> {
    sources.iter().map(|source| Ok((source, source.parse()?))).collect()
}

fn no_endpoint_failure() -> CommandFailure {
    CommandFailure::config("no endpoint is configured in the environment", endpoint_hint())
}

fn model_json(model: &ListedModel) -> Json {
    json!({
        "model": model.model,
        "max_input": model.max_input(),
        "max_output": model.max_output(),
        "takes_tools": model.offered.takes_tools,
        "pricing": model.pricing(),
    })
}

/// Columns, with a header at a terminal.
fn render_models(models: &[ListedModel]) -> String {
    let number = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let mut rows: Vec<[String; 6]> = Vec::new();
    if terminal::is_stdout_terminal() {
        let names = ["MODEL", "CONTEXT", "MAX OUTPUT", "USD IN", "USD OUT", "TOOLS"];
        rows.push(names.map(str::to_owned));
    }
    rows.extend(models.iter().map(|model| {
        let prices = model.pricing().map(|pricing| pricing.prices().base());
        [
            strip_terminal_controls(&model.model),
            number(model.max_input().map(|tokens| tokens.to_string())),
            number(model.max_output().map(|tokens| tokens.to_string())),
            number(prices.map(|prices| prices.input.to_string())),
            number(prices.map(|prices| prices.output.to_string())),
            number(model.offered.takes_tools.map(|it| if it { "yes" } else { "no" }.to_owned())),
        ]
    }));
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths = [0, 1, 2, 3, 4, 5].map(width);
    let mut text = String::new();
    for [model, others @ ..] in &rows {
        text.push_str(&format!("{model:<width$}", width = widths[0]));
        for (cell, width) in others.iter().zip(&widths[1..]) {
            text.push_str(&format!("  {cell:>width$}"));
        }
        text.push('\n');
    }
    text
}

/// Whether a list has a price of every model.
fn print_prices(models: &[ModelChoice], format: ModelsFormat) -> Result<bool, CommandFailure> {
    let sources = PriceSource::all().collect::<Result<Vec<_>, _>>()?;
    let lists = parse_all(&sources)?;
    let mut found_all = true;
    let mut texts = String::new();
    let mut list = Vec::new();
    for choice in models {
        let config = model_config(choice)?;
        let form = config.wire_form().unwrap_or(WireForm::OpenAi);
        let address = form
            .address_variables()
            .iter()
            .find_map(|name| operator_settings(name, None).into_iter().next())
            .map_or_else(|| form.default_address().to_owned(), |setting| setting.value);
        let mut reasons = Vec::new();
        let mut priced = None;
        for (source, list) in &lists {
            let reason = match source.find(list, &config, &address)? {
                PriceLookup::Missing(reason) => reason,
                PriceLookup::Entry(model) => match model.pricing {
                    Ok(pricing) => {
                        priced = Some((*source, pricing));
                        break;
                    }
                    Err(reason) => reason,
                },
            };
            reasons.push(format!("{}: {reason}", source.name));
        }
        found_all &= priced.is_some();
        let source = priced.as_ref().map(|(source, _)| *source);
        let pricing = priced.as_ref().map(|(_, pricing)| pricing);
        let reason = source.is_none().then(|| reasons.join("\n  "));
        list.push(json!({
            "model": choice.to_string(),
            "address": address,
            "file": source.and_then(|source| source.path.as_deref()),
            "day": source.and_then(PriceSource::day),
            "pricing": pricing,
            "reason": reason,
        }));
        texts.push_str(&match &priced {
            Some((source, pricing)) => render_pricing(choice, &address, pricing, source),
            None => format!(
                "{choice} at {address}: unknown\n  {}\n",
                reason.as_deref().unwrap_or_default()
            ),
        });
    }
    match format {
        ModelsFormat::Text => stdio::print_text(&texts),
        ModelsFormat::Json => stdio::print_json(&format!("{:#}\n", Json::from(list))),
    };
    Ok(found_all)
}

fn render_pricing(
    choice: &ModelChoice,
    address: &str,
    pricing: &Pricing,
    source: &PriceSource,
) -> String {
    let line = |prices: &TokenPrices| {
        format!(
            "input {}, cached_input {}, cache_write {}, output {}, reasoning {}",
            prices.input, prices.cached_input, prices.cache_write, prices.output, prices.reasoning
        )
    };
    let mut text = format!("{choice} at {address}, in USD per million tokens:\n");
    for (index, (tier, prices)) in pricing.tiers().enumerate() {
        let tier = if index == 0 { String::new() } else { format!("tier {}: ", tier.name()) };
        text.push_str(&format!("  {tier}{}\n", line(prices.base())));
        for (tokens, prices) in prices.long_prices() {
            text.push_str(&format!("  {tier}above {tokens} tokens: {}\n", line(prices)));
        }
    }
    if let Some(tokens) = pricing.max_output {
        text.push_str(&format!("  max_output {tokens}\n"));
    }
    if let Some(tokens) = pricing.max_input {
        text.push_str(&format!("  max_input {tokens}\n"));
    }
    let name = &source.name;
    match &pricing.origin {
        PriceOrigin::File { model, .. } => {
            let day = source.day().map_or_else(String::new, |day| format!(", file of {day}"));
            text.push_str(&format!("  from `{model}` in {name}{day}\n"));
        }
        PriceOrigin::Fetched { entry, .. } | PriceOrigin::BuiltIn { entry, .. } => {
            text.push_str(&format!("  from `{entry}` in the {name}\n"));
        }
        PriceOrigin::Agent | PriceOrigin::Parent { .. } => {}
    }
    text
}
