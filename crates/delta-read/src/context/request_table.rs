//! Requests and their differences as text.

use delta_agent::tool::value_text;
use delta_base::terminal_text::escape_to_line;
use delta_operator::command_line;
use delta_report::request_breakdown::{
    CacheBreak, InputCost, PartSize, RequestBlock, RequestDiff, RequestSummary,
};
use delta_words::Usage;
use serde_json::Value as Json;

/// The number of digits of a hash in a table.
const HASH_DIGITS: usize = 12;

/// Which columns are numbers and aligned to the right.
const BREAKDOWN_RIGHT_ALIGNED: [bool; 7] = [true, false, false, true, true, true, false];
const DIFF_RIGHT_ALIGNED: [bool; 5] = [false, false, false, true, true];

/// Renders the parts of a request as a table.
pub fn render_breakdown(heading: &str, summary: &RequestSummary) -> String {
    let mut out = format!("{heading}\n\n");
    let head = ["#", "source", "type", "messages", "bytes", "tokens", "sha256"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut notes = vec![Vec::new()];
    for block in &summary.blocks {
        rows.push(vec![
            block.order.to_string(),
            block.source.clone(),
            block.kind.clone(),
            block.messages.to_string(),
            block.bytes.to_string(),
            block.tokens.to_string(),
            short_hash(block.sha256.as_deref()),
        ]);
        notes.push(block_notes(block));
    }
    let mut push_row = |name: &str, messages: String, size: PartSize, hash: Option<&str>| {
        rows.push(vec![
            String::new(),
            name.to_owned(),
            String::new(),
            messages,
            size.bytes.to_string(),
            size.tokens.to_string(),
            short_hash(hash),
        ]);
        notes.push(Vec::new());
    };
    let tools = &summary.tools;
    let tools_size = PartSize { bytes: tools.bytes, tokens: tools.tokens };
    let tools_name = command_line::pluralize(tools.names.len(), "tool");
    push_row(&tools_name, String::new(), tools_size, tools.sha256.as_deref());
    push_row("other", String::new(), summary.rest, None);
    let total = PartSize { bytes: summary.bytes, tokens: summary.tokens };
    push_row("total", summary.messages.to_string(), total, Some(&summary.sha256));
    for (line, notes) in align_columns(&rows, &BREAKDOWN_RIGHT_ALIGNED).into_iter().zip(notes) {
        out.push_str(&format!("{line}\n"));
        notes.iter().for_each(|note| out.push_str(&format!("     {note}\n")));
    }
    if summary.replaced {
        out.push_str("\na hook replaced these messages; the table shows its input\n");
    }
    out
}

fn block_notes(block: &RequestBlock) -> Vec<String> {
    let omitted = block.cut.as_ref().map(|cut| format!("left out: {cut}"));
    let skipped = block.skipped.as_ref().map(|reason| format!("skipped: {reason}"));
    omitted.into_iter().chain(skipped).collect()
}

/// Renders the usage that the endpoint reported, as the last line of a table.
pub fn render_reported_usage(usage: Option<&Usage>) -> String {
    let text = match usage {
        None => "the endpoint reported no tokens".to_owned(),
        Some(usage) => {
            let written = usage
                .cache_write_tokens
                .map_or_else(String::new, |tokens| format!(" and {tokens} written to the cache"));
            let reasoning = usage
                .reasoning_tokens
                .map_or_else(String::new, |tokens| format!(", {tokens} of them reasoning"));
            format!(
                "the endpoint reported {} tokens in, {} of them cached{written}, and {} out{reasoning}",
                usage.input_tokens, usage.cached_input_tokens, usage.output_tokens
            )
        }
    };
    format!("\n{text}\n")
}

/// Renders the differences of two requests, which are called `names`.
pub fn render_request_diff(heading: &str, names: [&str; 2], diff: &RequestDiff) -> String {
    let mut rows = vec![["source", "type", "", "bytes", "tokens"].map(str::to_owned).to_vec()];
    let pair = |before: String, after: String| {
        if before == after { after } else { format!("{before} → {after}") }
    };
    for block in &diff.blocks {
        rows.push(vec![
            block.source.clone(),
            block.kind.clone(),
            block.change.as_str().to_owned(),
            pair(block.before.bytes.to_string(), block.after.bytes.to_string()),
            pair(block.before.tokens.to_string(), block.after.tokens.to_string()),
        ]);
    }
    let mut out = format!("{heading}\n\n");
    if diff.replaced {
        out.push_str("a hook replaced the messages of the blocks\n");
    } else {
        for line in align_columns(&rows, &DIFF_RIGHT_ALIGNED) {
            out.push_str(&format!("{line}\n"));
        }
    }
    if !diff.settings.is_empty() {
        let settings: Vec<&str> = diff.settings.iter().map(String::as_str).collect();
        let settings = settings.join(", ");
        out.push_str(&format!("\nbesides the messages, these differ: {settings}\n"));
    }
    out.push_str(&match &diff.breaks {
        None => {
            "\nthe prompt cache does not break: the request begins with the whole earlier one\n"
                .to_owned()
        }
        Some(cache_break) => render_cache_break(cache_break, names),
    });
    out.push_str(&render_cache_costs(diff, names));
    out
}

/// Renders the place where the cache breaks, with the text on both sides.
fn render_cache_break(cache_break: &CacheBreak, names: [&str; 2]) -> String {
    let location = match cache_break.message {
        None => format!("at the {}, which a provider reads first", cache_break.part),
        Some(message) => {
            let role = cache_break.role.as_deref().unwrap_or("no role");
            let source = cache_break.source.as_ref();
            let source = source.map_or(String::new(), |source| format!(" of `{source}`"));
            let offset = cache_break.offset;
            format!("in message {message} ({role}{source}), byte {offset} of the request")
        }
    };
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let [before, after] = [(names[0], &cache_break.before), (names[1], &cache_break.after)]
        .map(|(name, text)| format!("  {name:width$}  {}\n", escape_to_line(text)));
    format!("\nthe prompt cache breaks {location}:\n{before}{after}")
}

/// Renders the tokens and costs before and after the break.
fn render_cache_costs(diff: &RequestDiff, names: [&str; 2]) -> String {
    let row = |name: &str, size: PartSize, cost: &dyn Fn(&InputCost) -> f64| {
        let usd = diff.cost_usd.as_ref().map(|costs| format!("{:.6} USD", cost(costs)));
        vec![name.to_owned(), format!("{} tokens", size.tokens), usd.unwrap_or_default()]
    };
    let breaks = diff.breaks.is_some();
    let cached =
        if breaks { "before the break, from the cache" } else { "unchanged, from the cache" };
    let uncached = if breaks { "after the break, in full" } else { "new, in full" };
    let mut rows = vec![
        row(cached, diff.cacheable, &|costs| costs.cacheable),
        row(uncached, diff.behind, &|costs| costs.behind),
    ];
    if breaks {
        let lost = format!("lost from {}", names[0]);
        rows.push(row(&lost, diff.lost, &|costs| costs.lost));
    }
    let lines = align_columns(&rows, &[false, true, true]);
    let lines: String = lines.iter().map(|line| format!("  {line}\n")).collect();
    format!("\n{lines}")
}

/// Renders a message as readable text.
pub fn render_message(message: &Json) -> String {
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let mut out = format!("--- {}", text(&message["role"]));
    if let Some(id) = message["tool_call_id"].as_str() {
        out.push_str(&format!(" {id}"));
    }
    out.push('\n');
    let content = match &message["content"] {
        Json::Null => String::new(),
        content => value_text(content),
    };
    for part in [text(&message["reasoning_content"]), content] {
        if !part.is_empty() {
            out.push_str(part.trim_end_matches('\n'));
            out.push('\n');
        }
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        let name = text(&function["name"]);
        let arguments = text(&function["arguments"]);
        out.push_str(&format!("→ {name} {arguments} ({})\n", text(&call["id"])));
    }
    out
}

fn short_hash(hash: Option<&str>) -> String {
    hash.map_or_else(|| "-".to_owned(), |hash| hash.chars().take(HASH_DIGITS).collect())
}

/// The rows as lines with aligned columns; `right` says which columns are aligned to the right.
fn align_columns(rows: &[Vec<String>], right: &[bool]) -> Vec<String> {
    let widths: Vec<usize> = (0..right.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut lines = Vec::new();
    for row in rows {
        let mut cells = Vec::new();
        for (column, text) in row.iter().enumerate() {
            let width = widths[column];
            cells.push(if right[column] {
                format!("{text:>width$}")
            } else {
                format!("{text:width$}")
            });
        }
        lines.push(cells.join("  ").trim_end().to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c_8_5_columns_are_aligned() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["äb".to_owned(), "22".to_owned()]];
        assert_eq!(align_columns(&rows, &[false, true]), ["a    1", "äb  22"]);
    }

    #[test]
    fn c_8_5_a_message_is_shown_with_its_calls() {
        let call = json!({"id": "c1", "function": {"name": "say", "arguments": "{}"}});
        let assistant = json!({"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [call]});
        assert_eq!(render_message(&assistant), "--- assistant\nhm\n→ say {} (c1)\n");
        let result = json!({"role": "tool", "tool_call_id": "c1", "content": "a\n"});
        assert_eq!(render_message(&result), "--- tool c1\na\n");
    }
}
