//! Agent Skills: `skills:` in agent.yaml, the tool `skill`, and what a workspace may add.

use super::DELTA;
use super::context::messages;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use test_support::needs;
use test_support::normal::normal;
use test_support::sandbox::Sandbox;

const RELEASE: &str = "---\nname: release-notes\ndescription: Write release notes <fast> & well. Use it before a release.\nlicense: MIT\ncompatibility: needs git\nallowed-tools: Bash(git:*)\nmetadata:\n  author: me\n  version: \"1.0\"\n---\n\n# Release notes\n\nRun `scripts/log.sh`.\n";

fn skill(name: &str, description: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\nDo {name}.\n")
}

/// An agent with these further lines in agent.yaml, that answers with these turns.
fn sandbox(keys: &str, turns: &str) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, "", turns);
    let main = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("{main}{keys}\n"));
    sandbox.write("work/.keep", "");
    sandbox
}

/// One with a skill of its author's.
fn with_skill(turns: &str) -> Sandbox {
    let sandbox = sandbox("skills: [skills]", turns);
    sandbox.write("agent/skills/release-notes/SKILL.md", RELEASE);
    sandbox.write("agent/skills/release-notes/scripts/log.sh", "git log\n");
    sandbox.write("agent/skills/release-notes/.hidden", "");
    sandbox
}

/// The tools of the first request.
fn tools(sandbox: &Sandbox) -> Value {
    let name = &sandbox.files("work/.delta/r/io/invocations")[0];
    let record = sandbox.read(&format!("work/.delta/r/io/invocations/{name}"));
    serde_json::from_str::<Value>(&record).unwrap()["request"]["tools"].take()
}

fn names(tools: &Value) -> Vec<&str> {
    tools
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect()
}

#[test]
fn c_24_2_the_llm_sees_a_catalogue_and_loads_a_skill_by_name() {
    let sandbox = with_skill("- call: [{tool: skill, args: {name: release-notes}}]\n- say: done\n");
    sandbox.run("go", &[]).expect_code(0);
    let catalogue = "# Context Block: skills\n\nA skill is a set of instructions for one kind of task. Before you work on a task that a description names, call `skill` with its name.\n\n<available_skills>\n<skill>\n<name>release-notes</name>\n<description>Write release notes &lt;fast&gt; &amp; well. Use it before a release.</description>\n<location>DIR/agent/skills/release-notes/SKILL.md</location>\n</skill>\n</available_skills>\n";
    let first = messages(&sandbox, 1);
    let place = first.as_array().unwrap().iter().position(|message| message["role"] == "user");
    assert_eq!(first[place.unwrap() - 1], json!({"role": "system", "content": catalogue}));
    let tools = tools(&sandbox);
    assert_eq!(names(&tools), ["skill", "finish", "ask_human"]);
    let expected = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "description": "The name of the skill", "enum": ["release-notes"]}},
        "required": ["name"],
        "additionalProperties": false
    });
    assert_eq!(tools[0]["function"]["parameters"], expected);
    let content = "# Release notes\n\nRun `scripts/log.sh`.\n\nDirectory of this skill: DIR/agent/skills/release-notes\nIts other files, relative to that directory:\n- scripts/log.sh\n";
    assert_eq!(normal(&sandbox, &sandbox.observations()[0]), content);
    let request = &sandbox.events("ACTION_REQUEST")[0];
    let argv = normal(&sandbox, &request["argv"].to_string());
    let command = r#"["delta","skill","show","--in","DIR/agent/skills","--","release-notes"]"#;
    assert_eq!(argv, command);
    let start = &sandbox.events("ENGINE_START")[0];
    assert_eq!(start["config"]["tools"], json!(["skill"]));
    // What the run keeps is enough for a replay, whatever becomes of the skill.
    fs::remove_dir_all(sandbox.path("agent/skills")).unwrap();
    let replay = sandbox.delta(["replay", "r", "-w", "work"]).output().expect_code(0);
    assert!(!replay.stdout.contains("not checked"), "{}", replay.stdout);
}

#[test]
fn c_24_2_a_name_that_no_skill_has_starts_nothing() {
    let sandbox = with_skill(
        "- call: [{tool: skill, args: {name: ../../etc}}]\n- call: [{tool: skill, args: {}}]\n- say: done\n",
    );
    sandbox.run("go", &[]).expect_code(0);
    let observations = sandbox.observations();
    assert!(observations[0].contains("release-notes"), "{}", observations[0]);
    assert!(observations[1].contains("missing required parameter `name`"), "{}", observations[1]);
    assert!(sandbox.events("ACTION_REQUEST").iter().all(|event| event["argv"].is_null()));
}

