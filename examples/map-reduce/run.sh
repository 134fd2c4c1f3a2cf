#!/bin/sh
# run.sh TEXTS WORK: an agent for each file TEXTS/*.txt, some at a time, then one that puts the results together.
#
# Start it again as often as you like: what is done is not done again, what was stopped goes on.
# JOBS says how many agents work at once. The first failure ends it, and what the others do is finished first.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
texts=$1
work=$2
export here work

# One run for each file, named after it; xargs leaves with 123 when any of them failed.
# shellcheck disable=SC2016 # the inner shells expand it
printf '%s\0' "$texts"/*.txt | xargs -0 -n 1 -P "${JOBS:-4}" sh -c '
    id=map.$(basename "$1" .txt)
    if delta run --agent "$here" -w "$work" --ensure --run-id "$id" -q --format raw -m - < "$1" > /dev/null
    then echo "$id done" >&2
    else echo "$id left with $?: delta show $id -w $work" >&2; exit 1
    fi' sh

delta run --agent "$here/reduce" -w "$work" --ensure --run-id reduce -q --format raw -m "Add up the counts"
