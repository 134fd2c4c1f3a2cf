//! The file of inputs that a gate leaves out, each with the reason.

/// Reads lines `ID REASON`; blank lines and lines that begin with `#` are comments.
///
/// # Errors
/// A line has no reason; its number, and what is wrong.
pub fn parse_ignored_inputs(text: &str) -> Result<Vec<(String, String)>, (usize, String)> {
    let lines = text.lines().map(str::trim).enumerate();
    let entries = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let ignored = entries.map(|(index, line)| match line.split_once(char::is_whitespace) {
        Some((id, reason)) => Ok((id.to_owned(), reason.trim().to_owned())),
        None => Err((index + 1, format!("input `{line}` is left out without a reason"))),
    });
    ignored.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_an_id_and_a_reason() {
        let text = "# flaky\n\nq17  answers in two languages\n q41\tslow \n";
        let ignored = parse_ignored_inputs(text).unwrap();
        let entry = |id: &str, reason: &str| (id.to_owned(), reason.to_owned());
        assert_eq!(ignored, [entry("q17", "answers in two languages"), entry("q41", "slow")]);
        assert_eq!(parse_ignored_inputs("a b\nq17\n").unwrap_err().0, 2);
    }
}
