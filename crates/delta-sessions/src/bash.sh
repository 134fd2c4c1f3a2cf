# Evaluated before the text of a command: puts the text into a variable that no child inherits, and ensures that the state is
# written however the shell ends. The saved state follows this script. Every command starts with `builtin` because a session
# may have functions of any name. Names that begin with __delta_ are not part of the state.
#
# bash takes longer to read a line than to execute it, so this is a template: lines between `#if NAME` and `#end` are left out
# where they are not needed, and @NAME@ is replaced by a quoted value.

# The scripts are evaluated only when called: defining functions costs more than keeping their text.
__delta_save() { if [[ $#$1${DIRSTACK[1]-}${__delta_trap-} == 1 && $BASHOPTS != *_expand_once* ]]; then builtin eval "$__delta_plain"; else builtin eval "$__delta_full"; fi; }
trap() { builtin eval @TRAP@; }
# __delta_end STATUS: sets `$?`.
__delta_end() { builtin return "$1"; }

# The options of a new shell, to find out which ones the command changes.
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
# The working directory was removed, and created again only to be entered: remove it.
__delta_cwd=@CWD@
for ((__delta_gone = @GONE@; __delta_gone > 0; __delta_gone--)); do
    builtin command -p rmdir -- "$__delta_cwd"
    __delta_cwd=${__delta_cwd%/*}
done
#end
# As in bash before the first `cd`.
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
