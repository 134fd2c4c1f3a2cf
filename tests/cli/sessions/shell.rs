//! What a session of bash keeps when a command does not simply end (C-14.2).

use super::Session;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// An answer with nothing on stderr.
fn answer(stdout: &str, exit_code: i32) -> Value {
    json!({"stdout": stdout, "stderr": "", "exit_code": exit_code})
}

#[test]
fn c_14_2_the_state_survives_exit_and_failure() {
    let session = Session::start(&[]);
    assert_eq!(session.exec("x=1; mkdir d; cd d; exit 3"), answer("", 3));
    assert_eq!(session.exec("echo $? $x ${PWD##*/}"), answer("3 1 d\n", 0));
    // From inside functions, where other variables stand in front of the shell's own.
    session.says("f() { local x=2; g; }; g() { local x=3 PATH=/nowhere; exit 4; }; set -- a b");
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
fn c_14_2_a_syntax_error_keeps_what_was_done_before_it() {
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

/// Functions inherit these traps with `set -TE`, and what says the state is one: what a trap printed there stood among what
/// the next command took up, and was run.
#[test]
fn c_14_2_what_a_trap_prints_is_no_part_of_the_state() {
    let session = Session::start(&[]);
    let traps = "set -TE; trap 'echo touch debug' DEBUG; trap 'echo touch return' RETURN; trap 'echo touch err' ERR";
    session.exec(&format!("x=1; f() {{ echo $x; }}; alias a='echo $x'; {traps}"));
    assert_eq!(session.exec("f; a; echo $-; ls"), answer("1\n1\nhBET\n", 0));
}

#[test]
fn c_14_2_what_replaces_or_kills_the_shell_leaves_the_state_before() {
    let session = Session::start(&[]);
    session.says("x=1");
    let note = "the shell did not come to its end (a signal, `exec`, a full disk); the state before it stands";
    for (text, stdout, exit_code) in
        [("x=2; exec echo replaced", "replaced\n", 0), ("x=2; kill -KILL $$", "", 137)]
    {
        let mut expected = answer(stdout, exit_code);
        expected["note"] = json!(note);
        assert_eq!(session.exec(text), expected);
        assert_eq!(session.says("echo $x"), "1\n");
    }
    assert_eq!(session.metadata()["execution_count"], 5);
}

#[test]
fn c_14_2_a_late_command_is_ended_with_its_tree() {
    let session = Session::start(&[]);
    session.says("x=1");
    let text = "x=2; echo begun; setsid sh -c 'echo $$ > stray; exec sleep 600' & sh -c 'echo $$ > child; exec sleep 600' & sleep 600";
    let mut expected = answer("begun\n", 124);
    expected["timed_out"] = json!(true);
    expected["note"] = json!("it was ended after 1500 ms; the state before it stands");
    assert_eq!(session.exec_with(text, &["--timeout-ms", "1500"]), expected);
    for file in ["stray", "child"] {
        let pid = session.sandbox.read(&format!("work/{file}"));
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{file} lives: {stat}");
    }
    assert_eq!(session.says("echo $x"), "1\n");
}

#[test]
fn c_14_2_a_background_job_does_not_hold_the_command() {
    let session = Session::start(&[]);
    let began = Instant::now();
    assert_eq!(session.says("sleep 600 & echo $! > pid; x=1"), "");
    assert!(began.elapsed() < Duration::from_secs(60));
    assert_eq!(session.says("kill -0 $(cat pid) && echo $x lives; kill $(cat pid)"), "1 lives\n");
}

#[test]
fn c_14_2_traps_end_with_their_command() {
    let session = Session::start(&[]);
    assert_eq!(session.exec("x=1; trap 'echo \"bye $?\"' EXIT; exit 5"), answer("bye 5\n", 5));
    assert_eq!(session.says("echo $x; trap"), "1\n");
    assert_eq!(
        session.says("trap 'echo usr' USR1; kill -USR1 $$; (trap 'echo sub' EXIT); trap -p EXIT"),
        "usr\nsub\n"
    );
    assert_eq!(session.says("trap 'echo a' EXIT; trap - EXIT; y=2"), "");
    assert_eq!(
        session.says("trap 'echo c' 0; trap -p EXIT; echo $x $y"),
        "trap -- 'echo c' EXIT\n1 2\nc\n"
    );
}

#[test]
fn c_14_2_much_output_is_cut_and_lies_in_a_file() {
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
    assert_eq!(session.says("echo $x"), "1\n");
}

#[test]
fn c_14_2_output_that_is_no_text_lies_in_a_file() {
    let session = Session::start(&[]);
    let answer = session.exec("printf 'a\\377\\0b' >&2");
    let file = format!(".sessions/{}/output/1.stderr", session.id);
    let expected =
        json!({"stdout": "", "stderr": "a\u{fffd}\0b", "exit_code": 0, "stderr_file": file});
    assert_eq!(answer, expected);
    assert_eq!(std::fs::read(session.sandbox.path(&format!("work/{file}"))).unwrap(), b"a\xff\0b");
}

#[test]
fn c_14_2_a_directory_may_vanish_and_come_back() {
    let session = Session::start(&[]);
    session.says("mkdir -p a/b && cd a/b");
    std::fs::remove_dir_all(session.sandbox.path("work/a")).unwrap();
    let gone = session.exec("echo ${PWD##*/}; touch f");
    assert_eq!((&gone["stdout"], &gone["exit_code"]), (&json!("b\n"), &json!(1)));
    assert!(!session.sandbox.path("work/a").exists());
    std::fs::create_dir_all(session.sandbox.path("work/a/b")).unwrap();
    assert_eq!(session.says("touch f && ls"), "f\n");
    // What stands in its place cannot be entered.
    std::fs::remove_dir_all(session.sandbox.path("work/a")).unwrap();
    session.sandbox.write("work/a", "a file");
    let refused = session.run(&["exec", &session.id, "pwd"]).expect_code(1).json();
    let error = refused["error"].as_str().unwrap();
    assert!(
        error.contains("the working directory of the session")
            && error.contains("cannot be entered"),
        "{error}"
    );
}

#[test]
fn c_14_2_a_call_belongs_to_its_caller() {
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
    assert_eq!(session.says(show), "yes unset\n");
    assert_eq!(session.says("RUN_DIR=mine"), "");
    assert_eq!(session.says("echo $RUN_DIR $DELTA_SESSION_ID"), format!("mine {}\n", session.id));
}

/// What a variable makes of a value that is assigned to it, it does not make of the one that it already had.
#[test]
fn c_14_2_a_kept_value_is_not_assigned_once_more() {
    let session = Session::start(&[]);
    session
        .says("f() { echo f; }; n=08; declare -i n; r='1 + '; declare -ir r; u=low; declare -u u");
    session.says("l=(08 two); declare -ia l; declare -Ac m=([k]=Value); m2=([0]='x y'); export n");
    assert_eq!(session.says("f; echo $n $r $u ${l[@]} ${m[k]}"), "f\n08 1 + low 08 two Value\n");
    assert_eq!(session.says("u=new n=2+3; l[0]=1+1; echo $u $n ${l[0]}"), "NEW 5 2\n");
    assert_eq!(session.says("declare -p r"), "declare -ir r=\"1 + \"\n");
}

/// Where variables are as the session began, they come to the shell as its environment.
#[test]
fn c_14_2_variables_as_the_session_began_are_as_they_were_left() {
    let session = Session::start_with(&[], |delta| {
        let delta = delta.env("LANG", "C.UTF-8").env("PS1", "7").env("a-b", "no name");
        delta.env("POSIXLY_CORRECT", "").env("SHELLOPTS", "posix")
    });
    session.says("export PS1=7; set -k");
    assert_eq!(session.says("declare -p PS1"), "declare -x PS1=\"7\"\n");
    assert_eq!(session.says("echo $LANG; set +k"), "C.UTF-8\n");
    assert_eq!(session.says("env | grep -e ^LANG -e ^a-b | sort"), "LANG=C.UTF-8\na-b=no name\n");
    session.exec("LC_ALL=nonexist");
    assert_eq!(session.says("x=\u{e9}; echo ${#x}"), "1\n");
}

#[test]
fn c_14_2_a_shell_that_cannot_say_where_it_is_leaves_the_state_before() {
    let session = Session::start(&[]);
    session.says("x=1");
    assert!(session.exec("x=2; enable -n pwd")["note"].is_string());
    assert_eq!(session.says("echo $x"), "1\n");
}
