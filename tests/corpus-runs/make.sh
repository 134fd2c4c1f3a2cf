#!/usr/bin/env bash
# Makes the runs of this corpus with the programs of one version of delta; README.md says when.
#
#   bash tests/corpus-runs/make.sh DIR      DIR holds `delta`; needs Linux, root, python3
#
# What the corpus has already stays as it is: an earlier version made it.
set -euo pipefail
corpus="$(cd "$(dirname "$0")" && pwd)"
programs="$(realpath "$1")"
place=/tmp/delta-corpus-runs

# The name of the host is in every run, and is not to be that of a real one.
if [ "${2:-}" != inside ]; then
    exec unshare --uts -- bash -c 'hostname corpus && exec bash "$0" "$1" inside' "$0" "$1"
fi

rm -rf "$place"
mkdir -p "$place"
export LC_ALL=C.UTF-8

# delta ARGUMENT...: in the directory of the run that is made.
delta() {
    env -i PATH="$programs:/usr/bin:/bin" HOME="$place" LANG=C.UTF-8 ${KEY:+DELTA_API_KEY="$KEY"} \
        ${LEASE:+DELTA_LEASE="$LEASE"} ${STATE:+XDG_STATE_HOME="$STATE"} delta "$@"
}

# agent LLM TOOLS: an agent directory with the files that all of them have; the script comes from stdin.
agent() {
    mkdir -p agent
    printf 'name: corpus\nversion: "1"\nllm: %s\n%s\n' "$1" "$2" >agent/agent.yaml
    printf 'You are a part of the corpus.\n' >agent/system_prompt.md
    printf 'sources:\n  - {type: file, id: system_prompt, path: system_prompt.md}\n  - {type: journal}\n' >agent/context.yaml
    cat >agent/script.yaml
}

# run CODE ARGUMENT...: `delta run` as the run `r`, which leaves with CODE.
run() {
    local expected=$1 code=0
    shift
    delta run --agent agent -w work --run-id r -q --format json "$@" >/dev/null || code=$?
    [ "$code" = "$expected" ] || { echo "$name: exit code $code, not $expected" >&2; exit 1; }
}

# begin NAME: the directory in which one is made.
begin() {
    name=$1
    mkdir -p "$place/$name"
    cd "$place/$name"
}

script='{provider: script, model: script.yaml}'
tools='tools:
  - {name: say, description: Says, exec: "printf %s ${text}"}
  - {name: sh, description: Runs a script, exec: sh, stdin: script}'

begin finished
agent "$script" "$tools" <<'YAML'
turns:
  - say: I look first.
    call: [{tool: say, args: {text: "größer ✓"}}, {tool: sh, args: {script: "printf '\\377raw'; echo oops >&2; exit 3"}}]
  - call: [{tool: none, args: {}}, {tool: say, args: {wrong: 1}}]
  - call: [{tool: finish, args: {result: {count: 2, of: [a, b]}}}]
  - say: once more
YAML
run 0 -m "Look, and finish."

begin failed
agent "$script" "$tools" <<'YAML'
turns:
  - call: [{tool: say, args: {text: one}}]
  - error: the model is not there
  - say: it is there again
YAML
run 1 -m "Fail."

begin waiting
agent "$script" "$tools" <<'YAML'
turns:
  - call: [{tool: say, args: {text: before}}, {tool: ask_human, args: {prompt: "Shall I?", input_type: confirmation}}, {tool: say, args: {text: after}}]
  - say: 'done: ${last}'
YAML
run 101 -m "Ask me."

