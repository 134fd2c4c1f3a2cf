//! What a session of bash keeps however a command ends (C-14.2).

use super::Session;
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};
use test_support::wait::until;

/// The report of a command that prints nothing on stderr.
fn answer(stdout: &str, exit_code: i32) -> Value {
    json!({"stdout": stdout, "stderr": "", "exit_code": exit_code})
}

#[test]
fn c_14_2_the_state_survives_exit_and_failure() {
    let session = Session::start(&[]);
    assert_eq!(session.exec("x=1; mkdir d; cd d; exit 3"), answer("", 3));
    assert_eq!(session.exec("echo $? $x ${PWD##*/}"), answer("3 1 d\n", 0));
    // `exit` in functions whose local variables hide global ones.
    session
        .stdout_of("f() { local x=2; g; }; g() { local x=3 PATH=/nowhere; exit 4; }; set -- a b");
    assert_eq!(session.exec("y=1; f"), answer("", 4));
    assert_eq!(session.exec("echo $x $y $* $(basename /a/b)"), answer("1 1 a b b\n", 0));
    assert_eq!(session.exec("set -e; false; echo not reached"), answer("", 1));
    assert_eq!(session.exec("echo $- | tr -dc e; z=1; (exit 7); echo not reached"), answer("e", 7));
    assert_eq!(session.exec("set +e; echo $z"), answer("1\n", 0));
    let unset = session.exec("a=1; set -u; echo $nope; echo not reached");
    assert_eq!((&unset["exit_code"], &unset["stdout"]), (&json!(1), &json!("")));
    assert_eq!(session.exec("set +u; echo $a"), answer("1\n", 0));
}

#[test]
fn c_14_2_a_command_that_begins_with_a_hyphen_is_a_command() {
    let session = Session::start(&[]);
    let none =
        json!({"stdout": "", "stderr": "bash: line 1: -x: command not found\n", "exit_code": 127});
    assert_eq!(session.exec_with("--", &["-x"]), none);
}

#[test]
fn c_14_2_a_syntax_error_keeps_the_changes_before_it() {
    let session = Session::start(&[]);
    let wrong = session.exec("x=1\necho first\nif fi\necho not reached");
    assert_eq!((&wrong["stdout"], &wrong["exit_code"]), (&json!("first\n"), &json!(2)));
    let stderr = wrong["stderr"].as_str().unwrap();
    assert!(
        stderr.starts_with("bash: ") && stderr.contains("syntax error near unexpected token `fi'"),
        "{stderr}"
    );
    assert_eq!(session.exec("echo $? $x"), answer("2 1\n", 0));
    for open in ["echo 'open", "cat <<X", "f() {", "for i in 1 2; do", "$(("] {
        session.exec(open);
        assert_eq!(session.exec("echo $x"), answer("1\n", 0), "{open}");
    }
}

/// With `set -TE` functions inherit these traps, including the one that prints the state: their output became part of the
/// state and was executed by the next command.
#[test]
fn c_14_2_the_output_of_a_trap_is_not_part_of_the_state() {
    let session = Session::start(&[]);
    let traps = "set -TE; trap 'echo touch debug' DEBUG; trap 'echo touch return' RETURN; trap 'echo touch err' ERR";
    session.exec(&format!("x=1; f() {{ echo $x; }}; alias a='echo $x'; {traps}"));
    assert_eq!(session.exec("f; a; echo $-; ls"), answer("1\n1\nhBET\n", 0));
}

#[test]
fn c_14_2_replacing_or_killing_the_shell_keeps_the_previous_state() {
    let session = Session::start(&[]);
    session.stdout_of("x=1");
    let note = "the shell did not exit normally (a signal, `exec` or a full disk); the session keeps its previous state";
    for (text, stdout, exit_code) in
        [("x=2; exec echo replaced", "replaced\n", 0), ("x=2; kill -KILL $$", "", 137)]
    {
        let mut expected = answer(stdout, exit_code);
        expected["note"] = json!(note);
        assert_eq!(session.exec(text), expected);
        assert_eq!(session.stdout_of("echo $x"), "1\n");
    }
    assert_eq!(session.metadata()["execution_count"], 5);
}

#[test]
fn c_14_2_a_timeout_ends_all_processes_of_the_command() {
    let session = Session::start(&[]);
    session.stdout_of("x=1");
    let text = "x=2; echo started; setsid sh -c 'echo $$ > stray; exec sleep 600' & sh -c 'echo $$ > child; exec sleep 600' & sleep 600";
    let mut expected = answer("started\n", 124);
    expected["timed_out"] = json!(true);
    expected["note"] = json!("timed out after 1500 ms; the session keeps its previous state");
    assert_eq!(session.exec_with(text, &["--timeout", "1500ms"]), expected);
    for file in ["stray", "child"] {
        let pid = session.sandbox.read(&format!("work/{file}"));
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{file} lives: {stat}");
    }
    assert_eq!(session.stdout_of("echo $x"), "1\n");
}

