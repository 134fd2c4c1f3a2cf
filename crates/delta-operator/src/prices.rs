//! The prices of models: the operator's file, the fetched list, the table in the program, and what a run knows from the run
//! that started it.

use crate::failure::CommandFailure;
use crate::{config, environment};
use delta_agent::agent::Agent;
use delta_base::durable::{self, FileError};
use delta_base::time::{self, Timestamp};
use delta_http::host_of;
use delta_llm::llm::LlmConfig;
use delta_llm::llm::price_file::built_in_prices::built_in_prices;
use delta_llm::llm::price_file::{PriceFile, PriceListKind, PriceLookup, PriceQuery};
use delta_run::event::EngineStart;
use delta_words::{PriceOrigin, Pricing};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use std::{io, iter};

/// The variable with the path of the price file.
pub const PRICES_VARIABLE: &str = "DELTA_PRICES";

/// The file in a run directory with the prices that the run knows.
const RUN_PRICES_FILE: &str = "prices.json";

/// After so many days a limit reports how old the prices are.
const MAX_PRICE_DAYS: i64 = 90;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// A list of prices.
pub struct PriceSource {
    /// What the list is called in messages: the path of the file, `built-in prices of 2026-11-28`.
    pub name: String,
    /// The file, if it is one that the operator names.
    pub path: Option<PathBuf>,
    kind: PriceListKind,
    text: String,
}

/// The list that delta has fetched, as its file has it.
#[derive(Debug, Serialize, Deserialize)]
pub struct FetchedPrices {
    /// The address or the file.
    pub source: String,
    /// When it was fetched.
    pub fetched_at: Timestamp,
    /// The SHA-256 of what was fetched.
    pub sha256: String,
    /// The entries, in the form of a price file.
    pub models: Box<RawValue>,
}

/// The path of the price file, and where it is written.
///
/// # Errors
/// The path is relative, or the configuration has mistakes.
pub fn price_file_path() -> Result<Option<(PathBuf, String)>, CommandFailure> {
    if let Some(path) = environment::variable(PRICES_VARIABLE) {
        // A relative path would lead into the current directory, which may be a cloned repository that brings the file.
        if Path::new(&path).is_relative() {
            let message = format!("{PRICES_VARIABLE} is not an absolute path: {path}");
            let hint = format!("export {PRICES_VARIABLE}=\"$PWD\"/FILE");
            return Err(CommandFailure::config(message, hint));
        }
        return Ok(Some((PathBuf::from(path), PRICES_VARIABLE.to_owned())));
    }
    config::price_file()
}

/// The path of the fetched list, which need not exist; `None` without a home directory.
pub fn fetched_prices_path() -> Option<PathBuf> {
    config::data_directory().map(|dir| dir.join("prices.json"))
}

impl PriceSource {
    /// The lists, in the order in which they are searched; each is read when its turn comes.
    pub fn all() -> impl Iterator<Item = Result<Self, CommandFailure>> {
        let files = [Self::read_file, Self::read_fetched].into_iter();
        let files = files.filter_map(|read| read().transpose());
        files.chain(iter::once_with(|| Ok(Self::built_in())))
    }

    fn read_file() -> Result<Option<Self>, CommandFailure> {
        let Some((path, origin)) = price_file_path()? else { return Ok(None) };
        let name = path.display().to_string();
        match durable::read_regular_text(&path) {
            Ok(text) => Ok(Some(Self { name, path: Some(path), kind: PriceListKind::File, text })),
            Err(error) => {
                let message = format!("could not read the price file {name}: {error}");
                Err(CommandFailure::config(message, format!("{origin} names it")))
            }
        }
    }

