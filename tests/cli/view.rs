//! `delta view`: a run as one page, what is in it, and what it does in a real browser.

use super::DELTA;
use browser::Browser;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

mod approvals;
pub mod browser;
mod follow;
mod forks;
mod markdown;
mod parallel_calls;
mod phone;
mod sweep_page;

const TOOLS: &str = "  - name: note\n    shell: echo noted ${text}\n  - {name: keep, exec: \"sh -c 'cat; echo warned >&2; exit 3'\", stdin: text}\n";

fn view(sandbox: &Sandbox, more: &[&str]) -> Ran {
    sandbox.delta(["view", "r", "-w", "work"].iter().chain(more).copied()).output()
}

/// The data of the page `r.html`.
fn data(sandbox: &Sandbox) -> Value {
    let page = sandbox.read("r.html");
    let start = "<script type=\"application/json\" id=\"data\">";
    let text = page.split_once(start).unwrap().1.split_once('<').unwrap().0;
    serde_json::from_str(text).unwrap()
}

/// A journal of `count` iterations, of each of which the text and the output have its number in words of their own.
fn write_long_run(sandbox: &Sandbox, count: usize) {
    let at = |n: usize| format!("2026-01-01T{:02}:{:02}:00.000Z", n / 60 % 24, n % 60);
    let mut events = vec![
        json!({"type": "ENGINE_START", "run_id": "r", "epoch": 1, "agent_home": "/a", "agent_name": "long", "work_dir": "/w",
            "workspace_id": "w", "max_iterations": 9999, "config": {}, "pid": 1, "hostname": "h", "start_time_unix": 0,
            "process_name": "delta", "engine_version": "0"}),
        json!({"type": "USER_MESSAGE", "content": "the task"}),
    ];
    for n in 1..=count {
        let id = format!("call_{n}");
        let asked = json!({"id": id, "type": "function", "function": {"name": "t", "arguments": "{\"n\":1}"}});
        let usage =
            json!({"model": "m", "input_tokens": n, "cached_input_tokens": 0, "output_tokens": 3});
        events.push(json!({"type": "THOUGHT", "iteration": n, "content": format!("thinking-{n}-done"), "tool_calls": [asked], "usage": usage}));
        events.push(json!({"type": "ACTION_REQUEST", "iteration": n, "call_id": id, "tool_name": "t", "tool_args": {"n": 1}, "argv": ["t"]}));
        events.push(json!({"type": "ACTION_RESULT", "iteration": n, "call_id": id, "tool_name": "t", "exit_code": 0,
            "observation_content": format!("{}output-{n}-end\n", "a line\n".repeat(n % 40)), "duration_ms": 5}));
    }
    events.push(json!({"type": "ENGINE_END", "run_id": "r", "status": "INTERRUPTED", "final_iteration": count}));
    let line = |(index, event): (usize, &mut Value)| {
        event["seq"] = (index + 1).into();
        event["timestamp"] = at(index).into();
        format!("{event}\n")
    };
    let text: String = events.iter_mut().enumerate().map(line).collect();
    sandbox.write("work/.delta/r/journal.jsonl", text);
}

