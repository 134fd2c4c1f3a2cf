use super::*;
use crate::resampling::SplitMix64;
use crate::scipy::{assert_equal, scipy_numbers};
use proptest::prelude::*;

/// A search as `why` makes it, among so many runs.
const WHY: StepSearch =
    StepSearch { least_drop: 0.25, most_runs: 120, may_follow_last: true, batch: 1 };
/// A search between two ends.
const ENDS: StepSearch =
    StepSearch { least_drop: 0.1, most_runs: 2_000, may_follow_last: false, batch: 4 };

/// So many trials, or all with `DELTA_FULL_TESTS`. This crate uses no other one of delta, so it asks itself.
#[allow(clippy::disallowed_methods, reason = "tests may")]
fn trials(full: usize) -> usize {
    if std::env::var_os("DELTA_FULL_TESTS").is_some() { full } else { 100 }
}

fn scores(points: &[(usize, f64)]) -> Vec<PointScores> {
    points.iter().map(|&(runs, sum)| PointScores { runs, sum, passed: 0 }).collect()
}

/// From all pairs of rates, one after the other, with mpmath 1.3 and 40 digits; the information as the mean divergence of
/// Kullback and Leibler, which is another formula for it.
#[test]
fn places_are_those_of_another_program() {
    type Expected<'a> = (StepSearch, &'a [(usize, f64)], &'a [[f64; 3]], usize);
    let cases: [Expected<'_>; 5] = [
        (
            WHY,
            &[(4, 3.0), (0, 0.0), (0, 0.0), (0, 0.0)],
            &[[0.25, 0.738_876_307_144_720_9, 0.256_938_153_572_360_45]; 4],
            2,
        ),
        (
            WHY,
            &[(4, 4.0), (2, 1.0), (0, 0.0), (3, 0.0), (1, 0.0)],
            &[
                [0.325_987_683_379_821_05, 0.847_508_836_621_248_1, 0.236_752_030_560_655_8],
                [0.325_987_683_379_821_05, 0.763_247_969_439_344_2, 0.152_491_163_378_751_92],
                [0.325_987_683_379_821_05, 0.763_247_969_439_344_2, 0.152_491_163_378_751_92],
                [0.014_854_401_077_734_043, 0.599_612_247_785_34, 0.170_687_841_163_785_16],
                [0.007_182_548_782_802_796, 0.568_897_009_861_143_4, 0.171_948_504_930_571_7],
            ],
            2,
        ),
        (
            ENDS,
            &[(5, 4.25), (4, 2.75), (6, 1.5), (5, 0.75)],
            &[
                [0.205_035_802_838_326_57, 0.769_863_558_527_933_4, 0.345_490_452_590_254_3],
                [0.696_768_193_780_870_2, 0.731_793_574_350_848_4, 0.246_299_223_180_027_4],
                [0.098_196_003_380_803_2, 0.572_897_315_398_887_1, 0.215_275_574_100_179_3],
            ],
            1,
        ),
        (
            ENDS,
            &[(100, 81.0), (40, 30.0), (60, 44.0), (80, 47.0), (100, 60.0)],
            &[
                [0.072_380_580_924_264_58, 0.807_308_713_784_800_1, 0.643_987_504_697_735_9],
                [0.162_942_538_336_458_54, 0.790_771_783_176_253_3, 0.626_687_282_306_836],
                [0.758_296_885_580_538_2, 0.772_645_641_522_480_9, 0.592_638_936_038_054_1],
                [0.006_379_995_158_738_665, 0.724_351_349_884_810_8, 0.583_844_449_283_140_3],
            ],
            2,
        ),
        // What no step explains, in products that are 0 as numbers.
        (
            WHY,
            &[(400, 0.0), (0, 0.0), (400, 400.0)],
            &[
                [0.0, 0.625, 0.375],
                [0.0, 0.625, 0.375],
                [1.0, 0.502_278_235_989_752, 0.138_639_117_994_876],
            ],
            2,
        ),
    ];
    for (search, points, expected, best) in cases {
        let places = search.places(&scores(points));
        assert_eq!(places.len(), expected.len());
        for (place, expected) in places.iter().zip(expected) {
            for (found, expected) in [place.chance, place.before, place.after].iter().zip(expected)
            {
                assert!((found - expected).abs() < 1e-9, "{points:?}: {found}, not {expected}");
            }
        }
        if points[0].0 < 400 {
            assert_eq!(most_informative_point(&places, points.len()), best, "{points:?}");
        }
    }
}

