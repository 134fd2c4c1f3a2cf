use super::*;
use crate::llm::ModelChoice;
use delta_words::Usage;
use delta_yaml::yaml::YamlDocument;
use std::path::Path;

/// The model that `section`, the content of `llm:`, asks.
fn query(section: &str) -> PriceQuery {
    let doc = YamlDocument::parse("agent.yaml", format!("{{{section}}}")).unwrap();
    let config = LlmConfig::read(&doc, &doc.root, Path::new("/"), None).unwrap();
    let address = config.base_url.clone();
    let default = config.wire_form().unwrap_or(WireForm::OpenAi).default_address();
    PriceQuery::new(&config, address.as_deref().unwrap_or(default))
}

fn find(text: &str, section: &str) -> Result<PricedModel, String> {
    match PriceFile::parse(text, &PriceListKind::File)?.find(&query(section))? {
        PriceLookup::Entry(model) => Ok(*model),
        PriceLookup::Missing(reason) => Err(reason),
    }
}

/// The cost of a million tokens: fresh, cached, written, output, reasoning.
fn prices(text: &str, section: &str) -> Result<[f64; 5], String> {
    let prices = *find(text, section)?.pricing?.prices().base();
    let others = [prices.cache_write, prices.output, prices.reasoning];
    Ok([prices.input, prices.cached_input, others[0], others[1], others[2]])
}

const FILE: &str = r#"{
  "sample_spec": {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0, "litellm_provider": "one of", "max_tokens": "LEGACY", "mode": "one of: chat, ..."},
  "m": {"input_cost_per_token": 2e-06, "output_cost_per_token": "1e-5", "litellm_provider": "openai", "mode": "chat",
        "cache_read_input_token_cost": 2e-07, "max_output_tokens": "16384", "max_input_tokens": 128000.0,
        "input_cost_per_token_priority": 4e-06, "output_cost_per_token_priority": 2e-05},
  "azure/m": {"input_cost_per_token": 3e-06, "output_cost_per_token": 1e-5, "litellm_provider": "azure", "mode": "chat"},
  "openrouter/a/m": {"input_cost_per_token": 5e-06, "output_cost_per_token": 1e-5, "litellm_provider": "openrouter", "mode": "chat"},
  "a/m": {"input_cost_per_token": 6e-06, "output_cost_per_token": 1e-5, "litellm_provider": "together_ai", "mode": "chat"},
  "gemini/g": {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-6, "litellm_provider": "gemini", "mode": "chat",
        "input_cost_per_token_above_200k_tokens": 2e-06, "output_cost_per_token_above_200k_tokens": 3e-06, "output_cost_per_reasoning_token": 4e-06},
  "g": {"input_cost_per_token": 9e-06, "output_cost_per_token": 9e-6, "litellm_provider": "vertex_ai-language-models", "mode": "chat"},
  "c": {"input_cost_per_token": 2e-06, "output_cost_per_token": 1e-5, "litellm_provider": "anthropic", "mode": "chat",
        "cache_creation_input_token_cost": 2.5e-06, "cache_creation_input_token_cost_above_1hr": 4e-06, "cache_read_input_token_cost": 1e-07},
  "c-20250929": {"input_cost_per_token": 3e-06, "output_cost_per_token": 1e-5, "litellm_provider": "anthropic", "mode": "chat"},
  "twin": {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-6, "litellm_provider": "deepseek", "mode": "chat"},
  "deepseek/twin": {"input_cost_per_token": 2e-06, "output_cost_per_token": 1e-6, "litellm_provider": "deepseek", "mode": "chat"},
  "same": {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-6, "litellm_provider": "deepseek", "mode": "chat"},
  "deepseek/same": {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-6, "litellm_provider": "deepseek", "mode": "chat", "max_output_tokens": 8192},
  "drawing": {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-6, "litellm_provider": "openai", "mode": "image_generation"},
  "half": {"input_cost_per_token": 1e-06, "litellm_provider": "openai", "mode": "chat", "max_output_tokens": 0},
  "\u0065scaped": {"input_cost_per_token": 1e-06, "output_cost_per_token": 0, "litellm_provider": "openai", "mode": "responses"},
  "qwen": {"litellm_provider": "dashscope", "mode": "chat", "tiered_pricing": [
      {"input_cost_per_token": 1e-06, "output_cost_per_token": 5e-06, "range": [0, 32000.0]},
      {"input_cost_per_token": 2e-06, "output_cost_per_token": 9e-06, "range": [32000.0, 128000.0]}]},
  "wrong": {"input_cost_per_token": true, "output_cost_per_token": 1e-6, "litellm_provider": "openai", "mode": "chat"},
  "negative": {"input_cost_per_token": "-1", "output_cost_per_token": 1e-6, "litellm_provider": "openai", "mode": "chat"},
  "text": "none"
}"#;

