//! The calls of an answer that arrives in pieces: which call a piece belongs to.

use crate::llm::argument_text::ArgumentText;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

/// A call, as far as it has arrived.
#[derive(Debug, Default)]
pub(super) struct PartialCall {
    pub(super) index: Option<u64>,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: ArgumentText,
    /// The last chunk with a piece of it.
    pub(super) chunk: usize,
    /// The data of the vendor; null if there is none.
    pub(super) extra: Value,
}

/// A piece of a call.
#[derive(Debug)]
pub(super) struct CallPiece<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: Cow<'a, str>,
    pub(super) chunk: usize,
}

/// The calls of an answer, in the order in which they began. An answer may have a hundred thousand of them.
#[derive(Debug, Default)]
pub(super) struct PartialCalls {
    calls: Vec<PartialCall>,
    /// The call that the last piece belonged to.
    open: Option<usize>,
    /// The last call with each id.
    with_id: HashMap<String, usize>,
    without_id: BTreeSet<usize>,
    /// The last call with each index.
    with_index: HashMap<u64, usize>,
    /// The bytes of all arguments.
    argument_bytes: usize,
}

impl PartialCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The number of the calls and of the bytes of their arguments.
    pub(super) fn size(&self) -> usize {
        self.calls.len() + self.argument_bytes
    }

    /// The calls in the order of their indices.
    pub(super) fn into_sorted(self) -> Vec<PartialCall> {
        let mut calls = self.calls;
        calls.sort_by_key(|call| call.index);
        calls
    }

    /// Adds a piece to its call, which this returns.
    pub(super) fn add(&mut self, piece: &CallPiece<'_>) -> &mut PartialCall {
        let position = self.position_of(piece).unwrap_or_else(|| self.begin(piece));
        self.open = Some(position);
        let call = &mut self.calls[position];
        self.argument_bytes -= call.arguments.len();
        call.add(piece);
        self.argument_bytes += call.arguments.len();
        if !call.id.is_empty() && self.without_id.remove(&position) {
            let last = self.with_id.entry(call.id.clone()).or_default();
            *last = position.max(*last);
        }
        call
    }

    fn begin(&mut self, piece: &CallPiece<'_>) -> usize {
        let position = self.calls.len();
        self.calls.push(PartialCall { index: piece.index, ..PartialCall::default() });
        self.without_id.insert(position);
        if let Some(index) = piece.index {
            self.with_index.insert(index, position);
        }
        position
    }

    /// The call that a piece belongs to; `None` if it begins another one. An id decides before an index, and what has
    /// neither belongs to the call that is open.
    fn position_of(&self, piece: &CallPiece<'_>) -> Option<usize> {
        let by_id = self.with_id.get(piece.id).copied();
        let by_index = piece.index.and_then(|index| self.with_index.get(&index).copied());
        let open = self.open.filter(|at| !self.calls[*at].arguments.is_closed());
        let position = if by_id.is_some() {
            by_id
        } else if piece.name.is_empty() && piece.id.is_empty() {
            match by_index {
                // What follows a whole object can only repeat it.
                Some(at) if self.calls[at].arguments.is_closed() => {
                    let repeats = self.calls[at].arguments.is_same(&piece.arguments);
                    if repeats { Some(at) } else { open.or(Some(at)) }
                }
                Some(at) => Some(at),
                None if piece.index.is_some() => open,
                None => self.open,
            }
        } else if piece.id.is_empty() && piece.index.is_none() {
            self.calls.len().checked_sub(1)
        } else {
            let is_rest = piece.name.is_empty()
                && !matches!(piece.arguments.trim().as_bytes(), [] | [b'{', ..]);
            let last_without_id = self.without_id.last().copied();
            let without_id = if piece.index.is_none() { last_without_id } else { by_index };
            without_id.or_else(|| open.filter(|_| is_rest))
        };
        position.filter(|at| !self.calls[*at].ends_before(piece))
    }
}

impl PartialCall {
    /// Whether a piece that this call could continue with begins another one. Some servers number every call 0, or none, or
    /// give every piece another id.
    fn ends_before(&self, piece: &CallPiece<'_>) -> bool {
        let text = piece.arguments.trim();
        // Costs what has arrived, so it is asked last.
        let is_repetition = || text.is_empty() || self.arguments.is_repeated_by(text);
        let is_other_id = !piece.id.is_empty() && !self.id.is_empty() && self.id != piece.id;
        let is_other_index =
            piece.index.is_some() && self.index.is_some() && self.index != piece.index;
        if piece.name.is_empty() {
            return is_other_id && self.arguments.is_filled() && !is_repetition();
        }
        if is_other_id {
            // No arguments begin in their middle.
            let is_rest = !self.arguments.is_empty()
                && !self.arguments.is_closed()
                && !text.is_empty()
                && !text.starts_with('{');
            return !(is_rest && self.name == piece.name && !is_other_index);
        }
        let is_other_name = !self.name.is_empty() && self.name != piece.name;
        if !piece.id.is_empty() && self.id == piece.id {
            let is_other = is_other_index || is_other_name;
            return is_other && self.arguments.is_closed() && !is_repetition();
        }
        let is_listed_alone = self.chunk == piece.chunk && !self.name.is_empty();
        is_listed_alone
            || (is_other_name && !self.arguments.is_empty())
            || (self.arguments.is_filled() && !is_repetition())
    }

    pub(super) fn add(&mut self, piece: &CallPiece<'_>) {
        self.chunk = piece.chunk;
        if self.id.is_empty() {
            piece.id.clone_into(&mut self.id);
        }
        // Some servers repeat the name with every piece of the arguments, or as far as it has arrived.
        if piece.name.starts_with(&self.name) {
            piece.name.clone_into(&mut self.name);
        } else {
            self.name.push_str(piece.name);
        }
        self.arguments.push(&piece.arguments);
    }
}
