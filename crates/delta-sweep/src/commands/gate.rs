//! `delta sweep gate`: whether a change is worse than its base, with as few runs as decide it.

use crate::commands::compare::{fail_unlike_a_verdict, print_judged, verdict_code};
use crate::commands::plan::{PlanChange, plan_sources};
use crate::commands::rounds::{DropArgs, Round, is_open_run};
use crate::formats::ignored_inputs::parse_ignored_inputs;
use crate::formats::result_line::ResultLine;
use crate::formats::sweep_file::SweepFile;
use crate::grading::sweep_scores::SweepScores;
use crate::planning::base_agents::BaseAgents;
use crate::planning::plan_reader::unreadable_file;
use crate::planning::plan_sources::{PlanAgents, PlanSources, SourceDirs};
use crate::running::result_reader::ResultReader;
use crate::running::sweep_record::replace_sweep_record;
use crate::scores::gate_runs::{GateRuns, GateSides};
use crate::scores::score_table::ScoredRun;
use crate::scores::score_text::cost_text;
use crate::scores::verdict::{JudgedPair, KeyValue, judge, open_runs, worst_verdict};
use crate::scores::verdict_text::{
    GateFacts, VerdictContext, VerdictFormat, equal_sides_in, verdicts_in, verdicts_record,
};
use clap::Args;
use delta_agent::tool::value_text;
use delta_base::id::RunId;
use delta_base::{durable, suggest, time};
use delta_operator::command_line::pluralize;
use delta_operator::failure::CommandFailure;
use delta_run::sweep::sweep_dir::SweepDir;
use delta_statistics::sequential::{Verdict, smallest_drop};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

/// Judge whether a change is worse than its base
///
/// Runs the agents of the base and of the working tree on the same inputs, in batches, until the scores decide: PASS, a drop of
/// `max_drop` is excluded; FAIL, a drop is shown; else INCONCLUSIVE.
#[derive(Debug, Args)]
#[command(mut_arg("strict", |arg| arg.hide(true)), after_long_help = EXAMPLES)]
pub struct GateArgs {
    #[command(flatten)]
    drop: DropArgs,
    /// The base: a git revision, an agent directory, or KEY=VALUE [default: `gate.against` in FILE, or the merge base with the
    /// default branch of the remote]
    #[arg(long, value_name = "BASE")]
    against: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: VerdictFormat,
}

const EXAMPLES: &str = "\
Examples:
  delta sweep gate --dry-run
  delta sweep gate sweep.yaml --against origin/main
  delta sweep gate --against model=old --max-drop 0.05 --format junit > gate.xml

Exit codes: 0 PASS, 1 FAIL, 2 usage error, 3 INCONCLUSIVE, 126 every other error, 130 stopped";

/// The file by which a directory is an agent.
const AGENT_FILE: &str = "agent.yaml";

/// Judges; returns the exit code.
pub fn gate_command(args: &GateArgs) -> Result<ExitCode, CommandFailure> {
    run_gate(args).map_err(fail_unlike_a_verdict)
}

/// Where the runs of the base come from.
pub enum GateBase {
    /// Other agents, in the same file.
    Agents { named: BaseAgents, agents: PlanAgents },
    /// A value of a key of the file.
    Value(KeyValue),
}

/// What the runs of a gate are planned from.
pub struct GatePlan<'a> {
    pub dir: &'a SweepDir,
    pub sources: PlanSources,
    pub base: GateBase,
    /// The agents of the change.
    pub here: PlanAgents,
    pub sides: GateSides,
    /// Inputs that are left out, each with the reason.
    pub ignored: Vec<(String, String)>,
    /// How many repeats more than the file has are planned of the base.
    more_repeats: u32,
}

/// What the rounds of a gate need next.
pub enum GateBatch {
    Runs(HashSet<RunId>),
    /// So many repeats of the base in all, in place of runs that are not used again.
    BaseRepeats(u32),
}

