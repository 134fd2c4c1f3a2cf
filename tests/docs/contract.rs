//! Every rule of docs/contract.md that is not planned is cited by a test: rule C-4.2 by the name of one that begins
//! with `c_4_2_`.

use super::{root, texts};
use regex::Regex;
use std::collections::BTreeSet;
use std::fs;

#[test]
fn every_promise_has_a_test() {
    let contract = fs::read_to_string(root().join("docs/contract.md")).unwrap();
    let rule = Regex::new(r"(?m)^- \*\*C-(\d+)\.(\d+)\*\*( \(planned\))?").unwrap();
    let number = |text: &str| text.parse::<u32>().unwrap();
    let (mut promised, mut planned) = (Vec::new(), BTreeSet::new());
    for found in rule.captures_iter(&contract) {
        let id = (number(&found[1]), number(&found[2]));
        assert!(
            !promised.contains(&id) && !planned.contains(&id),
            "C-{}.{} stands twice",
            id.0,
            id.1
        );
        match found.get(3) {
            Some(_) => _ = planned.insert(id),
            None => promised.push(id),
        }
    }
    assert!(promised.len() > 20, "where are the rules?");
    let test = Regex::new(r"fn c_(\d+)_(\d+)_").unwrap();
    let mut cited = BTreeSet::new();
    for (_, text) in texts(&[".rs"]) {
        cited.extend(test.captures_iter(&text).map(|found| (number(&found[1]), number(&found[2]))));
    }
    let shown = |ids: Vec<(u32, u32)>| {
        ids.iter().map(|(n, m)| format!("C-{n}.{m}")).collect::<Vec<_>>().join(" ")
    };
    let unknown = cited
        .iter()
        .copied()
        .filter(|id| !promised.contains(id) && !planned.contains(id))
        .collect::<Vec<_>>();
    assert!(
        unknown.is_empty(),
        "tests cite rules that docs/contract.md does not have: {}",
        shown(unknown)
    );
    let untested = promised.into_iter().filter(|id| !cited.contains(id)).collect::<Vec<_>>();
    assert!(untested.is_empty(), "no test cites {}", shown(untested));
}
