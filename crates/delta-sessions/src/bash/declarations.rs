//! The output of `declare -p`: statements, each with the newline that ends it.

use memchr::{memchr, memchr2};

/// The bytes at which a statement may end or quoting may change.
static SIGNIFICANT_BYTES: [bool; 256] = {
    let mut significant = [false; 256];
    significant[b'\n' as usize] = true;
    significant[b'\\' as usize] = true;
    significant[b'\'' as usize] = true;
    significant[b'"' as usize] = true;
    significant
};

/// The name of the variable that a statement declares.
pub(super) fn declared_name(statement: &[u8]) -> Option<&str> {
    let rest = statement.strip_prefix(b"declare ")?;
    let declaration = &rest[memchr(b' ', rest)? + 1..];
    let end = memchr2(b'=', b'\n', declaration).unwrap_or(declaration.len());
    std::str::from_utf8(&declaration[..end]).ok()
}

pub(super) fn split_statements(mut text: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (statement, rest) = text.split_at(statement_length(text));
        text = rest;
        (!statement.is_empty()).then_some(statement)
    })
}

/// The length of the first statement, up to and including the first newline that is not quoted.
fn statement_length(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(skipped) = text
        .get(at..)
        .and_then(|rest| rest.iter().position(|byte| SIGNIFICANT_BYTES[usize::from(*byte)]))
    {
        at += skipped;
        let rest = &text[at + 1..];
        at += match text[at] {
            b'\n' => return at + 1,
            b'\\' => 2,
            // A backslash escapes in `$'...'` and not in `'...'`.
            b'\'' if !text[..at].ends_with(b"$") => {
                memchr(b'\'', rest).map_or(text.len(), |end| end + 2)
            }
            quote => quoted_length(rest, quote) + 1,
        };
    }
    text.len()
}

/// The length up to and including the next `quote` without a backslash before it.
fn quoted_length(text: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while let Some(skipped) = memchr2(b'\\', quote, &text[at..]) {
        at += skipped + 1;
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
        let statements: Vec<_> = split_statements(text.as_bytes()).collect();
        assert_eq!(statements, all.map(str::as_bytes));
        let names: Vec<_> = statements.into_iter().filter_map(declared_name).collect();
        assert_eq!(names, ["a", "b", "old", "m", "empty"]);
    }
}