fn run_gate(args: &GateArgs) -> Result<ExitCode, CommandFailure> {
    let mut sources = args.drop.read_sources()?;
    let max_drop = args.drop.max_drop(&sources.file);
    let base = find_base(args, &mut sources)?;
    let grader = args.drop.grader(&sources.file);
    let grader = grader.as_deref();
    if let GateBase::Agents { named, agents } = &base
        && agents.trees == sources.header.agents
    {
        read_ignored_inputs(&sources)?;
        let text = equal_sides_in(args.format, grader, max_drop, [&named.name, &named.here]);
        print_judged(&text, Some(Verdict::Pass))?;
        return Ok(ExitCode::SUCCESS);
    }
    let dir = args.drop.sweep_dir(&sources.file)?;
    let here = sources.agents();
    let mut plan = GatePlan::new(&dir, sources, base, here)?;
    plan.plan(args.drop.dry_run)?;
    let cost = plan.cost_text()?;
    let plan = RefCell::new(plan);
    let command = args.drop.command("gate", &[("against", args.against.as_deref())]);
    let worked = args.drop.work(
        &dir,
        &cost,
        &command,
        "no verdict",
        |scores, tried| plan.borrow().next_round(scores, tried, grader, max_drop),
        |batch| plan.borrow_mut().plan_batch(batch),
    )?;
    let (scores, tried) = match worked {
        ControlFlow::Continue(worked) => worked,
        ControlFlow::Break(code) => return Ok(code),
    };
    let plan = plan.into_inner();
    let selected = plan.select(&scores, grader)?;
    let judged = plan.judge(&selected, max_drop)?;
    let facts = plan.facts(&selected, &tried);
    let context = VerdictContext { grader, max_drop, retry: &command, gate: Some(&facts) };
    let record = verdicts_record(&judged, context, &time::current_time().to_string());
    replace_sweep_record(&dir.gate(), &record)?;
    let verdict = worst_verdict(&judged);
    print_judged(&verdicts_in(args.format, &judged, context), Some(verdict))?;
    Ok(verdict_code(verdict))
}

/// The base that the command line or else the file names.
fn find_base(args: &GateArgs, here: &mut PlanSources) -> Result<GateBase, CommandFailure> {
    let SourceDirs { base: dir, .. } = &here.source_dirs;
    let named = match (&args.against, &here.file.gate.against) {
        (Some(text), _) => Some((text, Path::new(""))),
        (None, Some(text)) => Some((text, dir.as_path())),
        (None, None) => None,
    };
    if let Some((text, _)) = named
        && let Ok(value) = KeyValue::parse(text)
        && let Some(values) = values_of_key(&here.file, &value.key)
    {
        if !values.contains(&value.value) {
            let hint = suggest::did_you_mean(&value.value, values.iter().map(String::as_str));
            let message = format!("no run has {} `{}`", value.key, value.value);
            return Err(CommandFailure::config(message, hint));
        }
        return Ok(GateBase::Value(value));
    }
    let named = match named {
        Some((text, dir)) if dir.join(text).join(AGENT_FILE).is_file() => {
            BaseAgents::from_dir(&here.file, &dir.join(text))?
        }
        _ => BaseAgents::from_revision(
            &here.source_dirs.agent_homes(),
            named.map(|(text, _)| text.as_str()),
        )?,
    };
    let agents = here.take_agents(&named.homes)?;
    Ok(GateBase::Agents { named, agents })
}

/// The values of a key in the file; none if runs have no such key.
fn values_of_key(file: &SweepFile, key: &str) -> Option<Vec<String>> {
    match key {
        "agent" => Some(file.agents.iter().map(|agent| agent.id.clone()).collect()),
        "model" => Some(file.models.iter().map(|model| model.id.clone()).collect()),
        key => {
            let name = key.strip_prefix("param.")?;
            let param = file.params.iter().find(|param| param.name == name);
            Some(param.into_iter().flat_map(|param| &param.values).map(value_text).collect())
        }
    }
}