#[test]
fn c_23_3_a_price_is_that_of_the_vendor_that_is_asked() {
    let first = |section: &str| prices(FILE, section).map(|prices| prices[0]);
    assert_eq!(prices(FILE, "model: m"), Ok([2.0, 0.2, 2.0, 10.0, 10.0]));
    assert_eq!(first("model: m, provider: responses"), Ok(2.0));
    assert_eq!(first("model: m, base_url: 'https://r.openai.azure.com/openai/v1'"), Ok(3.0));
    assert_eq!(first("model: a/m, base_url: 'https://openrouter.ai/api/v1'"), Ok(5.0));
    assert_eq!(first("model: a/m, base_url: 'https://API.together.xyz/v1'"), Ok(6.0));
    assert_eq!(first("model: g, provider: gemini"), Ok(1.0));
    let vertex = "https://europe-west1-aiplatform.googleapis.com/v1";
    assert_eq!(first(&format!("model: g, provider: gemini, base_url: '{vertex}'")), Ok(9.0));
    // An address that belongs to no vendor that is known: the full name decides.
    assert_eq!(first("model: m, base_url: 'http://localhost:4000/v1'"), Ok(2.0));
    assert_eq!(first("model: gemini/g, base_url: 'https://gateway.example/v1'"), Ok(1.0));
    assert_eq!(first("model: escaped"), Ok(1.0));
}

#[test]
fn c_23_3_there_is_never_a_price_of_another_model() {
    let reason = |section: &str| find(FILE, section).unwrap_err();
    assert_eq!(
        reason("model: other, provider: anthropic"),
        "no chat model `anthropic/other` or `other` of anthropic"
    );
    // Not the price of one of its versions.
    let dated = r#"{"new-20250929": {"input_cost_per_token": 1, "output_cost_per_token": 1, "litellm_provider": "anthropic"}}"#;
    assert_eq!(
        find(dated, "model: new, provider: anthropic").unwrap_err(),
        "no chat model `anthropic/new` or `new` of anthropic; similar names: `new-20250929`"
    );
    // Another vendor sells it, perhaps at another price.
    assert!(find(FILE, "model: m, base_url: 'https://api.groq.com/openai/v1'").is_err());
    assert!(find(FILE, "model: a/m").is_err());
    assert_eq!(
        reason("model: twin, base_url: 'https://api.deepseek.com'"),
        "its entries `deepseek/twin` and `twin` have different prices"
    );
    let same = find(FILE, "model: same, base_url: 'https://api.deepseek.com'").unwrap();
    assert_eq!((same.entry.as_str(), same.max_output), ("deepseek/same", Some(8192)));
    assert!(reason("model: drawing").starts_with("no chat model"));
    assert!(find(FILE, "model: sample_spec").is_err());
}

#[test]
fn c_23_3_an_entry_without_a_price_is_no_free_model() {
    let reason = |section: &str| find(FILE, section).unwrap().pricing.unwrap_err();
    assert_eq!(reason("model: half"), "its entry `half` has no price of a token");
    assert_eq!(find(FILE, "model: half").unwrap().max_output, None);
    assert_eq!(
        reason("model: m, service_tier: flex"),
        "its entry `m` has no price for `service_tier: flex`"
    );
    assert_eq!(prices(FILE, "model: m, service_tier: priority"), Ok([4.0, 4.0, 4.0, 20.0, 20.0]));
    assert_eq!(prices(FILE, "model: m, service_tier: auto").unwrap()[0], 2.0);
    assert_eq!(reason("model: m, speed: fast"), "`speed` in the request changes the price");
}

#[test]
fn c_35_5_an_answer_has_the_price_of_the_tier_that_gave_it() {
    let list = r#"{"m": {"input_cost_per_token": 2e-06, "output_cost_per_token": 1e-5, "litellm_provider": "openai",
        "input_cost_per_token_flex": 1e-06, "output_cost_per_token_flex": 5e-06, "cache_read_input_token_cost_flex": 1e-07},
      "long": {"input_cost_per_token": 2e-06, "output_cost_per_token": 1e-5, "litellm_provider": "openai",
        "input_cost_per_token_above_200k_tokens": 4e-06, "input_cost_per_token_flex": 1e-06, "output_cost_per_token_flex": 5e-06}}"#;
    let cost = |section: &str, tier: Option<ServiceTier>| {
        let usage = Usage { input_tokens: 1_000_000, tier, ..Usage::default() };
        find(list, section).unwrap().pricing.unwrap().call_cost(&usage)
    };
    let [direct, flex, priority, unknown] =
        [ServiceTier::Direct, ServiceTier::Flex, ServiceTier::Priority, ServiceTier::Unknown]
            .map(Some);
    for (section, tier, expected) in [
        ("model: m", None, Some(2.0)),
        ("model: m", direct, Some(2.0)),
        ("model: m", flex, Some(1.0)),
        ("model: m", priority, None),
        ("model: m", unknown, None),
        ("model: m, service_tier: flex", None, Some(1.0)),
        ("model: m, service_tier: flex", direct, Some(2.0)),
        // The price of a long request in the tier is not in the list.
        ("model: long", flex, None),
    ] {
        assert_eq!(cost(section, tier), expected, "{section} {tier:?}");
    }
    let pricing = find(list, "model: m").unwrap().pricing.unwrap();
    let [flex, direct] =
        [ServiceTier::Flex, ServiceTier::Direct].map(|it| pricing.of_tier(it).unwrap());
    assert!(flex.is_cheaper_than(direct) && !direct.is_cheaper_than(flex));
    let unpriced = Usage { input_tokens: 1_000_000, tier: unknown, ..Usage::default() };
    assert_eq!(pricing.charged_cost(&unpriced), 2.0);
    let text = serde_json::to_string(&pricing).unwrap();
    assert_eq!(serde_json::from_str::<Pricing>(&text).unwrap(), pricing, "{text}");
}

