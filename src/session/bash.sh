# Sourced before the text of a command is run: reads the text, and the state that the last command left, into variables,
# and has the new state written when the shell ends, in whatever way.
# `builtin` stands before every command because a session may have functions of any name; the names that begin with
# __delta_ are not part of the state.

# __delta_save STATUS DIRECTORY DEPTH NAMES [ARGUMENT...]: writes the state of the shell into DIRECTORY/state.sh, in the
# order in which it can be read again: functions behind variables and aliases, because a function may be named like a
# builtin and an alias must not be expanded in it; options last, because they change how all else is read.
__delta_save() {
    builtin local __delta_status=$1 __delta_dir=$2 __delta_depth=$3 __delta_skip=$4
    builtin local __delta_options __delta_shopts __delta_names __delta_keep __delta_empty __delta_name __delta_level
    builtin shift 4
    builtin set +o >|"$__delta_dir/list" || builtin :
    builtin set +aefuvxbCET +o posix +o pipefail
    builtin mapfile -t __delta_options <"$__delta_dir/list"
    builtin shopt -p >|"$__delta_dir/list"
    builtin mapfile -t __delta_shopts <"$__delta_dir/list"
    builtin shopt -u nocasematch extdebug localvar_unset array_expand_once assoc_expand_once nocaseglob failglob
    builtin pwd >|"$__delta_dir/work_dir.txt"
    __delta_names_of_variables
    {
        builtin printf 'builtin unset -v __delta_from __delta_dir __delta_cwd __delta_gone __delta_skip PATH TERM IFS\n'
        builtin declare -p "${__delta_keep[@]}" "${__delta_empty[@]}"
        # A function that calls `exit` leaves its local variables in front of the shell's own; each is taken away to
        # get at what is behind it.
        for ((__delta_level = 0; __delta_depth && __delta_level < 8; __delta_level++)); do
            builtin unset -v "${__delta_keep[@]}"
            __delta_names_of_variables
            [[ ${#__delta_keep[@]} -gt 0 ]] || builtin break
            builtin printf 'builtin unset -v %s\n' "${__delta_keep[@]}"
            builtin declare -p "${__delta_keep[@]}"
        done
        if [[ -z $__delta_depth ]]; then
            __delta_arguments=("$@")
        fi
        builtin printf '__delta_arguments=('
        [[ ${#__delta_arguments[@]} -eq 0 ]] || builtin printf ' %q' "${__delta_arguments[@]}"
        builtin printf ' )\nbuiltin set -- "${__delta_arguments[@]}"\n'
        for ((__delta_level = ${#DIRSTACK[@]} - 1; __delta_level > 0; __delta_level--)); do
            __delta_name=${DIRSTACK[__delta_level]}
            [[ $__delta_name != '~'* ]] || __delta_name=$HOME${__delta_name#'~'}
            builtin printf 'builtin pushd -n -- %q\n' "$__delta_name"
        done
        builtin alias -p
        builtin umask -p
        builtin printf 'builtin shopt -s extglob\n'
        builtin unset -f __delta_save __delta_names_of_variables __delta_is_foreign __delta_end trap
        builtin declare -f
        builtin declare -Fx >|"$__delta_dir/list"
        builtin declare -Fr >>"$__delta_dir/list"
        builtin declare -Ft >>"$__delta_dir/list"
        builtin mapfile -t __delta_names <"$__delta_dir/list"
        [[ ${#__delta_names[@]} -eq 0 ]] || builtin printf 'builtin %s\n' "${__delta_names[@]}"
        for __delta_name in "${__delta_shopts[@]}"; do
            # These follow from BASH_COMPAT.
            [[ $__delta_name == *compat* ]] || builtin printf 'builtin %s\n' "$__delta_name"
        done
        __delta_level=$__delta_status
        for __delta_name in "${__delta_options[@]}"; do
            case $__delta_name in
                *noexec | *onecmd | *privileged) ;;
                *) builtin printf 'builtin %s\n' "$__delta_name" ;;
            esac
            # Where the last command has failed, `set -e` would end the next one before it begins.
            [[ $__delta_name != 'set -o errexit' ]] || __delta_level=0
        done
        builtin printf '__delta_end %d\n# whole\n' "$__delta_level"
    } >|"$__delta_dir/state.sh"
    if [[ -n ${__delta_trap-} ]]; then
        builtin eval "builtin set -- $__delta_trap"
        __delta_trap=$3
    fi
    builtin return "$__delta_status"
}

# Puts into __delta_keep the names of the variables that belong to the state: not those that bash sets itself; and into
# __delta_empty those that are declared and have no value.
__delta_names_of_variables() {
    __delta_keep=() __delta_empty=()
    builtin compgen -A variable >|"$__delta_dir/list"
    builtin mapfile -t __delta_names <"$__delta_dir/list"
    for __delta_name in "${__delta_names[@]}"; do
        __delta_is_foreign || __delta_keep+=("$__delta_name")
    done
    builtin declare -p >|"$__delta_dir/list"
    builtin mapfile -t __delta_names <"$__delta_dir/list"
    for __delta_name in "${__delta_names[@]}"; do
        if [[ $__delta_name == 'declare -'* && $__delta_name != *=* ]]; then
            __delta_name=${__delta_name##* }
            __delta_is_foreign || __delta_empty+=("$__delta_name")
        fi
    done
}

# Whether the variable __delta_name does not belong to the state.
__delta_is_foreign() {
    case $__delta_name in
        __delta_* | _ | BASH | BASHOPTS | BASHPID | BASH_ALIASES | BASH_ARGC | BASH_ARGV | BASH_ARGV0) ;;
        BASH_CMDS | BASH_COMMAND | BASH_EXECUTION_STRING | BASH_LINENO | BASH_MONOSECONDS | BASH_SOURCE) ;;
        BASH_SUBSHELL | BASH_TRAPSIG | BASH_VERSINFO | BASH_VERSION | COMP_WORDBREAKS | DIRSTACK) ;;
        EPOCHREALTIME | EPOCHSECONDS | EUID | FUNCNAME | GROUPS | HISTCMD | LINENO | PIPESTATUS | PPID) ;;
        RANDOM | SECONDS | SHELLOPTS | SRANDOM | UID) ;;
        *) [[ " $__delta_skip " == *" $__delta_name "* ]] ;;
    esac
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

builtin trap "{ __delta_save \"\$?\" ${__delta_dir@Q} \"\${FUNCNAME+1}\" ${__delta_skip@Q} \"\$@\"; } 2>/dev/null; builtin eval \"\${__delta_trap-}\"" EXIT
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
