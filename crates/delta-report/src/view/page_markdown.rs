//! Adds the Markdown structure of messages to a run of the page.

use super::markdown_tree::{self, MarkdownTree};
use super::page_run::PageRun;
use delta_base::redact::HiddenAnswers;
use serde::Serialize;
use serde_json::Value as Json;

/// The structure of the texts above the timeline.
#[derive(Debug, Default, Serialize)]
pub struct RunMarkdown {
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<MarkdownTree>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<MarkdownTree>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<MarkdownTree>,
}

/// Adds the structure of the messages of the user and the LLM, the result and the questions.
///
/// It has places in the texts as the page has them, which is without the sensitive answers.
pub fn add_markdown(run: &mut PageRun, answers: &HiddenAnswers) {
    let parse = |text: &str| {
        markdown_tree::parse_markdown(&answers.redact(text), |plain| !answers.occur_in(plain))
    };
    let add_to_event = |event: &mut Json, key: &str| {
        let tree = event[key].as_str().and_then(parse);
        if let Some(tree) = tree.and_then(|tree| serde_json::to_value(tree).ok()) {
            event["markdown"] = tree;
        }
    };
    run.markdown.task = parse(&run.task);
    if let Some(result) = &run.result {
        run.markdown.result =
            result.result.as_ref().and_then(|result| result.as_str()).and_then(parse);
        run.markdown.prompt =
            result.interaction.as_ref().and_then(|question| parse(&question.prompt));
    }
    for iteration in &mut run.iterations {
        iteration.markdown = parse(&iteration.thought);
        for question in iteration.calls.iter_mut().filter_map(|call| call.question.as_mut()) {
            add_to_event(question, "prompt");
        }
    }
    let between = run
        .iterations
        .iter_mut()
        .flat_map(|iteration| [&mut iteration.before, &mut iteration.around]);
    for event in between.flatten().chain(&mut run.rest) {
        if event["type"] == "USER_MESSAGE" {
            add_to_event(event, "content");
        }
    }
}
