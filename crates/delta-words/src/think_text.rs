//! Reasoning that a model prints at the beginning of its text.

/// The reasoning at the beginning of a text, and the rest. A template may have printed `<think>` before the text, and a text
/// may be cut off before `</think>`.
pub(crate) fn split_think(text: &str) -> Option<(&str, &str)> {
    let open = "<think>";
    let close = "</think>";
    let start = text.trim_start();
    let inside = match (start.strip_prefix(open), start.find(open), start.find(close)) {
        (Some(inside), ..) => inside,
        (None, opened, Some(closed)) if opened.is_none_or(|opened| closed < opened) => start,
        _ => return None,
    };
    let (think, rest) = inside.split_once(close).unwrap_or((inside, ""));
    Some((think.trim(), rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::split_think;

    #[test]
    fn c_28_6_only_reasoning_at_the_beginning_of_a_text_is_split_off() {
        for (text, expected) in [
            ("<think>\na\n</think>\n\nb", Some(("a", "b"))),
            ("\n<think></think>b</think>", Some(("", "b</think>"))),
            ("a</think>b", Some(("a", "b"))),
            ("<think>cut off", Some(("cut off", ""))),
            ("text about <think>x</think>", None),
            ("text", None),
            ("", None),
        ] {
            assert_eq!(split_think(text), expected, "{text}");
        }
    }
}