#[test]
fn c_14_2_a_background_job_does_not_hold_the_command() {
    let session = Session::start(&[]);
    let began = Instant::now();
    assert_eq!(session.exec("sleep 600 & echo $! > pid; x=1")["stdout"], "");
    assert!(began.elapsed() < Duration::from_secs(60));
    assert_eq!(
        session.stdout_of("kill -0 $(cat pid) && echo $x lives; kill $(cat pid)"),
        "1 lives\n"
    );
}

#[test]
fn c_38_2_a_background_job_keeps_its_streams() {
    let session = Session::start(&[]);
    let job = session.exec("mkfifo go came; (read -r _ < go; echo later; echo done > came) &");
    let output = |stream: &str| format!(".sessions/{}/output/1.later.{stream}", session.id);
    assert_eq!(job["background_output"], json!([output("stdout"), output("stderr")]));
    assert_eq!(session.stdout_of("echo > go; cat came"), "done\n");
    until("the relayed output", || {
        let text = session.sandbox.read(&format!("work/{}", output("stdout")));
        (text == "later\n").then_some(())
    });
    // A job whose streams are elsewhere needs no file.
    let quiet = session.exec("sleep 600 >/dev/null 2>&1 & echo $!");
    assert_eq!(quiet.get("background_output"), None);
    session.stdout_of(&format!("kill {}", quiet["stdout"].as_str().unwrap()));
}

#[test]
fn c_14_2_an_emptied_state_is_damage() {
    let session = Session::start(&[]);
    session.exec("x=1");
    let state = format!("{}/{}/state.sh", session.dir(), session.states()[0]);
    fs::write(session.sandbox.path(&state), "").unwrap();
    let answer = session.run(&["exec", &session.id, "echo $x"]).expect_code(1).json();
    let error = answer["error"].as_str().unwrap();
    assert!(error.contains("state.sh is empty"), "{error}");
}

#[test]
fn c_14_2_traps_end_with_their_command() {
    let session = Session::start(&[]);
    assert_eq!(session.exec("x=1; trap 'echo \"bye $?\"' EXIT; exit 5"), answer("bye 5\n", 5));
    assert_eq!(session.stdout_of("echo $x; trap"), "1\n");
    assert_eq!(
        session
            .stdout_of("trap 'echo usr' USR1; kill -USR1 $$; (trap 'echo sub' EXIT); trap -p EXIT"),
        "usr\nsub\n"
    );
    assert_eq!(session.stdout_of("trap 'echo a' EXIT; trap - EXIT; y=2"), "");
    assert_eq!(
        session.stdout_of("trap 'echo c' 0; trap -p EXIT; echo $x $y"),
        "trap -- 'echo c' EXIT\n1 2\nc\n"
    );
}

#[test]
fn c_14_2_long_output_is_cut_and_saved_to_a_file() {
    let session = Session::start(&[]);
    let answer = session.exec("x=1; yes 0123456789abcde | head -c 100000000; echo end");
    let file = format!(".sessions/{}/output/1.stdout", session.id);
    assert_eq!((&answer["exit_code"], &answer["stdout_file"]), (&json!(0), &json!(file)));
    let stdout = answer["stdout"].as_str().unwrap();
    let note = format!(
        "\n[... {} bytes left out; the whole lies in {file} ...]\n",
        100_000_004 - 12 * 1024
    );
    assert!(stdout.contains(&note) && stdout.ends_with("end\n"), "{} bytes", stdout.len());
    assert!(stdout.len() < 13 * 1024);
    let whole = std::fs::metadata(session.sandbox.path(&format!("work/{file}"))).unwrap();
    assert_eq!(whole.len(), 100_000_004);
    assert_eq!(session.stdout_of("echo $x"), "1\n");
}

#[test]
fn c_14_1_output_is_whole_in_a_file_from_the_first_byte_that_does_not_fit() {
    let session = Session::start(&[]);
    let print = |count: usize, more: &str| format!("printf '%0{count}d' 0{more}");
    let fitting = session.exec(&print(12 * 1024, ""));
    assert_eq!(
        (fitting["stdout"].as_str().unwrap().len(), &fitting["stdout_file"]),
        (12_288, &Value::Null)
    );
    for (number, count, stream, more) in [
        (2, 12 * 1024 + 1, "stdout", ""),
        (3, 64 * 1024, "stdout", ""),
        (4, 20_000, "stderr", " >&2"),
    ] {
        let answer = session.exec(&print(count, more));
        let file = format!(".sessions/{}/output/{number}.{stream}", session.id);
        assert_eq!(answer[format!("{stream}_file")], file, "{count}");
        assert!(answer[stream].as_str().unwrap().contains(&format!("the whole lies in {file} ")));
        assert_eq!(session.sandbox.read(&format!("work/{file}")), "0".repeat(count));
    }
}

