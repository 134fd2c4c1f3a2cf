# Evaluated before the text of a command is run: has the text in a variable that no child sees, and the new state written when
# the shell ends, in whatever way. The state that the last command left stands behind it. `builtin` stands before every command
# because a session may have functions of any name; the names that begin with __delta_ are not part of the state.

# Each is read only when it is called: to define a function costs more than to keep its text.
__delta_save() { builtin eval @END@; }
trap() { builtin eval @TRAP@; }
# __delta_end STATUS: what `$?` is to be.
__delta_end() { builtin return "$1"; }

# The options of a new shell, for what the command has changed of them.
__delta_options="$SHELLOPTS $BASHOPTS"
builtin export -n __delta_text __delta_trace
builtin trap "{ __delta_status=\$?; __delta_save ${__delta_dir@Q} ${__delta_mark@Q} ${__delta_skip@Q} \"\${FUNCNAME+1}\" \"\$@\"; } 2>/dev/null; builtin eval \"\${__delta_trap-}\"" EXIT
[[ -z ${__delta_long-} ]] || builtin mapfile -d '' -t __delta_text <"$__delta_long"
__delta_arguments=()
builtin cd -- "$__delta_cwd"
# A directory that was removed under the session was made again, so that it can be entered; now it goes.
for ((; ${__delta_gone:-0} > 0; __delta_gone--)); do
    builtin command -p rmdir -- "$__delta_cwd"
    __delta_cwd=${__delta_cwd%/*}
done
# As bash has it before the first `cd`.
builtin unset -v OLDPWD
builtin declare -x OLDPWD
if [[ -v __delta_new ]]; then
    [[ ! -v __delta_oldpwd ]] || builtin export OLDPWD=$__delta_oldpwd
    builtin shopt -s expand_aliases
fi
[[ -z ${__delta_from-} ]] || builtin mapfile -d '' -t __delta_state <"$__delta_from"
builtin unset -v __delta_begin __delta_new __delta_from __delta_long __delta_dir __delta_cwd __delta_gone __delta_skip __delta_mark __delta_oldpwd
[[ -z ${__delta_state-} ]] || builtin eval "$__delta_state"
