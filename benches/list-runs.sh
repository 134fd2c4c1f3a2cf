#!/usr/bin/env bash
# Measures `delta list-runs -r` over 10,000 runs in 200 workspaces, with cached files and, as root, with a cold cache.
# Usage: benches/list-runs.sh [DELTA] [DIR]; the runs are copies of one run of ten iterations.
set -eu
delta=$(realpath "${1:-target/release/delta}")
dir=${2:-$(mktemp -d)}
mkdir -p "$dir/agent"
cd "$dir"
if [ ! -d all ]; then
    cp -r "$OLDPWD"/examples/hello-world/{context.yaml,system_prompt.md} agent/
    printf 'name: a\nllm: {provider: script, model: s.yaml}\ntools:\n  - name: t\n    exec: echo ${text}\n' > agent/agent.yaml
    { echo 'turns:'; for n in $(seq 9); do echo "- call: [{tool: t, args: {text: '$n'}}]"; done; echo '- say: done'; } > agent/s.yaml
    "$delta" run --agent agent -w first --run-id r -q --format raw -m 'Do ten things' > /dev/null
    number=0
    for workspace in $(seq 200); do
        control=all/team$((workspace % 10))/w$workspace/.delta
        mkdir -p "$control"
        cp first/.delta/VERSION "$control"
        for _ in $(seq 50); do
            number=$((number + 1))
            cp -r first/.delta/r "$control/r$number"
            sed -i "s/\"run_id\":\"r\"/\"run_id\":\"r$number\"/" "$control/r$number/journal.jsonl"
            sed -i "s/\"r\"/\"r$number\"/" "$control/r$number/metadata.json"
            touch -d '1 hour ago' "$control/r$number/journal.jsonl"
        done
    done
fi
measure() {
    local began ended
    began=$(date +%s%N)
    "$delta" list-runs -r all > list
    ended=$(date +%s%N)
    echo "$1: $(wc -l < list) runs in $(((ended - began) / 1000000)) ms"
}
measure first
for _ in 1 2 3; do measure cached; done
if sync && echo 3 2> /dev/null > /proc/sys/vm/drop_caches; then
    measure cold
    for _ in 1 2; do
        echo 3 > /proc/sys/vm/drop_caches
        measure cold
    done
fi
echo "$dir"
