//! Requests and their differences as tables and lines for people.

use crate::composition::{Account, Break, Comparison, Money, Part, Size};
use crate::llm::Usage;
use serde_json::Value as Json;

/// How many digits of a hash are shown.
const DIGITS: usize = 12;

/// Which columns are numbers, and stand on the right.
const ACCOUNT: [bool; 7] = [true, false, false, true, true, true, false];
const CHANGES: [bool; 5] = [false, false, false, true, true];

/// The parts of a request.
pub fn account(heading: &str, account: &Account) -> String {
    let mut out = format!("{heading}\n\n");
    let head = ["#", "source", "type", "messages", "bytes", "tokens", "sha256"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut notes = vec![Vec::new()];
    for part in &account.blocks {
        rows.push(vec![
            part.order.to_string(),
            part.source.clone(),
            part.kind.clone(),
            part.messages.to_string(),
            part.bytes.to_string(),
            part.tokens.to_string(),
            digits(part.sha256.as_deref()),
        ]);
        notes.push(notes_of(part));
    }
    let mut other = |name: &str, count: Option<usize>, size: Size, hash: Option<&str>| {
        let count = count.map_or(String::new(), |count| count.to_string());
        let (bytes, tokens) = (size.bytes.to_string(), size.tokens.to_string());
        let (name, kind) = (name.to_owned(), String::new());
        rows.push(vec![String::new(), name, kind, count, bytes, tokens, digits(hash)]);
        notes.push(Vec::new());
    };
    let tools = &account.tools;
    let size = Size { bytes: tools.bytes, tokens: tools.tokens };
    other(&counted(tools.names.len(), "tool"), None, size, tools.sha256.as_deref());
    other("the rest", None, account.rest, None);
    let total = Size { bytes: account.bytes, tokens: account.tokens };
    other("in all", Some(account.messages), total, Some(&account.sha256));
    for (line, notes) in aligned(&rows, &ACCOUNT).into_iter().zip(notes) {
        out.push_str(&format!("{line}\n"));
        notes.iter().for_each(|note| out.push_str(&format!("     {note}\n")));
    }
    if account.replaced {
        out.push_str(
            "\na hook put other messages in the place of these; they are what it was given\n",
        );
    }
    out
}

fn notes_of(part: &Part) -> Vec<String> {
    let cut = part.cut.as_ref().map(|cut| format!("left out: {cut}"));
    let skipped = part.skipped.as_ref().map(|why| format!("skipped: {why}"));
    cut.into_iter().chain(skipped).collect()
}

/// What the endpoint reported, under a table.
pub fn reported(usage: Option<&Usage>) -> String {
    let text = match usage {
        None => "the endpoint reported no tokens".to_owned(),
        Some(usage) => format!(
            "the endpoint reported {} tokens in, {} of them cached, and {} out",
            usage.input_tokens, usage.cached_input_tokens, usage.output_tokens
        ),
    };
    format!("\n{text}\n")
}

/// The differences of two requests, which are called `names`.
pub fn comparison(heading: &str, names: [&str; 2], seen: &Comparison) -> String {
    let mut rows = vec![["source", "type", "", "bytes", "tokens"].map(str::to_owned).to_vec()];
    let pair = |before: String, after: String| match before == after {
        true => after,
        false => format!("{before} → {after}"),
    };
    for block in &seen.blocks {
        rows.push(vec![
            block.source.clone(),
            block.kind.clone(),
            block.change.word().to_owned(),
            pair(block.before.bytes.to_string(), block.after.bytes.to_string()),
            pair(block.before.tokens.to_string(), block.after.tokens.to_string()),
        ]);
    }
    let table: String = match seen.replaced {
        true => "a hook put other messages in the place of those of the blocks\n".to_owned(),
        false => aligned(&rows, &CHANGES).iter().map(|line| format!("{line}\n")).collect(),
    };
    let others: Vec<&str> = seen.settings.iter().map(String::as_str).collect();
    let settings = match others.as_slice() {
        [] => String::new(),
        names => format!("\nbeside the messages, these differ: {}\n", names.join(", ")),
    };
    let place = match &seen.breaks {
        None => "\nthe prompt cache breaks nowhere: what was sent before is sent again as it was\n"
            .to_owned(),
        Some(found) => place(found, names),
    };
    format!("{heading}\n\n{table}{settings}{place}{}", sums(seen, names))
}

/// Where the cache breaks.
fn place(found: &Break, names: [&str; 2]) -> String {
    let what = match found.message {
        None => format!("at the {}, which a provider reads first", found.part),
        Some(message) => {
            let role = found.role.as_deref().unwrap_or("no role");
            let of =
                found.source.as_ref().map_or(String::new(), |source| format!(" of `{source}`"));
            format!("in message {message} ({role}{of}), byte {} of the request", found.offset)
        }
    };
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let side = |name: &str, text: &str| format!("  {name:width$}  {text}\n");
    let (before, after) = (side(names[0], &found.before), side(names[1], &found.after));
    format!("\nthe prompt cache breaks {what}:\n{before}{after}")
}

/// What can be cached and what is paid.
fn sums(seen: &Comparison, names: [&str; 2]) -> String {
    let money = |of: &dyn Fn(&Money) -> f64| {
        seen.cost_usd.as_ref().map_or(String::new(), |cost| format!("{:.6} USD", of(cost)))
    };
    let row = |name: &str, size: Size, money: String| {
        vec![name.to_owned(), format!("{} tokens", size.tokens), money]
    };
    let mut rows = vec![
        row("before that, from the cache", seen.cacheable, money(&|cost| cost.cacheable)),
        row("behind it, in full", seen.behind, money(&|cost| cost.behind)),
    ];
    if seen.breaks.is_none() {
        rows[0][0] = "as before, from the cache".to_owned();
        rows[1][0] = "new, in full".to_owned();
    } else {
        let lost = format!("lost of {}", names[0]);
        rows.push(row(&lost, seen.lost, money(&|cost| cost.lost)));
    }
    let lines = aligned(&rows, &[false, true, true]);
    let lines: String = lines.iter().map(|line| format!("  {line}\n")).collect();
    format!("\n{lines}")
}

/// A message as people read it.
pub fn message(message: &Json) -> String {
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let mut out = format!("--- {}", text(&message["role"]));
    if let Some(id) = message["tool_call_id"].as_str() {
        out.push_str(&format!(" {id}"));
    }
    out.push('\n');
    let content = match &message["content"] {
        Json::Null => String::new(),
        Json::String(content) => content.clone(),
        other => other.to_string(),
    };
    for part in [text(&message["reasoning_content"]), content] {
        if !part.is_empty() {
            out.push_str(part.trim_end_matches('\n'));
            out.push('\n');
        }
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        let (name, arguments) = (text(&function["name"]), text(&function["arguments"]));
        out.push_str(&format!("→ {name} {arguments} ({})\n", text(&call["id"])));
    }
    out
}

/// `1 tool`, `2 tools`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn digits(hash: Option<&str>) -> String {
    hash.map_or_else(|| "-".to_owned(), |hash| hash.chars().take(DIGITS).collect())
}

/// The rows with their columns one under the other; `right` says which stand on the right.
fn aligned(rows: &[Vec<String>], right: &[bool]) -> Vec<String> {
    let length = |row: &Vec<String>, column: usize| row[column].chars().count();
    let widths: Vec<usize> = (0..right.len())
        .map(|column| rows.iter().map(|row| length(row, column)).max().unwrap_or(0))
        .collect();
    let cell = |(column, text): (usize, &String)| match right[column] {
        true => format!("{text:>0$}", widths[column]),
        false => format!("{text:0$}", widths[column]),
    };
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn c_8_5_columns_stand_one_under_the_other() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["äb".to_owned(), "22".to_owned()]];
        assert_eq!(aligned(&rows, &[false, true]), ["a    1", "äb  22"]);
    }

    #[test]
    fn c_8_5_a_message_is_shown_with_its_calls() {
        let call = json!({"id": "c1", "function": {"name": "say", "arguments": "{}"}});
        let assistant = json!({"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [call]});
        assert_eq!(message(&assistant), "--- assistant\nhm\n→ say {} (c1)\n");
        let result = json!({"role": "tool", "tool_call_id": "c1", "content": "a\n"});
        assert_eq!(message(&result), "--- tool c1\na\n");
    }
}
