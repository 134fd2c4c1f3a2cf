//! `delta sweep bisect`: the commit or the hunk with which the score dropped.
//!
//! The gate of both ends comes first, then a search between them, on planned runs of the sweep: see [`search_chain`].

use crate::commands::compare::fail_unlike_a_verdict;
use crate::commands::gate::{GateBase, GateBatch, GatePlan, most_cost_text};
use crate::commands::rounds::{DropArgs, Round, is_open_run};
use crate::commands::status::{ReportFormat, terminal_width};
use crate::grading::sweep_scores::SweepScores;
use crate::planning::agent_chain::{ChainEnds, ChainPoint};
use crate::planning::plan_sources::{PlanAgents, PlanSources};
use crate::scores::bisect_text::{BisectedDrop, BisectedPoint};
use crate::scores::chain_search::{
    ChainKey, SearchedChain, most_runs, search_chain, searched_verdict,
};
use crate::scores::verdict::{JudgedPair, worst_verdict};
use crate::scores::verdict_text::{VerdictContext, VerdictFormat, verdict_json, verdicts_in};
use clap::Args;
use delta_base::id::RunId;
use delta_base::json::to_json;
use delta_operator::command_line::pluralize;
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use delta_run::sweep::sweep_dir::SweepDir;
use delta_statistics::step::SearchStatus;
use serde_json::{Value as Json, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

/// Find the commit with which the score dropped
///
/// Compares two revisions as `gate` does. If the score has dropped, runs agents of the commits between them until the first one
/// with the lower score is clear.
#[derive(Debug, Args)]
#[command(mut_arg("strict", |arg| arg.hide(true)), after_long_help = EXAMPLES)]
pub struct BisectArgs {
    #[command(flatten)]
    drop: DropArgs,
    /// A revision of git before the drop
    #[arg(long, value_name = "REV")]
    good: String,
    /// A revision after the drop, which descends from the good one [default: HEAD and what is not committed]
    #[arg(long, value_name = "REV")]
    bad: Option<String>,
    /// Search the hunks of the difference of both, not the commits between them
    #[arg(long)]
    hunks: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    format: ReportFormat,
}

const EXAMPLES: &str = "\
Examples:
  delta sweep bisect --good v1.2 --dry-run       # what it may cost
  delta sweep bisect --good v1.2                 # the commit
  delta sweep bisect --good HEAD --hunks         # the hunk of `git diff`

Exit codes: 0 a commit or a range of commits is named, or the ends PASS, 2 usage error, 3 none is named, 126 every other error, 130 stopped";

/// Bisects; returns the exit code.
pub fn bisect_command(args: &BisectArgs) -> Result<ExitCode, CommandFailure> {
    run_bisect(args).map_err(fail_unlike_a_verdict)
}

/// A point of the chain whose agents can be run.
struct LoadedPoint {
    agents: PlanAgents,
    /// All of its runs, planned or not.
    ids: HashSet<RunId>,
}

/// The gate of the ends, and the chain between them.
struct BisectPlan<'a> {
    args: &'a BisectArgs,
    gate: GatePlan<'a>,
    max_drop: f64,
    /// The good end first; at least two.
    points: Vec<LoadedPoint>,
    texts: Vec<BisectedPoint>,
}

/// What the rounds need next.
enum BisectBatch {
    /// For the gate of the ends.
    Ends(GateBatch),
    /// The runs of this point, as planned ones.
    Plan(usize),
    Runs(HashSet<RunId>),
}

/// What the runs say that a sweep has.
struct Bisected {
    judged: Vec<JudgedPair>,
    /// None if the ends show no drop.
    chain: Option<SearchedChain>,
}

fn run_bisect(args: &BisectArgs) -> Result<ExitCode, CommandFailure> {
    let mut sources = args.drop.read_sources()?;
    let max_drop = args.drop.max_drop(&sources.file);
    let grader = args.drop.grader(&sources.file);
    let grader = grader.as_deref();
    let homes = sources.source_dirs.agent_homes();
    let ends = ChainEnds::find(&homes, &args.good, args.bad.as_deref())?;
    let good = sources.take_agents(&ends.named.homes)?;
    let chain = chain_points(args, &ends, &good, &mut sources)?;
    let dir = args.drop.sweep_dir(&sources.file)?;
    let names = [&ends.named.name, &ends.named.here].map(Clone::clone);
    let here = sources.agents();
    let base = GateBase::Agents { named: ends.named, agents: good };
    let mut plan = BisectPlan {
        args,
        gate: GatePlan::new(&dir, sources, base, here)?,
        max_drop,
        points: Vec::new(),
        texts: Vec::new(),
    };
    plan.load(chain)?;
    if plan.points.len() < 2 {
        return plan.print_equal_ends(names);
    }
    plan.gate.here = plan.points[plan.points.len() - 1].agents.clone();
    plan.gate.plan(args.drop.dry_run)?;
    let cost = plan.cost_text(&dir)?;
    let plan = RefCell::new(plan);
    let command = args.command();
    let worked = args.drop.work(
        &dir,
        &cost,
        &command,
        "nothing is named",
        |scores, tried| plan.borrow().next_round(scores, tried, grader),
        |batch| plan.borrow_mut().plan_batch(batch),
    )?;
    match worked {
        ControlFlow::Continue((scores, tried)) => {
            plan.into_inner().print_end(&scores, &tried, grader, &command)
        }
        ControlFlow::Break(code) => Ok(code),
    }
}

