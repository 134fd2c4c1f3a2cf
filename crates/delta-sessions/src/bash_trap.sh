# Evaluated by the function `trap`. The real EXIT trap writes the state. One that a command sets is kept in __delta_trap and
# runs after it.

if [[ $BASH_SUBSHELL -ne 0 ]]; then
    builtin trap "$@"
    builtin return
fi
builtin local __delta_ours __delta_status __delta_inherits=${-//[!TE]/}
# An inherited DEBUG trap would print into the command substitution.
builtin set +TE
__delta_ours=$(builtin trap -p EXIT)
builtin trap - EXIT
builtin eval "builtin ${__delta_trap:-:}"
builtin trap "$@"
__delta_status=$?
__delta_trap=$(builtin trap -p EXIT)
builtin eval "builtin $__delta_ours"
[[ -z $__delta_inherits ]] || builtin set "-$__delta_inherits"
builtin return "$__delta_status"
