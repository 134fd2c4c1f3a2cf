//! What `declare -p` prints: statements, each with the newline that ends it.

use memchr::{memchr, memchr2};

/// The bytes at which a statement may end, or what they mean may change.
static TELLING: [bool; 256] = {
    let mut telling = [false; 256];
    telling[b'\n' as usize] = true;
    telling[b'\\' as usize] = true;
    telling[b'\'' as usize] = true;
    telling[b'"' as usize] = true;
    telling
};

/// The name of the variable that a statement declares.
pub(super) fn name_of(statement: &[u8]) -> Option<&str> {
    let mut words = statement.splitn(3, |byte| *byte == b' ');
    let (_, _, rest) =
        (words.next().filter(|word| *word == b"declare")?, words.next()?, words.next()?);
    let end = rest.iter().position(|byte| matches!(byte, b'=' | b'\n')).unwrap_or(rest.len());
    std::str::from_utf8(&rest[..end]).ok()
}

/// The statements, each with the newline that ends it: one that is not quoted.
pub(super) fn statements(mut text: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (statement, rest) = text.split_at(statement_length(text));
        text = rest;
        (!statement.is_empty()).then_some(statement)
    })
}

pub(super) fn statement_length(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(next) =
        text.get(at..).and_then(|rest| rest.iter().position(|byte| TELLING[usize::from(*byte)]))
    {
        at += next;
        let rest = &text[at + 1..];
        at += match text[at] {
            b'\n' => return at + 1,
            b'\\' => 2,
            // In `$'...'` a backslash escapes, in `'...'` it does not.
            b'\'' if !text[..at].ends_with(b"$") => {
                memchr(b'\'', rest).map_or(text.len(), |end| end + 2)
            }
            quote => escaped_length(rest, quote) + 1,
        };
    }
    text.len()
}

/// Up to and with the next `quote` that no backslash stands before.
pub(super) fn escaped_length(text: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while let Some(found) = memchr2(b'\\', quote, &text[at..]) {
        at += found + 1;
        if text[at - 1] == quote {
            return at;
        }
        at = text.len().min(at + 1);
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_14_2_statements_end_at_newlines_that_are_not_quoted() {
        let all = [
            "declare -- a=\"x \\\"\\\\\"\n",
            "declare -x b=$'new\\nline \\' \"'\n",
            "declare -- old=\"raw\nnewline \\$x 'y\"\n",
            "declare -A m=([\"k k\"]=\"v\" [$'a\\'b']=\"\" ['c\\']=\"d\" )\n",
            "declare -i empty\n",
        ];
        let text = all.concat();
        let found: Vec<_> = statements(text.as_bytes()).collect();
        assert_eq!(found, all.map(str::as_bytes));
        let names: Vec<_> = found.into_iter().filter_map(name_of).collect();
        assert_eq!(names, ["a", "b", "old", "m", "empty"]);
    }
}
