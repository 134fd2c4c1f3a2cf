#!/bin/sh
# run.sh TEXTS WORK: runs an agent for each file TEXTS/*.txt, several at a time, then one that combines the results.
#
# You can start it again at any time: it skips finished runs and resumes stopped ones.
# JOBS sets how many agents run at once. After a failure it waits for the running agents, and then fails.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
texts=$1
work=$2
export here work

# One run for each file, named after it; xargs exits with 123 if any of them failed.
# shellcheck disable=SC2016 # the inner shells expand it
printf '%s\0' "$texts"/*.txt | xargs -0 -n 1 -P "${JOBS:-4}" sh -c '
    id=map.$(basename "$1" .txt)
    if delta run --agent "$here" -w "$work" --ensure --run-id "$id" -q --format raw -m - < "$1" > /dev/null
    then echo "$id done" >&2
    else echo "$id left with $?: delta show $id -w $work" >&2; exit 1
    fi' sh

delta run --agent "$here/reduce" -w "$work" --ensure --run-id reduce -q --format raw -m "Add up the counts"