#[test]
fn c_18_1_the_page_holds_what_the_journal_and_the_records_say() {
    let turns = "- say: looking\n  call: [{tool: note, args: {text: a}}, {tool: keep, args: {text: \"in\\n\"}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.run("the task", &[]).expect_code(0);
    view(&sandbox, &[]).expect_code(0).expect(0, "r.html\n", "");
    assert_eq!(sandbox.path("r.html").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let data = data(&sandbox);
    let run = &data["runs"][0];
    assert_eq!(
        (data["roots"].clone(), run["id"].clone(), run["status"].clone()),
        (json!([0]), json!("r"), json!("COMPLETED"))
    );
    assert_eq!(
        (&run["task"], &run["notes"], &run["parent"]),
        (&json!("the task"), &json!([]), &Value::Null)
    );
    let shown = sandbox.delta(["show", "r", "-w", "work", "--format", "json"]).output().json();
    assert_eq!(run["result"]["result"], shown["result"]);
    let [first, second] = &run["iterations"].as_array().unwrap()[..] else {
        panic!("two iterations")
    };
    assert_eq!((&first["thought"], &second["thought"]), (&json!("looking"), &json!("done")));
    for (event, kind) in
        first["before"].as_array().unwrap().iter().zip(["ENGINE_START", "USER_MESSAGE"])
    {
        assert_eq!(event["type"], kind);
    }
    assert_eq!(run["rest"][0]["type"], "ENGINE_END");
    let [note, keep] = &first["calls"].as_array().unwrap()[..] else { panic!("two calls") };
    let requests = sandbox.events("ACTION_REQUEST");
    for (call, request) in [note, keep].into_iter().zip(&requests) {
        assert_eq!(
            (&call["args"], &call["argv"], &call["id"]),
            (&request["tool_args"], &request["argv"], &request["call_id"])
        );
    }
    assert_eq!(note["result"]["seen"], json!({"text": "noted a\n"}));
    assert_eq!(
        (&note["io"]["stdout"], &note["io"]["file"]),
        (&Value::Null, &requests[0]["execution"])
    );
    assert_eq!(
        (
            &keep["io"]["stdin"]["text"],
            &keep["io"]["stdout"]["text"],
            &keep["io"]["stderr"]["text"]
        ),
        (&json!("in\n"), &json!("in\n"), &json!("warned\n"))
    );
    assert_eq!(
        (&keep["result"]["exit_code"], &keep["result"]["seen"]["text"]),
        (&json!(3), &json!("in\n[stderr]\nwarned\n[exit code: 3]"))
    );
    let blocks: Vec<&str> = second["llm"]["record"]["context"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["source"].as_str().unwrap())
        .collect();
    assert_eq!(blocks, ["system_prompt.md", "journal"]);
}

#[test]
fn c_18_1_outputs_of_any_size_and_kind_are_in_the_page_or_named_there() {
    let tools = "  - name: big\n    shell: seq 1 200000\n  - {name: bytes, shell: 'printf \"a\\\\377\\\\000b\"'}\n";
    let sandbox =
        Sandbox::scripted(DELTA, tools, "- call: [{tool: big}, {tool: bytes}]\n- say: done\n");
    sandbox.run("task", &[]).expect_code(0);
    view(&sandbox, &["--no-requests"]).expect_code(0);
    let data = data(&sandbox);
    let calls = &data["runs"][0]["iterations"][0]["calls"];
    let big = &calls[0]["io"]["stdout"];
    assert!(big["text"].as_str().unwrap().starts_with("1\n2\n3\n"));
    assert!(big["tail"].as_str().unwrap().ends_with("\n199999\n200000\n"));
    assert_eq!(big["bytes"], 1_288_895);
    assert_eq!(
        sandbox.read(&format!("work/.delta/r/{}", big["file"].as_str().unwrap())).len(),
        1_288_895
    );
    assert_eq!(data["runs"][0]["texts"], json!([]), "no requests");
    let seen = calls[1]["result"]["seen"]["text"].as_str().unwrap();
    assert!(seen.starts_with("[binary output: 4 bytes, "), "{seen:?}");
    assert!(sandbox.path("r.html").metadata().unwrap().len() < 600_000);
}

#[test]
fn c_18_2_every_request_stands_there_byte_for_byte_and_each_message_once() {
    if !needs::browser() {
        return;
    }
    let tools = "  - name: big\n    shell: head -c 60000 /dev/zero | tr '\\0' x; echo ${n}\n    max_output_bytes: 100000\n";
    let mut left = 9;
    let server = ScriptedServer::start(move |_: &RecordedRequest| {
        left -= 1;
        match left {
            0 => Answer::text("done"),
            n => Answer::call("big", json!({"n": n.to_string()})),
        }
    });
    let sandbox = Sandbox::asking(DELTA, &server.url(), tools);
    sandbox.run("go", &[]).expect_code(0);
    view(&sandbox, &[]).expect_code(0);
    let mut browser = Browser::start();
    browser.open(&sandbox.path("r.html"), "");
    let sent = server.requests();
    // The last one first, so that none leans on what was made for another.
    for (index, request) in sent.iter().enumerate().rev() {
        let text = browser.value(&format!("exactText(run, run.requests[{index}])"));
        assert!(text.as_str().unwrap().as_bytes() == request.bytes, "request {}", index + 1);
    }
    assert_eq!(browser.value("run.requests.every(request => request.is_exact)"), true);
    let (page, all) = (
        sandbox.path("r.html").metadata().unwrap().len(),
        sent.iter().map(|one| one.bytes.len()).sum::<usize>(),
    );
    assert!(page < all as u64 / 2, "{page} bytes for {all} sent");
}

#[test]
fn c_18_3_no_text_of_a_run_becomes_code_and_no_request_leaves_the_page() {
    if !needs::browser() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let away = format!("http://{}", listener.local_addr().unwrap());
    let hostile = format!(
        "</script><script>window.probe=1;document.title='taken'</script><!--<script>\n<img src={away}/a onerror=window.probe=2>\
         <link rel=stylesheet href={away}/b><iframe srcdoc='<script>parent.probe=3</script>'></iframe>\n<svg onload=window.probe=4>\
         [x](javascript:window.probe=5) &lt;b&gt; ]]> \u{2028}\u{2029}\u{202e}gnp.exe\u{202c} \u{1b}]0;taken\u{7}\u{1b}[31mred\u{1b}[0m\u{0}\u{9b}2J \\u003c \"'`"
    );
    let mut left = 2;
    let say = hostile.clone();
    let server = ScriptedServer::start(move |_: &RecordedRequest| {
        left -= 1;
        match left {
            0 => Answer::text(&say),
            _ => Answer::call("echo", json!({"text": say.replace('\0', "")})),
        }
    });
    let sandbox =
        Sandbox::asking(DELTA, &server.url(), "  - {name: echo, exec: cat, stdin: text}\n");
    sandbox.run(&hostile.replace('\0', ""), &[]).expect_code(0);
    view(&sandbox, &[]).expect_code(0);
    let page = sandbox.read("r.html");
    assert_eq!(page.matches("<script").count(), 2, "the data and the page's own");
    let shown = &data(&sandbox)["runs"][0]["iterations"][1]["thought"];
    assert_eq!(shown, hostile.as_str(), "nothing of it is lost");
    let mut browser = Browser::start();
    browser.open(&sandbox.path("r.html"), "#i1-c1");
    browser.value("document.querySelectorAll('article').forEach(fill); document.querySelectorAll('details').forEach(one => { one.open = true; if (one.fill) one.fill(); })");
    browser.settle();
    assert_eq!(
        browser.value("[document.title, typeof window.probe]"),
        json!(["test-agent · r · delta", "undefined"])
    );
    assert_eq!(browser.value("document.querySelectorAll('img,iframe,link,#timeline script,#timeline svg,a[href^=\"javascript:\"]').length"), 0);
    let text = browser.value("document.querySelector('#i2 .said .t').textContent");
    let text = text.as_str().unwrap();
    assert!(
        text.contains(
            "<script>window.probe=1;document.title='taken'</script><!--<script>\n<img src="
        ),
        "{text}"
    );
    assert!(text.contains("U+202Egnp.exeU+202C ^[]0;taken^Gred^@U+009B2J \\u003c \"'`"), "{text}");
    let own = format!("file://{}#i1-c1", sandbox.path("r.html").display());
    let asked: Vec<&str> = browser.requests();
    assert_eq!(asked, [own.split('#').next().unwrap()]);
    // Even code that got into the page could neither run as an element nor reach anybody.
    let tried = format!(
        "(async () => {{ const code = document.createElement('script'); code.textContent = 'window.probe = 6'; document.body.append(code);\
         const image = new Image(); image.src = '{away}/c'; document.body.append(image);\
         const how = await fetch('{away}/d').then(() => 'reached', () => 'refused'); return [how, typeof window.probe]; }})()"
    );
    assert_eq!(browser.value(&tried), json!(["refused", "undefined"]));
    assert!(listener.accept().is_err(), "nobody came");
}

#[test]
fn c_18_4_sensitive_answers_are_hidden_in_all_of_the_page() {
    let turns = "- call: [{tool: ask_human, args: {prompt: \"Token?\", input_type: password, sensitive: true}}]\n\
                 - call: [{tool: ask_human, args: {prompt: \"PIN?\", sensitive: true}}]\n\
                 - call: [{tool: note, args: {text: \"with s3cret-\\\"word in it\"}}]\n- say: done with s3cret-\"word\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.run("the task", &[]).expect_code(101);
    for answer in ["s3cret-\"word", "731"] {
        sandbox.delta(["continue", "r", "-w", "work", "-m", answer]).output();
    }
    view(&sandbox, &[]).expect_code(0);
    let page = sandbox.read("r.html");
    assert!(sandbox.read("work/.delta/r/journal.jsonl").contains("s3cret"));
    assert!(!page.contains("s3cret") && !page.contains("731\\\""), "an answer is in the page");
    let data = data(&sandbox);
    let call = |n: usize| data["runs"][0]["iterations"][n]["calls"][0].clone();
    for n in 0..2 {
        assert_eq!(
            (&call(n)["answer"], &call(n)["result"]["seen"]["text"]),
            (&json!("[hidden]"), &json!("[hidden]"))
        );
    }
    assert_eq!(call(2)["args"]["text"], "with [hidden] in it");
    assert_eq!(
        (&data["runs"][0]["hides"], &data["runs"][0]["iterations"][3]["thought"]),
        (&json!(true), &json!("done with [hidden]"))
    );
}

#[test]
fn c_18_5_a_run_that_a_tool_starts_is_a_child_and_the_page_follows_it() {
    let tools = "  - {name: delegate, shell: \"delta run --agent ../inner -w . --run-id ${id} -q --format raw -m go\"}\n";
    let turns = "- call: [{tool: delegate, args: {id: one}}, {tool: delegate, args: {id: two}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.write("bin/.keep", "");
    std::os::unix::fs::symlink(DELTA, sandbox.path("bin/delta")).unwrap();
    sandbox.write(
        "inner/agent.yaml",
        "name: inner\nllm: {provider: script, model: script.yaml}\ntools: []\n",
    );
    sandbox.write("inner/script.yaml", "turns: [{say: inside}]\n");
    sandbox.write("inner/system_prompt.md", "You are inside.\n");
    sandbox.write("inner/context.yaml", test_support::sandbox::CONTEXT);
    let path = format!("{}:{}", sandbox.path("bin").display(), std::env::var("PATH").unwrap());
    sandbox.run_command("task", &["-q"]).env("PATH", path).output().expect_code(0);
    let calls = sandbox.events("ACTION_REQUEST");
    let run_dir = |id: &str| sandbox.path(&format!("work/.delta/{id}")).display().to_string();
    let lines = sandbox.read("work/.delta/r/children.jsonl");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let child = |n: usize, id: &str| json!({"run_id": id, "run_dir": run_dir(id), "call_id": calls[n]["call_id"]});
    assert_eq!(lines, [child(0, "one"), child(1, "two")]);
    let mode =
        sandbox.path("work/.delta/r/children.jsonl").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let begun: Value =
        serde_json::from_str(sandbox.read("work/.delta/one/journal.jsonl").lines().next().unwrap())
            .unwrap();
    assert_eq!(
        begun["parent"],
        json!({"run_id": "r", "call_id": calls[0]["call_id"], "run_dir": run_dir("r")})
    );
    assert_eq!(sandbox.events("ENGINE_START")[0].get("parent"), None);
    // Of its children one is gone, and a line of the other names a run that was not begun inside it.
    std::fs::remove_dir_all(sandbox.path("work/.delta/two")).unwrap();
    let stranger = json!({"run_id": "r", "run_dir": run_dir("r"), "call_id": null});
    sandbox.write("work/.delta/one/children.jsonl", format!("{stranger}\nno json\n"));
    let ids = |more: &[&str]| -> Vec<Value> {
        view(&sandbox, more).expect_code(0);
        let page = data(&sandbox);
        page["runs"].as_array().unwrap().iter().map(|run| run["id"].clone()).collect()
    };
    assert_eq!(ids(&["one", "-o", "r.html"]), ["r", "one"]);
    assert_eq!(ids(&[]), ["r", "one"]);
    let data = data(&sandbox);
    let children = data["runs"][0]["children"].as_array().unwrap();
    assert_eq!(children.len(), 2);
    assert_eq!((&children[0]["run"], &children[1]["run"]), (&json!(1), &Value::Null));
    assert_eq!(
        (&data["runs"][1]["children"][0]["run"], &data["runs"][1]["iterations"][0]["thought"]),
        (&Value::Null, &json!("inside"))
    );
    if !needs::browser_for_part() {
        return;
    }
    let mut browser = Browser::start();
    browser.open(&sandbox.path("r.html"), "#one:i1");
    browser.settle();
    assert_eq!(browser.value("[run.id, document.querySelector('#i1 .said .t').textContent, document.querySelectorAll('.tree a').length]"), json!(["one", "inside", 2]));
    browser.value("document.querySelector('#side .path a').click()");
    browser.settle();
    assert_eq!(
        browser.value("[run.id, location.hash, ...[...document.querySelectorAll('.tree .gone')].map(one => one.textContent)]"),
        json!(["r", "", "r (not found)", "two (not found)"])
    );
    let figures = browser.value("document.querySelector('.figures').textContent");
    assert!(figures.as_str().unwrap().contains("cost with 1 child run"), "{figures}");
}

#[test]
fn c_18_5_a_parent_that_cannot_be_told_fails_no_run() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    sandbox.run("task", &[]).expect_code(0);
    sandbox.write("work/.delta/r/children.jsonl/in-the-way", "");
    let run_dir = sandbox.path("work/.delta/r");
    let begin = |id: &str, run_dir: &std::path::Path| {
        let args = ["run", "--agent", "agent", "-w", "work", "--run-id", id, "-m", "task"];
        sandbox
            .delta(args)
            .env("DELTA_RUN_ID", "r")
            .env("RUN_DIR", run_dir)
            .output()
            .expect_code(0)
            .stderr
    };
    assert!(
        begin("a", &run_dir).contains("! could not register with parent run r: could not write")
    );
    let told = begin("b", &sandbox.path("work"));
    assert!(!told.contains("could not register"), "{told}");
    assert!(!sandbox.read("work/.delta/b/journal.jsonl").contains("\"parent\""));
}

