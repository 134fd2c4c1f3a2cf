//! The marks with which models write a tool call into their text, for the server to parse. A text that still has one comes
//! from a server without a parser for the model. delta never parses such a call: the text may as well be a quotation.

/// The marks at the beginning of a call, by family of models, that all runs know.
const EARLIER_MARKERS: [&str; 10] = [
    "<tool_call>",
    "<function=",
    "<function_call>",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "<|python_start|>",
    "<|tool_call",
    "<|tool_calls_section_begin|>",
    "<｜tool▁calls▁begin｜>",
    "<minimax:tool_call>",
];
/// The marks that runs with rules before 3 did not know.
const LATER_MARKERS: [&str; 16] = [
    "<|start|>assistant<|channel|>commentary to=",
    "<|channel|>commentary to=",
    "commentary to=functions.",
    "<｜DSML｜",
    "<｜tool▁call▁begin｜>",
    "<function_calls>",
    "<invoke name=",
    "<｜｜DSML｜｜",
    "<tool_calls>",
    "<TOOLCALL>",
    "<|START_ACTION|>",
    "<|action_start|>",
    "<|tools_prefix|>",
    "<start_function_call>",
    "<steptml:invoke",
    "functools[",
];
/// The characters with which the marks begin.
const FIRST_CHARS: [char; 4] = ['<', '[', 'c', 'f'];
/// What precedes a mark that is only quoted.
const QUOTES: [char; 5] = ['`', '"', '\'', '“', '„'];

/// The mark of a call at the beginning of a line.
pub fn find_call_marker(text: &str) -> Option<&'static str> {
    text.lines().find_map(|line| starting_marker(line.trim_start()))
}

/// The mark of a call at the beginning of a line, in a run with rules before 3.
pub fn find_earlier_call_marker(text: &str) -> Option<&'static str> {
    text.lines()
        .map(str::trim_start)
        .find_map(|line| EARLIER_MARKERS.into_iter().find(|marker| line.starts_with(marker)))
}

/// The positions of all marks that are not quoted, also in the middle of a line.
pub fn call_marker_positions(text: &str) -> impl Iterator<Item = usize> {
    let starts = text.match_indices(FIRST_CHARS).map(|(at, _)| at);
    starts.filter(|at| starting_marker(&text[*at..]).is_some() && !text[..*at].ends_with(QUOTES))
}

/// The mark with which `text` begins.
fn starting_marker(text: &str) -> Option<&'static str> {
    EARLIER_MARKERS.into_iter().chain(LATER_MARKERS).find(|marker| text.starts_with(marker))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_7_8_a_call_in_a_text_is_found_and_a_mention_is_not() {
        for (text, marker) in [
            ("<tool_call>\n{\"name\": \"x\"}\n</tool_call>", Some("<tool_call>")),
            ("I call it.\n  <function=x>\n</function>", Some("<function=")),
            ("[TOOL_CALLS][{\"name\": \"x\"}]", Some("[TOOL_CALLS]")),
            ("<|python_tag|>x.call()", Some("<|python_tag|>")),
            ("<|channel|>commentary to=functions.x", Some("<|channel|>commentary to=")),
            ("commentary to=functions.x json{}", Some("commentary to=functions.")),
            ("<｜DSML｜tool_calls>", Some("<｜DSML｜")),
            ("Models write `<tool_call>` before a call.", None),
            ("", None),
        ] {
            assert_eq!(find_call_marker(text), marker, "{text}");
        }
        let text = "a `<tool_call>`, c <tool_call>[TOOL_CALLS]";
        assert_eq!(call_marker_positions(text).collect::<Vec<_>>(), [19, 30]);
        assert_eq!(find_earlier_call_marker("<｜DSML｜tool_calls>"), None);
    }
}
