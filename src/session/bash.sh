# Sourced before the text of a command is run: reads the text, and the state that the last command left, into variables,
# and has the new state written when the shell ends, in whatever way. What is written is what the builtins print, in as
# few steps as can be; bash.rs puts it together. `builtin` stands before every command because a session may have functions
# of any name; the names that begin with __delta_ are not part of the state.

# __delta_options DIRECTORY: writes the options, and sets those that would get in the way.
__delta_options() {
    builtin set +o >|"$1/options"
    builtin set +aefuvxbCET +o posix +o pipefail
    builtin shopt -p >>"$1/options"
    builtin shopt -u nocasematch extdebug localvar_unset array_expand_once assoc_expand_once failglob
}

# __delta_save DIRECTORY DEPTH [ARGUMENT...]: writes all else, for a shell with these positional parameters.
__delta_save() {
    __delta_dir=$1 __delta_depth=$2
    builtin shift 2
    builtin pwd >|"$__delta_dir/work_dir.txt"
    builtin declare -p >|"$__delta_dir/variables"
    [[ -n $__delta_depth ]] || __delta_arguments=("$@")
    {
        builtin umask -p
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
    } >|"$__delta_dir/shell"
    builtin unset -f __delta_options __delta_save __delta_end trap
    builtin declare -f >|"$__delta_dir/functions"
    {
        builtin declare -Fx
        builtin declare -Fr
        builtin declare -Ft
    } >|"$__delta_dir/attributes"
    # A function that calls `exit` leaves its local variables in front of the shell's own; each is taken away to get at
    # what is behind it.
    for ((__delta_level = 0; ${__delta_depth:-0} && __delta_level < 8; __delta_level++)); do
        builtin compgen -A variable >|"$__delta_dir/list"
        builtin mapfile -t __delta_names <"$__delta_dir/list"
        for __delta_name in "${__delta_names[@]}"; do
            [[ $__delta_name == __delta_* ]] || builtin unset -v "$__delta_name"
        done
        builtin printf '# level\n' >>"$__delta_dir/variables"
        builtin declare -p >>"$__delta_dir/variables"
    done
    if [[ -n ${__delta_trap-} ]]; then
        builtin eval "builtin set -- $__delta_trap"
        __delta_trap=$3
    fi
    # Written last: without it the state is not whole.
    builtin printf '%d\n' "$__delta_status" >|"$__delta_dir/status"
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

builtin trap "{ __delta_status=\$?; __delta_options ${__delta_dir@Q}; builtin unset -v $__delta_skip; __delta_save ${__delta_dir@Q} \"\${FUNCNAME+1}\" \"\$@\"; } 2>/dev/null; builtin eval \"\${__delta_trap-}\"" EXIT
builtin mapfile -d '' -t __delta_text <"$__delta_dir/text"
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
__delta_state=()
if [[ -n ${__delta_from-} ]]; then
    builtin mapfile -d '' -t __delta_state <"$__delta_from"
else
    [[ ! -v __delta_oldpwd ]] || builtin export OLDPWD=$__delta_oldpwd
    builtin unset -v __delta_from __delta_dir __delta_cwd __delta_gone __delta_skip __delta_oldpwd
    builtin shopt -s expand_aliases
fi