/// The inputs that the file leaves out, each with the reason.
fn read_ignored_inputs(here: &PlanSources) -> Result<Vec<(String, String)>, CommandFailure> {
    let Some(name) = &here.file.gate.ignore else { return Ok(Vec::new()) };
    let path = here.source_dirs.base.join(name);
    let text = durable::read_regular_text(&path)
        .map_err(|source| unreadable_file(path.clone(), source))?;
    let ignored = parse_ignored_inputs(&text).map_err(|(line, message)| {
        let message = format!("{}:{line}: {message}", path.display());
        CommandFailure::config(message, "write `ID REASON`")
    })?;
    let known = here.inputs.index_by_id().map_err(|reason| CommandFailure::config(reason, None))?;
    if let Some((id, _)) = ignored.iter().find(|(id, _)| !known.contains_key(id)) {
        let hint = suggest::did_you_mean(id, known.keys().map(String::as_str));
        let message = format!("{}: there is no input `{id}`", path.display());
        return Err(CommandFailure::config(message, hint));
    }
    if ignored.len() >= known.len() {
        let message = format!("{} leaves out every input", path.display());
        return Err(CommandFailure::config(message, None));
    }
    Ok(ignored)
}

impl<'a> GatePlan<'a> {
    /// The change `here` against its base, without the inputs that the file leaves out.
    ///
    /// # Errors
    /// The file of these inputs has a mistake.
    pub fn new(
        dir: &'a SweepDir,
        mut sources: PlanSources,
        base: GateBase,
        here: PlanAgents,
    ) -> Result<Self, CommandFailure> {
        let ignored = read_ignored_inputs(&sources)?;
        let inputs =
            ignored.iter().map(|(id, _)| BTreeMap::from([("input".to_owned(), id.clone())]));
        sources.file.exclude.extend(inputs);
        let sides = GateSides {
            value: match &base {
                GateBase::Agents { .. } => None,
                GateBase::Value(value) => Some(value.clone()),
            },
            repeats: sources.file.gate.repeats,
            max_age_ms: sources.file.gate.max_age_ms,
            ..GateSides::default()
        };
        Ok(Self { dir, sources, base, here, sides, ignored, more_repeats: 0 })
    }

    /// Plans what is new of the base, then of the change: the newest plan of the sweep is the one of the file.
    pub fn plan(&mut self, is_dry: bool) -> Result<(), CommandFailure> {
        if let GateBase::Agents { agents, .. } = &self.base {
            self.sources.use_agents(agents);
        }
        let repeats = self.sides.repeats + self.more_repeats;
        self.sides.base = self.plan_side(repeats, PlanChange::Runs, is_dry)?;
        self.sources.use_agents(&self.here);
        self.sides.here = self.plan_side(self.sides.repeats, PlanChange::All, is_dry)?;
        Ok(())
    }

    /// Plans so many repeats of the agents in use; returns all of their runs.
    fn plan_side(
        &mut self,
        repeats: u32,
        change: PlanChange,
        is_dry: bool,
    ) -> Result<HashSet<RunId>, CommandFailure> {
        self.sources.file.repeats = repeats;
        Ok(plan_sources(&mut self.sources, self.dir, change, is_dry)?.ids)
    }

    /// Plans the runs of other agents, with as many repeats as the change has; returns them.
    pub fn plan_agents(
        &mut self,
        agents: &PlanAgents,
        is_dry: bool,
    ) -> Result<HashSet<RunId>, CommandFailure> {
        self.sources.use_agents(agents);
        self.plan_side(self.sides.repeats, PlanChange::Runs, is_dry)
    }

    /// The verdicts on the selected runs, under the names of base and change.
    pub fn judge(
        &self,
        selected: &GateRuns<'_>,
        max_drop: f64,
    ) -> Result<Vec<JudgedPair>, CommandFailure> {
        let mut judged = judge(&selected.runs, &self.sides, max_drop)
            .map_err(|reason| CommandFailure::config(reason.to_string(), None))?;
        if let GateBase::Agents { named, .. } = &self.base {
            for pair in &mut judged {
                pair.base.clone_from(&named.name);
                pair.change.clone_from(&named.here);
            }
        }
        Ok(judged)
    }

