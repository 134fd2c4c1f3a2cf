# Evaluated before the text of a command is run: has the text, and the state that the last command left, in variables that
# no child sees, and the new state written when the shell ends, in whatever way. What is written is what the builtins print,
# in as few steps as can be; bash.rs puts it together. `builtin` stands before every command because a session may have
# functions of any name; the names that begin with __delta_ are not part of the state.

# __delta_save DIRECTORY MARK SKIP DEPTH [ARGUMENT...]: writes the state of a shell with these positional parameters in
# parts, each ended by the mark on a line of its own. All of it into one file: each redirection costs as much as it holds,
# and so does each line. The file is empty and stays: to make one, or to cut one off, costs more than to fill it.
__delta_save() {
    __delta_dir=$1 __delta_mark=$2 __delta_skip=$3 __delta_depth=$4
    builtin shift 4
    {
        builtin echo "$__delta_options $SHELLOPTS $BASHOPTS"
        builtin set +aefuvxbCET +o posix +o pipefail
        builtin echo "$__delta_mark"
        builtin shopt -u nocasematch extdebug localvar_unset failglob xpg_echo
        # Which of the two there is, depends on the version; an error would have bash look for its translation.
        [[ :$BASHOPTS: != *:array_expand_once:* ]] || builtin shopt -u array_expand_once
        [[ :$BASHOPTS: != *:assoc_expand_once:* ]] || builtin shopt -u assoc_expand_once
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
        builtin echo "$__delta_mark"
        # Last: without it the state is not whole.
        builtin echo "$__delta_status"
        builtin echo "$__delta_mark"
    } 1<>"$__delta_dir/parts"
    if [[ -n ${__delta_trap-} ]]; then
        builtin eval "builtin set -- $__delta_trap"
        __delta_trap=$3
    fi
    builtin return "$__delta_status"
}

# __delta_end STATUS: what `$?` is to be.
__delta_end() {
    builtin return "$1"
}

# The trap for EXIT is where the state is written. One that a command sets is remembered beside it, and run behind it.
trap() {
    if [[ $BASH_SUBSHELL -ne 0 ]]; then
        builtin trap "$@"
        builtin return
    fi
    builtin local __delta_ours __delta_status
    __delta_ours=$(builtin trap -p EXIT)
    builtin trap - EXIT
    builtin eval "builtin ${__delta_trap:-:}"
    builtin trap "$@"
    __delta_status=$?
    __delta_trap=$(builtin trap -p EXIT)
    builtin eval "builtin $__delta_ours"
    builtin return "$__delta_status"
}

# The options of a new shell, for what the command has changed of them.
__delta_options="$SHELLOPTS $BASHOPTS"
builtin export -n __delta_text __delta_state __delta_trace
builtin trap "{ __delta_status=\$?; __delta_save ${__delta_dir@Q} ${__delta_mark@Q} ${__delta_skip@Q} \"\${FUNCNAME+1}\" \"\$@\"; } 2>/dev/null; builtin eval \"\${__delta_trap-}\"" EXIT
[[ -z ${__delta_long-} ]] || builtin mapfile -d '' -t __delta_text <"$__delta_long"
__delta_arguments=()
builtin cd -- "$__delta_cwd" 2>/dev/null
# A directory that was removed under the session was made again, so that it can be entered; now it goes.
for ((; ${__delta_gone:-0} > 0; __delta_gone--)); do
    builtin command -p rmdir -- "$__delta_cwd" 2>/dev/null
    __delta_cwd=${__delta_cwd%/*}
done
# As bash has it before the first `cd`.
builtin unset -v OLDPWD
builtin declare -x OLDPWD
if [[ -n ${__delta_from-} ]]; then
    builtin mapfile -d '' -t __delta_state <"$__delta_from"
elif [[ -z ${__delta_state-} ]]; then
    [[ ! -v __delta_oldpwd ]] || builtin export OLDPWD=$__delta_oldpwd
    builtin shopt -s expand_aliases
fi
builtin unset -v __delta_begin __delta_from __delta_long __delta_dir __delta_cwd __delta_gone __delta_skip __delta_mark __delta_oldpwd
