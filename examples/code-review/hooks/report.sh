#!/bin/sh
# report.sh: writes calls.md, the calls of the run and what came of each, out of the journal.
set -eu
new=$(mktemp calls.XXXXXX)
trap 'rm -f -- "$new"' EXIT
jq -rs '
    # A value of the LLM stays inside its back quotes, and on its line.
    def call: "\(.tool_name) \(.tool_args | tojson)" | gsub("`"; " ") | .[:100];
    def outcome: if .execution == null then "not run" else "exit code \(.exit_code)" end;
    "# What the reviewer did\n",
    foreach .[] as $event (null;
        if $event.type == "ACTION_REQUEST" then $event else . end;
        if $event.type == "ACTION_RESULT" and .tool_name != "finish" then "- `\(call)`: \($event | outcome)" else empty end)
' "$JOURNAL_PATH" > "$new"
# A link of that name, which the project may hold, is replaced, not followed.
mv -fT -- "$new" calls.md
