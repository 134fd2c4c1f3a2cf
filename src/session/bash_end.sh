# Evaluated by __delta_save DIRECTORY MARK SKIP DEPTH [ARGUMENT...] when the shell ends: says what the state of a shell with
# these positional parameters is, in parts, each ended by the mark on a line of its own, and the last one by a line that says
# that it was all. bash writes each line by itself, so that each costs as much as a small command.

__delta_dir=$1 __delta_mark=$2 __delta_skip=$3 __delta_depth=$4
builtin shift 4
{
    builtin echo "$__delta_options $SHELLOPTS $BASHOPTS $__delta_status"
    builtin set +aefuvxbCET +o posix +o pipefail
    builtin echo "$__delta_mark"
    builtin shopt -u nocasematch extdebug localvar_unset failglob xpg_echo
    # Which of the two there is, depends on the version; an error would have bash look for its translation.
    if [[ $BASHOPTS == *_expand_once* ]]; then
        [[ :$BASHOPTS: != *:array_expand_once:* ]] || builtin shopt -u array_expand_once
        [[ :$BASHOPTS: != *:assoc_expand_once:* ]] || builtin shopt -u assoc_expand_once
    fi
    builtin pwd
    builtin echo "$__delta_mark"
    # What is not part of the state, and what is no longer needed.
    builtin eval "builtin unset -v __delta_text __delta_state $__delta_skip"
    builtin declare -p
    # A function that calls `exit` leaves its local variables in front of the shell's own; each is taken away to get
    # at what is behind it.
    for ((__delta_level = 0; ${__delta_depth:-0} && __delta_level < 8; __delta_level++)); do
        builtin compgen -A variable >|"$__delta_dir/list"
        builtin mapfile -t __delta_names <"$__delta_dir/list"
        for __delta_name in "${__delta_names[@]}"; do
            [[ $__delta_name == __delta_* ]] || builtin unset -v "$__delta_name"
        done
        builtin echo '# level'
        builtin declare -p
    done
    builtin echo "$__delta_mark"
    builtin umask -p
    [[ -n $__delta_depth ]] || __delta_arguments=("$@")
    if [[ ${#__delta_arguments[@]} -gt 0 ]]; then
        builtin printf '__delta_arguments=('
        builtin printf ' %q' "${__delta_arguments[@]}"
        builtin printf ' )\nbuiltin set -- "${__delta_arguments[@]}"\n'
    fi
    for ((__delta_level = ${#DIRSTACK[@]} - 1; __delta_level > 0; __delta_level--)); do
        __delta_name=${DIRSTACK[__delta_level]}
        [[ $__delta_name != '~'* ]] || __delta_name=$HOME${__delta_name#'~'}
        builtin printf 'builtin pushd -n -- %q\n' "$__delta_name"
    done
    builtin alias -p
    builtin echo "$__delta_mark"
    builtin unset -f __delta_save __delta_end trap
    builtin declare -f
    builtin echo "$__delta_mark"
    builtin declare -Fx
    builtin declare -Fr
    builtin declare -Ft
    builtin echo "$__delta_mark all"
} 1<>"$__delta_dir/parts"
if [[ -n ${__delta_trap-} ]]; then
    builtin eval "builtin set -- $__delta_trap"
    __delta_trap=$3
fi
builtin return "$__delta_status"
