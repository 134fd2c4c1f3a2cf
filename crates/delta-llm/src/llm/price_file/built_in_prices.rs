//! The table of prices in the program: the chat models of the vendors that delta speaks to, from LiteLLM's list (MIT licence,
//! LICENSE-LITELLM). `built_in_prices/make.py` makes it.

use super::PriceListKind;
use miniz_oxide::inflate::decompress_to_vec_with_limit;

const PACKED: &[u8] = include_bytes!("built_in_prices/prices.deflate");

/// More than the table has.
const MAX_BYTES: usize = 4 << 20;

/// The table in the form of a price file, and its day.
pub fn built_in_prices() -> (String, PriceListKind) {
    let unpacked = decompress_to_vec_with_limit(PACKED, MAX_BYTES).unwrap_or_default();
    let text = String::from_utf8(unpacked).unwrap_or_default();
    // The first line has the day of the list and the version of the package that contains it.
    let (head, table) = text.split_once('\n').unwrap_or_default();
    let day = head.split(' ').next().unwrap_or_default();
    (table.to_owned(), PriceListKind::BuiltIn(day.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::price_file::{PriceFile, PriceLookup, PriceQuery};
    use crate::llm::{LlmConfig, ModelChoice};
    use delta_words::WireForm;
    use delta_yaml::yaml::YamlDocument;
    use serde_json::{Map, Value};
    use std::path::Path;

    /// Every entry can be asked for by its own name, at the address of its vendor or of a gateway.
    #[test]
    fn c_35_1_every_entry_of_the_table_has_a_price() {
        let (table, kind) = built_in_prices();
        let PriceListKind::BuiltIn(day) = &kind else { panic!() };
        assert!(delta_base::time::Timestamp::parse(&format!("{day}T00:00:00Z")).is_some(), "{day}");
        let file = PriceFile::parse(&table, &kind).unwrap();
        let entries: Map<String, Value> = serde_json::from_str(&table).unwrap();
        assert!(entries.len() > 300, "{}", entries.len());
        for name in entries.keys() {
            let doc = YamlDocument::parse("agent.yaml", "{}").unwrap();
            let choice = ModelChoice::of_form(WireForm::OpenAi, name);
            let config = LlmConfig::from_choice(&doc, Path::new("/"), &choice).unwrap();
            let query = PriceQuery::new(&config, "https://gateway.example/v1");
            let PriceLookup::Entry(model) = file.find(&query).unwrap() else { panic!("{name}") };
            let pricing = model.pricing.unwrap_or_else(|reason| panic!("{name}: {reason}"));
            assert!(
                pricing.prices().base().output >= 0.0 && pricing.origin.date() == Some(day),
                "{name}"
            );
            if name == "claude-opus-5-5" {
                assert_eq!(pricing.min_cached_prefix, Some(512));
            }
        }
    }
}
