#!/usr/bin/env bash
# Sends the spans of a run to Arize Phoenix, a real OTLP receiver, as protobuf, and reads them back from its API.
# Needs python3 and PyPI (600 MB below a temporary directory).
#
#   bash benches/otlp-receivers.sh
#
# DELTA names the program. The exit code is 1 if a span was refused or did not arrive. Run this after a change of
# `delta export --to otlp`; it takes one to three minutes. tests/wire compares the encodings without a receiver.
set -euo pipefail

delta="$(command -v "${DELTA:-delta}")" || {
    echo "there is no program \`${DELTA:-delta}\`: set DELTA, such as DELTA=target/release/delta" >&2
    exit 2
}
delta="$(realpath "$delta")"
agent="$(realpath "$(dirname "$0")/../examples/hello-world")"
dir="$(mktemp -d)"
server=""
finish() {
    if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; fi
    rm -rf "$dir"
}
trap finish EXIT
cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet arize-phoenix==20.26.1

port="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
grpc="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
export PHOENIX_HOST=127.0.0.1 PHOENIX_PORT="$port" PHOENIX_GRPC_PORT="$grpc" PHOENIX_WORKING_DIR="$dir/phoenix"
export PHOENIX_TELEMETRY_ENABLED=false
venv/bin/phoenix serve >phoenix.log 2>&1 &
server=$!
for attempt in $(seq 600); do
    if curl --silent --fail "http://127.0.0.1:$port/healthz" >/dev/null; then break; fi
    if [ "$attempt" = 600 ] || ! kill -0 "$server" 2>/dev/null; then
        echo "Phoenix did not start:" >&2
        tail -n 20 phoenix.log >&2
        exit 1
    fi
    sleep 1
done

"$delta" run --agent "$agent" -w work --run-id r -q --format raw -m "three words: words, words" >/dev/null
"$delta" export r -w work --to otlp | jq -r '.resourceSpans[].scopeSpans[].spans[] | "\(.name) \(.spanId)"' | sort >expected
if OTEL_EXPORTER_OTLP_PROTOCOL=http/json "$delta" export r -w work --to otlp --endpoint "http://127.0.0.1:$port"; then
    echo "Phoenix takes JSON too"
fi
"$delta" export r -w work --to otlp --content --endpoint "http://127.0.0.1:$port"

# Phoenix stores spans a moment after it has accepted them.
for _ in $(seq 60); do
    curl --silent "http://127.0.0.1:$port/v1/projects/default/spans?limit=100" |
        jq -r '.data[]? | "\(.name) \(.context.span_id)"' | sort >found
    if cmp -s expected found; then
        echo "Phoenix has all $(wc -l <found) spans"
        exit 0
    fi
    sleep 1
done
diff expected found >&2 || true
exit 1
