#!/usr/bin/env bash
# Measures delta and other command-line agents with the same scripted answers and the same calls of `true`; prints a Markdown table.
# Needs python3, npm, /usr/bin/time, PyPI and the npm registry (1.6 GB in target/peers); the runs have only loopback.
#
#   DELTA=target/release/delta bash benches/peers.sh
#
# DELTA names the program, ROUNDS the number of runs of each median (5), PEERS the agents to measure (llm,codex). It takes some
# minutes and needs an idle machine; after ten minutes no round starts. A peer that cannot be installed is named and skipped.
set -euo pipefail

delta="$(command -v "${DELTA:-delta}")" || {
    echo "there is no program \`${DELTA:-delta}\`: set DELTA, such as DELTA=target/release/delta" >&2
    exit 2
}
delta="$(realpath "$delta")"
for need in python3 npm /usr/bin/time unshare; do
    command -v "$need" >/dev/null || {
        echo "$need is missing" >&2
        exit 2
    }
done
here="$(cd "$(dirname "$0")" && pwd)/peers"
mkdir -p "$here/../../target/peers"
dir="$(cd "$here/../../target/peers" && pwd)"

# install NAME COMMAND...: once, unless the script's version is another one.
install() {
    local name="$1" stamp="$dir/$1/.installed"
    shift
    if [ "$(cat "$stamp" 2>/dev/null)" = "$*" ]; then return; fi
    rm -rf "${dir:?}/$name"
    mkdir "$dir/$name"
    if timeout 300 "$@" >"$dir/$name.log" 2>&1; then
        echo "$*" >"$stamp"
    else
        echo "not installed: $name: $(tail -n 1 "$dir/$name.log")" >&2
        rm -rf "${dir:?}/$name"
    fi
}
# Without pip itself, so that the size is the agent's.
pypi() { install "$1" sh -c 'python3 -m venv --without-pip "$0" && python3 -m pip --python "$0/bin/python" install --quiet "$1"' "$dir/$1" "$1==$2"; }
npm_package() { install "$1" npm install --no-audit --no-fund --prefix "$dir/$1" "$2"; }

pypi mini-swe-agent 2.4.6
pypi llm 0.36
npm_package codex @openai/codex@0.171.0
npm_package opencode opencode-ai@1.18.33

namespace=(unshare --net)
if [ "$(id -u)" != 0 ]; then namespace+=(--map-root-user); fi
PYTHONDONTWRITEBYTECODE=1 exec "${namespace[@]}" python3 "$here/measure.py" "$delta" "$dir"
