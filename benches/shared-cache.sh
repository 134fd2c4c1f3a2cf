#!/usr/bin/env bash
# Whether a run reads what another one has written to a provider's cache: after which delays, and across service tiers. It
# costs some cents, so nothing starts it by itself.
#
#   bash benches/shared-cache.sh MODEL           such as openai:gpt-5.5, responses:gpt-5.6-sol, gemini:gemini-3.8-flash
#
# DELTA names the program, DELAYS the seconds between two runs (0 60 240 600), TIERS the pairs of tiers (direct:direct
# direct:flex flex:direct flex:flex), REPEATS how often each pair is measured (3). A row has what the second run read of its
# request. The exit code is 1 if a run failed.
set -euo pipefail

model="${1:?usage: shared-cache.sh PROVIDER:MODEL}"
delta="$(command -v "${DELTA:-delta}")" || {
    echo "there is no program \`${DELTA:-delta}\`: set DELTA, such as DELTA=target/release/delta" >&2
    exit 2
}
delta="$(realpath "$delta")"
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/agent"
printf 'name: shared-cache\nmax_iterations: 1\n' >"$dir/agent/agent.yaml"
printf 'sources: [{type: file, path: system_prompt.md}, {type: journal}]\n' >"$dir/agent/context.yaml"
cd "$dir"

# ask RUN TIER: one request; prints the usage that the provider reported.
ask() {
    "$delta" run --agent agent -w "$1" --run-id r -q --format raw --model "$model" --tier "$2" -m "Answer: $1" >&2
    jq -c 'select(.type == "THOUGHT") | .usage' "$1/.delta/r/journal.jsonl"
}

printf '%-14s %6s %7s %7s %9s  %s\n' tiers delay input read written 'tier of the answer'
number=0
for delay in ${DELAYS:-0 60 240 600}; do
    for tiers in ${TIERS:-direct:direct direct:flex flex:direct flex:flex}; do
        for _ in $(seq "${REPEATS:-3}"); do
            number=$((number + 1))
            # A prompt that no other pair has, longer than the shortest prefix that any provider caches.
            { echo "$dir $number"; seq 1 3000 | paste -sd ' '; } >agent/system_prompt.md
            ask "first-$number" "${tiers%:*}" >/dev/null
            sleep "$delay"
            ask "second-$number" "${tiers#*:}" | jq -r --arg tiers "$tiers" --arg delay "$delay" '[$tiers, $delay,
                .input_tokens, .cached_input_tokens, .cache_write_tokens // 0, .tier // "not reported"] | @tsv' |
                while IFS=$'\t' read -r -a cells; do
                    printf '%-14s %6s %7s %7s %9s  %s\n' "${cells[@]}"
                done
        done
    done
done