#[test]
fn c_18_6_a_killed_run_and_a_damaged_one_are_shown_as_far_as_they_go() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let tools = "  - name: die\n    shell: echo before; kill -KILL \"$(jq .pid \"$RUN_DIR/metadata.json\")\"; exec sleep 60\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- say: now\n  call: [{tool: die}]\n");
    assert_eq!(sandbox.run("task", &[]).code, -1, "it was killed");
    view(&sandbox, &[]).expect_code(0);
    let page = data(&sandbox);
    let run = &page["runs"][0];
    assert_eq!(run["status"], "KILLED");
    let call = &run["iterations"][0]["calls"][0];
    assert_eq!((&call["result"], call["io"]["missing"].is_string()), (&Value::Null, true));
    assert!(run["notes"][0].as_str().unwrap().contains("its process was killed"), "{run}");
    let mut browser = needs::browser_for_part().then(Browser::start);
    if let Some(browser) = &mut browser {
        browser.open(&sandbox.path("r.html"), "");
        browser.settle();
        let shown = browser.value("document.body.innerText");
        let shown = shown.as_str().unwrap();
        assert!(shown.contains("its process was killed") && shown.contains("no result"), "{shown}");
    }
    // Its journal is damaged in the middle, and its records are gone.
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    let damaged = journal.replacen("\"ACTION_REQUEST\"", "\"ACTION\"", 1) + "{}\n";
    sandbox.write("work/.delta/r/journal.jsonl", damaged);
    std::fs::remove_dir_all(sandbox.path("work/.delta/r/io")).unwrap();
    view(&sandbox, &[]).expect_code(0);
    let page = data(&sandbox);
    let run = &page["runs"][0];
    let note = run["notes"][0].as_str().unwrap();
    assert!(
        note.contains("is damaged at line 4") && note.ends_with("; later lines are not shown"),
        "{note}"
    );
    assert_eq!(
        (&run["iterations"][0]["thought"], run["iterations"][0]["llm"]["missing"].is_string()),
        (&json!("now"), true)
    );
    if let Some(browser) = &mut browser {
        browser.open(&sandbox.path("r.html"), "");
        browser.settle();
        assert_eq!(browser.value("document.querySelectorAll('article').length"), 1);
    }
    sandbox.write("work/.delta/r/journal.jsonl", "");
    view(&sandbox, &[]).expect_code(0);
    let page = data(&sandbox);
    assert_eq!(page["runs"][0]["status"], "UNREADABLE");
    let note = page["runs"][0]["notes"][0].as_str().unwrap();
    assert!(note.contains("journal.jsonl contains no complete event"), "{note}");
}