    /// The fetched list.
    ///
    /// # Errors
    /// It cannot be read, or is not one.
    pub fn read_fetched() -> Result<Option<Self>, CommandFailure> {
        let Some(path) = fetched_prices_path() else { return Ok(None) };
        let failure = |problem: String| {
            let message =
                format!("could not use the fetched prices in {}: {problem}", path.display());
            let hint = "fetch them again, `delta models prices --fetch URL`, or remove the file";
            CommandFailure::config(message, hint)
        };
        let text = match durable::read_regular_text(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failure(error.to_string())),
        };
        let list: FetchedPrices =
            serde_json::from_str(&text).map_err(|error| failure(error.to_string()))?;
        let date = day_of(list.fetched_at);
        let name = format!("prices of {date} from {}", list.source);
        let text = list.models.get().to_owned();
        Ok(Some(Self { name, path: None, kind: PriceListKind::Fetched(date), text }))
    }

    /// The table in the program.
    pub fn built_in() -> Self {
        let (text, kind) = built_in_prices();
        let date = match &kind {
            PriceListKind::BuiltIn(date) | PriceListKind::Fetched(date) => date.as_str(),
            PriceListKind::File => "",
        };
        Self { name: format!("built-in prices of {date}"), path: None, kind, text }
    }

    /// The entries, as one JSON object.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Parses the list.
    ///
    /// # Errors
    /// It is not a list of prices.
    pub fn parse(&self) -> Result<PriceFile<'_>, CommandFailure> {
        PriceFile::parse(&self.text, &self.kind).map_err(|problem| self.failure(problem))
    }

    /// Looks up the model of `llm`, asked at `base_url`.
    ///
    /// # Errors
    /// The list, or its entry of the model, has a mistake.
    pub fn find(
        &self,
        file: &PriceFile<'_>,
        llm: &LlmConfig,
        base_url: &str,
    ) -> Result<PriceLookup, CommandFailure> {
        file.find(&PriceQuery::new(llm, base_url)).map_err(|problem| self.failure(problem))
    }

    /// The day on which the operator's file was last modified, or the one of another list, in UTC.
    pub fn day(&self) -> Option<String> {
        let path = match &self.kind {
            PriceListKind::Fetched(date) | PriceListKind::BuiltIn(date) => {
                return Some(date.clone());
            }
            PriceListKind::File => self.path.as_deref()?,
        };
        let modified = path.metadata().ok()?.modified().ok()?;
        let millis = modified.duration_since(UNIX_EPOCH).ok()?.as_millis();
        Some(day_of(Timestamp::from_millis(i64::try_from(millis).ok()?)))
    }

    fn failure(&self, problem: String) -> CommandFailure {
        let kind = if self.path.is_some() { "price file " } else { "" };
        let message = format!("could not use the {kind}{}: {problem}", self.name);
        let hint = "it needs the form of LiteLLM's model_prices_and_context_window.json";
        CommandFailure::config(message, hint)
    }
}

fn day_of(moment: Timestamp) -> String {
    moment.to_string().split('T').next().unwrap_or_default().to_owned()
}

/// The prices that a run and the runs around it know, by the host and the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunPrices(BTreeMap<String, RunPrice>);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RunPrice {
    pricing: Pricing,
    /// The id of the run that found the prices.
    from: String,
}

impl RunPrices {
    /// The prices of the run that started this process; none if no run did.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn of_parent() -> Result<Self, CommandFailure> {
        let Some(parent) = environment::parent_run() else { return Ok(Self::default()) };
        let path = Path::new(&parent.run_dir).join(RUN_PRICES_FILE);
        let problem = match durable::read_regular_text(&path) {
            Ok(text) => match serde_json::from_str(&text) {
                Ok(prices) => return Ok(prices),
                Err(error) => error.to_string(),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => error.to_string(),
        };
        let message =
            format!("could not read the prices of the parent run {}: {problem}", path.display());
        Err(CommandFailure::config(message, None))
    }

    /// The prices of `model` at the host of `base_url`.
    fn find(&self, base_url: &str, model: &str) -> Option<Pricing> {
        let price = self.0.get(&price_key(base_url, model)?)?;
        let mut pricing = price.pricing.clone();
        pricing.origin = PriceOrigin::Parent { run_id: price.from.clone() };
        Some(pricing)
    }