#[test]
fn c_24_2_without_skills_there_is_nothing() {
    for keys in ["", "skills: []", "skills: [none]", "skills: ['${CWD}/.agents/skills']"] {
        let sandbox = sandbox(keys, "- say: done\n");
        fs::create_dir(sandbox.path("agent/none")).unwrap();
        let ran = sandbox.run("go", &["--project-skills"]).expect_code(0);
        assert_eq!(names(&tools(&sandbox)), ["finish", "ask_human"], "{keys}");
        assert!(!messages(&sandbox, 1).to_string().contains("skill"), "{keys}");
        assert!(!ran.stderr.contains("skill"), "{}", ran.stderr);
        assert!(!sandbox.path("work/.delta/r/agent/skills.json").exists());
    }
}

/// What the loader reports.
fn refused(sandbox: &Sandbox) -> String {
    sandbox.run("go", &[]).normal(sandbox).expect_code(126).stderr
}

#[test]
fn c_24_2_every_mistake_of_the_author_is_an_error() {
    let sandbox = sandbox("skills: [skills]", "- say: done\n");
    let long = "d".repeat(1025);
    for (dir, text) in [
        ("a-none", "# No front matter\n".to_owned()),
        ("b-open", "---\nname: b-open\n".to_owned()),
        ("c-yaml", "---\nname: [\n---\nx\n".to_owned()),
        ("d-other", skill("other", "text")),
        ("E_upper", skill("E_upper", "text")),
        ("f-long", skill("f-long", &long)),
        ("g-keys", "---\nname: g-keys\ndescription: x\nversion: 1\n---\nx\n".to_owned()),
        ("h-missing", "---\nname: h-missing\n---\nx\n".to_owned()),
        ("i-empty", "---\nname: i-empty\ndescription: ' '\n---\n \n".to_owned()),
    ] {
        sandbox.write(&format!("agent/skills/{dir}/SKILL.md"), text);
    }
    sandbox.write("agent/skills/j-no-file/README.md", "");
    sandbox.write("agent/skills/README.md", "a file is not a skill");
    sandbox.write("agent/skills/null/SKILL.md", skill("null", "x"));
    let errors = refused(&sandbox);
    for message in [
        "the skill has no front matter\n  --> DIR/agent/skills/a-none/SKILL.md\n",
        "the front matter of the skill is not closed\n  --> DIR/agent/skills/b-open/SKILL.md\n  = help: write a line `---` after its last key\n",
        "  --> DIR/agent/skills/c-yaml/SKILL.md:2:",
        "the skill `other` is in the directory `d-other`\n  --> DIR/agent/skills/d-other/SKILL.md:2:7\n",
        "`E_upper` is not the name of a skill\n",
        "`description` has 1025 characters, more than 1024\n",
        "  --> DIR/agent/skills/g-keys/SKILL.md:4:1\n",
        "  --> DIR/agent/skills/h-missing/SKILL.md:2:1\n",
        "`description` is empty\n",
        "the skill has no instructions\n",
        "could not read the skill: it has no SKILL.md\n  --> DIR/agent/skills/j-no-file\n",
        // Without quotes it was missing, and the help was to write it without quotes.
        "help: write `name: \"null\"`\n",
    ] {
        assert!(errors.contains(message), "{message}\n{errors}");
    }
}