#[test]
fn c_18_6_a_run_that_goes_on_is_shown_as_it_stands() {
    if !needs::browser() {
        return;
    }
    let tools = "  - name: wait\n    shell: echo half; while ! test -e go; do sleep 0.01; done\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: wait}]\n- say: the end\n");
    let run = sandbox.run_command("task", &["-q"]).spawn();
    let journal = sandbox.path("work/.delta/r/journal.jsonl");
    while !std::fs::read_to_string(&journal).unwrap_or_default().contains("ACTION_REQUEST") {
        std::thread::yield_now();
    }
    view(&sandbox, &[]).expect_code(0);
    sandbox.write("work/go", "");
    assert!(run.wait_with_output().unwrap().status.success());
    let page = data(&sandbox);
    assert_eq!(
        (&page["runs"][0]["status"], &page["runs"][0]["notes"]),
        (&json!("RUNNING"), &json!([]))
    );
    let mut browser = Browser::start();
    browser.open(&sandbox.path("r.html"), "");
    browser.settle();
    let shown = browser.value("document.body.innerText");
    assert!(
        shown.as_str().unwrap().contains("This run is still active. The page shows it as of 20"),
        "{shown}"
    );
    view(&sandbox, &[]).expect_code(0);
    assert_eq!(
        data(&sandbox)["runs"][0]["status"],
        "COMPLETED",
        "a page is replaced by a newer one"
    );
}

