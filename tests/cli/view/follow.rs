//! The page of an active run: `delta view --follow` and `delta run --open`.

use super::super::DELTA;
use super::browser::Browser;
use super::{data, view};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr};
use test_support::sandbox::Sandbox;
use test_support::{needs, wait};

const TOOLS: &str = "  - name: wait\n    shell: echo half ${n}; while ! test -e go${n}; do sleep 0.01; done; echo end ${n}\n";

/// A run that waits in its first call, and then in its second, for a file in the workspace.
fn waiting_run() -> (Sandbox, Child) {
    let turns = format!(
        "- say: {}\n  call: [{{tool: wait, args: {{n: \"1\"}}}}]\n- say: \"**second**\"\n  call: [{{tool: wait, args: {{n: \"2\"}}}}]\n- say: the end\n",
        json!("first\n\n- a\n\n".repeat(40))
    );
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns);
    let run = sandbox.run_command("task", &["-q"]).spawn();
    wait_for_request(&sandbox, 1);
    (sandbox, run)
}

fn wait_for_request(sandbox: &Sandbox, count: usize) {
    let journal = sandbox.path("work/.delta/r/journal.jsonl");
    wait::until("the call", || {
        let text = std::fs::read_to_string(&journal).unwrap_or_default();
        (text.matches("\"ACTION_REQUEST\"").count() >= count).then_some(())
    });
}

/// `delta view --follow`, and the address that it prints.
fn follow(sandbox: &Sandbox, more: &[&str]) -> (Child, BufReader<ChildStderr>, String) {
    let args = ["view", "r", "-w", "work", "--follow"];
    let mut child = sandbox.delta(args.iter().chain(more).copied()).spawn();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("page: ").unwrap_or_else(|| panic!("{line}")).to_owned();
    (child, stderr, address)
}

/// The host and the token of an address.
fn parts(address: &str) -> (&str, &str) {
    address.strip_prefix("http://").unwrap().trim_end_matches('/').split_once('/').unwrap()
}

