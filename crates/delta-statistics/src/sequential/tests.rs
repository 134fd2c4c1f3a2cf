use super::*;
use crate::resampling::SplitMix64;
use crate::step::{Draw, PointScores, SearchStatus, StepSearch};
use proptest::prelude::*;

const RULE: Rule = Rule { max_drop: 0.1, fail_level: 0.01, pass_level: 0.05 };

/// So many trials, or all with `DELTA_FULL_TESTS`. This crate uses no other one of delta, so it asks itself.
#[allow(clippy::disallowed_methods, reason = "tests may")]
pub(super) fn cases(gate: usize, full: usize) -> usize {
    if std::env::var_os("DELTA_FULL_TESTS").is_some() { full } else { gate }
}

/// Who loses the drop.
#[derive(Clone, Copy)]
enum Effect {
    /// Every input loses the same share of its passes.
    All,
    /// A few inputs lose all of them.
    Few,
}

/// Inputs with rates from a beta distribution; the correlation is the one between two runs of one input.
#[derive(Clone, Copy)]
struct World {
    inputs: usize,
    repeats: usize,
    rate: f64,
    correlation: f64,
    drop: f64,
    effect: Effect,
}

const WORLD: World =
    World { inputs: 100, repeats: 4, rate: 0.8, correlation: 0.5, drop: 0.0, effect: Effect::All };

pub(super) fn share(numbers: &mut SplitMix64) -> f64 {
    (numbers.next() >> 11) as f64 / (1_u64 << 53) as f64
}

fn normal(numbers: &mut SplitMix64) -> f64 {
    let radius = (-2.0 * (1.0 - share(numbers)).ln()).sqrt();
    radius * (2.0 * std::f64::consts::PI * share(numbers)).cos()
}

