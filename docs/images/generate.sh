#!/usr/bin/env bash
# Draw the two pictures of the README: run.svg (a run in a terminal) and view.png (`delta view` of the same run).
#
#   bash docs/images/generate.sh [PROGRAM]     # PROGRAM: target/release/delta by default
#
# It needs `script` (util-linux), python3 and chromium.
set -euo pipefail

images="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$images/../.." && pwd)"
program="$(realpath "${1:-$root/target/release/delta}")"
# The pictures show this directory in place of the temporary one.
shown_dir=/home/me/demo

dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/bin"
ln -s "$program" "$dir/bin/delta"
cp -r "$root/examples" "$dir/examples"
cd "$dir"

cat > session.sh <<'SH'
stty cols 80 rows 50
printf '\033[32m$\033[0m delta run --agent examples/hello-world -w work --format raw \\\n'
printf '    -m "The journal is the run; everything else follows from the journal"\n'
delta run --agent examples/hello-world -w work --run-id hello --format raw \
    -m "The journal is the run; everything else follows from the journal"
SH
env -i PATH="$dir/bin:$PATH" HOME="$dir" TERM=xterm-256color LANG=C.UTF-8 \
    script -qec "sh session.sh" /dev/null < /dev/null > terminal.bytes
sed -i "s|$dir|$shown_dir|g" terminal.bytes
python3 "$images/terminal_svg.py" < terminal.bytes > "$images/run.svg"

delta() { env -i PATH="$dir/bin:$PATH" HOME="$dir" LANG=C.UTF-8 delta "$@"; }
delta view hello -w work -o hello.html > /dev/null
sed -i "s|$dir|$shown_dir|g" hello.html
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --force-dark-mode \
    --user-data-dir="$dir/chromium" --window-size=1200,800 --screenshot="$images/view.png" \
    "file://$dir/hello.html" 2> chromium.log || { cat chromium.log >&2; exit 1; }

ls -l "$images"/*.svg "$images"/*.png