fn ask(host: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn c_18_10_the_page_follows_a_run_and_leaves_what_is_open_as_it_is() {
    if !needs::browser() {
        return;
    }
    let (sandbox, run) = waiting_run();
    let (mut child, _, address) = follow(&sandbox, &[]);
    let mut browser = Browser::start();
    browser.open_address(&address);
    browser.settle();
    let banner = "document.getElementById('live').textContent";
    assert!(browser.value(banner).as_str().unwrap().starts_with("This page follows the run; "));
    assert_eq!(
        browser.value(
            "[articles.length, run.status, callStatus(run.iterations[0].calls[0]).textContent]"
        ),
        json!([1, "RUNNING", "running"])
    );
    browser.value("document.querySelector('#i1-c1 details').open = true; document.querySelector('#i1 .req').open = true; document.querySelector('#i1 .said .all').click(); scrollTo(0, 500)");
    browser.settle();
    browser.value("window.side = [...document.querySelectorAll('#side > *')]; side.find(el => el.open === false).open = true; getSelection().selectAllChildren(side.find(el => el.className.includes('path')))");
    let selected = browser.value("getSelection().toString()");
    assert!(selected.as_str().unwrap().contains("work"), "{selected}");
    let place = "Math.round(document.querySelector('#i1-c1').getBoundingClientRect().top)";
    let before = browser.value(place);
    sandbox.write("work/go1", "");
    browser.wait_for("articles.length === 2 && run.iterations[1].calls[0].at");
    browser.settle();
    let open = "[document.querySelector('#i1-c1 details').open, document.querySelector('#i1 .req').open, document.querySelector('#i1 .said .all') === null]";
    assert_eq!(browser.value(open), json!([true, true, true]));
    assert_eq!(browser.value(place), before, "what is read does not move");
    // Of the sidebar, only what has changed is drawn again.
    assert_eq!(browser.value("getSelection().toString()"), selected);
    let same = "side.filter(el => el.isConnected).length === side.length && side.find(el => el.open) !== undefined";
    assert_eq!(browser.value(same), true);
    let tools = browser.value("document.querySelector('#side table tbody').innerText");
    assert!(tools.as_str().unwrap().starts_with("wait\t2\t0\t"), "{tools}");
    assert_eq!(
        browser.value("document.querySelector('#i1-c1 .more').textContent.includes('end 1')"),
        true
    );
    browser.value("fill(articles[1])");
    assert_eq!(browser.value("document.querySelector('#i2 .said strong').textContent"), "second");
    // What is complete is not drawn again.
    browser.value("window.kept = document.querySelector('#i1'); document.getElementById('query').value = 'half'; search()");
    sandbox.write("work/go2", "");
    browser.wait_for("liveEnd !== null");
    browser.value("articles.forEach(fill)");
    assert_eq!(browser.value("[kept === document.querySelector('#i1'), run.status, articles.length, document.querySelector('#bar .chip').textContent, document.querySelector('#i3 .who').textContent]"), json!([true, "COMPLETED", 3, "COMPLETED", "Result"]));
    assert_eq!(browser.value("document.getElementById('count').textContent"), "4");
    let saved = sandbox.path("r.html").canonicalize().unwrap();
    let expected =
        format!("The run has ended, and this page with it. It is saved as {}.", saved.display());
    assert_eq!(browser.value(banner), expected);
    assert_eq!(browser.value("[0, 1, 2].map(n => exactText(run, run.requests[n]).length === run.requests[n].bytes).join()"), "true,true,true");
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    assert_eq!((child.wait().unwrap().code(), stdout.as_str()), (Some(0), "r.html\n"));
    assert_eq!(data(&sandbox)["runs"][0]["status"], "COMPLETED");
    assert!(!sandbox.read("r.html").contains("connect-src"), "the file asks nobody");
    assert!(run.wait_with_output().unwrap().status.success());
    // Of a run that has ended there is nothing to follow.
    view(&sandbox, &["--follow"]).expect(0, "r.html\n", "");
}

#[test]
fn c_18_10_only_who_knows_the_address_gets_the_page() {
    let (sandbox, run) = waiting_run();
    let (mut child, _, address) = follow(&sandbox, &[]);
    let (host, token) = parts(&address);
    assert!(host.starts_with("127.0.0.1:") && token.len() == 32, "{address}");
    let get =
        |path: &str, headers: &str| ask(host, &format!("GET {path} HTTP/1.1\r\n{headers}\r\n"));
    let from = |name: &str| format!("Host: {name}\r\n");
    let page = get(&format!("/{token}/"), &from(host));
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{}", &page[..100]);
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    for header in
        ["Cache-Control: no-store", "Referrer-Policy: no-referrer", "X-Frame-Options: DENY"]
    {
        assert!(head.lines().any(|line| line == header), "{head}");
    }
    assert!(!head.contains("Access-Control") && body.contains("connect-src 'self';"));
    let status = |answer: &str| answer.lines().next().unwrap_or_default().to_owned();
    let port = host.split_once(':').unwrap().1;
    let refused = [
        (get(&format!("/{token}/"), &from("evil.example")), "421 Misdirected Request"),
        (
            get(&format!("/{token}/"), &from(&format!("evil.example:{port}"))),
            "421 Misdirected Request",
        ),
        (
            get(&format!("/{token}/"), &(from(host) + &from("evil.example"))),
            "421 Misdirected Request",
        ),
        (get(&format!("/{token}/"), ""), "421 Misdirected Request"),
        (get("/", &from(host)), "404 Not Found"),
        (get("//", &from(host)), "404 Not Found"),
        (get(&format!("/{}/", &token[..31]), &from(host)), "404 Not Found"),
        (get(&format!("/{token}0/"), &from(host)), "404 Not Found"),
        (get(&format!("/{}/update?since=0", "0".repeat(32)), &from(host)), "404 Not Found"),
        (get(&format!("/{token}/../etc/passwd"), &from(host)), "404 Not Found"),
        (get(&format!("/{token}/update?since=x"), &from(host)), "404 Not Found"),
        (
            ask(host, &format!("POST /{token}/ HTTP/1.1\r\nHost: {host}\r\n\r\n")),
            "405 Method Not Allowed",
        ),
        (
            ask(host, &format!("OPTIONS /{token}/ HTTP/1.1\r\nHost: {host}\r\n\r\n")),
            "405 Method Not Allowed",
        ),
        (ask(host, "nonsense\r\n\r\n"), "400 Bad Request"),
    ];
    for (answer, expected) in &refused {
        assert_eq!(status(answer), format!("HTTP/1.1 {expected}"));
        assert!(!answer.contains(token) && !answer.contains("task"), "{answer}");
    }
    let large = format!("GET /{token}/ HTTP/1.1\r\nX: {}", "x".repeat(100_000));
    let mut stream = TcpStream::connect(host).unwrap();
    let _ = stream.write_all(large.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty());
    // Connections that say nothing keep nobody else out.
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(host).unwrap()).collect();
    assert!(get(&format!("/{token}/update?since=0"), &from(host)).contains("\"RUNNING\""));
    drop(silent);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!sandbox.path("r.html").exists() && TcpStream::connect(host).is_err());
    for n in 1..=2 {
        sandbox.write(&format!("work/go{n}"), "");
    }
    assert!(run.wait_with_output().unwrap().status.success(), "the run does not notice");
}

