#!/bin/sh
# run.sh TEXTS WORK: runs an agent for each file TEXTS/*.txt, several at a time, then one that combines their results.
#
# You can start it again at any time: it skips finished runs, resumes stopped ones, and repeats what an endpoint or a disk
# made fail. JOBS sets how many agents run at once. If some fail, it combines the results of the others, and exits with 1.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
texts=$1
work=$2
set --
for text in "$texts"/*.txt; do
    if grep -q '[^[:space:]]' "$text" 2> /dev/null; then set -- "$@" "$text"; fi
done
[ $# -gt 0 ] || { echo "there is no text in $texts" >&2; exit 1; }
finished=$(mktemp)
trap 'rm -f "$finished"' EXIT
export here work finished

# One run for each file, named after it. What an id of a run cannot have becomes `_`, and a checksum keeps such names apart.
# shellcheck disable=SC2016 # the inner shells expand it
printf '%s\0' "$@" | xargs -0 -n 1 -P "${JOBS:-4}" sh -c '
    name=$(basename "$1" .txt)
    id=map.$(printf %s "$name" | LC_ALL=C tr -c "A-Za-z0-9._-" _ | head -c 100)
    [ "$id" = "map.$name" ] || id=$id.$(printf %s "$name" | cksum | cut -d " " -f 1)
    if delta run --agent "$here" -w "$work" --ensure --retry llm,io --run-id "$id" -q --format raw -m - < "$1" > /dev/null
    then echo "$id" >> "$finished"; echo "$id done" >&2
    else echo "$id exited with $?: delta show $id -w $work" >&2; exit 1
    fi' sh || true

# The run that combines them is named after them: other results are combined by another run.
runs=$(sort "$finished")
count=$(wc -l < "$finished")
if [ "$count" -gt 0 ]; then
    id=reduce.$(echo "$runs" | cksum | cut -d ' ' -f 1)
    echo "$runs" | delta run --agent "$here/reduce" -w "$work" --ensure --retry llm,io --run-id "$id" -q --format raw -m -
fi
if [ "$count" -lt $# ]; then
    echo "$(($# - count)) of $# texts are missing; look at their runs, then start this again" >&2
    exit 1
fi
