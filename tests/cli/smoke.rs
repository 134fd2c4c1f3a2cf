//! The main job, from the message to the result.

use super::DELTA;
use test_support::sandbox::Sandbox;

const TOOLS: &str = "  - name: shout\n    shell: printf %s ${text} | tr a-z A-Z\n  - name: save\n    exec: tee ${file}\n    stdin: text\n";
const TURNS: &str = "- call: [{tool: shout, args: {text: '${task}'}}]\n- call: [{tool: save, args: {file: out.txt, text: '${last}'}}]\n- say: 'saved ${last}'\n";

#[test]
fn a_message_reaches_the_tools_and_comes_back_as_the_result() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, TURNS);
    let ran = sandbox.run("hello; $(touch PWNED)", &["--format", "raw"]).expect_code(0);
    assert_eq!(ran.stdout, "saved HELLO; $(TOUCH PWNED)\n");
    assert_eq!(sandbox.read("work/out.txt"), "HELLO; $(TOUCH PWNED)");
    assert!(!sandbox.path("work/PWNED").exists());
    assert_eq!(sandbox.metadata()["status"], "COMPLETED");
}