#[test]
fn c_18_7_links_search_and_keys_lead_to_their_places() {
    if !needs::browser() {
        return;
    }
    let sandbox = Sandbox::new(DELTA);
    write_long_run(&sandbox, 600);
    view(&sandbox, &[]).expect_code(0);
    let mut browser = Browser::start();
    browser.open(&sandbox.path("r.html"), "#i412-c1");
    browser.settle();
    let place = "(id => { const area = document.getElementById(id).getBoundingClientRect(); return area.top >= 40 && area.top < 400; })";
    assert_eq!(browser.value(&format!("{place}('i412-c1')")), true);
    assert_eq!(browser.value("document.querySelector('#i412-c1 details').open"), true);
    assert_eq!(browser.value("articles.length"), 600);
    let drawn = browser.value("articles.filter(one => one.filled).length").as_u64().unwrap();
    assert!(drawn < 100, "{drawn} of 600 were drawn, of which one was asked for");
    browser.press("j", "j");
    browser.settle();
    assert_eq!(browser.value("location.hash"), "#i413");
    assert_eq!(browser.value(&format!("{place}('i413')")), true);
    browser.press("/", "/");
    for letter in "OUTPUT-57-end".chars() {
        browser.press(&letter.to_string(), &letter.to_string());
    }
    browser.press("Enter", "\r");
    browser.settle();
    assert_eq!(browser.value("document.getElementById('count').textContent"), "1 / 1");
    assert_eq!(browser.value(&format!("{place}('i57-c1') || {place}('i57')")), true);
    assert_eq!(browser.value("[...CSS.highlights.get('hit')][0].toString()"), "output-57-end");
    browser.value(
        "document.getElementById('query').value = 'thinking-59'; search(); step(1); step(1);",
    );
    assert_eq!(browser.value("document.getElementById('count').textContent"), "2 / 11");
    browser.value("document.getElementById('query').value = 'not there at all'; search()");
    assert_eq!(browser.value("document.getElementById('count').textContent"), "no matches");
    browser.value("document.activeElement.blur()");
    let colour = "getComputedStyle(document.documentElement).backgroundColor";
    let before = browser.value(colour);
    browser.press("t", "t");
    assert_ne!(browser.value(colour), before, "dark or light");
}

