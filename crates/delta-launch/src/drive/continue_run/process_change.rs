//! What differs between the last process of a run and the one that continues it, as far as its operator should know.

use delta_base::terminal_text::strip_terminal_controls;
use delta_operator::arguments::options::RunOptions;
use delta_program::stdio;
use delta_run::event::EngineStart;
use delta_run::run::{Run, RunNotice};

/// Reports that this process calls another LLM than the last one did, with `-q` too: another model has another price and
/// other answers.
pub fn report_llm_change(before: &EngineStart, now: &EngineStart, options: &RunOptions) {
    if !options.silent {
        llm_change_note(before, now).iter().for_each(|note| stdio::print_error_line(note));
    }
}

fn llm_change_note(before: &EngineStart, now: &EngineStart) -> Vec<String> {
    let provider_and_model = |start: &EngineStart| {
        let provider = strip_terminal_controls(start.config.provider()?);
        Some((provider, strip_terminal_controls(start.config.model()?)))
    };
    let Some((old, new)) = provider_and_model(before).zip(provider_and_model(now)) else {
        return Vec::new();
    };
    // The path of a script depends on the directory in which the command runs.
    let is_same_option = now.config.model_option().is_some()
        && before.config.model_option() == now.config.model_option();
    if old == new || is_same_option {
        return Vec::new();
    }
    if old.1 != new.1 {
        return vec![format!("Note: the last process called {}; this one calls {}", old.1, new.1)];
    }
    vec![format!(
        "Note: the last process called {}:{}; this one calls {}:{}",
        old.0, old.1, new.0, new.1
    )]
}

/// Warns about hooks that the agent no longer has, with `-q` too: a hook may be a gate, and its absence is easy to miss.
pub fn report_lost_hooks(
    run: &mut Run,
    before: &EngineStart,
    now: &EngineStart,
    options: &RunOptions,
) {
    let current: Vec<&String> = now.config.hooks.iter().flatten().collect();
    for hook in before.config.hooks.iter().flatten().filter(|hook| !current.contains(hook)) {
        let warning = format!(
            "the run had the hook {} until now; the agent in {} has no such hook",
            strip_terminal_controls(hook),
            strip_terminal_controls(&now.agent_home)
        );
        report_loss(run, &warning, options);
    }
}

/// Warns, with `-q` too, if this process has not the sandbox that the operator chose for the last one.
pub fn report_lost_sandbox(
    run: &mut Run,
    before: &EngineStart,
    now: &EngineStart,
    options: &RunOptions,
) {
    if let Some(sandbox) = before.config.chosen_sandbox()
        && now.config.chosen_sandbox().is_none()
    {
        let sandbox = strip_terminal_controls(sandbox);
        let warning = format!(
            "the last process had the sandbox {sandbox}; this one has no sandbox of the operator: `--sandbox` chooses one"
        );
        report_loss(run, &warning, options);
    }
}

/// A warning that `-q` does not hide.
fn report_loss(run: &mut Run, warning: &str, options: &RunOptions) {
    if options.quiet && !options.silent {
        stdio::print_error_line(&format!("! {warning}"));
    } else {
        run.notify(RunNotice::Warning(warning));
    }
}

/// Warns if the approved call was shown in another workspace: it does not start, because it would work on other files.
pub fn warn_about_moved_call(run: &mut Run, last_start: &EngineStart, start: &EngineStart) {
    if last_start.work_dir != start.work_dir {
        let before = strip_terminal_controls(&last_start.work_dir);
        run.notify(RunNotice::Warning(&format!(
            "the workspace was {before} when the call was shown, so the approval does not hold; the LLM may ask again"
        )));
    }
}
