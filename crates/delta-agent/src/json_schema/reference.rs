//! The targets of `$ref`, and the loops that references form.

use super::{JsonSchema, SchemaKeyword, SubschemaId};
use std::collections::VecDeque;

/// Returns the JSON Pointer of a reference into its own document, and `None` for other references.
pub(super) fn parse_reference(reference: &str) -> Option<String> {
    let fragment = reference.strip_prefix('#')?;
    let pointer = decode_uri_fragment(fragment)?;
    (pointer.is_empty() || pointer.starts_with('/')).then_some(pointer)
}

fn decode_uri_fragment(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let high = char::from(rest.next()?).to_digit(16)?;
        let low = char::from(rest.next()?).to_digit(16)?;
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// Finds a subschema that applies itself, perhaps through others, to the same value. Validation with
/// it would never end.
pub(super) fn find_reference_loop(schema: &JsonSchema) -> Option<SubschemaId> {
    let targets: Vec<Vec<SubschemaId>> =
        schema.subschemas.iter().map(|keywords| in_place_subschemas(keywords)).collect();
    // A subschema without targets is free of loops, and so is one whose targets are free of loops. All
    // others lead to a loop.
    // The counts: for each subschema, its targets that are not known to be free of loops.
    let mut remaining_counts: Vec<usize> = targets.iter().map(Vec::len).collect();
    let mut sources = vec![Vec::new(); targets.len()];
    for (source, targets) in targets.iter().enumerate() {
        for target in targets {
            sources[*target].push(source);
        }
    }
    let mut loop_free: VecDeque<SubschemaId> =
        (0..remaining_counts.len()).filter(|id| remaining_counts[*id] == 0).collect();
    while let Some(id) = loop_free.pop_front() {
        for source in &sources[id] {
            remaining_counts[*source] -= 1;
            if remaining_counts[*source] == 0 {
                loop_free.push_back(*source);
            }
        }
    }
    // Each of the others has a target among the others, so a walk along those targets enters a loop.
    let mut id = remaining_counts.iter().position(|count| *count > 0)?;
    for _ in 0..remaining_counts.len() {
        id = targets[id].iter().copied().find(|target| remaining_counts[*target] > 0)?;
    }
    Some(id)
}

/// The subschemas that `keywords` apply to the value itself, not to a part of it: the "in-place applicators" of JSON
/// Schema.
fn in_place_subschemas(keywords: &[SchemaKeyword]) -> Vec<SubschemaId> {
    let mut targets = Vec::new();
    for keyword in keywords {
        match keyword {
            SchemaKeyword::Ref(target) | SchemaKeyword::Not(target) => targets.push(*target),
            SchemaKeyword::AllOf(schemas)
            | SchemaKeyword::AnyOf(schemas)
            | SchemaKeyword::OneOf(schemas) => targets.extend(schemas),
            SchemaKeyword::If { condition, then_schema, else_schema } => {
                targets.push(*condition);
                targets.extend(then_schema);
                targets.extend(else_schema);
            }
            _ => {}
        }
    }
    targets
}
