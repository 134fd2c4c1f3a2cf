//! The commands of hooks.

use super::{Sink, context};
use crate::process::Launch;
use crate::yaml::{Document, Node};
use std::path::Path;

pub(super) fn check(doc: &Document, root: &Node, home: &Path, launch: &Launch, sink: &mut Sink) {
    for (_, hook) in root.entries() {
        let several = hook.items();
        for hook in several.iter().chain(several.is_empty().then_some(hook)) {
            sink.within(doc, hook, |sink| context::command(doc, hook, home, launch, sink));
        }
    }
}
