# Evaluated before the text of a command is run: has the text in a variable that no child sees, and the new state written when
# the shell ends, in whatever way. The state that the last command left stands behind it. `builtin` stands before every command
# because a session may have functions of any name; the names that begin with __delta_ are not part of the state.
#
# bash takes longer to read a line than to do what it says: lines between `#if NAME` and `#end` are there only where they are
# needed, and what stands between two `@` is put in their place, quoted.

# Each is read only when it is called: to define a function costs more than to keep its text.
__delta_save() { if [[ $#$1${DIRSTACK[1]-}${__delta_trap-} == 1 && $BASHOPTS != *_expand_once* ]]; then builtin eval "$__delta_plain"; else builtin eval "$__delta_full"; fi; }
trap() { builtin eval @TRAP@; }
# __delta_end STATUS: what `$?` is to be.
__delta_end() { builtin return "$1"; }

# The options of a new shell, for what the command has changed of them.
__delta_options="$SHELLOPTS $BASHOPTS"
builtin export -n __delta_text __delta_plain __delta_full
#if trace
builtin export -n __delta_trace
#end
builtin trap '{ __delta_status=$?; builtin trap - DEBUG ERR RETURN; __delta_save "${FUNCNAME+1}" "$@"; } 2>/dev/null; builtin eval "${__delta_trap-}"' EXIT
#if long
builtin mapfile -d '' -t __delta_text <@LONG@
#end
__delta_arguments=()
builtin cd -- @CWD@
#if gone
# A directory that was removed under the session was made again, so that it can be entered; now it goes.
__delta_cwd=@CWD@
for ((__delta_gone = @GONE@; __delta_gone > 0; __delta_gone--)); do
    builtin command -p rmdir -- "$__delta_cwd"
    __delta_cwd=${__delta_cwd%/*}
done
#end
# As bash has it before the first `cd`.
builtin unset -v OLDPWD __delta_begin
builtin declare -x OLDPWD
#if new
[[ ! -v __delta_oldpwd ]] || builtin export OLDPWD=$__delta_oldpwd
builtin unset -v __delta_oldpwd
builtin shopt -s expand_aliases
#end
#if from
builtin mapfile -d '' -t __delta_state <@FROM@
builtin eval "$__delta_state"
#end