#[test]
fn c_24_2_a_directory_of_skills_is_the_agents_or_below_the_workspace() {
    for (keys, message) in [
        ("skills: [nowhere]", "could not open DIR/agent/nowhere: No such file"),
        ("skills: [agent.yaml]", "DIR/agent/agent.yaml is not a directory"),
        ("skills: [../outside]", "DIR/outside is outside of the agent directory"),
        ("skills: [linked]", "DIR/outside/skill is outside of the agent directory"),
        ("skills: ['${CWD}/../x']", "skills are in the agent directory, or below `${CWD}`"),
        ("skills: ['${RUN_DIR}/x']", "skills are in the agent directory, or below `${CWD}`"),
        ("skills: ['${HOME}/x']", "`${HOME}` is not an engine variable"),
        ("skills: [one, two]", "two skills are named `same`"),
        ("skills: skills", "`skills`"),
    ] {
        let sandbox = sandbox(keys, "- say: done\n");
        sandbox.write("outside/skill/SKILL.md", skill("skill", "x"));
        sandbox.write("agent/one/same/SKILL.md", skill("same", "x"));
        sandbox.write("agent/two/same/SKILL.md", skill("same", "y"));
        fs::create_dir(sandbox.path("agent/linked")).unwrap();
        let link = sandbox.path("agent/linked/skill");
        std::os::unix::fs::symlink("../../outside/skill", link).unwrap();
        let errors = refused(&sandbox);
        assert!(errors.contains(message), "{keys}: {errors}");
    }
    // The operator allows more, as for imports; `skill.md` and CRLF count too.
    let sandbox = sandbox("skills: [../outside, '${AGENT_HOME}/one/', two]", "- say: done\n");
    sandbox.write("elsewhere/linked/SKILL.md", skill("linked", "x"));
    fs::create_dir(sandbox.path("agent/two")).unwrap();
    std::os::unix::fs::symlink("../../elsewhere/linked", sandbox.path("agent/two/linked")).unwrap();
    sandbox.write("outside/crlf/skill.md", skill("crlf", "x").replace('\n', "\r\n"));
    sandbox.write("agent/one/same/SKILL.md", skill("same", "x"));
    let allowed = ["outside", "elsewhere"].map(|dir| sandbox.path(dir).display().to_string());
    let run = sandbox.run_command("go", &[]).env("DELTA_IMPORT_PATH", allowed.join(":"));
    run.output().expect_code(0);
    let list = tools(&sandbox)[0]["function"]["parameters"]["properties"]["name"]["enum"].clone();
    assert_eq!(list, json!(["crlf", "same", "linked"]));
}

#[test]
fn c_24_2_a_tool_of_the_same_name_is_an_error() {
    let sandbox = Sandbox::scripted(DELTA, "  - {name: skill, exec: date}\n", "- say: done\n");
    let main = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("{main}skills: [skills]\n"));
    sandbox.write("agent/skills/a/SKILL.md", skill("a", "x"));
    let errors = refused(&sandbox);
    assert!(errors.contains("two tools are named `skill`"), "{errors}");
}

#[test]
fn c_24_2_no_link_makes_a_skill_of_a_file_outside_of_the_workspace() {
    for (link, target) in
        [(".agents/skills", ""), (".agents", "/.."), (".agents/skills/out", "/out")]
    {
        let sandbox = sandbox("skills: ['${CWD}/.agents/skills']", "- say: done\n");
        sandbox.write("elsewhere/skills/out/SKILL.md", skill("out", "A secret"));
        sandbox.write("work/shared/in/SKILL.md", skill("in", "A link in the workspace"));
        std::fs::create_dir_all(sandbox.path("work").join(link).parent().unwrap()).unwrap();
        let target = format!("{}{target}", sandbox.path("elsewhere/skills").display());
        std::os::unix::fs::symlink(target, sandbox.path("work").join(link)).unwrap();
        if link.ends_with("out") {
            let inside = sandbox.path("work/.agents/skills/in");
            std::os::unix::fs::symlink("../../shared/in", inside).unwrap();
        }
        let ran = sandbox.run("go", &["--project-skills"]).expect_code(0);
        let warning = "/out: a symlink leads out of the workspace; the skill is not offered\n";
        assert!(ran.stderr.contains(warning), "{link}: {}", ran.stderr);
        let first = messages(&sandbox, 1).to_string();
        assert!(!first.contains("A secret"), "{link}");
        assert_eq!(first.contains("A link in the workspace"), link.ends_with("out"), "{first}");
    }
}

/// Other programs have keys of their own, and read their values to the ends of the lines.
#[test]
fn c_24_2_a_mistake_in_another_value_leaves_no_skill_of_a_workspace_out() {
    let front = [
        ("brackets", "argument-hint: [action] [args]"),
        ("at", "argument-hint: [spec content, @file, ...]"),
        ("tabs", "metadata:\n\tx: y"),
    ];
    let sandbox = sandbox("skills: ['${CWD}/.agents/skills']", "- say: done\n");
    for (name, more) in front {
        let text =
            format!("---\nname: {name}\n{more}\ndescription: What\n  {name} is: for\n---\nx\n");
        sandbox.write(&format!("work/.agents/skills/{name}/SKILL.md"), text);
    }
    let ran = sandbox.run("go", &["--project-skills"]).expect_code(0);
    let first = messages(&sandbox, 1).to_string();
    for (name, _) in front {
        assert!(first.contains(&format!("What {name} is: for")), "{first}");
        assert!(ran.stderr.contains(&format!("/{name}/SKILL.md:")), "{}", ran.stderr);
    }
}

