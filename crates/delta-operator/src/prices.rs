//! The operator's price file: where it is, and what it says about the model of an agent.

use crate::failure::CommandFailure;
use crate::{config, environment};
use delta_base::durable;
use delta_base::time::Timestamp;
use delta_llm::llm::LlmConfig;
use delta_llm::llm::price_file::{PriceFile, PriceLookup, PriceQuery};
use delta_run::event::EngineStart;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The variable with the path of the price file.
pub const PRICES_VARIABLE: &str = "DELTA_PRICES";

/// The content of the price file.
pub struct PriceSource {
    /// The file with the prices.
    pub path: PathBuf,
    text: String,
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

impl PriceSource {
    /// Reads the price file, if the operator names one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read() -> Result<Option<Self>, CommandFailure> {
        let Some((path, origin)) = price_file_path()? else { return Ok(None) };
        match durable::read_regular_text(&path) {
            Ok(text) => Ok(Some(Self { path, text })),
            Err(error) => {
                let message = format!("could not read the price file {}: {error}", path.display());
                let hint = format!("{origin} names it");
                Err(CommandFailure::config(message, hint))
            }
        }
    }

    /// Parses the file.
    ///
    /// # Errors
    /// It is not a price file.
    pub fn parse(&self) -> Result<PriceFile<'_>, CommandFailure> {
        PriceFile::parse(&self.text).map_err(|problem| self.failure(problem))
    }

    /// Looks up the model of `llm`, asked at `base_url`.
    ///
    /// # Errors
    /// The file, or its entry of the model, has a mistake.
    pub fn find(
        &self,
        file: &PriceFile<'_>,
        llm: &LlmConfig,
        base_url: &str,
    ) -> Result<PriceLookup, CommandFailure> {
        file.find(&PriceQuery::new(llm, base_url)).map_err(|problem| self.failure(problem))
    }

    /// The day on which the file was last modified, in UTC.
    pub fn day(&self) -> Option<String> {
        let modified = self.path.metadata().ok()?.modified().ok()?;
        let millis = modified.duration_since(UNIX_EPOCH).ok()?.as_millis();
        let day = Timestamp::from_millis(i64::try_from(millis).ok()?).to_string();
        Some(day.split('T').next().unwrap_or_default().to_owned())
    }

    fn failure(&self, problem: String) -> CommandFailure {
        let message = format!("could not use the price file {}: {problem}", self.path.display());
        let hint = "it needs the form of LiteLLM's model_prices_and_context_window.json".to_owned();
        CommandFailure::config(message, hint)
    }
}

/// Adds to `llm` what the price file says and agent.yaml does not. Returns why there is no price, if there is none.
///
/// # Errors
/// The file cannot be read, or has a mistake.
pub fn apply_price_file(
    llm: &mut LlmConfig,
    base_url: &str,
) -> Result<Option<String>, CommandFailure> {
    if !llm.wants_price_file() {
        return Ok(None);
    }
    let Some(source) = PriceSource::read()? else { return Ok(None) };
    let lookup = source.find(&source.parse()?, llm, base_url)?;
    let reason = match (lookup, &mut llm.pricing) {
        (PriceLookup::Entry(model), Some(pricing)) => {
            pricing.max_output = pricing.max_output.or(model.max_output);
            return Ok(None);
        }
        (PriceLookup::Missing(_), Some(_)) => return Ok(None),
        (PriceLookup::Entry(model), None) => match model.pricing {
            Ok(pricing) => {
                llm.set_prices(pricing);
                return Ok(None);
            }
            Err(reason) => reason,
        },
        (PriceLookup::Missing(reason), None) => reason,
    };
    Ok(Some(format!("{}: {reason}", source.path.display())))
}

/// Whether the prices that the last process took from a price file hold for this process: it has no such file.
///
/// # Errors
/// The path of the file is relative, or the configuration has mistakes.
pub fn keeps_recorded_prices(start: &EngineStart) -> Result<bool, CommandFailure> {
    let is_without_file = price_file_path()?.is_none();
    Ok(is_without_file && start.config.models().any(|model| model.file_prices().is_some()))
}
