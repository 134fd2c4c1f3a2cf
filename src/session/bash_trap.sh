# Evaluated by the function `trap`. The trap for EXIT is where the state is written; one that a command sets is remembered
# beside it, and run behind it.

if [[ $BASH_SUBSHELL -ne 0 ]]; then
    builtin trap "$@"
    builtin return
fi
builtin local __delta_ours __delta_status __delta_inherits=${-//[!TE]/}
# A command substitution that inherited a trap for DEBUG would hold what that prints.
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
