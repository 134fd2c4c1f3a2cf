#!/bin/sh
# incident.sh: writes incident.md from the journal: what was done, and who decided.
set -eu
new=$(mktemp incident.XXXXXX)
trap 'rm -f -- "$new"' EXIT
jq -rs '
    def what: "\(.tool_name) \(.tool_args | tojson)" | gsub("`"; " ") | .[:100];
    "# Incident\n",
    (.[] |
        if .type == "USER_MESSAGE" then "- Alert: \(.content | tojson)"
        elif .type == "ACTION_REQUEST" and .argv then "- `\(what)`"
        elif .type == "APPROVAL_DECISION" then "- \(.by): \(if .approved then "yes" else "no, \(.reason | tojson)" end)"
        elif .type == "HUMAN_INPUT_RECEIVED" then "- answer: \(.response | tojson)"
        else empty end)
' "$JOURNAL_PATH" > "$new"
# If the workspace has a symlink of that name, replace it, do not follow it.
mv -fT -- "$new" incident.md
