#!/bin/sh
# report.sh: writes calls.md from the journal: the calls of the run and the outcome of each.
set -eu
new=$(mktemp calls.XXXXXX)
trap 'rm -f -- "$new"' EXIT
jq -rs '
    # A value from the LLM stays inside its backquotes, and on its line.
    def call: "\(.tool_name) \(.tool_args | tojson)" | gsub("`"; " ") | .[:100];
    def outcome: if .execution == null then "not run" else "exit code \(.exit_code)" end;
    "# What the reviewer did\n",
    foreach .[] as $event (null;
        if $event.type == "ACTION_REQUEST" then $event else . end;
        if $event.type == "ACTION_RESULT" and .tool_name != "finish" then "- `\(call)`: \($event | outcome)" else empty end)
' "$JOURNAL_PATH" > "$new"
# If the project has a symlink of that name, replace it, do not follow it.
mv -fT -- "$new" calls.md
