# Evaluated by __delta_save DEPTH [ARGUMENT...] when the shell ends: says what the state of a shell with these positional
# parameters is, in parts, each ended by the mark on a line of its own, and the last one by a line that says that it was all.
# bash writes each line by itself, so that each costs as much as a small command.
#
# What stands between `#if full` and `#end` is needed by few shells; __delta_save knows by which.

#if full
__delta_depth=$1
#end
builtin shift
{
    __delta_options="$__delta_options $SHELLOPTS $BASHOPTS $__delta_status" __delta_mark=@MARK@
    builtin set +aefuvxbCET +o posix +o pipefail
    builtin shopt -u nocasematch extdebug localvar_unset failglob xpg_echo
    builtin echo "$__delta_options"
    builtin echo "$__delta_mark"
    #if full
    # Which of the two there is, depends on the version; an error would have bash look for its translation.
    [[ :$BASHOPTS: != *:array_expand_once:* ]] || builtin shopt -u array_expand_once
    [[ :$BASHOPTS: != *:assoc_expand_once:* ]] || builtin shopt -u assoc_expand_once
    #end
    builtin pwd
    builtin echo "$__delta_mark"
    # What is not part of the state, and what is no longer needed.
    builtin unset -v __delta_text __delta_state __delta_plain __delta_full @SKIP@
    builtin declare -p
    #if full
    # A function that calls `exit` leaves its local variables in front of the shell's own; each is taken away to get
    # at what is behind it.
    for ((__delta_level = 0; ${__delta_depth:-0} && __delta_level < 8; __delta_level++)); do
        builtin compgen -A variable >|@LIST@
        builtin mapfile -t __delta_names <@LIST@
        for __delta_name in "${__delta_names[@]}"; do
            [[ $__delta_name == __delta_* ]] || builtin unset -v "$__delta_name"
        done
        builtin echo '# level'
        builtin declare -p
    done
    #end
    builtin echo "$__delta_mark"
    builtin umask -p
    #if full
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
    #end
    builtin alias -p
    builtin echo "$__delta_mark"
    builtin unset -f __delta_save __delta_end trap
    builtin declare -f
    builtin echo "$__delta_mark"
    builtin declare -Fxrt
    builtin echo "$__delta_mark all"
} 1<>@PARTS@
#if full
if [[ -n ${__delta_trap-} ]]; then
    builtin eval "builtin set -- $__delta_trap"
    __delta_trap=$3
fi
#end
builtin return "$__delta_status"
