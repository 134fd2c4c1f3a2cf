//! Colours at a terminal, and nowhere else (C-11.8, C-11.9, C-25.7).

use super::DELTA;
use test_support::sandbox::{Delta, Sandbox};

const TOOLS: &str = "  - name: write\n    shell: printf '%s' ${text} > file\n";

/// What a terminal shows; the same without colours where the user wants none, and in a pipe.
fn shown(command: impl Fn() -> Delta) -> String {
    let coloured = command().wholly_at_terminal().end().stderr;
    let plain = command().env("NO_COLOR", "1").wholly_at_terminal().end().stderr;
    let piped = command().output().stdout;
    assert!(!plain.contains('\x1b') && !piped.contains('\x1b'), "{plain:?} {piped:?}");
    assert_eq!(plain, piped);
    coloured
}

#[test]
fn c_16_8_a_diff_has_colours_at_a_terminal() {
    let turns = "- call: [{tool: write, args: {text: \"a\\n-- b\\n\"}}]\n\
                 - call: [{tool: write, args: {text: \"a\\nc\\u001b[5m\\n\"}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.run("task", &["-q", "--snapshots"]).expect_code(0);
    let diff =
        |more: &[&str]| sandbox.delta(["diff", "r", "-w", "work"].iter().chain(more).copied());
    let text = diff(&["1", "2"]).wholly_at_terminal().end().stderr;
    for line in [
        "\x1b[1mdiff --git a/file b/file\x1b[0m\n",
        "\x1b[1m--- a/file\x1b[0m\n",
        "\x1b[36m@@ -1,2 +1,2 @@\x1b[0m\n",
        "\n a\n",
        "\x1b[31m--- b\x1b[0m\n",
        // What a file contains does not control the terminal.
        "\x1b[32m+c\x1b[0m\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text:?}");
    }
    let stat = shown(|| diff(&["1", "2", "--stat"]));
    assert_eq!(stat, "file | +1 -1\n1 added, 1 removed\n");
    sandbox
        .delta(["fork", "r", "-w", "work", "--at", "1", "--into", "other", "--run-id", "f"])
        .output()
        .expect_code(0);
    let runs = sandbox.delta(["diff", "work/.delta/r", "other/.delta/f"]).env("NO_COLOR", "1");
    let runs = runs.wholly_at_terminal().end().stderr;
    assert!(runs.contains("the runs diverge") && !runs.contains('\x1b'), "{runs}");
}

#[test]
fn c_11_8_findings_have_colours_at_a_terminal() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: script\n  model: s.yaml", "  - name: t\n    exec: ls | wc\n");
    let text = shown(|| sandbox.delta(["tool", "lint", "agent"]));
    assert!(text.contains("\x1b[1m\x1b[31merror[load]\x1b[0m\x1b[1m: "), "{text:?}");
    assert!(text.contains("\x1b[36m^"), "{text:?}");
    assert!(text.contains("  = \x1b[1m\x1b[36mhelp\x1b[0m:"), "{text:?}");
    let json = sandbox.delta(["tool", "lint", "agent", "--format", "json"]);
    assert!(!json.wholly_at_terminal().end().stderr.contains('\x1b'));
}
