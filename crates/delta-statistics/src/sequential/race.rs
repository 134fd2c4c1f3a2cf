//! A race of several settings on the same runs: what is shown to be worse than the leader is stopped.
//!
//! Each look compares every setting with the one that leads, by the test of [`SequentialTests`](super::SequentialTests): at
//! 5 %, divided by the number of the other settings, the best one is stopped in at most 5 of 100 races, whichever leads.

use super::{LOOKS, Pair, Rule, SequentialTest, Verdict};
use crate::estimate::{cluster_means, mean};

/// How likely the best setting may be stopped.
const LEVEL: f64 = 0.05;

/// A run of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RaceRun {
    /// It is not planned.
    Unplanned,
    /// It has not ended.
    Open,
    /// It has ended without a score.
    Missing,
    /// Its score, from 0 to 1.
    Scored(f64),
}

/// A run of each setting, of the same input.
#[derive(Clone, Debug, PartialEq)]
pub struct RaceLine {
    /// The index of the input, or of the group of inputs.
    pub cluster: usize,
    /// One of each setting.
    pub runs: Vec<RaceRun>,
}

/// When a setting was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingStop {
    /// The number of the look, from 1.
    pub look: usize,
    /// How many looks there are.
    pub looks: usize,
    /// The index of the setting that led.
    pub leader: usize,
}

/// What follows from the runs of a race.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaceState {
    /// For each setting when it was stopped.
    pub stops: Vec<Option<SettingStop>>,
    /// How many lines the next look needs, of the settings that are not stopped; none if the race has ended.
    pub needed: Option<usize>,
}

/// The looks of a race, which depend on its size alone.
pub struct Race {
    settings: usize,
    test: SequentialTest,
}

impl Race {
    /// A race of so many settings on so many lines.
    pub fn new(settings: usize, lines: usize) -> Self {
        let level = LEVEL / settings.saturating_sub(1).max(1) as f64;
        let rule = Rule { max_drop: 0.0, fail_level: level, pass_level: level };
        Self { settings, test: SequentialTest::new(rule, lines) }
    }

    /// The state of the race with these lines, in the order in which they count. The same lines always give the same state.
    ///
    /// The order must not depend on the scores or on which run ended first.
    pub fn state(&self, lines: &[RaceLine]) -> RaceState {
        let mut stops: Vec<Option<SettingStop>> = vec![None; self.settings];
        for look in &self.test.looks {
            let lines = &lines[..look.pairs];
            let racing: Vec<usize> = (0..self.settings).filter(|it| stops[*it].is_none()).collect();
            if lines.iter().any(|line| racing.iter().any(|it| line.runs[*it] == RaceRun::Open)) {
                return RaceState { stops, needed: Some(look.pairs) };
            }
            // After the last look there is nothing to stop.
            if look.pairs == self.test.planned {
                break;
            }
            let score = |setting: usize| setting_mean(lines, setting).unwrap_or(f64::NEG_INFINITY);
            // The first of several that are as good.
            let best = racing.iter().rev().max_by(|a, b| score(**a).total_cmp(&score(**b)));
            let Some(&leader) = best else { break };
            for setting in racing.into_iter().filter(|it| *it != leader) {
                let pairs: Vec<Pair> =
                    lines.iter().filter_map(|line| line.pair(leader, setting)).collect();
                if self.test.look_at(look, &pairs).verdict == Verdict::Fail {
                    stops[setting] = Some(SettingStop { look: look.number, looks: LOOKS, leader });
                }
            }
        }
        RaceState { stops, needed: None }
    }
}

impl RaceLine {
    fn pair(&self, base: usize, change: usize) -> Option<Pair> {
        let [base, change] = [base, change].map(|setting| self.runs[setting]);
        let is_planned = ![base, change].contains(&RaceRun::Unplanned);
        let pair = Pair { cluster: self.cluster, base: base.score(), change: change.score() };
        is_planned.then_some(pair)
    }
}

impl RaceRun {
    fn score(self) -> Option<f64> {
        match self {
            Self::Scored(score) => Some(score),
            Self::Unplanned | Self::Open | Self::Missing => None,
        }
    }
}

