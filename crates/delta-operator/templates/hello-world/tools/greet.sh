#!/bin/sh
# greet.sh NAME STYLE: prints a greeting. You can write a tool in any language; arguments in, text out.
set -eu
case "$2" in
    loud) printf 'HELLO, %s!\n' "$1" | tr '[:lower:]' '[:upper:]' ;;
    *) printf 'Hello, %s!\n' "$1" ;;
esac