#[test]
fn c_23_3_the_time_of_a_cache_has_its_own_price() {
    let written = |section: &str| prices(FILE, section).unwrap()[2];
    assert_eq!(written("model: c, provider: anthropic"), 2.5);
    assert_eq!(written("model: c, provider: anthropic, cache: {ttl: 1h}"), 4.0);
    // The price of an hour is not in the entry.
    assert_eq!(written("model: c-20250929, provider: anthropic"), 3.75);
    assert_eq!(written("model: c-20250929, provider: anthropic, cache: {ttl: 1h}"), 6.0);
}

#[test]
fn c_23_3_long_requests_have_the_tiers_of_the_file() {
    let usage = |input_tokens| Usage { input_tokens, output_tokens: 1_000_000, ..Usage::default() };
    let gemini = find(FILE, "model: g, provider: gemini").unwrap().pricing.unwrap();
    assert_eq!(gemini.call_cost(&usage(200_000)), Some(2.2));
    assert_eq!(gemini.call_cost(&usage(300_000)), Some(3.6));
    assert_eq!(gemini.prices().base().reasoning, 4.0);
    let qwen = find(FILE, "model: qwen, base_url: 'https://dashscope.aliyuncs.com/v1'");
    let qwen = qwen.unwrap().pricing.unwrap();
    assert_eq!(qwen.call_cost(&usage(30_000)), Some(5.03));
    assert_eq!(qwen.call_cost(&usage(100_000)), Some(9.2));
}

#[test]
fn c_23_3_a_file_with_a_mistake_is_refused_where_it_matters() {
    let error = |section: &str| find(FILE, section).unwrap_err();
    assert_eq!(
        error("model: wrong"),
        "expected a price per token such as 2.5e-06 as `input_cost_per_token` of the entry `wrong`, found `true`"
    );
    assert!(error("model: negative").contains("found `\"-1\"`"));
    assert_eq!(error("model: text"), "expected an object as the entry `text`");
    for text in ["", "[]", "{\"m\": ", "5", "{\"a\": {}} x"] {
        let error = PriceFile::parse(text, &PriceListKind::File).unwrap_err();
        assert!(
            error.starts_with("expected a JSON object with an entry for each model: "),
            "{error}"
        );
    }
    assert!(find("\u{feff}{}", "model: m").unwrap_err().starts_with("no chat model"));
}

#[test]
fn the_file_is_read_for_models_that_are_asked_and_lack_a_price_or_a_bound() {
    let wants = |section: &str| {
        let doc = YamlDocument::parse("agent.yaml", format!("{{{section}}}")).unwrap();
        LlmConfig::read(&doc, &doc.root, Path::new("/"), None).unwrap().wants_price_list()
    };
    assert!(wants("model: m") && wants("provider: command, model: m, command: [x]"));
    assert!(wants("model: m, pricing: {input: 1, output: 1}"));
    assert!(!wants("model: m, pricing: {input: 1, output: 1, max_output: 1k}"));
    assert!(!wants("model: m, max_tokens: 50, pricing: {input: 1, output: 1}"));
    let doc = YamlDocument::parse("agent.yaml", "{}").unwrap();
    let choice = ModelChoice::openai("m");
    assert!(LlmConfig::from_choice(&doc, Path::new("/"), &choice).unwrap().wants_price_list());
}

#[test]
fn c_23_3_the_default_length_of_an_answer_is_within_what_the_model_can_make() {
    let length = |section: &str| {
        let doc = YamlDocument::parse("agent.yaml", format!("{{{section}}}")).unwrap();
        let mut config = LlmConfig::read(&doc, &doc.root, Path::new("/"), None).unwrap();
        let model = find(FILE, "model: same, base_url: 'https://api.deepseek.com'").unwrap();
        config.set_prices(model.pricing.unwrap());
        config.body.get("max_tokens").and_then(Value::as_u64)
    };
    assert_eq!(length("provider: anthropic, model: m"), Some(8192));
    assert_eq!(length("provider: anthropic, model: m, max_tokens: 4000"), Some(4000));
    assert_eq!(length("model: m"), None);
}
