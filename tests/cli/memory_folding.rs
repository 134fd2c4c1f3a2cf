//! `examples/memory-folding`: nothing of a long conversation is lost between what is folded and what is shown, and what
//! an LLM made of it is asked for once.

use super::DELTA;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use test_support::needs;
use test_support::sandbox::Sandbox;

/// A run of one of the two agents, however often it is killed on the way. Gives the texts of each request.
fn requests(agent: &str, killed: bool) -> (Sandbox, Vec<Vec<String>>) {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("bin/.keep", "");
    std::os::unix::fs::symlink(DELTA, sandbox.path("bin/delta")).unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/memory-folding");
    let mut copy = Command::new("cp");
    assert!(copy.arg("-r").arg(example).arg(sandbox.path("fold")).status().unwrap().success());
    if killed {
        // The inner engine is killed when it has its task, and so is the one around it.
        let script = r#"#!/bin/sh
for word; do case $word in upto-*) marker=$CWD/killed.$word ;; esac; done
if [ -n "$marker" ] && ! [ -e "$marker" ]; then
  : >"$marker"
  DELTA_DIE=1 "$DELTA_REAL" "$@" >/dev/null 2>&1
  kill -KILL "$(jq .pid "$RUN_DIR/metadata.json")"
  exec sleep 60
fi
exec "$DELTA_REAL" "$@"
"#;
        std::fs::remove_file(sandbox.path("bin/delta")).unwrap();
        sandbox.write_program("bin/delta", script);
        let llm = "provider: command\n  model: x\n  command: [sh, -c, 'if [ -n \"$DELTA_DIE\" ]; then kill -KILL $PPID; fi; cat \"$AGENT_HOME/answer\"']";
        let answer = r#"{"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Stations so far: all cold."}}]}"#;
        sandbox.write("fold/summariser/answer", answer);
        sandbox.write("fold/summariser/agent.yaml", format!("name: summariser\nllm:\n  {llm}\n"));
    }
    let path = format!("{}:{}", sandbox.path("bin").display(), std::env::var("PATH").unwrap());
    let begin = ["run", "--agent", agent, "-m", "Which?"];
    let mut codes = Vec::new();
    for command in [&begin[..], &["continue"], &["continue"]] {
        let fixed = ["--run-id", "r", "-w", "work", "-q"];
        let delta = sandbox.delta([command, &fixed].concat()).env("PATH", path.as_str());
        codes.push(delta.env("DELTA_REAL", DELTA).output().code);
        if codes.last() == Some(&0) {
            break;
        }
    }
    assert_eq!(codes, if killed { vec![-1, -1, 0] } else { vec![0] });
    let records = sandbox.files("work/.delta/r/io/invocations");
    let texts = records.iter().map(|name| {
        let record = sandbox.read(&format!("work/.delta/r/io/invocations/{name}"));
        let record: Value = serde_json::from_str(&record).unwrap();
        let messages = record["request"]["messages"].as_array().unwrap().clone();
        messages.iter().map(|message| message["content"].as_str().unwrap().to_owned()).collect()
    });
    let mut texts: Vec<Vec<String>> = texts.collect();
    texts.sort_by_key(|texts| texts.last().map(|text| station(text)));
    (sandbox, texts)
}

/// The number in `station 7: 3 degrees`; 0 for the task.
fn station(text: &str) -> usize {
    let number = text.strip_prefix("station ").and_then(|rest| rest.split(':').next());
    number.map_or(0, |number| number.parse().unwrap())
}

#[test]
fn c_8_3_each_iteration_is_folded_or_shown() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let (_, requests) = requests("fold", false);
    assert_eq!(requests.len(), 13);
    for (done, texts) in requests.iter().enumerate() {
        for station in 1..=done {
            let whole = format!("station {station}: {} degrees\n", station * 7 % 23);
            let folded = format!("measure {{\"station\":{station}}}: {whole}");
            let shown = texts.iter().filter(|text| **text == whole).count();
            let told = texts.iter().filter(|text| text.contains(&folded)).count();
            let expected = if station + 3 > done { (1, 0) } else { (0, 1) };
            assert_eq!((shown, told), expected, "station {station} of {done}: {texts:?}");
        }
    }
}

/// What the requests show: the minutes, and the stations that are shown as they were.
fn minutes(requests: &[Vec<String>]) -> Vec<(Option<&str>, Vec<usize>)> {
    let shown = |texts: &Vec<String>| -> Vec<usize> {
        texts.iter().map(|text| station(text)).filter(|number| *number > 0).collect()
    };
    let is_minutes = |text: &&String| text.starts_with("# Context Block: minutes\n\n");
    let told = requests.iter().map(|texts| texts.iter().find(is_minutes).map(String::as_str));
    told.zip(requests.iter().map(shown)).collect()
}

#[test]
fn c_8_3_an_llm_keeps_the_minutes_and_is_asked_once_for_each_part() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let (sandbox, requests) = requests("fold/summarising", false);
    let first = "# Context Block: minutes\n\nStations 1 to 4 are measured. The warmest so far: station 3, 21 degrees.\n";
    let second = "# Context Block: minutes\n\nStations 1 to 8 are measured. The warmest so far: station 3, 21 degrees.\n";
    let expected: Vec<_> = (0..=12)
        .map(|done: usize| {
            let told = [None, Some(first), Some(second)][done.saturating_sub(3) / 4];
            (told, (done.saturating_sub(5).max(1)..=done).collect::<Vec<usize>>())
        })
        .collect();
    assert_eq!(minutes(&requests), expected);
    for id in ["upto-4", "upto-8"] {
        let records = format!("work/.delta/r/minutes/.delta/{id}/io/invocations");
        assert_eq!(sandbox.files(&records).len(), 1, "{id}");
    }
}

#[test]
fn c_13_4_minutes_go_on_when_both_engines_died() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let (sandbox, requests) = requests("fold/summarising", true);
    let told = "# Context Block: minutes\n\nStations so far: all cold.\n";
    let (with, without): (Vec<_>, Vec<_>) =
        minutes(&requests).into_iter().partition(|(minutes, _)| *minutes == Some(told));
    assert_eq!((with.len(), without.len()), (6, 7));
    for id in ["upto-4", "upto-8"] {
        let journal = sandbox.read(&format!("work/.delta/r/minutes/.delta/{id}/journal.jsonl"));
        assert_eq!(journal.matches("\"USER_MESSAGE\"").count(), 1, "{journal}");
        assert!(journal.matches("\"ENGINE_START\"").count() >= 2, "{journal}");
    }
}
