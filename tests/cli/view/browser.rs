//! A real browser without a window, driven by its own protocol over a pipe.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Its flags: nothing of it asks anybody for anything.
const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
    "--remote-debugging-pipe",
];

/// A browser with one page.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: BufReader<ChildStdout>,
    number: u64,
    session: Option<String>,
    /// What it has told unasked.
    pub events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts it.
    pub fn start() -> Self {
        let profile = tempfile::tempdir().unwrap();
        // It reads commands from descriptor 3 and answers on 4.
        let script = "exec chromium \"$@\" about:blank 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh"])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let messages = BufReader::new(child.stdout.take().unwrap());
        let mut browser = Self {
            child,
            commands,
            messages,
            number: 0,
            session: None,
            events: Vec::new(),
            _profile: profile,
        };
        let targets = browser.call("Target.getTargets", json!({}));
        let targets = targets["targetInfos"].as_array().unwrap();
        let page = targets.iter().find(|target| target["type"] == "page").unwrap();
        let attach = json!({"targetId": page["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Opens a file, and waits until it is loaded.
    pub fn open(&mut self, file: &Path, hash: &str) {
        self.open_address(&format!("file://{}{hash}", file.display()));
    }

    /// Opens an address, and waits until it is loaded.
    pub fn open_address(&mut self, url: &str) {
        self.events.clear();
        self.call("Page.navigate", json!({"url": url}));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let message = self.message();
            self.events.push(message);
        }
    }

    /// The value of an expression in the page; a promise is waited for.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression in the page is true.
    #[track_caller]
    pub fn wait_for(&mut self, expression: &str) {
        let waiting = format!(
            "new Promise(done => {{ const look = () => ({expression}) ? done(true) : setTimeout(look, 20); look(); }})"
        );
        self.value(&waiting);
    }

    /// Waits until the page has been drawn a few times; another one, if it is left meanwhile.
    pub fn settle(&mut self) {
        let drawn = "new Promise(done => { let left = 8; const next = () => left-- ? requestAnimationFrame(next) : done(); next(); })";
        let asked = json!({"expression": drawn, "awaitPromise": true});
        while !self.answer("Runtime.evaluate", asked.clone())["error"].is_null() {}
    }

    /// Types a key, as a person does it.
    pub fn press(&mut self, key: &str, text: &str) {
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let key = json!({"type": kind, "key": key, "text": text});
            self.call("Input.dispatchKeyEvent", key);
        }
    }

    /// The addresses that were asked for since the last [`Browser::open`].
    pub fn requests(&self) -> Vec<&str> {
        let asked = |event: &&Value| event["method"] == "Network.requestWillBeSent";
        let events = self.events.iter().filter(asked);
        events.filter_map(|event| event["params"]["request"]["url"].as_str()).collect()
    }

    /// Sends a command; gives its answer.
    #[track_caller]
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let mut message = self.answer(method, params);
        assert!(message["error"].is_null(), "{method}: {message}");
        message["result"].take()
    }

    /// Sends a command; gives the message that answers it, which may be an error.
    fn answer(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut asked = json!({"id": self.number, "method": method, "params": params});
        if let Some(session) = &self.session {
            asked["sessionId"] = session.as_str().into();
        }
        write!(self.commands, "{asked}\0").unwrap();
        self.commands.flush().unwrap();
        loop {
            let message = self.message();
            if message["id"] == self.number {
                return message;
            }
            self.events.push(message);
        }
    }

    fn message(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.messages.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser is there (is chromium installed?)");
        serde_json::from_slice(&bytes).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = write!(self.commands, "{}\0", json!({"id": 0, "method": "Browser.close"}));
        let _ = self.commands.flush();
        // It answers until it has ended, and its profile is gone only then.
        let mut rest = Vec::new();
        while self.messages.read_until(0, &mut rest).is_ok_and(|count| count > 0) {
            rest.clear();
        }
        let _ = self.child.wait();
    }
}
