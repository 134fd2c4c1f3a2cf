#!/bin/bash
# batch.sh DELTA AGENT DIR RUNS FAULT: in a guest, asks for RUNS runs in DIR at once and waits for all. With the fault `stop`
# each engine is stopped for some seconds again and again. Prints how many ended with which exit code.
set -u
delta=$1 agent=$2 dir=$3 runs=$4 fault=$5
export DELTA_STATE_DIR=/root/state DELTA_LEASE_TTL=${TTL:-3s}
ask() {
    "$delta" run --ensure --run-id "$1" -w "$dir/$1" --agent "$agent" -q --no-interactive -m go >/dev/null 2>>"/root/errors" &
    local pid=$!
    if [ "$fault" = stop ]; then
        while sleep $((RANDOM % 6 + 1)).$((RANDOM % 10)); kill -STOP $pid 2>/dev/null; do
            sleep $((RANDOM % 7 + 2)).$((RANDOM % 10))
            kill -CONT $pid
        done
    fi
    wait $pid
    echo $? >>/root/codes
}
rm -f /root/codes /root/errors
for number in $(seq "$runs"); do ask "r$number" & done
wait
sort /root/codes | uniq -c | awk '{printf "exit %s: %s  ", $2, $1}'
