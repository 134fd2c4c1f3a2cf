#!/bin/sh
# gate.sh ALLOW: allows a call if a line of the file ALLOW permits its command line.
#
# It fails closed. delta starts the program only if this script exits with 0 and prints nothing; the only `exit 0` is
# after a rule that matches. Everything else, such as a missing jq, a missing file or a malformed line, reaches the end,
# where the call is denied, or exits earlier with a code other than 0, which also denies it.
set -uf # -f: do not expand patterns in a rule or a call to file names

allow=$1

# The arguments of the command line that delta is about to start: the gate checks what runs, not what the call claims.
# @sh quotes each argument for the shell, so `eval` splits them correctly, and executes nothing in them.
words=$(jq -r '.argv | @sh') || exit 1
eval "set -- $words"

# tools/run starts the program that its first argument names: check that program.
if [ "${1-}" = "$AGENT_HOME/tools/run" ]; then
    shift
fi

# Sets `real` to the path with all symlinks resolved, whether or not it exists. The dot preserves newlines at the end of
# a name.
resolve() {
    real=$(realpath -m -- "$1" && printf .) || return 1
    real=${real%??}
}

# option OPTIONS WORD: sets `taken` to the number of arguments that the option uses; fails if it is not in the list.
option() {
    for known in $1; do
        case $known in
            *:) [ "$2:" = "$known" ] && taken=2 && return 0 ;;
            *) [ "$2" = "$known" ] && taken=1 && return 0 ;;
        esac
    done
    return 1
}

# path PATHS WORD: checks whether WORD is one of the paths, or inside one.
path() {
    case $2 in
        # /proc/self and /dev/fd have different content for every process.
        '' | /*) return 1 ;;
    esac
    resolve "$2" || return 1
    for known in $1; do
        # Do not resolve the path of the rule: if src were a symlink to /, it would contain everything.
        case $real in
            "$root/$known" | "$root/$known"/*) return 0 ;;
        esac
    done
    return 1
}

# fits OPTIONS PATHS WORD...: checks that all arguments are allowed: first options, then paths, with or without a `--`
# between them. After the first path, an argument that begins with `-` counts as a path, which no rule has.
fits() {
    options=$1 paths=$2
    shift 2
    while [ $# -gt 0 ]; do
        case $1 in
            --) shift && break ;;
            -*) option "$options" "$1" && [ $# -ge "$taken" ] && shift "$taken" || return 1 ;;
            *) break ;;
        esac
    done
    # Without a path, many programs use the whole directory.
    [ $# -gt 0 ] || return 1
    for word do
        path "$paths" "$word" || return 1
    done
}

resolve . || exit 1
root=$real
while read -r program rule || [ -n "$program" ]; do
    rule=" $rule"
    case $program$rule in
        '#'*) continue ;;
        *' -- '*) ;;
        *) continue ;;
    esac
    if [ "$program" = "${1-}" ] && (shift && fits "${rule%% -- *}" "${rule#* -- }" "$@"); then
        exit 0
    fi
done < "$allow"

# Standard error is the reason that the LLM sees: the list lets it continue with an allowed call.
echo "It is not on the list of what is allowed, which is (\`-e:\` takes the next word):" >&2
grep -v -e '^#' -e '^$' -- "$allow" >&2
exit 1