/// G. Marsaglia, W. W. Tsang, "A simple method for generating gamma variables" (2000).
pub(super) fn gamma(shape: f64, numbers: &mut SplitMix64) -> f64 {
    if shape < 1.0 {
        let factor = (1.0 - share(numbers)).powf(1.0 / shape);
        return gamma(shape + 1.0, numbers) * factor;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(numbers);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - share(numbers)).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

impl World {
    /// The rates of base and change of each input, whose means differ by exactly the drop.
    fn rates(&self, numbers: &mut SplitMix64) -> Vec<(f64, f64)> {
        loop {
            let mut rates: Vec<(f64, f64)> = (0..self.inputs)
                .map(|_| {
                    let rate = self.draw_rate(numbers);
                    (rate, rate)
                })
                .collect();
            let sum: f64 = rates.iter().map(|(base, _)| base).sum();
            let lost = self.drop * self.inputs as f64;
            if sum < lost {
                continue;
            }
            let mut left = lost;
            for (base, change) in &mut rates {
                let loss = match self.effect {
                    Effect::All => *base * lost / sum,
                    Effect::Few => left.min(*base),
                };
                left -= loss;
                *change = *base - loss;
            }
            shuffle(&mut rates, numbers);
            return rates;
        }
    }

    fn draw_rate(&self, numbers: &mut SplitMix64) -> f64 {
        if self.correlation == 0.0 {
            return self.rate;
        }
        let size = 1.0 / self.correlation - 1.0;
        let passes = gamma(self.rate * size, numbers);
        let all = passes + gamma((1.0 - self.rate) * size, numbers);
        if all > 0.0 { passes / all } else { f64::from(u8::from(share(numbers) < self.rate)) }
    }

    /// Pairs of the inputs in their order, every input once, then again.
    fn pairs(&self, rates: &[(f64, f64)], numbers: &mut SplitMix64) -> Vec<Pair> {
        let mut run = |rate: f64| Some(f64::from(u8::from(share(numbers) < rate)));
        (0..self.repeats)
            .flat_map(|_| rates.iter().enumerate())
            .map(|(cluster, &(base, change))| Pair {
                cluster,
                base: run(base),
                change: run(change),
            })
            .collect()
    }
}

fn shuffle<T>(values: &mut [T], numbers: &mut SplitMix64) {
    for index in (1..values.len()).rev() {
        let other = (share(numbers) * (index + 1) as f64) as usize;
        values.swap(index, other);
    }
}

fn decide(rule: Rule, plans: &[usize], pairs: &[Pair]) -> Option<Decision> {
    SequentialTests::new(rule, plans).decide(pairs)
}

/// The decision without what would decide, which takes longer.
fn first_decision(tests: &SequentialTests, pairs: &[Pair]) -> Decision {
    tests.decide_first(pairs, pairs.len()).unwrap().unwrap()
}

/// The shares of verdicts in per cent, and the mean share of pairs.
#[derive(Debug, Default)]
struct Tally {
    pass: f64,
    fail: f64,
    pairs: f64,
}

fn tally(rule: Rule, world: World, trials: usize) -> Tally {
    let test = SequentialTests::new(rule, &[world.inputs * world.repeats]);
    let mut numbers = SplitMix64(5);
    let mut tally = Tally::default();
    for _ in 0..trials {
        let rates = world.rates(&mut numbers);
        let decision = first_decision(&test, &world.pairs(&rates, &mut numbers));
        tally.add(&decision, trials);
    }
    tally
}

impl Tally {
    fn add(&mut self, decision: &Decision, trials: usize) {
        let part = 100.0 / trials as f64;
        self.pass += part * f64::from(u8::from(decision.verdict == Verdict::Pass));
        self.fail += part * f64::from(u8::from(decision.verdict == Verdict::Fail));
        self.pairs += part * decision.used as f64 / decision.planned as f64;
    }
}

#[test]
fn c_34_3_a_verdict_is_rarely_wrong_and_often_early() {
    let trials = cases(2_000, 10_000);
    let same = tally(RULE, WORLD, trials);
    assert!(same.fail <= 1.5 && same.pass >= 99.0 && same.pairs <= 50.0, "{same:?}");
    let worse = tally(RULE, World { drop: 0.1, ..WORLD }, trials);
    assert!(worse.pass <= 6.0 && worse.fail >= 85.0, "{worse:?}");
    let much_worse = tally(RULE, World { drop: 0.2, ..WORLD }, trials);
    assert!(much_worse.fail >= 99.0 && much_worse.pairs <= 40.0, "{much_worse:?}");
}

/// Rates near 1 and breaks of a few inputs are what a t interval alone gets wrong.
#[test]
fn c_34_3_rare_differences_do_not_pass_by_chance() {
    let trials = cases(500, 5_000);
    for (inputs, repeats, max_drop) in [(20, 8, 0.05), (50, 4, 0.1), (200, 1, 0.05), (100, 1, 0.1)]
    {
        let rule = Rule { max_drop, ..RULE };
        for (rate, correlation) in [(0.5, 0.0), (0.8, 0.9), (0.95, 0.2), (0.95, 0.9), (0.99, 0.9)] {
            let same = World { inputs, repeats, rate, correlation, ..WORLD };
            let cell = format!("{inputs}x{repeats}, {max_drop}, {rate}, {correlation}");
            let found = tally(rule, same, trials);
            assert!(found.fail <= 2.0, "{cell}: {found:?}");
            for effect in [Effect::All, Effect::Few] {
                let found = tally(rule, World { drop: max_drop, effect, ..same }, trials);
                assert!(found.pass <= 7.5, "{cell}: {found:?}");
            }
        }
    }
}

/// Why inputs do not come by their difficulty: the hard ones cannot become worse.
#[test]
fn c_34_5_the_hardest_inputs_first_would_hide_a_drop_of_the_easy_ones() {
    let world = World { inputs: 200, repeats: 1, rate: 0.7, ..WORLD };
    let test = SequentialTests::new(RULE, &[world.inputs]);
    let trials = cases(1_000, 5_000);
    let mut numbers = SplitMix64(5);
    let (mut in_order, mut by_difficulty) = (Tally::default(), Tally::default());
    for _ in 0..trials {
        let mut rates = world.rates(&mut numbers);
        let easy: f64 = rates.iter().map(|(base, _)| base).filter(|base| **base > 0.9).sum();
        for (base, change) in &mut rates {
            let breaks = share(&mut numbers) < 0.1 * world.inputs as f64 / easy;
            *change = if *base > 0.9 && breaks { 0.0 } else { *base };
        }
        in_order.add(&first_decision(&test, &world.pairs(&rates, &mut numbers)), trials);
        rates.sort_by(|left, right| left.0.total_cmp(&right.0));
        by_difficulty.add(&first_decision(&test, &world.pairs(&rates, &mut numbers)), trials);
    }
    assert!(in_order.pass <= 6.0, "{in_order:?}");
    assert!(by_difficulty.pass >= 15.0, "{by_difficulty:?}");
}

#[test]
fn c_34_13_more_pairs_are_tested_at_half_the_level() {
    let world = World { repeats: 8, inputs: 50, ..WORLD };
    let mut numbers = SplitMix64(11);
    let trials = cases(1_000, 5_000);
    let tests = SequentialTests::new(RULE, &[100, 200, 400]);
    let (mut wrong, mut late) = (0, 0);
    for _ in 0..trials {
        let rates = World { drop: 0.1, ..world }.rates(&mut numbers);
        let pairs = world.pairs(&rates, &mut numbers);
        let decision = first_decision(&tests, &pairs);
        let halvings = [100, 200, 400].iter().position(|it| *it == decision.planned).unwrap();
        let expected = 0.5_f64.powi(i32::try_from(halvings).unwrap());
        assert!((decision.rule.pass_level - 0.05 * expected).abs() < 1e-12);
        assert!((decision.rule.fail_level - 0.01 * expected).abs() < 1e-12);
        late += usize::from(halvings > 0);
        wrong += usize::from(decision.verdict == Verdict::Pass);
    }
    assert!(late > trials / 4, "{late}");
    assert!(wrong * 10 < trials, "twice the level at most: {wrong} of {trials}");
}

/// So many pairs of each input, in which so many of a hundred pairs become worse and as many better.
fn mixed(inputs: usize, repeats: usize, in_a_hundred: usize) -> Vec<Pair> {
    (0..inputs * repeats)
        .map(|index| {
            let place = index % 100;
            let change = if place < in_a_hundred { 0.0 } else { 1.0 };
            let base = if (50..50 + in_a_hundred).contains(&place) { 0.0 } else { 1.0 };
            Pair { cluster: index % inputs, base: Some(base), change: Some(change) }
        })
        .collect()
}

/// A rate of 0.8: 16, 8 or 1.6 of a hundred pairs are better and as many worse at correlation 0, 0.5 and 0.9.
#[test]
fn c_34_12_an_undecided_test_names_the_pairs_that_decide() {
    for (max_drop, in_a_hundred, expected) in
        [(0.1, 16, 215), (0.1, 8, 115), (0.05, 16, 830), (0.05, 8, 440)]
    {
        let pairs = mixed(100, 1, in_a_hundred);
        let Some(Remedy::Pairs(found)) = remedy(Rule { max_drop, ..RULE }, &pairs, 0) else {
            panic!("more pairs decide")
        };
        let ratio = found as f64 / f64::from(expected);
        assert!((0.95..1.2).contains(&ratio), "{max_drop}, {in_a_hundred}: {found}");
    }
}

#[test]
fn c_34_12_the_pairs_that_are_named_decide_in_four_of_five_tests() {
    let world = World { inputs: 200, repeats: 4, ..WORLD };
    let mut numbers = SplitMix64(3);
    let rates = world.rates(&mut numbers);
    let pairs = world.pairs(&rates, &mut numbers);
    let Some(Remedy::Pairs(enough)) = remedy(RULE, &pairs, 0) else { panic!() };
    let repeats = enough.div_ceil(world.inputs).max(1);
    let again = tally(RULE, World { repeats, ..world }, cases(500, 2_000));
    assert!(again.pass + again.fail >= 80.0, "{enough}: {again:?}");
}

#[test]
fn c_34_12_repeats_do_not_decide_what_only_inputs_can() {
    // Half of the inputs become worse, and half better, each time.
    let pairs: Vec<Pair> = (0..40)
        .map(|index| {
            let is_better = index % 2 == 0;
            let score = |is_one: bool| Some(f64::from(u8::from(is_one)));
            Pair { cluster: index % 10, base: score(!is_better), change: score(is_better) }
        })
        .collect();
    let decision = decide(RULE, &[40], &pairs).unwrap();
    assert_eq!((decision.verdict, decision.remedy), (Verdict::Inconclusive, Some(Remedy::Inputs)));
    let one_input: Vec<Pair> = pairs.iter().map(|pair| Pair { cluster: 0, ..*pair }).collect();
    let decision = decide(RULE, &[40], &one_input).unwrap();
    assert_eq!((decision.figures, decision.remedy), (None, Some(Remedy::Inputs)));
    assert_eq!(decide(RULE, &[0], &[]), None);
}

#[test]
fn c_34_4_a_look_needs_only_the_pairs_until_it_decides() {
    let tests = SequentialTests::new(RULE, &[400]);
    let pairs = mixed(100, 4, 0);
    let decided = first_decision(&tests, &pairs);
    assert!(decided.used < 200, "{decided:?}");
    let mut complete = 0;
    while let Some(next) = tests.next_look(&pairs, complete) {
        assert!(complete < next && next <= decided.used, "{next} after {complete}");
        complete = next;
    }
    assert_eq!(complete, decided.used);
}

#[test]
fn the_smallest_drop_is_the_one_that_the_planned_pairs_exclude() {
    for (pairs, inputs, expected) in [(115, 115, 0.1), (440, 440, 0.05), (400, 100, 0.055)] {
        let found = smallest_drop(pairs, inputs);
        assert!((found / expected - 1.0).abs() < 0.1, "{pairs} pairs: {found}");
    }
}

#[test]
fn c_34_7_fewer_than_20_pairs_pass_nothing() {
    let rule = Rule { max_drop: 0.9, ..RULE };
    for (pairs, verdict) in [(19, Verdict::Inconclusive), (20, Verdict::Pass)] {
        let equal: Vec<Pair> = (0..pairs)
            .map(|cluster| Pair { cluster, base: Some(1.0), change: Some(1.0) })
            .collect();
        let decision = decide(rule, &[pairs], &equal).unwrap();
        assert_eq!(decision.verdict, verdict, "{decision:?}");
        assert_eq!((decision.look, decision.looks, decision.used), (10, 10, pairs));
    }
}

#[test]
fn c_34_6_a_verdict_that_missing_runs_could_change_is_none() {
    let equal = mixed(100, 4, 0);
    let with_missing = |count: usize| -> Vec<Pair> {
        let missing = |(index, pair): (usize, &Pair)| Pair {
            change: pair.change.filter(|_| index >= count),
            ..*pair
        };
        equal.iter().enumerate().map(missing).collect()
    };
    let decision = decide(RULE, &[400], &with_missing(0)).unwrap();
    assert_eq!((decision.verdict, decision.missing), (Verdict::Pass, 0));
    let decision = decide(RULE, &[400], &with_missing(3)).unwrap();
    assert_eq!((decision.verdict, decision.missing), (Verdict::Pass, 3));
    let decision = decide(RULE, &[400], &with_missing(60)).unwrap();
    assert_eq!((decision.verdict, decision.observed), (Verdict::Inconclusive, Verdict::Pass));
    assert_eq!((decision.used, decision.missing), (340, 60));
    assert_eq!(decision.figures.unwrap().base, 1.0, "a missing run is in no rate");
    // A sixth of the pairs becomes worse, and the missing ones would have to become better.
    let worse = equal.iter().enumerate().map(|(index, pair)| {
        let change = f64::from(u8::from(index % 6 != 0));
        let score = |score| Some(score).filter(|_| index >= 60);
        Pair { cluster: pair.cluster, base: score(1.0), change: score(change) }
    });
    let decision = decide(RULE, &[400], &worse.collect::<Vec<_>>()).unwrap();
    assert_eq!((decision.verdict, decision.observed), (Verdict::Inconclusive, Verdict::Fail));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn c_34_6_the_worst_scores_of_missing_runs_keep_a_verdict(
        scores in prop::collection::vec((0..20_usize, prop::option::weighted(0.95, 0..=4_u8), prop::option::weighted(0.95, 0..=4_u8)), 20..200),
        drop in 0..3_u8,
    ) {
        let score = |score: Option<u8>| score.map(|score| f64::from(score) / 4.0);
        let less = |score: Option<f64>| score.map(|score| score * (1.0 - f64::from(drop) / 2.0));
        let pairs: Vec<Pair> = scores
            .iter()
            .map(|&(cluster, base, change)| Pair { cluster, base: score(base), change: less(score(change)) })
            .collect();
        let rule = Rule { max_drop: 0.4, ..RULE };
        let decision = decide(rule, &[pairs.len()], &pairs).unwrap();
        if decision.verdict != Verdict::Inconclusive {
            let counted = decision.used + decision.missing;
            let worst = with_worst_scores(&pairs, decision.verdict);
            let test = SequentialTest::new(rule, pairs.len());
            let look = test.looks.iter().find(|look| look.number == decision.look).unwrap();
            prop_assert_eq!(look.pairs, counted);
            prop_assert_eq!(test.look_at(look, &worst[..counted]).verdict, decision.verdict);
            let ends = decision.figures.unwrap();
            match decision.verdict {
                Verdict::Pass => prop_assert!(ends.low > -0.4),
                _ => prop_assert!(ends.high < 0.0),
            }
        }
    }
}

/// The gate of both ends of 64 commits, then the search between them; whether it names the commit, and its runs.
fn bisect(world: World, numbers: &mut SplitMix64) -> (bool, usize) {
    const COMMITS: usize = 64;
    let rates = world.rates(numbers);
    let last_good = (share(numbers) * COMMITS as f64) as usize;
    let tests = SequentialTests::new(RULE, &[world.inputs * world.repeats]);
    let pairs = world.pairs(&rates, numbers);
    let decision = first_decision(&tests, &pairs);
    let mut points = vec![PointScores::default(); COMMITS + 1];
    for pair in &pairs[..decision.used] {
        for (point, score) in [(0, pair.base), (COMMITS, pair.change)] {
            points[point].add(score.unwrap(), score == Some(1.0));
        }
    }
    if decision.verdict != Verdict::Fail {
        return (false, 2 * decision.used);
    }
    let search = StepSearch { least_drop: 0.1, most_runs: 3_200, may_follow_last: false, batch: 4 };
    // Each commit has its own order of the inputs.
    let mut orders: Vec<Vec<usize>> = vec![Vec::new(); COMMITS + 1];
    let end = search.replay(points, |point| {
        if orders[point].is_empty() {
            orders[point].extend(0..world.inputs);
            shuffle(&mut orders[point], numbers);
        }
        let (good, bad) = rates[orders[point].pop()?];
        let pass = share(numbers) < if point <= last_good { good } else { bad };
        Some(Draw::<()>::Scored { score: f64::from(u8::from(pass)), pass })
    });
    let is_right = matches!(end.status, SearchStatus::Named(step) if step.after_point == last_good);
    (is_right, end.runs())
}

/// A bisection with two runs of each of 100 inputs at each commit needs 1,400 runs.
#[test]
fn c_34_20_a_planted_commit_is_named_with_fewer_runs_than_a_bisection_of_fixed_size() {
    let mut numbers = SplitMix64(31);
    let count = cases(10, 50);
    let (mut right, mut runs) = (0, 0);
    for correlation in [0.0, 0.5, 0.9] {
        for effect in [Effect::All, Effect::Few] {
            let world = World { drop: 0.2, correlation, effect, ..WORLD };
            for _ in 0..count {
                let (is_right, paid) = bisect(world, &mut numbers);
                right += usize::from(is_right);
                runs += paid;
            }
        }
    }
    let all = 6 * count;
    assert!(right * 100 >= 95 * all, "{right} of {all}");
    assert!(runs * 100 <= 40 * 1_400 * all, "{runs} runs of {all}");
}