/// The good end, then the commits or hunks up to the bad end.
fn chain_points(
    args: &BisectArgs,
    ends: &ChainEnds,
    good: &PlanAgents,
    sources: &mut PlanSources,
) -> Result<Vec<ChainPoint>, CommandFailure> {
    let mut points = vec![ends.first()?];
    if !args.hunks {
        points.extend(ends.commits()?);
        return Ok(points);
    }
    let bad = sources.take_agents(&ends.bad_homes()?)?;
    let trees = good.trees.clone();
    let hunks = ends.hunks(good, &bad, |id, dir| sources.copy_agent(&trees[id], dir))?;
    points.extend(hunks);
    Ok(points)
}

impl BisectArgs {
    /// The command that continues.
    fn command(&self) -> String {
        let options = [("good", Some(self.good.as_str())), ("bad", self.bad.as_deref())];
        let hunks = if self.hunks { " --hunks" } else { "" };
        self.drop.command("bisect", &options) + hunks
    }
}

impl BisectPlan<'_> {
    /// Keeps the points whose agents can be run, each tree once; the others become reasons at the next one.
    fn load(&mut self, chain: Vec<ChainPoint>) -> Result<(), CommandFailure> {
        let last = chain.len() - 1;
        let mut skipped = Vec::new();
        for (index, ChainPoint { change, homes }) in chain.into_iter().enumerate() {
            let dirs: Vec<PathBuf> = homes.iter().flat_map(BTreeMap::values).cloned().collect();
            let loaded = match homes.and_then(|homes| self.load_point(&homes)) {
                Ok(loaded) => loaded,
                Err(failure) if failure.exit_code() != 126 => return Err(failure),
                Err(failure) if index == 0 || index == last => {
                    let message = format!("{}: {}", change.id, failure.message());
                    return Err(CommandFailure::config(message, failure.hint().map(str::to_owned)));
                }
                Err(failure) => {
                    let reason = failure.message().lines().next().unwrap_or_default();
                    let reason = reason.strip_prefix("error: ").unwrap_or(reason).to_owned();
                    // The temporary directories have other names each time.
                    let reason = dirs.iter().fold(reason, |reason, dir| {
                        reason.replace(&format!("{}/", dir.display()), "")
                    });
                    skipped.push((change, reason));
                    continue;
                }
            };
            // A tree that comes back has the rate that it had: the step is not between.
            let trees = &loaded.agents.trees;
            match self.points.iter().position(|point| point.agents.trees == *trees) {
                Some(same) => {
                    self.points.truncate(same + 1);
                    self.texts.truncate(same + 1);
                    skipped.clear();
                }
                None => {
                    self.points.push(loaded);
                    let skipped = std::mem::take(&mut skipped);
                    self.texts.push(BisectedPoint { change, skipped });
                }
            }
        }
        Ok(())
    }

    fn load_point(
        &mut self,
        homes: &BTreeMap<String, PathBuf>,
    ) -> Result<LoadedPoint, CommandFailure> {
        let agents = self.gate.sources.take_agents(homes)?;
        let ids = self.gate.plan_agents(&agents, true)?;
        Ok(LoadedPoint { agents, ids })
    }

    fn unit(&self) -> &'static str {
        if self.args.hunks { "hunk" } else { "commit" }
    }

    /// What the search costs at most.
    fn cost_text(&self, dir: &SweepDir) -> Result<String, CommandFailure> {
        let planned: HashSet<&RunId> = self.points.iter().flat_map(|point| &point.ids).collect();
        let most = most_runs(self.points.len(), self.points[0].ids.len());
        let changes: usize = self.texts.iter().map(|text| text.skipped.len() + 1).sum();
        Ok(format!(
            "{}; {}\n",
            pluralize(changes - 1, self.unit()),
            most_cost_text(dir, &planned, most)?
        ))
    }

    fn print_equal_ends(&self, [base, here]: [String; 2]) -> Result<ExitCode, CommandFailure> {
        let json =
            json!({"good": base, "bad": here, "unit": self.unit(), "end": "nothing_to_find"});
        self.print("nothing to find: the agents are the same; 0 runs\n", &json)?;
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, text: &str, json: &Json) -> Result<(), CommandFailure> {
        let printed = match self.args.format {
            ReportFormat::Text => stdio::print_result(text),
            ReportFormat::Json => stdio::print_json_result(&(to_json(json) + "\n")),
        };
        // The usual exit codes say that it was printed.
        printed.map_err(|error| {
            CommandFailure::config(format!("could not write the result to stdout: {error}"), None)
        })
    }

    fn print_end(
        &self,
        scores: &SweepScores,
        tried: &HashSet<RunId>,
        grader: Option<&str>,
        command: &str,
    ) -> Result<ExitCode, CommandFailure> {
        let Bisected { judged, chain } = self.look(scores, tried, grader)?;
        if let Some(chain) = &chain
            && let SearchStatus::UsedUp(point) = chain.search.status
            && chain.search.points[point].runs == 0
        {
            return Err(self.unscored_point(point, scores));
        }
        let selected = self.gate.select(scores, grader)?;
        let facts = self.gate.facts(&selected, tried);
        let max_drop = self.max_drop;
        let context = VerdictContext { grader, max_drop, retry: command, gate: Some(&facts) };
        let counted = chain.iter().flat_map(|chain| &chain.counted);
        let costs = counted.filter_map(|id| scores.results.lines.get(id)?.cost_usd);
        let costs: Vec<f64> = costs.collect();
        let drop = BisectedDrop {
            unit: self.unit(),
            points: &self.texts,
            ends: worst_verdict(&judged),
            chain: chain.as_ref(),
            max_drop,
            repeats: self.gate.sides.repeats,
            cost_usd: (!costs.is_empty()).then(|| costs.iter().sum()),
        };
        let text = verdicts_in(VerdictFormat::Text, &judged, context);
        let mut json = drop.to_json();
        json["ends"] = judged.iter().map(|pair| verdict_json(pair, context)).collect();
        self.print(&(text + &drop.to_text(terminal_width())), &json)?;
        Ok(ExitCode::from(if drop.is_answered() { 0 } else { 3 }))
    }

    /// Without a score of its first runs, more runs of a point would only fail as these did.
    fn unscored_point(&self, point: usize, scores: &SweepScores) -> CommandFailure {
        let lines = self.points[point].ids.iter().filter_map(|id| scores.results.lines.get(id));
        let mut errors = lines.filter_map(|line| line.error.as_ref());
        let reason = errors.next().map_or_else(
            || "it is not graded".to_owned(),
            |error| format!("{}: {}", error.kind, error.message),
        );
        let id = &self.texts[point].change.id;
        CommandFailure::config(
            format!("no run of {} {id} has a score; {reason}", self.unit()),
            None,
        )
    }

    /// What follows from the runs that there are.
    fn next_round(
        &self,
        scores: &SweepScores,
        tried: &HashSet<RunId>,
        grader: Option<&str>,
    ) -> Result<Round<BisectBatch, ()>, CommandFailure> {
        if let Round::Batch(batch) = self.gate.next_round(scores, tried, grader, self.max_drop)? {
            return Ok(Round::Batch(BisectBatch::Ends(batch)));
        }
        let chain = self.look(scores, tried, grader)?.chain;
        let Some(SearchStatus::Asks(keys)) = chain.map(|chain| chain.search.status) else {
            return Ok(Round::End(()));
        };
        let mut runs = HashSet::new();
        for key in keys {
            match key {
                ChainKey::Plan(point) => return Ok(Round::Batch(BisectBatch::Plan(point))),
                ChainKey::Run(id) => {
                    runs.insert(id);
                }
            }
        }
        Ok(Round::Batch(BisectBatch::Runs(runs)))
    }

    fn plan_batch(&mut self, batch: BisectBatch) -> Result<HashSet<RunId>, CommandFailure> {
        match batch {
            BisectBatch::Ends(batch) => self.gate.plan_batch(batch),
            BisectBatch::Plan(point) => {
                self.gate.plan_agents(&self.points[point].agents, false)?;
                Ok(HashSet::new())
            }
            BisectBatch::Runs(ids) => Ok(ids),
        }
    }

    /// The verdict on the ends, and the search if it is a FAIL.
    fn look(
        &self,
        scores: &SweepScores,
        tried: &HashSet<RunId>,
        grader: Option<&str>,
    ) -> Result<Bisected, CommandFailure> {
        let selected = self.gate.select(scores, grader)?;
        let judged = self.gate.judge(&selected, self.max_drop)?;
        let Some(failed) = searched_verdict(&judged) else {
            return Ok(Bisected { judged, chain: None });
        };
        let usable: HashSet<&RunId> = selected.runs.iter().map(|scored| &scored.run.id).collect();
        let mut runs = scores.scored_runs(scores.grader(grader)?, None)?;
        let sides = &self.gate.sides;
        runs.retain(|scored| {
            !sides.base.contains(&scored.run.id) || usable.contains(&scored.run.id)
        });
        let last = self.points.len() - 1;
        let ids = self.points.iter().enumerate().map(|(index, point)| match index {
            0 => &sides.base,
            index if index == last => &sides.here,
            _ => &point.ids,
        });
        let points: Vec<&HashSet<RunId>> = ids.collect();
        let chain = search_chain(&points, failed, &runs, self.max_drop, &|scored| {
            is_open_run(scored, tried)
        });
        Ok(Bisected { judged, chain: Some(chain) })
    }
}