    /// Writes these prices and the ones of `models`, which run `id` asks at these addresses, into its directory, for the runs
    /// that it starts. Writes nothing if none are known.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write<'a>(
        mut self,
        models: impl Iterator<Item = (&'a LlmConfig, &'a str)>,
        id: &str,
        run_dir: &Path,
    ) -> Result<(), FileError> {
        for (llm, base_url) in models {
            let Some(pricing) = &llm.pricing else { continue };
            let Some(key) = price_key(base_url, &llm.model) else { continue };
            let price = RunPrice { pricing: pricing.clone(), from: id.to_owned() };
            self.0
                .entry(key)
                .and_modify(|known| {
                    if !known.pricing.has_prices_of(pricing) {
                        *known = price.clone();
                    }
                })
                .or_insert(price);
        }
        if self.0.is_empty() {
            return Ok(());
        }
        let text = serde_json::to_vec(&self).unwrap_or_default();
        durable::replace_private_unsynced(&run_dir.join(RUN_PRICES_FILE), &text)
    }
}

fn price_key(base_url: &str, model: &str) -> Option<String> {
    Some(format!("{} {model}", host_of(base_url)?.to_ascii_lowercase()))
}

/// Adds to `llm` what agent.yaml does not say: the prices of the parent run, else the ones of the first list with the model.
/// Returns why the operator's file has no price, if nothing has one.
///
/// # Errors
/// A list cannot be read, or has a mistake.
pub fn apply_prices(
    llm: &mut LlmConfig,
    base_url: &str,
    parent: &RunPrices,
) -> Result<Option<String>, CommandFailure> {
    if llm.pricing.is_none()
        && let Some(pricing) = parent.find(base_url, &llm.model)
    {
        llm.set_prices(pricing);
    }
    if !llm.wants_price_list() {
        return Ok(None);
    }
    let mut reason = None;
    for source in PriceSource::all() {
        let source = source?;
        let problem = match source.find(&source.parse()?, llm, base_url)? {
            PriceLookup::Missing(problem) => problem,
            PriceLookup::Entry(model) => match (&mut llm.pricing, model.pricing) {
                (Some(pricing), _) => {
                    pricing.max_output = pricing.max_output.or(model.max_output);
                    pricing.max_input = pricing.max_input.or(model.max_input);
                    return Ok(None);
                }
                (None, Ok(pricing)) => {
                    llm.set_prices(pricing);
                    return Ok(None);
                }
                (None, Err(problem)) => problem,
            },
        };
        if source.path.is_some() {
            reason = Some(format!("{}: {problem}", source.name));
        }
    }
    Ok(reason.filter(|_| llm.pricing.is_none()))
}

/// Sets the prices that the last process took from elsewhere than agent.yaml, as [`Agent::use_recorded_prices`] does, unless
/// a price file is named for this process.
///
/// # Errors
/// The path of the file is relative, or the configuration has mistakes.
pub fn use_recorded_prices(agent: &mut Agent, start: &EngineStart) -> Result<(), CommandFailure> {
    if price_file_path()?.is_none() {
        agent.use_recorded_prices(&start.config);
    }
    Ok(())
}

/// Says that the prices on which a limit relies are old.
pub fn old_price_note(llm: &LlmConfig) -> Option<String> {
    let date = llm.pricing.as_ref()?.origin.date()?;
    let day = Timestamp::parse(&format!("{date}T00:00:00Z"))?;
    let days = time::current_time().as_millis().saturating_sub(day.as_millis()) / DAY_MS;
    (days > MAX_PRICE_DAYS).then(|| {
        format!(
            "Note: the limit relies on prices of {}, which are {days} days old; `delta models prices --fetch URL` gets new ones",
            llm.model
        )
    })
}