begin approvals
agent "$script" "$tools
  - {name: guarded, description: Asks first, exec: \"printf %s \${text}\", approve: ask}" <<'YAML'
turns:
  - call: [{tool: say, args: {text: free}}, {tool: guarded, args: {text: approved}}]
  - call: [{tool: guarded, args: {text: denied}}]
  - call: [{tool: guarded, args: {text: waits}}]
  - say: 'done: ${last}'
YAML
run 101 -m "Ask first."
for decision in yes "no: not this"; do
    delta continue r -w work -m "$decision" -q --format json >/dev/null 2>&1 || [ $? = 101 ]
done

begin continued
agent "$script" "$tools" <<'YAML'
turns:
  - say: first
  - call: [{tool: say, args: {text: more}}]
  - say: second
  - say: third
YAML
run 0 -m "One."
delta continue r -w work -q --format raw -m "Two." >/dev/null

begin fork
agent "$script" "$tools" <<'YAML'
turns:
  - call: [{tool: sh, args: {script: "echo one >f"}}]
  - call: [{tool: sh, args: {script: "echo two >f"}}]
  - say: done
  - say: more
YAML
run 0 -m "Write f."
delta fork r -w work --at 1 --into work --run-id f -q -m "Another way." --format json >/dev/null

begin snapshots
agent "$script" "$tools" <<'YAML'
turns:
  - call: [{tool: sh, args: {script: "echo one >f; mkdir d; ln -s f link; chmod 750 d"}}]
  - call: [{tool: sh, args: {script: "echo two >>f; rm link; echo new >d/g"}}]
  - say: done
  - say: more
YAML
run 0 --snapshots -m "Change files."

begin sub-agent
agent "$script" 'tools:
  - name: delegate
    description: Gives a task to another agent
    exec: delta run --agent ${AGENT_HOME}/child -w ${CWD} --run-id child -q --format raw -m ${task}' <<'YAML'
turns:
  - call: [{tool: delegate, args: {task: Count to two.}}]
  - say: 'the child says ${last}'
  - say: more
YAML
(cd agent && agent "$script" "$tools" <<<'turns: [{say: one two}]' && mv agent child)
run 0 -m "Delegate."

begin hooks
agent "$script" "$tools" <<'YAML'
turns:
  - call: [{tool: say, args: {text: allowed}}, {tool: say, args: {text: denied}}]
  - say: done
  - say: more
YAML
cat >agent/hooks.yaml <<'YAML'
pre_llm_request: {command: [sh, -c, "true"]}
pre_tool_execution:
  command: [sh, -c, 'case $TOOL_ARGS in *denied*) echo "{\"decision\": \"deny\", \"reason\": \"not this\"}" ;; esac']
post_tool_execution: {command: [sh, -c, 'echo "{\"observation\": \"seen: $TOOL_RESULT\"}"']}
on_run_end: {command: [sh, -c, "echo ended"]}
YAML
run 0 -m "Try both."

begin endpoint
python3 "$corpus/endpoint.py" port &
server=$!
until [ -s port ]; do :; done
agent "{model: test-model, base_url: 'http://127.0.0.1:$(cat port)/v1', temperature: 0, pricing: {input: 1, cached_input: 0.1, output: 2}}" "$tools" <<'YAML'
turns: []
YAML
KEY=sk-corpus-0123456789 run 0 --max-cost 1 -m "Ask the endpoint."
kill "$server"
rm port agent/script.yaml

begin torn
agent "$script" "$tools" <<'YAML'
turns:
  - call: [{tool: say, args: {text: one}}]
  - call: [{tool: say, args: {text: two}}]
  - say: done
YAML
run 0 -m "Break off."
# A power failure in the middle of the last event but two.
journal=work/.delta/r/journal.jsonl
lines=$(wc -l <$journal)
whole=$(head -n $((lines - 3)) $journal | wc -c)
truncate -s $((whole + 40)) $journal
rm work/.delta/r/metadata.json

begin damaged
agent "$script" "$tools" <<'YAML'
turns:
  - call: [{tool: say, args: {text: one}}]
  - say: done
YAML
run 0 -m "Be damaged."
sed -i '3s/"type":"THOUGHT"/"type":"THOUGHX"/' work/.delta/r/journal.jsonl

begin turns
agent "$script" "$tools" <<'YAML'
turns:
  - call: [{tool: say, args: {text: one}}]
  - say: first
  - say: second
  - say: third
YAML
LEASE=turns run 0 -m "One."
LEASE=turns delta continue r -w work -q --format raw -m "Two." >/dev/null

begin packed
agent "$script" "$tools" <<'YAML'
turns:
  - call: [{tool: sh, args: {script: "yes a long line of output | head -n 400"}}]
  - say: done
  - say: more
YAML
run 0 -m "Fill a file."
delta pack r -w work >/dev/null

begin parallel
agent "$script" "$tools
  - {name: both, description: Runs at the same time, exec: \"printf %s \${text}\", parallel: true}" <<'YAML'
turns:
  - call: [{tool: both, args: {text: one}}, {tool: both, args: {text: two}}, {tool: say, args: {text: three}}]
  - say: done
  - say: more
YAML
run 0 -m "Call both."

begin sandboxed
agent "$script" "sandbox: workspace
$tools" <<'YAML'
turns:
  - call: [{tool: sh, args: {script: "echo allowed >f"}}, {tool: sh, args: {script: "echo refused >/etc/corpus"}}]
  - say: done
  - say: more
YAML
run 0 -m "Write two files."

begin applied
agent "$script" "$tools" <<'YAML'
turns:
  - call: [{tool: sh, args: {script: "echo staged >f; echo left >g"}}]
  - say: done
  - say: more
YAML
run 0 --stage -m "Write f and g."
delta apply r f -w work >/dev/null
delta discard r -w work >/dev/null

begin answered
agent "$script" "$tools" <<'YAML'
turns:
  - call: [{tool: ask_human, args: {prompt: "Which colour?"}}]
  - say: '${last}'
  - say: more
YAML
run 101 -m "Ask me."
delta continue r -w work -q --format json -m blue >/dev/null

begin told
agent "$script" "$tools
  - {name: guarded, description: Asks first, exec: \"printf %s \${text}\", approve: ask}" <<'YAML'
turns:
  - call: [{tool: guarded, args: {text: one}}]
  - say: done
  - say: more
YAML
printf iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg== | base64 -d >dot.png
run 101 --attach dot.png -m "Look at the dot."
delta tell r -w work "Mind the edges." >/dev/null
delta tell r -w work --max-iterations 9 --reason "it is slow" >/dev/null
delta continue r -w work -q --format json -m yes >/dev/null
rm dot.png

begin rolled-back
agent "$script" "$tools" <<'YAML'
turns:
  - call: [{tool: sh, args: {script: "echo one >f"}}]
  - call: [{tool: sh, args: {script: "echo two >f"}}]
  - say: done
  - say: more
YAML
run 0 --snapshots -m "Write f."
delta rollback r -w work --to 1 >/dev/null

begin killed
agent "$script" "$tools" <<'YAML'
turns:
  - call: [{tool: sh, args: {script: "kill -KILL $PPID"}}]
  - say: it went on
YAML
run 137 -m "End it." 2>/dev/null

# The same run closed where it was, and open where it arrived, at another operator.
begin sent
agent "$script" "$tools" <<'YAML'
turns:
  - call: [{tool: sh, args: {script: "echo one >f"}}]
  - say: done
  - say: more
YAML
run 0 --snapshots -m "Write f."
delta send r -w work -o run.delta 2>/dev/null
mkdir -p "$place/received"
cp -r agent "$place/received/"
begin received
STATE="$place/state" delta receive ../sent/run.delta -w work >/dev/null 2>&1
STATE="$place/state" delta trust r -w work >/dev/null 2>&1
mv ../sent/run.delta "$place/"

# A pack of a sweep, whose workspace has every kind of entry; the id of its run is in the name of the pack.
begin swept
agent "$script" "$tools" <<'YAML'
turns:
  - call:
      - tool: sh
        args:
          script: |
            echo text >file; ln file hard; mkdir -p empty deep/er; chmod 750 deep/er
            printf '#!/bin/sh\n' >deep/er/program; chmod 754 deep/er/program
            ln -s .//deep/../file soft; ln -s "$(printf 'long/%.0s' $(seq 30))" long
            printf x >"deep/$(printf 'n%.0s' $(seq 150))"; printf y >"$(printf '\377%.0s' $(seq 120))"
            touch -d @1700000000 file
  - say: done
YAML
printf 'name: s\nagents: [agent]\ninputs: inputs.jsonl\n' >sweep.yaml
printf '{"id": "a", "task": "t"}\n' >inputs.jsonl
delta sweep plan >/dev/null
delta sweep run s -q
(cd s/runs/*/* && find . -path './.delta' -prune -o -printf '%P %y %m %l %n\n' | sort | cat -v) >swept.list
delta sweep pack s >/dev/null
if [ ! -e "$corpus/swept.list" ]; then
    cp swept.list "$corpus/"
    cp s/plan.jsonl "$corpus/swept-plan.jsonl"
    cp s/pack/*.zip "$corpus/swept-$(basename s/pack/*.zip)"
fi
rm -rf "$place/swept"

if [ ! -e "$corpus/sent.delta" ]; then cp "$place/run.delta" "$corpus/sent.delta"; fi
rm -rf "$place/run.delta" "$place/state"

# git passes over .delta, which says so itself, and over empty directories.
cd "$place"
for made in *; do
    if [ -d "$corpus/$made" ]; then continue; fi
    mv "$made/work/.delta" "$made/work/delta"
    find "$made" -name .gitignore -delete
    mkdir -p "$corpus/$made"
    rm -rf "$corpus/$made/agent" "$corpus/$made/work"
    cp -r --preserve=timestamps "$made/agent" "$made/work" "$corpus/$made/"
done
rm -rf "$place"
du -sh "$corpus"
