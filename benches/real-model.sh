#!/usr/bin/env bash
# delta's own jobs with a real language model, SmolLM2-135M-Instruct, which a package of PyPI contains, behind llama.cpp's server:
# a call, a text, ask_human, finish with a schema, a kill in the middle of an answer, a limit, a fork, a replay, a cassette, an
# endpoint that drops the tools, and a sweep. The checks are of what delta promises; what so small a model says has no meaning.
#
#   PYTHON=target/real-model/bin/python bash benches/real-model.sh     `.ci/run real_model` makes that environment and calls this
#
# DELTA names the program. The exit code is 1 if a check failed. It takes half a minute, and three on a busy machine.
set -euo pipefail

delta="$(command -v "${DELTA:-delta}")" || {
    echo "there is no program \`${DELTA:-delta}\`: set DELTA, such as DELTA=target/release/delta" >&2
    exit 2
}
delta="$(realpath "$delta")"
# The directory of the environment: its python is a link.
python="$(cd "$(dirname "$PYTHON")" && pwd)/$(basename "$PYTHON")"
here="$(cd "$(dirname "$0")" && pwd)/real-model"
dir="$(mktemp -d)"
servers=()
finish() {
    if [ ${#servers[@]} != 0 ]; then kill "${servers[@]}" 2>/dev/null || true; fi
    rm -rf "$dir"
}
trap finish EXIT
cd "$dir"
# No settings of the user.
export HOME="$dir/home" XDG_CONFIG_HOME="$dir/home/.config" XDG_STATE_HOME="$dir/home/.state"
mkdir -p home agent work
while read -r name; do unset "$name"; done < <(compgen -v | grep -E '^(DELTA|OPENAI|ANTHROPIC|GEMINI|GOOGLE)_' || true)

# serve NAME [TEMPLATE]: starts a server, and sets url.
serve() {
    mkfifo "$1"
    "$python" -B "$here/serve.py" "${@:2}" >"$1" 2>"$1.log" &
    servers+=($!)
    read -r url <"$1" || {
        tail "$1.log" >&2
        exit 1
    }
}

say() { echo "$1: ok ($SECONDS s)"; }

fail() {
    echo "$1" >&2
    exit 1
}

# ask CODE RUN [OPTION...]: a run that has to end with this exit code; its RunResult is in RUN.json.
ask() {
    local code=0
    "$delta" run --agent agent -w work --run-id "$2" --no-interactive --format json "${@:3}" >"$2.json" 2>"$2.err" || code=$?
    if [ "$code" != "$1" ]; then
        cat "$2.json" "$2.err" >&2
        fail "$2: exit code $code, and $1 was expected"
    fi
}

# journal RUN FILTER: whether the filter of jq holds for the list of all events.
journal() {
    jq -e -s "$2" "work/.delta/$1/journal.jsonl" >/dev/null || fail "$1: its journal does not show: $2"
}

# result RUN FILTER: whether the filter holds for the RunResult.
result() {
    jq -e "$2" "$1.json" >/dev/null || fail "$1: its result is $(cat "$1.json"), which does not show: $2"
}

# ledger RUN FILTER: whether the filter holds for the list of entries of the ledger.
ledger() {
    jq -e -s "$2" "work/.delta/$1/budget.jsonl" >/dev/null || fail "$1: its ledger does not show: $2"
}

call_of() { printf 'tool_choice={type: function, function: {name: %s}}' "$1"; }

serve tools "$here/tools.jinja"
tools_url="$url"
cat >agent/agent.yaml <<YAML
name: real
llm: {model: smollm2-135m, base_url: $url/v1, max_tokens: 48, temperature: 0}
max_iterations: 3
finish:
  schema:
    type: object
    properties: {lines: {type: integer}}
    required: [lines]
    additionalProperties: false
tools:
  - {name: count_lines, description: Count the lines of a file, exec: "wc -l -- \${file}", ends_run: true}
YAML
echo "You have tools. Do what the user asks with one call of a tool." >agent/system_prompt.md
printf 'sources:\n  - {type: file, id: system_prompt, path: system_prompt.md}\n  - {type: journal}\n' >agent/context.yaml
seq 7 >work/notes.txt
question="How many lines does notes.txt have?"
say "a server with the model"

ask 0 call -m "$question" --llm "$(call_of count_lines)"
journal call '[.[] | select(.type == "ACTION_REQUEST")] | length == 1 and .[0].tool_name == "count_lines"'
journal call 'any(.[]; .type == "THOUGHT" and .usage.input_tokens > 100 and .usage.output_tokens > 0)'
say "a call"

ask 0 text -m "Say hello." --llm tool_choice=none --llm on_length=accept
result text '.status == "COMPLETED" and (.result | type == "string" and length > 0)'
journal text "any(.[]; .type == \"THOUGHT\" and .content == $(jq .result text.json))"
say "a text"

ask 101 question -m "Ask me for the name of the file." --llm "$(call_of ask_human)" --llm max_tokens=128
result question '.status == "WAITING_FOR_INPUT" and (.interaction.prompt | type == "string")'
"$delta" continue question -w work -q --no-interactive --format json -m notes.txt >again.json 2>again.err || [ $? = 101 ] ||
    fail "question: $(cat again.json again.err)"
journal question 'any(.[]; .type == "HUMAN_INPUT_RECEIVED")'
say "ask_human"

ask 0 structured -m "$question" --llm "$(call_of finish)"
result structured '.result | keys == ["lines"] and (.lines | type == "number")'
say "finish with a schema"

# Whether an answer of some length is being written.
slot='
import json, sys, urllib.request
slot = json.load(urllib.request.urlopen(sys.argv[1] + "/slots"))[0]
sys.exit(not (slot["is_processing"] and slot["next_token"][0]["n_decoded"] > 20))'
# The engine dies when the model has written a part of its answer; the request and that part count.
"$delta" run --agent agent -w work --run-id killed -q --no-interactive -m "Tell me a long story of the sea." --max-tokens 5000 \
    --llm tool_choice=none --llm max_tokens=200 --llm temperature=0.8 >/dev/null 2>&1 &
engine=$!
until "$python" -B -c "$slot" "$url"; do
    kill -0 "$engine" 2>/dev/null || fail "killed: the run ended before it could be killed"
done
{ kill -9 "$engine" && wait "$engine"; } 2>/dev/null || true
code=0
"$delta" continue killed -w work -q --no-interactive --format json >killed.json 2>killed.err || code=$?
[ "$code" = 0 ] || [ "$code" = 1 ] || fail "killed: exit code $code: $(cat killed.err)"
ledger killed '[.[] | select(.type == "reserve")] | length == 2'
ledger killed '[.[] | select(.type == "settle")] | length == 2 and .[0].tokens > 100'
say "kill -9 in the middle of an answer"

ask 1 limited -m "$question" --llm "$(call_of ask_human)" --max-tokens 400
result limited '.error.type == "limit"'
ledger limited 'all(.[]; .type != "reserve")'
say "a limit"

"$delta" fork call -w work --at 0 --into forked --run-id forked --continue -q --no-interactive --format json >forked.json 2>forked.err ||
    fail "forked: $(cat forked.json forked.err)"
jq -e -s 'any(.[]; .type == "ACTION_REQUEST" and .tool_name == "count_lines")' forked/.delta/forked/journal.jsonl >/dev/null ||
    fail "forked: it made no call"
say "a fork"

for run in call text question structured killed limited; do
    "$delta" replay "$run" -w work >replay.out 2>&1 || fail "replay $run: $(cat replay.out)"
done
"$delta" replay forked -w forked >replay.out 2>&1 || fail "replay forked: $(cat replay.out)"
say "replays"

# A cassette of the model's answers plays them in a test and in a run.
cp -r agent recorded
sed -i 's/temperature: 0/&, tool_choice: required/' recorded/agent.yaml
sed -i '/^finish:/,/additionalProperties/d; s/^tools:/finish: false\nask_human: false\n&/' recorded/agent.yaml
mkdir recorded/tests
cat >recorded/tests/counts.yaml <<YAML
task: $question
files: {notes.txt: "a\nb\n"}
expect: {called: [{tool: count_lines}]}
YAML
"$delta" test --record recorded >record.out 2>&1 || fail "test --record: $(cat record.out)"
"$delta" test recorded >test.out 2>&1 || fail "test: $(cat test.out)"
code=0
"$delta" run --agent recorded -w played --run-id played -q --model recorded:tests/cassettes/counts.jsonl -m "$question" >played.out 2>&1 || code=$?
"$delta" replay played -w played >replay.out 2>&1 || fail "played: $(cat played.out replay.out)"
jq -e -s 'any(.[]; .type == "ACTION_REQUEST" and .tool_name == "count_lines")' played/.delta/played/journal.jsonl >/dev/null ||
    fail "played: exit code $code, and no call: $(cat played.out)"
say "a cassette"

# The difference is as large as it gets: nothing that the model says changes it.
mkdir sweep
cat >called.sh <<'SH'
#!/bin/sh
jq -e -s 'any(.[]; .type == "THOUGHT" and (.tool_calls | length > 0))' "$JOURNAL_PATH" >/dev/null
SH
chmod +x called.sh
cat >sweep/sweep.yaml <<YAML
name: s
agents: [../recorded]
task: "How many lines does \${input.file} have?"
inputs:
  - {id: notes, file: notes.txt, files: {notes.txt: "a\nb\n"}}
  - {id: list, file: list.txt, files: {list.txt: "a\n"}}
  - {id: diary, file: diary.txt, files: {diary.txt: "a\nb\nc\n"}}
params: {choice: [none, required]}
llm: {tool_choice: "\${param.choice}", temperature: 0.8, seed: "\${repeat}", max_tokens: 48, on_length: accept}
repeats: 2
run: {max_iterations: 1, max_tokens: 20k}
rate: {concurrent: 1}
grade:
  - {name: called, command: [../called.sh]}
YAML
(
    cd sweep
    "$delta" sweep plan && "$delta" sweep run s && "$delta" sweep grade s
) >sweep.out 2>&1 || fail "sweep: $(cat sweep.out)"
"$delta" sweep compare sweep/s --by param.choice >compare.out 2>compare.err || fail "compare: $(cat compare.err)"
"$delta" sweep compare sweep/s --by param.choice --format json >compare.json
jq -e '.comparisons | length == 1 and .[0].pairs == 3 and .[0].difference == -1' compare.json >/dev/null ||
    fail "compare: $(cat compare.out)"
"$delta" sweep compare sweep/s --by param.choice --inputs fixed >compare.out 2>compare.err || fail "compare: $(cat compare.err)"
grep -q "none - required .* (exact)$" compare.out || fail "compare --inputs fixed: $(cat compare.out)"
say "a sweep"

# The model's own template leaves the tools out.
serve plain
ask 0 plain -m "$question" --llm base_url="$url/v1" --llm on_length=accept
grep -q "the endpoint seems to leave the tools out" plain.err || fail "plain: no warning: $(cat plain.err)"
DELTA_BASE_URL="$url/v1" "$delta" models >models.out 2>&1 || fail "models: $(cat models.out)"
grep -q "openai:smollm2-135m  *8192 .* no" models.out || fail "models: $(cat models.out)"
DELTA_BASE_URL="$tools_url/v1" "$delta" models >models.out 2>&1 || fail "models: $(cat models.out)"
grep -q "openai:smollm2-135m  *8192 .* yes" models.out || fail "models: $(cat models.out)"
say "an endpoint that drops the tools"
