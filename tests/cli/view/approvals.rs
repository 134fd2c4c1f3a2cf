//! The page of a run that waits for an approval.

use super::super::staged_calls::waiting;
use super::browser::Browser;
use super::view;
use serde_json::json;
use test_support::needs;

#[test]
fn c_18_1_a_page_shows_the_changes_that_wait_for_an_approval() {
    if !needs::browser() {
        return;
    }
    let Some(sandbox) = waiting("", "printf '1\\n2\\n' > list") else { return };
    view(&sandbox, &[]).expect_code(0);
    let mut browser = Browser::start();
    browser.open(&sandbox.path("r.html"), "");
    browser.settle();
    let shown = browser.value("document.querySelector('#i1 .question').textContent");
    let shown = shown.as_str().unwrap();
    assert!(shown.contains("+++ b/list\n@@ -0,0 +1,2 @@\n+1\n+2\n"), "{shown}");
    let waits = "document.querySelector('#i1 .call .how').textContent";
    assert_eq!(browser.value(waits), json!("waiting for an approval"));
}