/// From the roots of the quadratic equation of Wilson's interval, with mpmath 1.3 and 40 digits.
#[test]
fn intervals_are_those_of_another_program() {
    for (first, second, low, high) in [
        ((8, 0.0), (8, 7.0), -0.982_586_519_462_752_5, -0.299_581_523_100_382_2),
        ((12, 2.0), (10, 9.0), -0.888_069_497_990_78, -0.235_885_759_931_012_4),
        ((11, 2.75), (9, 8.5), -0.881_122_639_434_904_6, -0.177_901_492_861_609_9),
        ((400, 100.0), (390, 137.0), -0.175_749_018_320_880_8, -0.025_389_633_719_738_9),
    ] {
        let points = scores(&[first, second]);
        let found = difference_interval(points[0], points[1], UNSURE_CONFIDENCE);
        assert!((found.low - low).abs() < 1e-9 && (found.high - high).abs() < 1e-9, "{found:?}");
    }
    let points = scores(&[(12, 10.0), (8, 7.0), (0, 0.0), (8, 0.0), (4, 1.0)]);
    let expected = [
        Some((0.473_333_682_240_840_1, 0.965_298_095_833_800_8)),
        Some((0.436_984_549_789_437, 0.984_407_187_196_622)),
        None,
        Some((0.0, 0.438_144_350_685_254_7)),
        Some((0.031_585_004_213_494_08, 0.773_074_504_045_524_1)),
    ];
    for (found, expected) in simultaneous_intervals(&points).into_iter().zip(expected) {
        let ends = found.map(|found| (found.low, found.high));
        let Some((low, high)) = expected else {
            assert_eq!(ends, None);
            continue;
        };
        let ends = ends.unwrap();
        assert!((ends.0 - low).abs() < 1e-9 && (ends.1 - high).abs() < 1e-9, "{ends:?}");
    }
}

/// All pairs of rates at once, and Newcombe's interval from SciPy's Wilson intervals.
#[test]
fn places_and_intervals_are_those_of_scipy() {
    let script = "
import numpy as np
from scipy.special import softmax, xlog1py, xlogy
from scipy.stats import binomtest
rates = (np.arange(20) + 0.5) / 20
def likelihood(runs, passed):
    return xlogy(passed, rates) + xlog1py(runs - passed, -rates)
for drop, follows, points in [(0.25, 1, [(9, 8), (5, 3.5), (0, 0), (12, 2)]), (0.1, 0, [(80, 66), (40, 30), (70, 41)])]:
    allowed = np.where(rates[:, None] - rates[None, :] >= drop - 1e-9, 0, -np.inf)
    joint = []
    for place in range(1, len(points) + follows):
        before, after = ([sum(column) for column in zip((0, 0), *part)] for part in (points[:place], points[place:]))
        joint.append(likelihood(*before)[:, None] + likelihood(*after)[None, :] + allowed)
    joint = softmax(np.array(joint))
    for weights in joint:
        chance = weights.sum()
        print(chance, rates @ weights.sum(1) / chance, rates @ weights.sum(0) / chance, sep='\\n')
for (passed, runs), (others, of) in [((0, 8), (7, 8)), ((100, 400), (137, 390))]:
    first, other = passed / runs, others / of
    low, high = binomtest(passed, runs).proportion_ci(0.98, 'wilson')
    lower, upper = binomtest(others, of).proportion_ci(0.98, 'wilson')
    print(first - other - np.hypot(first - low, upper - other), first - other + np.hypot(high - first, other - lower), sep='\\n')";
    let Some(expected) = scipy_numbers(script) else { return };
    let mut found = Vec::new();
    for (search, points) in [
        (WHY, scores(&[(9, 8.0), (5, 3.5), (0, 0.0), (12, 2.0)])),
        (ENDS, scores(&[(80, 66.0), (40, 30.0), (70, 41.0)])),
    ] {
        let places = search.places(&points);
        found.extend(places.iter().flat_map(|it| [it.chance, it.before, it.after]));
    }
    for pair in [[(8, 0.0), (8, 7.0)], [(400, 100.0), (390, 137.0)]] {
        let points = scores(&pair);
        let both = difference_interval(points[0], points[1], UNSURE_CONFIDENCE);
        found.extend([both.low, both.high]);
    }
    assert_equal(&found, &expected);
}