    /// What the verdicts say besides.
    pub fn facts<'b>(
        &'b self,
        selected: &GateRuns<'_>,
        new_runs: &'b HashSet<RunId>,
    ) -> GateFacts<'b> {
        GateFacts {
            new_runs,
            budget_usd: self.sources.file.budget.max_cost,
            notes: selected.notes(),
            ignored: &self.ignored,
        }
    }

    /// Makes planned runs of a batch; returns the ones to work on.
    pub fn plan_batch(&mut self, batch: GateBatch) -> Result<HashSet<RunId>, CommandFailure> {
        match batch {
            GateBatch::Runs(ids) => Ok(ids),
            GateBatch::BaseRepeats(repeats) => {
                self.more_repeats = repeats;
                self.plan(false)?;
                Ok(HashSet::new())
            }
        }
    }

    /// The runs that are compared, of what the sweep has.
    pub fn select<'b>(
        &self,
        scores: &'b SweepScores,
        grader: Option<&str>,
    ) -> Result<GateRuns<'b>, CommandFailure> {
        let runs = scores.scored_runs(scores.grader(grader)?, None)?;
        Ok(self.sides.select(runs, time::current_time().as_millis()))
    }

    /// What the gate costs at most, and what it can decide.
    fn cost_text(&self) -> Result<String, CommandFailure> {
        let planned = self.sides.base.iter().chain(&self.sides.here).collect();
        let most = most_cost_text(self.dir, &planned, planned.len())?;
        let inputs = self.sources.inputs.len() - self.ignored.len();
        let drop = smallest_drop(inputs * self.sides.repeats as usize, inputs);
        Ok(format!(
            "{most}; usually decides about a drop of {:.2}\n",
            (drop * 100.0).ceil() / 100.0
        ))
    }

    /// What follows from the runs that there are.
    pub fn next_round(
        &self,
        scores: &SweepScores,
        tried: &HashSet<RunId>,
        grader: Option<&str>,
        max_drop: f64,
    ) -> Result<Round<GateBatch, ()>, CommandFailure> {
        let selected = self.select(scores, grader)?;
        // An endpoint that answers with several models in turns would use up any number of repeats.
        let repeats = self.more_repeats + selected.lacking;
        if selected.lacking > 0 && repeats <= self.sides.repeats {
            return Ok(Round::Batch(GateBatch::BaseRepeats(repeats)));
        }
        let is_open = |scored: &ScoredRun<'_>| is_open_run(scored, tried);
        let closed = selected.runs.iter().filter(|scored| !is_open(scored));
        let base_runs: Vec<_> = closed.filter(|scored| self.sides.is_base(scored)).collect();
        // Without a score of any run of the base, more runs would only fail as these did.
        if !base_runs.is_empty() && base_runs.iter().all(|scored| scored.score.is_err()) {
            return Ok(Round::End(()));
        }
        let open = open_runs(&selected.runs, &self.sides, max_drop, &is_open);
        Ok(if open.is_empty() { Round::End(()) } else { Round::Batch(GateBatch::Runs(open)) })
    }
}

/// `at most 192 new runs (about $2.40), 0 done before`: what `most` of the planned runs cost.
pub fn most_cost_text(
    dir: &SweepDir,
    planned: &HashSet<&RunId>,
    most: usize,
) -> Result<String, CommandFailure> {
    let results = ResultReader::open(dir)?.results;
    let settled: Vec<&ResultLine> = results.lines.values().filter(|line| line.settled).collect();
    let done = settled.iter().filter(|line| planned.contains(&line.id)).count();
    let costs: Vec<f64> = settled.iter().filter_map(|line| line.cost_usd).collect();
    let remaining = most.min(planned.len() - done);
    let cost = if costs.is_empty() {
        String::new()
    } else {
        let mean = costs.iter().sum::<f64>() / costs.len() as f64;
        format!(" (about ${})", cost_text(mean * remaining as f64))
    };
    Ok(format!("at most {}{cost}, {done} done before", pluralize(remaining, "new run")))
}
