//! What the context of one more iteration costs, beyond writing the request itself: `cargo bench --bench context` prints
//! it for iteration 10 and for iteration 10,000 of a run with a budget. The bar is that the last costs at most 1.5 times
//! the first.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints"
)]

use delta_agent::context::{ContextInputs, ContextManifest, TokenCounter};
use delta_base::engine_variables::EngineVars;
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_base::time::{self, Timestamp};
use delta_process::{EnvVars, LaunchContext};
use delta_run::event::{ActionResult, Event, Payload, Thought};
use delta_run::state::RunState;
use delta_words::ToolCall;
use delta_yaml::yaml::YamlDocument;
use std::hint::black_box;
use std::time::{Duration, Instant};

const FIRST: u32 = 10;
const LAST: u32 = 10_000;
/// How many iterations are measured, so that a pause of the machine does not count.
const ROUNDS: u32 = 400;

fn main() {
    // `cargo test --all-targets` starts it too, and asks for nothing.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    // Each is full at both places, so that both requests are of one size.
    for limit in ["max_tokens: 400", "max_iterations: 8"] {
        compare(limit, &format!("sources:\n  - {{type: journal, {limit}}}\n"));
    }
    compare("total_max_tokens: 400", "total_max_tokens: 400\nsources:\n  - {type: journal}\n");
}

fn compare(limit: &str, yaml: &str) {
    let manifest = manifest(yaml);
    show(limit, iterations(&manifest, FIRST), iterations(&manifest, LAST));
}

fn manifest(yaml: &str) -> ContextManifest {
    let doc = YamlDocument::parse("context.yaml".to_owned(), yaml.to_owned()).unwrap();
    ContextManifest::read(&doc, "system_prompt.md").unwrap()
}

fn show(what: &str, first: Duration, last: Duration) {
    let ratio = last.as_secs_f64() / first.as_secs_f64();
    let verdict = if ratio <= 1.5 { "within" } else { "OVER" };
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    println!(
        "{what}: iteration {FIRST} {:.1} us, iteration {LAST} {:.1} us, ratio {ratio:.2}, {verdict} 1.50",
        micros(first),
        micros(last)
    );
}

/// The median time of what one more iteration costs in a run that has `count` of them already: its events, and its
/// context. Writing the request is not in it.
fn iterations(manifest: &ContextManifest, count: u32) -> Duration {
    let cancel = CancelToken::manual().unwrap();
    let mut run = Run { manifest, cancel: &cancel, state: RunState::default() };
    (0..count).for_each(|_| run.iterate());
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        // A short run would grow by a multiple; the long one may grow, and copied it would be in no cache.
        let before = (count == FIRST).then(|| run.state.clone());
        let began = Instant::now();
        run.iterate();
        times.push(began.elapsed());
        run.state = before.unwrap_or(run.state);
    }
    times.sort();
    times[times.len() / 2]
}

struct Run<'m> {
    manifest: &'m ContextManifest,
    cancel: &'m CancelToken,
    state: RunState,
}

impl Run<'_> {
    fn record(&mut self, payload: Payload) {
        let event = Event::new(self.state.seq + 1, Timestamp::from_millis(0), payload);
        self.state.apply(&event);
    }

    fn iterate(&mut self) {
        let left_out = self.build();
        self.iteration(left_out);
    }

    /// One iteration with one call, as a tool with a few lines of output makes it.
    fn iteration(&mut self, left_out: usize) {
        if self.state.seq == 0 {
            self.record(Payload::user_message("the task", Vec::new()));
        }
        let iteration = self.state.iterations + 1;
        let id = format!("call_{iteration}");
        self.record(Payload::Thought(Box::new(Thought {
            iteration,
            content: "One more.".to_owned(),
            tool_calls: vec![ToolCall::new(id.clone(), "t", "{\"text\":\"a line\"}")],
            redacted_calls: Vec::new(),
            reminder: None,
            reasoning: None,
            native: None,
            finish_reason: None,
            usage: None,
            estimated_tokens: None,
            left_out,
            invocation: None,
            record_sha256: None,
            script_turn: None,
            cut_off: false,
            text_call: None,
            discarded_usage: Vec::new(),
            throttled_ms: 0,
            from: None,
            saved_usd: None,
        })));
        self.record(Payload::ActionResult(Box::new(ActionResult {
            iteration,
            call_id: id,
            tool_name: "t".to_owned(),
            observation_content: "a line of output\n".repeat(8),
            images: Vec::new(),
            exit_code: Some(0),
            duration_ms: 1,
            execution: None,
            record_sha256: None,
            runs: Vec::new(),
            truncated: false,
            repeats: 0,
            ended_background: Vec::new(),
            left_running: Vec::new(),
            sandbox: None,
            result: None,
        })));
    }

    fn build(&self) -> usize {
        let vars = EngineVars { agent_home: "/a".into(), cwd: "/w".into(), run_dir: "/r".into() };
        let launch = |_: &_| LaunchContext {
            cwd: "/".into(),
            env: EnvVars::default(),
            secrets: Secrets::default(),
            containment: None,
            sandbox: None,
        };
        let mut around = ContextInputs {
            iteration: self.state.iterations + 1,
            ratio: self.state.ratio,
            vars: &vars,
            cancel: self.cancel,
            launch: &launch,
            clock: time::current_time,
            counter: &mut TokenCounter::default(),
            run_generators: true,
        };
        black_box(self.manifest.build(&self.state, &mut around).unwrap()).left_out
    }
}