/// The end of a search with runs that pass at the rate of their point, and how many there were.
struct SearchEnd {
    answer: StepAnswer,
    runs: usize,
}

/// Searches until the answer is known; without the guard, until a place is likely enough.
fn search(
    search: StepSearch,
    mut points: Vec<PointScores>,
    rate: impl Fn(usize) -> f64,
    is_guarded: bool,
    numbers: &mut SplitMix64,
) -> SearchEnd {
    loop {
        let answer = search.answer(&points);
        let places = search.places(&points);
        let likeliest = likeliest_place(&places);
        let confidence = places[likeliest].chance;
        let runs = points.iter().map(|point| point.runs).sum();
        if !is_guarded && confidence >= CONFIDENCE {
            let interval = Interval { low: 0.0, high: 0.0 };
            let step = Step { after_point: likeliest, difference: 0.0, interval, confidence };
            return SearchEnd { answer: StepAnswer::Named(step), runs };
        }
        let StepAnswer::Next { point, runs: more } = answer else {
            return SearchEnd { answer, runs };
        };
        for _ in 0..more {
            let share = (numbers.next() >> 11) as f64 / (1_u64 << 53) as f64;
            points[point].runs += 1;
            points[point].sum += f64::from(u8::from(share < rate(point)));
        }
    }
}

fn no_runs(points: usize) -> Vec<PointScores> {
    vec![PointScores::default(); points]
}

fn below(bound: usize, numbers: &mut SplitMix64) -> usize {
    usize::try_from(numbers.next() % bound as u64).unwrap()
}

#[test]
fn c_34_18_a_planted_step_is_named_with_few_forks() {
    let count = trials(400);
    for (points, before, after) in
        [(10, 0.95, 0.0), (10, 0.8, 0.1), (30, 0.95, 0.0), (30, 0.8, 0.0), (30, 0.8, 0.1)]
    {
        let mut numbers = SplitMix64(34);
        let mut right = 0;
        let mut runs = 0;
        for _ in 0..count {
            let last_before = below(points - 1, &mut numbers);
            let rate = |point| if point <= last_before { before } else { after };
            let end = search(WHY, no_runs(points), rate, true, &mut numbers);
            runs += end.runs;
            if let StepAnswer::Named(step) = end.answer {
                right += usize::from(step.after_point == last_before);
            }
        }
        let world = format!("{before} -> {after} in {points}: {right} right, {runs} runs");
        assert!(right * 100 >= 95 * count && runs <= 50 * count, "{world}");
    }
}

/// How many of so many searches name a step in runs that pass at one rate everywhere.
fn named_without_a_step(rate: f64, is_guarded: bool, count: usize) -> usize {
    let mut numbers = SplitMix64(19);
    let ends = (0..count).map(|_| search(WHY, no_runs(20), |_| rate, is_guarded, &mut numbers));
    ends.filter(|end| matches!(end.answer, StepAnswer::Named(_))).count()
}

