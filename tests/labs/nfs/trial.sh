#!/bin/bash
# trial.sh DELTA v4|v3|nolock none|cut|pause|stop|skew [RUNS] [ACTS]: runs that two hosts want at the same time, and a fault of
# the host that has them. Each run has ACTS tool calls, each of which notes on its host that it was made. Prints one line:
# how many calls were made twice, which must be 0, how many are unknown to the run, how many their owner stopped because it
# was silent, and how many are none of these, which must be 0; and how many runs do not agree with their records. Needs `lab.sh up`.
set -u
here=$(cd "$(dirname "$0")" && pwd)
lab=${LAB:-/tmp/delta-nfs-lab}
delta=$(realpath "$1") mount=$2 fault=$3 runs=${4:-6} acts=${5:-12}
name=$mount-$fault-$$
dir=/mnt/$mount/$name
agent=$lab/agent-$acts
in_guest() { LAB=$lab "$here/lab.sh" in "$@"; }

write_agent() {
    mkdir -p "$agent"
    cat >"$agent/agent.yaml" <<'YAML'
name: counting
llm: {provider: script, model: script.yaml}
max_iterations: 1000
tools:
  - name: act
    shell: echo "$DELTA_RUN_ID ${n}" >> /root/effects; sleep 0.3
YAML
    echo 'Do what the script says.' >"$agent/system_prompt.md"
    printf 'sources:\n  - {type: journal, id: conversation}\n' >"$agent/context.yaml"
    echo 'turns:' >"$agent/script.yaml"
    for n in $(seq "$acts"); do echo "  - call: [{tool: act, args: {n: '$n'}}]" >>"$agent/script.yaml"; done
    echo '  - say: done' >>"$agent/script.yaml"
}

ask() {
    in_guest "$1" "DELTA_SEAL_KEY_FILE=$lab/seal.key TTL=${TTL:-3s} timeout 300 $here/batch.sh $delta $agent $dir $runs $2" \
        >"$out/$1.codes" 2>&1
}

[ -f "$lab/seal.key" ] || (umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$lab/seal.key")
write_agent
out=$(mktemp -d)
start=$SECONDS
for guest in one two; do in_guest $guest "rm -f /root/effects; touch /root/effects"; done
in_guest one "mkdir -p $dir"
ask one "$fault" &
for _ in $(seq 60); do
    begun=$(in_guest server "ls /mnt/disk/$name/*/.delta/*/lease/000002 2>/dev/null | wc -l")
    [ "${begun:-0}" -ge "$runs" ] && break
    sleep 0.5
done
ask two none &
case $fault in
cut) sleep 2; LAB=$lab "$here/lab.sh" cut one; sleep 12; LAB=$lab "$here/lab.sh" heal one ;;
pause) sleep 2; LAB=$lab "$here/lab.sh" pause one; sleep 10; LAB=$lab "$here/lab.sh" resume one ;;
skew)
    for change in two:+1hour one:-1hour two:-2hours; do
        sleep 2
        in_guest "${change%%:*}" "date -s '$(date -d "${change#*:}" '+%F %T')'" >/dev/null
    done ;;
esac
wait
for guest in one two; do in_guest $guest "cat /root/effects" >"$out/$guest.effects"; done
in_guest two "cd $dir && for run in r*; do \
    DELTA_STATE_DIR=/root/state DELTA_SEAL_KEY_FILE=$lab/seal.key $delta replay \$run -w \$run >/dev/null 2>&1 || echo \$run; done" >"$out/damaged"
in_guest two "cd $dir && $delta list-runs -r . --format json" >"$out/list"
# The calls with such an observation.
observed() {
    in_guest server "cd /mnt/disk/$name && for run in r*; do grep -h '$1' \$run/.delta/\$run/journal.jsonl | \
        grep '\"type\":\"ACTION_RESULT\"' | sed 's/.*\"call_id\":\"call_\([0-9]*\)_1\".*/\1/' | sed \"s/^/\$run /\"; done" | sort -u
}
observed 'the engine stopped during this call' >"$out/unknown"
observed 'interrupted: a person or the system stopped the engine' >"$out/stopped"
sort -u "$out"/*.effects >"$out/made"
twice=$(cat "$out"/*.effects | sort | uniq -d | wc -l)
for run in $(seq "$runs"); do for n in $(seq "$acts"); do echo "r$run $n"; done; done | sort >"$out/all"
sort -u "$out/made" "$out/unknown" "$out/stopped" | comm -23 "$out/all" - >"$out/lost"
lost=$(wc -l <"$out/lost")
completed=$(grep -o '"status":"COMPLETED"' "$out/list" | wc -l)
owners=$(in_guest server "ls /mnt/disk/$name/r*/.delta/r*/lease/token.* | wc -l")
echo "$mount $fault: $runs runs, $((runs * acts)) calls, $owners claims; twice $twice, unknown $(wc -l <"$out/unknown"), stopped $(wc -l <"$out/stopped"), lost $lost," \
    "damaged $(wc -l <"$out/damaged"), not completed $((runs - completed)); $((SECONDS - start)) s" \
    "(one: $(cat "$out/one.codes")two: $(cat "$out/two.codes"))"
in_guest server "rm -rf /mnt/disk/$name"
[ "$twice" = 0 ] && [ "$lost" = 0 ] && [ ! -s "$out/damaged" ] && [ "$completed" = "$runs" ]
code=$?
while read -r run n; do
    echo "lost: call $n of $run" >&2
done <"$out/lost"
[ $code = 0 ] && rm -rf "$out" || echo "kept: $out" >&2
exit $code
