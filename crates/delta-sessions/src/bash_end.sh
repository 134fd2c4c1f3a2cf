# Evaluated by __delta_save DEPTH [ARGUMENT...] when the shell ends: prints the state of a shell with these positional
# parameters, in parts. Each ends with a line that is the mark, the last one with the mark and `all`.
# bash writes every line separately, so each costs as much as a small command.
#
# Few shells need the lines between `#if full` and `#end`; __delta_save decides.

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
    # Which of the two exists depends on the version. An error would make bash search for its translation.
    [[ :$BASHOPTS: != *:array_expand_once:* ]] || builtin shopt -u array_expand_once
    [[ :$BASHOPTS: != *:assoc_expand_once:* ]] || builtin shopt -u assoc_expand_once
    #end
    builtin pwd
    builtin echo "$__delta_mark"
    # Not part of the state, or no longer needed.
    builtin unset -v __delta_text __delta_state __delta_plain __delta_full @SKIP@
    builtin declare -p
    #if full
    # When a function calls `exit`, its local variables hide global ones: unset them level by level.
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