#[test]
fn c_34_19_a_rate_that_is_equal_everywhere_rarely_gets_a_step() {
    let count = trials(400);
    // The worst rates are from 0.15 to 0.25.
    for rate in [0.05, 0.15, 0.2, 0.25, 0.9] {
        let named = named_without_a_step(rate, true, count);
        assert!(named * 10 <= count, "{rate}: {named} of {count}");
    }
    // Without runs on both sides that differ, almost every search would name one.
    let named = named_without_a_step(0.05, false, count);
    assert!(named * 10 >= count * 9, "{named} of {count}");
}

#[test]
fn a_step_between_two_ends_is_found() {
    let mut numbers = SplitMix64(7);
    let mut right = 0;
    for _ in 0..40 {
        let last_before = below(15, &mut numbers);
        let rate = |point| if point <= last_before { 0.8 } else { 0.6 };
        let mut points = no_runs(16);
        points[0] = PointScores { runs: 100, sum: 80.0, passed: 80 };
        points[15] = PointScores { runs: 100, sum: 60.0, passed: 60 };
        let end = search(ENDS, points, rate, true, &mut numbers);
        if let StepAnswer::Named(step) = end.answer {
            right += usize::from(step.after_point == last_before);
        }
    }
    assert!(right >= 36, "{right} of 40");
}

#[test]
fn the_other_ends_say_what_is_known() {
    let mut numbers = SplitMix64(1);
    let mut end = |points, rate: fn(usize) -> f64| {
        search(WHY, no_runs(points), rate, true, &mut numbers).answer
    };
    assert_eq!(end(12, |_| 1.0), StepAnswer::NotNamed(NoStep::AfterLast));
    assert_eq!(end(12, |_| 0.0), StepAnswer::NotNamed(NoStep::NoChance));
    assert_eq!(end(1, |_| 1.0), StepAnswer::NotNamed(NoStep::AfterLast));
    assert_eq!(end(1, |_| 0.0), StepAnswer::NotNamed(NoStep::NoChance));
    // A decline, of which no part is a step: what was known when the runs ended.
    let decline = scores(&[(30, 27.0), (0, 0.0), (30, 20.0), (30, 13.0), (30, 6.0)]);
    let StepAnswer::NotNamed(NoStep::Between { before, after }) = WHY.answer(&decline) else {
        panic!("{:?}", WHY.answer(&decline))
    };
    assert!(before < after && decline[before].runs > 0, "{before}, {after}");
}

proptest! {
    #[test]
    fn every_answer_keeps_its_promises(
        runs in prop::collection::vec((0..30_usize, 0.0..=1.0), 2..20),
        search in prop::sample::select(vec![WHY, ENDS]),
        most_runs in 0..200_usize,
    ) {
        let runs: Vec<(usize, f64)> =
            runs.into_iter().map(|(runs, rate)| (runs, rate * runs as f64)).collect();
        let points = scores(&runs);
        let all: usize = points.iter().map(|point| point.runs).sum();
        let search = StepSearch { most_runs, ..search };
        match search.answer(&points) {
            StepAnswer::Next { point, runs } => {
                prop_assert!(point < points.len() && runs > 0 && all + runs <= most_runs);
            }
            StepAnswer::Named(step) => {
                let beside = [points[step.after_point], points[step.after_point + 1]];
                prop_assert!(beside.iter().all(|point| point.runs >= 8));
                prop_assert!(step.interval.high < 0.0 && step.confidence >= 0.95);
                prop_assert!(step.interval.low <= step.difference);
                prop_assert!(step.difference <= -search.least_drop);
            }
            StepAnswer::NotNamed(NoStep::Between { before, after }) => {
                prop_assert!(before <= after && after < points.len());
            }
            StepAnswer::NotNamed(NoStep::AfterLast) => prop_assert!(search.may_follow_last),
            StepAnswer::NotNamed(NoStep::NoChance) => {
                prop_assert!(points[0].rate() < search.least_drop);
            }
        }
    }
}