#[test]
fn c_18_8_a_page_takes_the_place_of_pages_only() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    sandbox.run("task", &[]).expect_code(0);
    sandbox.write("r.html", "mine");
    let refused = "error: r.html already exists and was not written by `delta view`\nhelp: replace it with `-o r.html`, or name another file\n";
    view(&sandbox, &[]).expect(1, "", refused);
    assert_eq!(sandbox.read("r.html"), "mine");
    view(&sandbox, &["-o", "r.html"]).expect(0, "r.html\n", "");
    view(&sandbox, &[]).expect(0, "r.html\n", "");
    assert_eq!(sandbox.path("r.html").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let printed = view(&sandbox, &["-o", "-"]).expect_code(0).stdout;
    assert!(
        printed.starts_with("<!doctype html><!-- delta view -->\n")
            && printed.ends_with("</html>\n")
    );
    view(&sandbox, &["-o", "work"]).expect(
        1,
        "",
        "error: work is not a regular file\nhelp: name another with `-o FILE`\n",
    );
    let missing = sandbox.delta(["view", "r", "other", "-w", "work"]).output().expect_code(1);
    assert!(missing.stderr.starts_with("error: there is no run other in "), "{}", missing.stderr);
    sandbox
        .delta(["run", "--agent", "agent", "-w", "work", "--run-id", "other", "-m", "task"])
        .output()
        .expect_code(0);
    sandbox.delta(["view", "r", "other", "-w", "work", "-o", "both.html"]).output().expect_code(0);
    assert!(sandbox.read("both.html").contains("\"roots\":[0,1]"));
    sandbox.delta(["view", "-r", "work", "-o", "all.html"]).output().expect_code(0);
    assert!(sandbox.read("all.html").contains("\"roots\":[0,1]"));
    sandbox.delta(["view", "-r", "agent"]).output().expect_code(1);
}

#[test]
fn c_18_8_open_hands_the_page_to_the_desktop() {
    if !needs::browser() {
        return;
    }
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    sandbox.run("task", &[]).expect_code(0);
    sandbox.write_program(
        "bin/xdg-open",
        "#!/bin/sh\nprintf %s \"$1\" > opened.part; mv opened.part opened\n",
    );
    let open = |path: &str| {
        let command = sandbox.delta(["view", "r", "-w", "work", "--open"]).env("PATH", path);
        command.env("DISPLAY", ":0").output()
    };
    open(&format!("{}:/usr/bin:/bin", sandbox.path("bin").display())).expect(0, "r.html\n", "");
    while !sandbox.path("opened").exists() {
        std::thread::yield_now();
    }
    assert_eq!(sandbox.read("opened"), sandbox.path("r.html").display().to_string());
    let none = open(&sandbox.path("home").display().to_string()).expect_code(126);
    let expected = format!(
        "error: could not open a browser: could not find xdg-open or open\nhelp: open {} yourself\n",
        sandbox.path("r.html").display()
    );
    assert_eq!(none.stderr, expected);
}