#[test]
fn c_18_10_the_file_is_written_when_no_process_works_on_the_run() {
    let (sandbox, run) = waiting_run();
    let (mut child, ..) = follow(&sandbox, &[]);
    sandbox.write("work/go1", "");
    wait_for_request(&sandbox, 2);
    assert!(child.try_wait().unwrap().is_none() && !sandbox.path("r.html").exists());
    sandbox.write("work/go2", "");
    assert!(run.wait_with_output().unwrap().status.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(data(&sandbox)["runs"][0]["status"], "COMPLETED");
}

#[test]
fn c_18_10_the_address_for_the_browser_works_once_and_the_run_writes_no_file() {
    let (sandbox, run) = waiting_run();
    sandbox.write_program("bin/browser", "#!/bin/sh\nprintf '%s\\n' \"$1\" > opened\n");
    let open = ["run", "--agent", "agent", "-w", "work", "--run-id", "s", "--open", "task"];
    let open = sandbox.delta(open).env("BROWSER", sandbox.path("bin/browser")).spawn();
    let entry = wait::until_line(&sandbox.path("opened"));
    let (host, token) = parts(&entry);
    let ask_once = || ask(host, &format!("GET /{token}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let (first, second) = (ask_once(), ask_once());
    assert!(first.starts_with("HTTP/1.1 303 ") && second.starts_with("HTTP/1.1 404 "), "{first}");
    for n in 1..=2 {
        sandbox.write(&format!("work/go{n}"), "");
    }
    for run in [run, open] {
        assert!(run.wait_with_output().unwrap().status.success());
    }
    assert!(!sandbox.path("s.html").exists() && !sandbox.path("r.html").exists());
}

#[test]
fn c_18_10_run_opens_its_page_and_neither_waits_for_it_nor_fails_with_it() {
    if !needs::browser() {
        return;
    }
    let sandbox = Sandbox::scripted(
        DELTA,
        TOOLS,
        "- call: [{tool: wait, args: {n: \"1\"}}]\n- say: the end\n",
    );
    sandbox.write_program(
        "bin/xdg-open",
        "#!/bin/sh\nprintf %s \"$1$OPENAI_API_KEY\" > opened.part; mv opened.part opened\n",
    );
    let path = format!("{}:{}", sandbox.path("bin").display(), std::env::var("PATH").unwrap());
    let run = sandbox
        .run_command("task", &["--open"])
        .env("PATH", &path)
        .env("DISPLAY", ":0")
        .env("OPENAI_API_KEY", "sk-123456789")
        .spawn();
    wait_for_request(&sandbox, 1);
    wait::until("the opener", || sandbox.path("opened").exists().then_some(()));
    let entry = sandbox.read("opened");
    assert!(!entry.contains("sk-"), "a browser needs no key");
    let mut browser = Browser::start();
    browser.open_address(&entry);
    browser.settle();
    let address = browser.value("location.href");
    let address = address.as_str().unwrap();
    assert_ne!(address, entry, "the address in the list of processes is another one");
    let (host, _) = parts(&entry);
    sandbox.write("work/go1", "");
    let ended = run.wait_with_output().unwrap();
    assert!(ended.status.success());
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(stderr.lines().any(|line| line == format!("page: {address}")), "{stderr}");
    browser.wait_for("liveEnd !== null");
    assert_eq!(browser.value("run.status"), "COMPLETED");
    assert!(!sandbox.path("r.html").exists(), "the page is not saved unasked");
    wait::until("the end of the server", || TcpStream::connect(host).is_err().then_some(()));
    // Without a browser the run is the same.
    let alone = sandbox
        .delta(["run", "--agent", "agent", "-w", "work", "--run-id", "s", "-q", "--open", "task"])
        .env("PATH", "/usr/bin:/bin")
        .output()
        .expect_code(0);
    assert!(!alone.stderr.contains("page"), "{}", alone.stderr);
    // Without a desktop nothing was opened, and nothing said so.
    let alone = sandbox
        .delta(["run", "--agent", "agent", "-w", "work", "--run-id", "t", "--open", "task"])
        .env("PATH", path)
        .output();
    let address = alone.stderr.lines().find_map(|line| line.strip_prefix("page: ")).unwrap();
    let text = format!(
        "could not open a browser: none of DISPLAY, WAYLAND_DISPLAY, BROWSER is set; open {address} yourself"
    );
    assert!(alone.stderr.contains(&text), "{}", alone.stderr);
}

#[test]
fn c_18_10_a_page_whose_server_is_killed_says_so() {
    if !needs::browser() {
        return;
    }
    let (sandbox, run) = waiting_run();
    let (mut child, _, address) = follow(&sandbox, &["--no-requests"]);
    let mut browser = Browser::start();
    browser.open_address(&address);
    browser.settle();
    child.kill().unwrap();
    child.wait().unwrap();
    browser.wait_for("isLost");
    browser.settle();
    let banner = browser.value("document.getElementById('live').textContent");
    assert!(banner.as_str().unwrap().starts_with("The process that served this page has ended"));
    for n in 1..=2 {
        sandbox.write(&format!("work/go{n}"), "");
    }
    assert!(run.wait_with_output().unwrap().status.success());
}
