//! The files of plans: a header, and a line for each run.

use crate::formats::plan::{PlanHeader, PlannedRun};
use crate::formats::sweep_file::RunLimits;
use delta_base::id::RunId;
use delta_run::sweep::sweep_dir::{check_plan_version, lines_with_id};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The plans of a sweep, in their order.
#[derive(Debug, Default)]
pub struct SweepPlan {
    /// The headers of the plans.
    pub headers: Vec<PlanHeader>,
    /// The runs of all plans, where `n` is the index; or the one run that was asked for.
    pub runs: Vec<PlannedRun>,
    /// Runs of earlier plans whose input or task is another one in the newest.
    pub former: HashSet<RunId>,
    texts: HashSet<Arc<str>>,
    params: HashMap<Box<str>, Arc<Map<String, Json>>>,
    limits: HashMap<Box<str>, Arc<RunLimits>>,
}

#[derive(Deserialize)]
struct PlanLine<'a> {
    n: u64,
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    agent: Cow<'a, str>,
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    input: Cow<'a, str>,
    #[serde(default)]
    group: Option<String>,
    #[serde(default)]
    outside: Vec<String>,
    repeat: u32,
    #[serde(borrow)]
    params: &'a RawValue,
    #[serde(borrow)]
    limits: &'a RawValue,
}

/// The line of a run, with its newline.
pub fn plan_line(run: &PlannedRun) -> String {
    delta_base::json::to_json(run) + "\n"
}

/// The first line of a plan, with its newline.
pub fn header_line(header: &PlanHeader) -> String {
    delta_base::json::to_json(header) + "\n"
}

impl SweepPlan {
    /// The plan of forks of runs that the plans with these headers have.
    pub fn with_forks(headers: &[PlanHeader], forks: Vec<PlannedRun>) -> Self {
        Self { headers: headers.to_vec(), runs: forks, ..Self::default() }
    }

    /// Adds the next plan, the text of its file.
    ///
    /// # Errors
    /// It is not a plan, or its runs are not numbered after those before; delta writes plans at once, so the file was changed.
    pub fn add_plan(&mut self, text: &str) -> Result<(), String> {
        let header = parse_plan_header(text)?;
        let first = self.runs.len() as u64;
        self.runs.reserve(usize::try_from(header.runs).unwrap_or(0));
        for (index, line) in text.lines().enumerate().skip(1) {
            let run =
                self.parse_run(line).map_err(|error| format!("line {}: {error}", index + 1))?;
            if run.n != self.runs.len() as u64 {
                return Err(format!(
                    "line {}: expected `n` {}, found {}",
                    index + 1,
                    self.runs.len(),
                    run.n
                ));
            }
            self.runs.push(run);
        }
        let count = self.runs.len() as u64 - first;
        if count != header.runs {
            return Err(format!("expected {} runs, found {count}", header.runs));
        }
        self.headers.push(header);
        Ok(())
    }

    /// Adds of the next plan only the run with this id, if it has it: a sweep that calls `delta sweep task` for each run would
    /// otherwise read as many lines as the square of its runs.
    ///
    /// # Errors
    /// As [`SweepPlan::add_plan`]; the lines of other runs are not looked at.
    pub fn add_run_of_plan(&mut self, text: &str, id: &str) -> Result<(), String> {
        let header = parse_plan_header(text)?;
        for line in lines_with_id(text.as_bytes(), id) {
            let line = std::str::from_utf8(line).map_err(|error| error.to_string())?;
            let run = self.parse_run(line)?;
            if run.id.as_str() == id {
                self.runs.push(run);
            }
        }
        self.headers.push(header);
        Ok(())
    }

    fn parse_run(&mut self, line: &str) -> Result<PlannedRun, String> {
        let line: PlanLine<'_> = serde_json::from_str(line).map_err(|error| error.to_string())?;
        Ok(PlannedRun {
            n: line.n,
            id: RunId::parse(&line.id).map_err(|error| error.to_string())?,
            agent: self.intern(&line.agent),
            model: self.intern(&line.model),
            input: self.intern(&line.input),
            group: line.group.map(|group| self.intern(&group)),
            outside: line.outside,
            repeat: line.repeat,
            params: intern_json(&mut self.params, line.params)?,
            limits: intern_json(&mut self.limits, line.limits)?,
            plan: self.headers.len(),
        })
    }

    /// The same text once: a sweep has few agents and many runs.
    fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.texts.insert(new.clone());
        new
    }

    /// The settings of the newest plan, which count for the whole sweep.
    pub fn settings(&self) -> Option<&PlanHeader> {
        self.headers.last()
    }

    /// Whether the newest plan means the run: it has its input, task, agent and model.
    pub fn means(&self, run: &PlannedRun) -> bool {
        let has_choice = self.settings().is_none_or(|newest| {
            newest.agents.contains_key(&*run.agent) && newest.models.contains_key(&*run.model)
        });
        has_choice && !self.former.contains(&run.id)
    }

    /// The header of the plan that a run belongs to.
    pub fn header_of(&self, run: &PlannedRun) -> Option<&PlanHeader> {
        self.headers.get(run.plan)
    }

    /// The indexes of the runs by their ids.
    pub fn index_by_id(&self) -> HashMap<&str, usize> {
        self.runs.iter().enumerate().map(|(index, run)| (run.id.as_str(), index)).collect()
    }
}

fn parse_plan_header(text: &str) -> Result<PlanHeader, String> {
    let header = text.lines().next().unwrap_or_default();
    let header: PlanHeader =
        serde_json::from_str(header).map_err(|error| format!("line 1: {error}"))?;
    check_plan_version(header.sweep)?;
    Ok(header)
}

fn intern_json<T: for<'de> Deserialize<'de>>(
    known: &mut HashMap<Box<str>, Arc<T>>,
    raw: &RawValue,
) -> Result<Arc<T>, String> {
    if let Some(value) = known.get(raw.get()) {
        return Ok(value.clone());
    }
    let value: Arc<T> =
        Arc::new(serde_json::from_str(raw.get()).map_err(|error| error.to_string())?);
    known.insert(raw.get().into(), value.clone());
    Ok(value)
}
