use super::*;
use delta_words::Usage;
use proptest::prelude::*;

fn usage(input: u64, cached: u64, written: u64, output: u64) -> Usage {
    Usage {
        input_tokens: input,
        cached_input_tokens: cached,
        cache_write_tokens: Some(written),
        output_tokens: output,
        ..Usage::default()
    }
}

fn read(section: &str) -> Pricing {
    pricing_from_agent_yaml(&format!("llm: {{{section}}}")).unwrap()
}

#[test]
fn c_23_3_tokens_written_to_a_cache_have_a_price_of_their_own() {
    let plain = read("pricing: {input: 2, output: 10}");
    assert_eq!(plain.charged_cost(&usage(1_000_000, 0, 1_000_000, 0)), 2.0);
    let anthropic = read("provider: anthropic, pricing: {input: 2, cached_input: 0.2, output: 10}");
    assert_eq!(anthropic.charged_cost(&usage(1_000_000, 0, 1_000_000, 0)), 2.5);
    let hour = read("provider: anthropic, cache: {ttl: 1h}, pricing: {input: 2, output: 10}");
    assert_eq!(hour.charged_cost(&usage(1_000_000, 0, 1_000_000, 0)), 4.0);
    let written = read("pricing: {input: 2, cached_input: 0.2, cache_write: 3, output: 10}");
    // 500k fresh, 300k cached, 200k written, 100k out.
    let cost = written.charged_cost(&usage(1_000_000, 300_000, 200_000, 100_000));
    assert!((cost - (1.0 + 0.06 + 0.6 + 1.0)).abs() < 1e-12, "{cost}");
    // More parts than the whole: none is charged twice as fresh.
    assert_eq!(written.charged_cost(&usage(1, 1_000_000, 0, 0)), 0.2);
}

#[test]
fn c_23_3_reasoning_is_output() {
    let mut answer = usage(0, 0, 0, 1_000_000);
    answer.reasoning_tokens = Some(400_000);
    assert_eq!(read("pricing: {input: 1, output: 10}").charged_cost(&answer), 10.0);
    let dearer = read("pricing: {input: 1, output: 10, reasoning: 20}");
    assert_eq!(dearer.charged_cost(&answer), 14.0);
    assert_eq!(dearer.max_call_cost(0, 1_000_000), 20.0);
}

#[test]
fn c_23_3_a_long_request_is_priced_anew_as_a_whole() {
    let tiers = "above: [{tokens: 500k, input: 8}, {tokens: 200k, input: 4, output: 15}]";
    let pricing = read(&format!("pricing: {{input: 2, cached_input: 0.5, output: 10, {tiers}}}"));
    let cost = |input| pricing.charged_cost(&usage(input, 0, 0, 1_000_000));
    assert_eq!(cost(200_000), 10.4);
    assert!((cost(200_001) - 15.800_004).abs() < 1e-9, "{}", cost(200_001));
    // What the tier leaves out is as in the base, not as in the tier before.
    assert!((cost(1_000_000) - 18.0).abs() < 1e-9, "{}", cost(1_000_000));
    // The default of `cache_write` follows the input of the tier.
    let anthropic =
        read("provider: anthropic, pricing: {input: 2, output: 1, above: [{tokens: 1, input: 4}]}");
    assert_eq!(anthropic.charged_cost(&usage(1_000_000, 0, 1_000_000, 0)), 5.0);
}

#[test]
fn prices_survive_being_written() {
    let pricing = read(
        "provider: anthropic, pricing: {input: 0.3, output: 1.1, max_output: 8k, above: [{tokens: 200k, input: 0.7}]}",
    );
    let text = serde_json::to_string(&pricing).unwrap();
    assert_eq!(
        text,
        r#"{"from":"agent","input":0.3,"cached_input":0.3,"cache_write":0.375,"output":1.1,"reasoning":1.1,"above":[{"tokens":200000,"input":0.7,"cached_input":0.7,"cache_write":0.875,"output":1.1,"reasoning":1.1}],"max_output":8000}"#
    );
    assert_eq!(serde_json::from_str::<Pricing>(&text).unwrap(), pricing);
}

prop_compose! {
    fn written_prices()(
        input in 0.0..100.0, output in 0.0..100.0, cached_input in prop::option::of(0.0..100.0),
        cache_write in prop::option::of(0.0..200.0), reasoning in prop::option::of(0.0..200.0),
    ) -> WrittenPrices {
        WrittenPrices { input: Some(input), cached_input, cache_write, output: Some(output), reasoning }
    }
}

prop_compose! {
    fn pricings()(
        base in written_prices(), tiers in prop::collection::vec((1..1000_u64, written_prices()), 0..4),
        factor in prop::sample::select(vec![1.0, 1.25, 2.0]),
    ) -> Pricing {
        Pricing::new(PriceOrigin::Agent, complete_prices(base, tiers, factor).unwrap(), None)
    }
}

proptest! {
    /// The reservation of a limit (C-12.8) holds: no call with at most so many tokens costs more.
    #[test]
    fn c_23_3_no_call_costs_more_than_the_most_that_it_could(
        pricing in pricings(), max_input in 0..1500_u64, max_output in 0..1500_u64,
        shares in prop::array::uniform5(0.0..=1.0_f64),
    ) {
        let part = |whole: u64, share: f64| (whole as f64 * share) as u64;
        let input = part(max_input, shares[0]);
        let cached = part(input, shares[1]);
        let written = part(input - cached, shares[2]);
        let output = part(max_output, shares[3]);
        let call = Usage {
            reasoning_tokens: Some(part(output, shares[4])),
            ..usage(input, cached, written, output)
        };
        let most = pricing.max_call_cost(max_input, max_output);
        prop_assert!(pricing.charged_cost(&call) <= most + 1e-9, "{} > {most}", pricing.charged_cost(&call));
    }

    #[test]
    fn c_23_3_more_tokens_never_lower_the_most_that_a_call_could_cost(
        pricing in pricings(), input in 0..1500_u64, output in 0..1500_u64, more in 0..1500_u64,
    ) {
        let most = pricing.max_call_cost(input, output);
        prop_assert!(pricing.max_call_cost(input + more, output) >= most);
        prop_assert!(pricing.max_call_cost(input, output + more) >= most);
        let call = |output| pricing.charged_cost(&usage(input, 0, 0, output));
        prop_assert!(call(output + more) >= call(output));
    }
}