/// An agent with a skill of its own, and a workspace with others: one good, one of the same name, some doubtful.
fn project(turns: &str) -> Sandbox {
    let sandbox = sandbox("skills: [skills, '${CWD}/.agents/skills']", turns);
    sandbox.write("agent/skills/mine/SKILL.md", skill("mine", "of the author"));
    for (dir, text) in [
        ("deploy", skill("deploy", "Deploy it")),
        ("mine", skill("mine", "of the project")),
        ("renamed", skill("old-name", "Still fine")),
        ("extra", "---\nname: extra\ndescription: ok\nmodel: gpt\n---\nx\n".to_owned()),
        ("long", skill("long", &"é".repeat(1030))),
        ("broken", "no front matter\n".to_owned()),
        ("bad name", skill("bad name", "x")),
    ] {
        sandbox.write(&format!("work/.agents/skills/{dir}/SKILL.md"), text);
    }
    sandbox.write("work/.agents/skills/notes/README.md", "not a skill");
    sandbox
}

#[test]
fn c_24_2_skills_of_a_workspace_are_offered_only_if_the_operator_allows_it() {
    let turns = "- call: [{tool: skill, args: {name: deploy}}]\n- say: done\n- say: done\n";
    let sandbox = project(turns);
    let ran = sandbox.run("go", &[]).expect_code(0);
    assert!(ran.stderr.contains("Note: 5 skills of the workspace, not offered"), "{}", ran.stderr);
    assert!(ran.stderr.contains("`--project-skills` offers them"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("Warning: "), "{}", ran.stderr);
    assert!(sandbox.observations()[0].contains("mine"), "{}", sandbox.observations()[0]);
    assert!(!messages(&sandbox, 1).to_string().contains("deploy"));

    let sandbox = project(turns);
    let ran = sandbox.run("go", &["--project-skills"]).normal(&sandbox).expect_code(0);
    let list = tools(&sandbox)[0]["function"]["parameters"]["properties"]["name"]["enum"].clone();
    assert_eq!(list, json!(["mine", "deploy", "extra", "long", "renamed"]));
    assert!(sandbox.observations()[0].starts_with("Do deploy.\n"), "{}", sandbox.observations()[0]);
    let skills = "DIR/work/.agents/skills";
    for warning in [
        format!("Warning: {skills}/renamed/SKILL.md:2: the skill `old-name` is in the directory `renamed`\n"),
        format!("Warning: {skills}/long/SKILL.md:3: `description` has 1030 characters, more than 1024\n"),
        format!("Warning: {skills}/broken/SKILL.md: the skill has no front matter; the skill is not offered: begin the file with a line `---`, `name:` and `description:`, and another line `---`\n"),
        format!("Warning: {skills}/bad name/SKILL.md:2: `bad name` is not the name of a skill; the skill is not offered: use 1 to 64 lower-case letters, digits and single hyphens between them\n"),
        "Warning: the skill `mine` in ${CWD}/.agents/skills is not offered: ${AGENT_HOME}/skills has one of that name\n".to_owned(),
    ] {
        assert!(ran.stderr.contains(&warning), "{warning}{}", ran.stderr);
    }
    assert!(
        ran.stderr.contains(&format!("Warning: {skills}/extra/SKILL.md:4: ")),
        "{}",
        ran.stderr
    );
    let first = messages(&sandbox, 1).to_string();
    assert!(first.contains(&"é".repeat(1024)) && !first.contains(&"é".repeat(1025)));
    // A process that continues the run needs the permission again.
    let next = ["continue", "r", "-w", "work", "-m", "more"];
    let ran = sandbox.delta(next).output().expect_code(0);
    assert!(ran.stderr.contains("Note: 5 skills of the workspace, not offered"), "{}", ran.stderr);
}

#[test]
fn c_24_2_config_yaml_allows_the_skills_below_a_directory() {
    let sandbox = project("- say: done\n");
    let config = "home/.config/delta/config.yaml";
    let place = sandbox.path("work").display().to_string();
    for (dir, is_offered) in [
        (place.as_str(), true),
        ("/", true),
        ("/nowhere", false),
        (&format!("{place}/.agents"), false),
    ] {
        sandbox.write(config, format!("project_skills: ['{dir}']\n"));
        let list = ["skill", "list", "--agent", "agent", "-w", "work", "--format", "json"];
        let skills = sandbox.delta(list).output().expect_code(0).json();
        assert_eq!(skills.as_array().unwrap().len(), if is_offered { 5 } else { 1 }, "{dir}");
    }
    sandbox.write(config, "project_skills: [work]\n");
    let ran = sandbox.run("go", &[]).expect_code(126);
    assert!(ran.stderr.contains("expected an absolute path, found `work`"), "{}", ran.stderr);
    sandbox.write(config, "project_skills: [/src]\n");
    let config = sandbox.delta(["config"]).output().expect_code(0).stdout;
    assert!(
        config.lines().any(|line| line.starts_with("project_skills") && line.contains("/src")),
        "{config}"
    );
}

#[test]
fn c_24_2_skill_list_and_show_print_what_the_llm_gets() {
    let sandbox = with_skill("- say: done\n");
    let list = sandbox.delta(["skill", "list", "--agent", "agent"]).output().normal(&sandbox);
    list.expect(
        0,
        "release-notes\n  Write release notes <fast> & well. Use it before a release.\n  DIR/agent/skills/release-notes/SKILL.md\n",
        "",
    );
    let by_agent = sandbox.delta(["skill", "show", "--agent", "agent", "release-notes"]).output();
    let by_dir = sandbox.delta([
        "skill",
        "show",
        "--in",
        "nowhere",
        "--in",
        "agent/skills",
        "release-notes",
    ]);
    assert!(by_agent.stdout.starts_with("# Release notes\n"), "{}", by_agent.stdout);
    let by_dir = by_dir.output().expect_code(0).stdout;
    assert_eq!(by_dir.lines().next(), by_agent.stdout.lines().next());
    let missing = sandbox.delta(["skill", "show", "--agent", "agent", "nothing"]).output();
    let missing = missing.normal(&sandbox).expect_code(1).stderr;
    assert_eq!(
        missing,
        "error: there is no skill `nothing` in DIR/agent/skills\nhelp: the agent has release-notes\n"
    );
    let path = sandbox.delta(["skill", "show", "--in", "agent/skills", "../../agent"]).output();
    assert!(path.expect_code(1).stderr.contains("`../../agent` is not the name of a skill"));
    let both = ["skill", "show", "--in", "x", "--agent", "agent", "a"];
    sandbox.delta(both).output().expect_code(2);
}

#[test]
fn c_24_2_a_skill_lists_at_most_200_files() {
    let sandbox = with_skill("- say: done\n");
    for number in 0..201 {
        sandbox.write(&format!("agent/skills/release-notes/data/{number:03}.txt"), "");
    }
    let show = ["skill", "show", "--agent", "agent", "release-notes"];
    let text = sandbox.delta(show).output().expect_code(0).stdout;
    assert!(text.ends_with("- data/199.txt\n[2 more files]\n"), "{text}");
}

/// `delta test` and `delta context preview` see the skills, too.
#[test]
fn c_24_2_tests_and_previews_have_the_skills() {
    let sandbox = with_skill("- say: unused\n");
    let test = "task: x\nllm:\n  turns:\n    - call: [{tool: skill, args: {name: release-notes}}]\n    - say: done\nexpect: {result: done}\n";
    sandbox.write("agent/tests/loads.yaml", test);
    sandbox.delta(["test", "agent"]).output().expect_code(0);
    let preview = ["context", "preview", "--agent", "agent", "-m", "x", "--format", "json"];
    let preview = sandbox.delta(preview).output().expect_code(0).json();
    let blocks = preview["blocks"].as_array().unwrap();
    assert!(blocks.iter().any(|block| block["type"] == "skills"), "{preview}");
}

/// The reference implementation accepts what delta accepts, in a workspace without a problem.
#[test]
fn c_24_2_the_reference_implementation_validates_a_skill() {
    let sandbox = with_skill("- say: done\n");
    let Some(bin) = needs::python_env("skills-ref") else { return };
    let validator = bin.join("agentskills");
    let validate = |dir: &Path| {
        let mut command = std::process::Command::new(&validator);
        command.arg("validate").arg(dir).output().unwrap()
    };
    let valid = validate(&sandbox.path("agent/skills/release-notes"));
    assert!(valid.status.success(), "{}", String::from_utf8_lossy(&valid.stderr));
    sandbox.write("agent/skills/other/SKILL.md", skill("another", "x"));
    assert!(!validate(&sandbox.path("agent/skills/other")).status.success());
}