/// The mean of the inputs or groups with a score.
fn setting_mean(lines: &[RaceLine], setting: usize) -> Option<f64> {
    let clusters = lines.iter().map(|line| line.cluster + 1).max()?;
    let mut scores = vec![Vec::new(); clusters];
    for line in lines {
        scores[line.cluster].extend(line.runs[setting].score());
    }
    mean(&cluster_means(&scores))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{cases, gamma, share};
    use super::*;
    use crate::resampling::SplitMix64;
    use proptest::prelude::*;

    /// The scores of settings with these drops from a mean of 0.7, where two runs of an input have a correlation of 0.5.
    fn scores(drops: &[f64], inputs: usize, numbers: &mut SplitMix64) -> Vec<RaceLine> {
        let lines = (0..inputs).map(|cluster| {
            let passes = gamma(0.7, numbers);
            let rate = passes / (passes + gamma(0.3, numbers));
            let runs = drops.iter().map(|drop| {
                let passed = share(numbers) < rate * (1.0 - drop / 0.7);
                RaceRun::Scored(f64::from(u8::from(passed)))
            });
            RaceLine { cluster, runs: runs.collect() }
        });
        lines.collect()
    }

    /// Runs a race; returns its end, and how many runs it took.
    fn finish(race: &Race, scores: &[RaceLine]) -> (RaceState, usize) {
        let settings = race.settings;
        let mut lines: Vec<RaceLine> = scores
            .iter()
            .map(|line| RaceLine { runs: vec![RaceRun::Open; settings], ..*line })
            .collect();
        let mut count = 0;
        loop {
            let state = race.state(&lines);
            let Some(needed) = state.needed else { return (state, count) };
            for (line, scored) in lines[..needed].iter_mut().zip(scores) {
                for setting in (0..settings).filter(|it| state.stops[*it].is_none()) {
                    if line.runs[setting] == RaceRun::Open {
                        line.runs[setting] = scored.runs[setting];
                        count += 1;
                    }
                }
            }
        }
    }

    #[test]
    fn a_race_rarely_stops_the_best_and_saves_runs() {
        // Per cent of races that stop the best setting, or the first of equal ones, and of runs that are made.
        for (settings, gap, most_lost, most_runs) in
            [(4, 0.0, 2.5, 100.0), (4, 0.1, 0.5, 90.0), (8, 0.2, 0.5, 65.0)]
        {
            let trials = cases(300, 8_000) / settings;
            let drop = |setting: usize| gap * (0.5 + setting as f64 / settings as f64);
            let drops: Vec<f64> =
                (0..settings).map(|it| if it == 0 { 0.0 } else { drop(it) }).collect();
            let race = Race::new(settings, 200);
            let mut numbers = SplitMix64(41);
            let mut lost = 0.0;
            let mut runs = 0.0;
            for _ in 0..trials {
                let (end, count) = finish(&race, &scores(&drops, 200, &mut numbers));
                lost += 100.0 / trials as f64 * f64::from(u8::from(end.stops[0].is_some()));
                runs += 100.0 / (trials * settings * 200) as f64 * count as f64;
            }
            assert!(lost <= most_lost && runs <= most_runs, "{settings}, {gap}: {lost}, {runs}");
        }
    }

    #[test]
    fn what_is_missing_stops_nothing_that_it_could_save() {
        let lines = |missing: usize| -> Vec<RaceLine> {
            let line = |cluster| {
                let worse = if cluster < missing { RaceRun::Missing } else { RaceRun::Scored(0.0) };
                let runs = vec![RaceRun::Scored(1.0), worse, RaceRun::Unplanned];
                RaceLine { cluster, runs }
            };
            (0..100).map(line).collect()
        };
        let stops = |missing: usize| Race::new(3, 100).state(&lines(missing)).stops;
        let stop = SettingStop { look: 2, looks: 10, leader: 0 };
        assert_eq!(stops(0), [None, Some(stop), None]);
        assert_eq!(stops(2), [None, Some(stop), None]);
        let later = stops(15)[1].unwrap();
        assert!(later.look > 2, "{later:?}");
        assert_eq!(stops(95), [None; 3]);
        let nothing = RaceState { stops: Vec::new(), needed: None };
        assert_eq!(Race::new(0, 0).state(&[]), nothing);
        assert_eq!(Race::new(1, 100).state(&lines(0)).stops, [None]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        /// A race that is interrupted anywhere has the same end, and what it has stopped stays stopped.
        #[test]
        fn a_race_that_is_interrupted_is_the_same(
            seed in any::<u64>(),
            settings in 2..6_usize,
            inputs in 1..120_usize,
            at_once in 1..200_usize,
        ) {
            let drops: Vec<f64> = (0..settings).map(|it| 0.12 * it as f64).collect();
            let scores = scores(&drops, inputs, &mut SplitMix64(seed));
            let race = Race::new(settings, inputs);
            let (end, count) = finish(&race, &scores);
            let mut lines: Vec<RaceLine> = scores
                .iter()
                .map(|line| RaceLine { runs: vec![RaceRun::Open; settings], ..*line })
                .collect();
            let mut paid = 0;
            loop {
                let state = race.state(&lines);
                let Some(needed) = state.needed else {
                    prop_assert_eq!(&state, &end);
                    break;
                };
                for (stop, last) in state.stops.iter().zip(&end.stops) {
                    prop_assert!(stop.is_none() || stop == last);
                }
                let places = (0..needed).flat_map(|line| (0..settings).map(move |it| (line, it)));
                let open = places.filter(|(line, it)| {
                    state.stops[*it].is_none() && lines[*line].runs[*it] == RaceRun::Open
                });
                let batch: Vec<(usize, usize)> = open.take(at_once).collect();
                paid += batch.len();
                for (line, it) in batch {
                    lines[line].runs[it] = scores[line].runs[it];
                }
            }
            prop_assert_eq!(paid, count);
        }
    }
}
