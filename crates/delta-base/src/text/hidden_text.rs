//! Characters that a reader does not see, or that reorder what is seen, but that programs and LLMs read: the only list of
//! them.

use serde_json::Value as Json;

/// Whether a text or a key in `value` has hidden characters.
pub fn has_hidden_text(value: &Json) -> bool {
    match value {
        Json::String(text) => has_hidden_character(text),
        Json::Array(items) => items.iter().any(has_hidden_text),
        Json::Object(members) => {
            members.iter().any(|(key, value)| has_hidden_character(key) || has_hidden_text(value))
        }
        _ => false,
    }
}

/// The first character of a text that a reader takes for a blank, or does not see, while it is a letter to programs.
pub fn find_unseen_character(text: &str) -> Option<char> {
    text.chars().find(|c| !c.is_ascii() && (c.is_whitespace() || misleads_anywhere(*c)))
}

/// Whether a text has hidden characters.
pub fn has_hidden_character(text: &str) -> bool {
    let mut last = None;
    text.chars().any(|c| is_hidden(last.replace(c), c))
}

/// Whether a person does not see `c` while an LLM reads it: a control or bidirectional character other than a line end or
/// a tab, or one without a glyph. The selector of a form after a character that has two forms is not hidden.
fn is_hidden(last: Option<char>, c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{fe0e}' | '\u{fe0f}' => !last.is_some_and(has_emoji_form),
        c => c.is_control() || is_bidirectional_control(c) || is_invisible(c),
    }
}

/// JSON text with every hidden character inside its strings as a `\u` escape, so that it is the same JSON. Line ends of
/// the layout stay.
pub fn escape_hidden_in_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    let mut last = None;
    for c in json.chars() {
        if is_hidden(last.replace(c), c) {
            push_json_escape(&mut escaped, c);
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Writes `c` as JSON escapes it.
pub(crate) fn push_json_escape(out: &mut String, c: char) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        out.push_str(&format!("\\u{unit:04x}"));
    }
}

/// Whether a character reorders its neighbours or is invisible, whatever is next to it.
pub(crate) fn misleads_anywhere(c: char) -> bool {
    misleads_reader(None, c, None)
}

/// Whether a reader would see other text than there is: the character reorders its neighbours, or is invisible and has no
/// use between these two.
pub(crate) fn misleads_reader(last: Option<char>, c: char, next: Option<char>) -> bool {
    match c {
        // Most text ends here.
        ..'\u{ad}' => false,
        // Joins emoji, such as the members of a family.
        '\u{200d}' => !(last.is_some_and(is_pictograph) && next.is_some_and(is_pictograph)),
        // Separates letters of scripts that join them.
        '\u{200c}' => !(last.is_some_and(is_joined_letter) && next.is_some_and(is_joined_letter)),
        // Chooses between the text and the emoji form of the character before it.
        '\u{fe0e}' | '\u{fe0f}' => !last.is_some_and(has_emoji_form),
        c => is_invisible(c) || is_bidirectional_control(c),
    }
}

/// Whether a character reorders the text around it.
fn is_bidirectional_control(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// Characters without a glyph: Default_Ignorable_Code_Point of Unicode, line and paragraph separators, annotation marks.
/// Two of them join or separate their neighbours, and two choose the form of the character before them.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200d}'
            | '\u{2028}'..='\u{2029}'
            | '\u{2060}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

fn is_pictograph(c: char) -> bool {
    matches!(c, '\u{fe0f}' | '\u{2190}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
}

fn has_emoji_form(c: char) -> bool {
    matches!(
        c,
        '#' | '*' | '0'
            ..='9' | '\u{a9}' | '\u{ae}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}'
    ) || c != '\u{fe0f}' && (is_pictograph(c) || matches!(c, '\u{203c}'..='\u{2139}'))
}

/// A letter of an Arabic or Indic script.
fn is_joined_letter(c: char) -> bool {
    matches!(c, '\u{620}'..='\u{8ff}' | '\u{900}'..='\u{dff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hidden_characters_become_visible_and_stay_the_same_json() {
        let value = json!({"a": "x\u{200b}y\u{202e}z\u{e0041}\u{1b}\u{7f}\u{85}\u{feff}", "b": "plain\n\ttext é 漢 🙂"});
        let text = escape_hidden_in_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(
            text.contains("\\u200b") && text.contains("\\udb40\\udc41") && text.contains("é 漢 🙂"),
            "{text}"
        );
        assert!(text.chars().all(|c| !is_hidden(None, c)), "{text}");
        assert_eq!(serde_json::from_str::<Json>(&text).unwrap(), value);
    }

    /// Tool definitions were checked with a shorter list than the terminal's: a text in variation selectors, which the LLM
    /// reads, passed as visible.
    #[test]
    fn c_15_5_one_list_has_what_is_hidden_in_tool_definitions_and_at_a_terminal() {
        let hidden = [
            // Of both lists.
            '\u{ad}',
            '\u{115f}',
            '\u{1160}',
            '\u{180e}',
            '\u{200b}',
            '\u{2060}',
            '\u{2064}',
            '\u{206a}',
            '\u{206f}',
            '\u{3164}',
            '\u{feff}',
            '\u{fff9}',
            '\u{fffb}',
            '\u{e0000}',
            '\u{e0fff}',
            // Of the list for tool definitions, whatever is next to them.
            '\u{200c}',
            '\u{200d}',
            '\u{200e}',
            '\u{200f}',
            '\u{1b}',
            '\u{7f}',
            '\u{85}',
            // Of the list for terminals.
            '\u{34f}',
            '\u{61c}',
            '\u{17b4}',
            '\u{17b5}',
            '\u{180b}',
            '\u{180f}',
            '\u{2028}',
            '\u{2029}',
            '\u{202e}',
            '\u{2065}',
            '\u{2069}',
            '\u{fe00}',
            '\u{fe0d}',
            '\u{fe0e}',
            '\u{fe0f}',
            '\u{ffa0}',
            '\u{fff0}',
            '\u{fff8}',
            '\u{1bca0}',
            '\u{1bca3}',
            '\u{1d173}',
            '\u{1d17a}',
        ];
        for c in hidden {
            assert!(has_hidden_text(&json!({"description": format!("a{c}b")})), "{c:?}");
            assert!(c.is_control() || misleads_reader(Some('a'), c, Some('b')), "{c:?}");
        }
        // All of Unicode that is displayed as nothing.
        let ignorable = regex::Regex::new(r"\A\p{Default_Ignorable_Code_Point}\z").unwrap();
        let ignorable =
            ('\0'..=char::MAX).filter(|c| ignorable.is_match(c.encode_utf8(&mut [0; 4])));
        let ignorable: Vec<char> = ignorable.collect();
        assert!(ignorable.len() > 4000);
        for c in ignorable {
            assert!(is_hidden(Some('a'), c) && misleads_reader(Some('a'), c, Some('b')), "{c:?}");
        }
        for visible in ["plain\n\ttext", "é 漢 🙂", "⚠\u{fe0f} careful", "1\u{fe0f}\u{20e3}"]
        {
            assert!(!has_hidden_text(&json!([visible])), "{visible:?}");
        }
        assert!(has_hidden_text(&json!("⚠\u{fe0f}\u{fe0f}")));
    }
}
