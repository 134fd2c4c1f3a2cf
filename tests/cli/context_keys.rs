//! What is wrong with the keys of context.yaml is said with its place, all of it at once, before anything is made.

use super::DELTA;
use test_support::sandbox::Sandbox;

/// The messages that `delta run` has for a context.yaml: `LINE:COLUMN message (help)`.
#[track_caller]
fn refused(context: &str) -> Vec<String> {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: ok\n");
    sandbox.write("agent/context.yaml", context);
    let ran = sandbox.run("hi", &[]).expect_code(126);
    assert_eq!(sandbox.files("work"), Vec::<String>::new(), "nothing was made");
    let mut found: Vec<String> = Vec::new();
    for line in ran.stderr.lines() {
        if let Some(message) = line.strip_prefix("error: ") {
            found.push(message.to_owned());
        } else if let Some((_, place)) = line.split_once("context.yaml:") {
            let last = found.last_mut().unwrap();
            *last = format!("{place} {last}");
        } else if let Some(help) = line.strip_prefix("  = help: ") {
            *found.last_mut().unwrap() += &format!(" ({help})");
        }
    }
    found
}

#[test]
fn c_8_4_budgets_are_checked() {
    let context = "total_max_tokens: 0
tokenizer: {command: [], timeout_ms: x}
sources:
  - {type: journal, max_tokens: many}
  - {type: file, path: x, max_tokens: -1}
";
    assert_eq!(
        refused(context),
        [
            "1:19 `total_max_tokens` must be a whole number from 1 to 1099511627775 (write a whole number, or one such as `2k` or `1.5M`)",
            "2:22 `command` names no program (write `[PROGRAM, ARG, ...]`)",
            "2:38 `timeout_ms` must be a whole number from 1 to 4294967295 (write milliseconds, or a time with its unit, such as `30s`)",
            "4:33 `max_tokens` must be a whole number from 1 to 1099511627775 (write a whole number, or one such as `2k` or `1.5M`)",
            "5:39 `max_tokens` must be a whole number from 1 to 1099511627775 (write a whole number, or one such as `2k` or `1.5M`)",
        ]
    );
}

#[test]
fn c_8_4_conditions_and_caches_are_checked() {
    let context = "sources:
  - {type: file, path: x, condition: {when: task_contain, pattern: x}}
  - {type: file, path: x, condition: {when: task_contains, pattern: '(x'}}
  - {type: file, path: x, condition: {when: task_contains}}
  - {type: file, path: x, condition: {when: file_exists, pattern: x}}
  - {type: file, path: x, condition: {when: iteration_at_least, iteration: 0}}
  - {type: file, path: x, condition: {pattern: x}}
  - {type: journal, condition: tomorrow}
  - {type: file, path: x, cache: {strategy: age, max_age_ms: 1}}
  - type: computed_file
    generator: {command: [x]}
    output_path: x
    cache: {strategy: file_hash, invalidate_on: ['src/***', '[a']}
  - {type: computed_file, generator: {command: [x]}, output_path: x, cache: {strategy: file_hash}}
  - {type: computed_file, generator: {command: [x]}, output_path: x, cache: {strategy: age}}
  - {type: computed_file, generator: {command: [x]}, output_path: x, cache: {strategy: hash}}
";
    assert_eq!(
        refused(context),
        [
            "2:45 `task_contain` is not a `when` of a condition (did you mean `task_contains`?)",
            "3:69 not a regular expression: unclosed group",
            "4:39 a condition `task_contains` has no `pattern` (write `pattern: \"API|endpoint\"`)",
            "5:39 a condition `file_exists` has no `path` (write `path: '${CWD}/DELTA.md'`)",
            "5:58 unknown key `pattern` in a condition `file_exists` (known here: `when`, `path`)",
            "6:76 `iteration` must be a whole number from 1 to 4294967295",
            "7:39 a condition has no `when` (write `when: task_contains`)",
            "8:32 a condition must be a mapping (`key: value`), not a string",
            "9:27 unknown key `cache` in a `file` source (known here: `type`, `id`, `heading`, `path`, `on_missing`, `max_tokens`, `condition`)",
            "13:50 not a file pattern: Pattern syntax error near position 6: wildcards are either regular `*` or recursive `**`",
            "13:61 not a file pattern: Pattern syntax error near position 0: invalid range pattern",
            "14:78 a cache `file_hash` has no `invalidate_on` (write `invalidate_on: [\"src/**/*.py\"]`)",
            "15:78 a cache `age` has no `max_age_ms` (write `max_age_ms: 600000`)",
            "16:88 `hash` is not a `strategy` of a cache (did you mean `file_hash`?)",
        ]
    );
}

