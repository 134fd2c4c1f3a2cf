#!/bin/sh
# gate.sh ALLOW: lets a call through when a line of the file ALLOW permits what is about to be started.
#
# It fails shut. delta starts the program only when this leaves with 0 and prints nothing; there is one `exit 0`, behind
# a rule that fits. A missing jq, a missing file, a line that is not understood: everything else comes to the end, where
# the call is denied, or ends earlier with another code than 0, which denies it too.
set -uf # -f: no pattern in a rule or a call becomes the names of files

allow=$1

# The words of the command line that delta is about to start, as they are: what is judged is what runs, not what the
# call says of it. @sh quotes each word for the shell, so `eval` cuts them where they end, and runs nothing of them.
words=$(jq -r '.argv | @sh') || exit 1
eval "set -- $words"

# tools/run starts the program that its first argument names: that one is judged.
if [ "${1-}" = "$AGENT_HOME/tools/run" ]; then
    shift
fi

# Sets `real` to where a path leads, links followed, whether something is there or not. The dot keeps line ends that a
# name may end with.
resolve() {
    real=$(realpath -m -- "$1" && printf .) || return 1
    real=${real%??}
}

# option OPTIONS WORD: how many words the option takes, in `taken`; it fails when it is none of them.
option() {
    for known in $1; do
        case $known in
            *:) [ "$2:" = "$known" ] && taken=2 && return 0 ;;
            *) [ "$2" = "$known" ] && taken=1 && return 0 ;;
        esac
    done
    return 1
}

# path PATHS WORD: whether the word is one of the paths, or below one.
path() {
    case $2 in
        # What is behind /proc/self or /dev/fd is another thing for every process that looks.
        '' | /*) return 1 ;;
    esac
    resolve "$2" || return 1
    for known in $1; do
        # The path of the rule is not resolved: were src a link to /, everything would be in it.
        case $real in
            "$root/$known" | "$root/$known"/*) return 0 ;;
        esac
    done
    return 1
}

# fits OPTIONS PATHS WORD...: whether all words are among them: first options, then, with a `--` between or not, paths.
# What begins with `-` behind the first path is taken for a path, and is none of a rule's.
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
    # Without a path many programs take the whole directory.
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

# Standard error is the reason that the LLM sees: with what it may do it can go on.
echo "It is not on the list of what is allowed, which is (\`-e:\` takes the next word):" >&2
grep -v -e '^#' -e '^$' -- "$allow" >&2
exit 1
