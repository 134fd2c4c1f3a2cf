//! `delta models prices --fetch`: replaces the fetched list of prices. delta reads prices from the network only here, from the
//! address that the user names, and sends no key.

use crate::prepare::download::download;
use delta_base::hex::sha256_hex;
use delta_base::url_secrets::mask_url;
use delta_base::{durable, time};
use delta_llm::llm::price_file::price_list::{PriceChange, PriceList};
use delta_operator::failure::CommandFailure;
use delta_operator::prices::{FetchedPrices, PriceSource, fetched_prices_path};
use delta_operator::{cancel, config};
use delta_program::stdio;
use serde_json::value::to_raw_value;
use std::path::Path;

const MAX_LIST_BYTES: usize = 32 << 20;

/// The most changes that are listed.
const MAX_SHOWN_CHANGES: usize = 40;

/// Reads the list at `source`, an address or a file, else at the address in config.yaml, checks it, replaces the fetched list, and
/// prints the prices that have changed.
///
/// # Errors
/// The list cannot be read, is refused, or cannot be written; the old one is unchanged.
pub fn fetch_prices(source: Option<&str>, accept: bool) -> Result<(), CommandFailure> {
    let source = match source {
        Some(source) => source.to_owned(),
        None => config::prices_url()?.ok_or_else(|| {
            let hint = "for example: delta models prices --fetch https://models.dev/api.json; or write `prices_url: URL` into config.yaml";
            CommandFailure::config("no address of a list of prices is named", hint)
        })?,
    };
    let shown_source = mask_url(&source);
    let refuse = |problem: String, hint: Option<String>| {
        CommandFailure::config(format!("refused the prices of {shown_source}: {problem}"), hint)
    };
    let text = if source.starts_with("http://") || source.starts_with("https://") {
        download(&source, MAX_LIST_BYTES, 0, &cancel::install_cancel()?)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    } else {
        read_list_file(Path::new(&source)).map_err(|problem| format!("{shown_source}: {problem}"))
    };
    let text = text.map_err(|problem| {
        CommandFailure::config(format!("could not fetch the prices: {problem}"), None)
    })?;
    let list = PriceList::parse(&text).map_err(|problem| refuse(problem, None))?;
    let current = match PriceSource::read_fetched() {
        Ok(Some(fetched)) => fetched,
        // A list that cannot be read is replaced.
        Ok(None) | Err(_) => PriceSource::built_in(),
    };
    let before = PriceList::parse(current.text()).unwrap_or_default();
    let changes = list.changes_since(&before);
    let large: Vec<&PriceChange> = changes.iter().filter(|change| change.is_large()).collect();
    if let Some(first) = large.first().filter(|_| !accept) {
        let problem = format!(
            "{} of {} prices changed by more than ten times, such as {}",
            large.len(),
            changes.len(),
            describe_change(first)
        );
        return Err(refuse(problem, Some("`--accept` accepts them".to_owned())));
    }
    let path = fetched_prices_path().ok_or_else(|| {
        CommandFailure::config("the list has no place, because HOME is not set", "set HOME")
    })?;
    let fetched = FetchedPrices {
        source: shown_source.clone(),
        fetched_at: time::current_time(),
        sha256: sha256_hex(&text),
        models: to_raw_value(&list.to_json()).map_err(|error| refuse(error.to_string(), None))?,
    };
    if let Some(dir) = path.parent() {
        durable::ensure_private_dir_synced(dir)?;
    }
    let content = serde_json::to_vec(&fetched).map_err(|error| refuse(error.to_string(), None))?;
    durable::replace_private_synced(&path, &content)?;
    stdio::print_text(&describe(&shown_source, &list, &changes, &current.name));
    Ok(())
}

/// What the command prints: the number of models, and the prices that are not the ones of the list `before`.
fn describe(source: &str, list: &PriceList, changes: &[PriceChange], before: &str) -> String {
    let mut text = format!(
        "{} models from {source}; {} prices differ from the {before}\n",
        list.len(),
        changes.len()
    );
    for change in changes.iter().take(MAX_SHOWN_CHANGES) {
        text.push_str(&format!("  {}\n", describe_change(change)));
    }
    if changes.len() > MAX_SHOWN_CHANGES {
        text.push_str(&format!("  and {} more\n", changes.len() - MAX_SHOWN_CHANGES));
    }
    text
}

fn describe_change(change: &PriceChange) -> String {
    let (before, after) = change.to_string_pair();
    format!("{} {}: {before} -> {after} USD per million", change.model, change.key)
}

fn read_list_file(path: &Path) -> Result<String, String> {
    let bytes = durable::read_large(path).map_err(|error| error.to_string())?;
    if bytes.len() > MAX_LIST_BYTES {
        return Err("the list has more than 32 MB".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "the file is not UTF-8".to_owned())
}