#[test]
fn c_28_6_two_templates_are_refused() {
    let context = "sources:
  - {type: journal, template: 'A ${message}', condition: {when: file_exists, path: x}}
  - {type: journal, template: 'B ${message}'}
";
    assert_eq!(refused(context), ["3:31 line 2 has a `template` already (keep one of them)"]);
}

#[test]
fn c_8_4_pipelines_are_checked() {
    let context = "sources:
  - {type: pipeline}
  - {type: pipeline, stages: []}
  - {type: pipeline, stages: [{generator: x, output: y}]}
  - {type: pipeline, stages: [{generator: [], output: y}, {generator: [x]}, {output: y}]}
  - {type: pipeline, stages: [{generator: [x], output: y, timeout_ms: 0, on_missing: skip}], output_path: z}
";
    assert_eq!(
        refused(context),
        [
            "2:6 a `pipeline` source has no `stages` (write `stages: [{generator: [PROGRAM], output: '${RUN_DIR}/result.md'}]`)",
            "3:30 `stages` is empty (write `stages: [{generator: [PROGRAM], output: '${RUN_DIR}/result.md'}]`)",
            "4:43 `generator` must be a list, not a string (write `generator: [\"x\"]`)",
            "5:43 `generator` names no program (write `[PROGRAM, ARG, ...]`)",
            "5:60 a stage has no `output` (write `output: '${RUN_DIR}/result.md'`)",
            "5:78 a stage has no `generator` (write `generator: [PROGRAM, ARG]`)",
            "6:71 `timeout_ms` must be a whole number from 1 to 4294967295 (no value means `no limit`: write a long time, such as `24h`, or omit `timeout_ms` for 30000)",
            "6:74 unknown key `on_missing` in a stage (known here: `id`, `generator`, `output`, `timeout_ms`, `pass_env`)",
            "6:94 unknown key `output_path` in a `pipeline` source (known here: `type`, `id`, `heading`, `stages`, `on_missing`, `max_tokens`, `condition`, `cache`)",
        ]
    );
}

#[test]
fn c_8_1_a_name_that_is_not_the_engines_is_refused_in_paths_and_commands() {
    let known = "the engine variables in paths and commands of context.yaml are `${AGENT_HOME}`, `${CWD}`, `${RUN_DIR}`";
    let context = "tokenizer: {command: ['${AGENTHOME}/count']}
sources:
  - {type: file, path: '${AGENTHOME}/x.md'}
  - {type: file, path: '${CWD}/x', condition: {when: file_exists, path: '${RUNDIR}/x'}}
  - type: computed_file
    generator: {command: [sh, -c, 'echo ${mine} > \"$1\"', sh, '${HOME}/x']}
    output_path: '${RUN_DIR}/${WHEN}'
    cache: {strategy: file_hash, invalidate_on: ['${cwd}/*']}
  - {type: pipeline, stages: [{generator: ['${CWD}/a', '${AGENT_HOM}'], output: '${X}'}]}
";
    let slips = [
        ("1:23 `${AGENTHOME}`", "write `${AGENT_HOME}`"),
        ("3:24 `${AGENTHOME}`", "write `${AGENT_HOME}`"),
        ("4:73 `${RUNDIR}`", "write `${RUN_DIR}`"),
        ("6:62 `${HOME}`", known),
        ("7:18 `${WHEN}`", known),
        ("8:50 `${cwd}`", "write `${CWD}`"),
        ("9:56 `${AGENT_HOM}`", known),
        ("9:81 `${X}`", known),
    ];
    let expected = slips.map(|(at, help)| format!("{at} is not an engine variable ({help})"));
    assert_eq!(refused(context), expected);
}