#[test]
fn c_14_2_binary_output_is_saved_to_a_file() {
    let session = Session::start(&[]);
    let answer = session.exec("printf 'a\\377\\0b' >&2");
    let file = format!(".sessions/{}/output/1.stderr", session.id);
    let expected =
        json!({"stdout": "", "stderr": "a\u{fffd}\0b", "exit_code": 0, "stderr_file": file});
    assert_eq!(answer, expected);
    assert_eq!(std::fs::read(session.sandbox.path(&format!("work/{file}"))).unwrap(), b"a\xff\0b");
}

#[test]
fn c_14_2_a_directory_may_be_removed_and_created_again() {
    let session = Session::start(&[]);
    session.stdout_of("mkdir -p a/b && cd a/b");
    std::fs::remove_dir_all(session.sandbox.path("work/a")).unwrap();
    let gone = session.exec("echo ${PWD##*/}; touch f");
    assert_eq!((&gone["stdout"], &gone["exit_code"]), (&json!("b\n"), &json!(1)));
    assert!(!session.sandbox.path("work/a").exists());
    std::fs::create_dir_all(session.sandbox.path("work/a/b")).unwrap();
    assert_eq!(session.stdout_of("touch f && ls"), "f\n");
    // A file in its place cannot be entered.
    std::fs::remove_dir_all(session.sandbox.path("work/a")).unwrap();
    session.sandbox.write("work/a", "a file");
    let refused = session.run(&["exec", &session.id, "pwd"]).expect_code(1).json();
    let error = refused["error"].as_str().unwrap();
    assert!(
        error.starts_with("could not enter ")
            && error.contains(", the working directory of the session: "),
        "{error}"
    );
}

#[test]
fn c_14_2_variables_of_a_call_come_from_its_caller() {
    let session = Session::start_with(&[], |delta| {
        delta.env("DELTA_RUN_ID", "first").env("KEPT", "yes").env("BASH_ENV", "/nowhere")
    });
    let exec = |run: &str, text: &str| {
        let exec = session.command(&["exec", &session.id, text]);
        exec.env("DELTA_RUN_ID", run).env("OTHER", "no").output().expect_code(0).json()["stdout"]
            .clone()
    };
    let show = "echo $DELTA_RUN_ID $KEPT ${OTHER-unset}";
    assert_eq!(exec("second", show), "second yes unset\n");
    assert_eq!(exec("third", show), "third yes unset\n");
    assert_eq!(session.stdout_of(show), "yes unset\n");
    assert_eq!(session.stdout_of("RUN_DIR=mine"), "");
    assert_eq!(
        session.stdout_of("echo $RUN_DIR $DELTA_SESSION_ID"),
        format!("mine {}\n", session.id)
    );
}

/// The attributes of a variable act on new assignments, not on the restored value.
#[test]
fn c_14_2_attributes_do_not_change_restored_values() {
    let session = Session::start(&[]);
    session.stdout_of(
        "f() { echo f; }; n=08; declare -i n; r='1 + '; declare -ir r; u=low; declare -u u",
    );
    session.stdout_of(
        "l=(08 two); declare -ia l; declare -Ac m=([k]=Value); m2=([0]='x y'); export n",
    );
    assert_eq!(
        session.stdout_of("f; echo $n $r $u ${l[@]} ${m[k]}"),
        "f\n08 1 + low 08 two Value\n"
    );
    assert_eq!(session.stdout_of("u=new n=2+3; l[0]=1+1; echo $u $n ${l[0]}"), "NEW 5 2\n");
    assert_eq!(session.stdout_of("declare -p r"), "declare -ir r=\"1 + \"\n");
}

/// Variables that have not changed since the session started.
#[test]
fn c_14_2_variables_unchanged_since_the_start_are_restored() {
    let session = Session::start_with(&[], |delta| {
        let delta = delta.env("LANG", "C.UTF-8").env("PS1", "7").env("a-b", "no name");
        delta.env("POSIXLY_CORRECT", "").env("SHELLOPTS", "posix")
    });
    session.stdout_of("export PS1=7; set -k");
    assert_eq!(session.stdout_of("declare -p PS1"), "declare -x PS1=\"7\"\n");
    assert_eq!(session.stdout_of("echo $LANG; set +k"), "C.UTF-8\n");
    assert_eq!(
        session.stdout_of("env | grep -e ^LANG -e ^a-b | sort"),
        "LANG=C.UTF-8\na-b=no name\n"
    );
    session.exec("LC_ALL=nonexist");
    assert_eq!(session.stdout_of("x=\u{e9}; echo ${#x}"), "1\n");
}

#[test]
fn c_14_2_a_shell_without_pwd_keeps_the_previous_state() {
    let session = Session::start(&[]);
    session.stdout_of("x=1");
    assert!(session.exec("x=2; enable -n pwd")["note"].is_string());
    assert_eq!(session.stdout_of("echo $x"), "1\n");
}
