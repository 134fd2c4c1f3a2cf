# bash completion for @PROGRAM@. Load it with: source <(@PROGRAM@ completions bash)
_@NAME@() {
    local words=() count=0 word prefix='' reply i
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        # bash splits --option=value into three words.
        if ((count > 1)) && [[ $word == = && ${words[count - 1]} == --* || ${words[count - 1]} == --*= ]]; then
            words[count - 1]+=$word
        else
            words[count++]=$word
        fi
    done
    word=${words[count - 1]}
    [[ $word == --*=* ]] && prefix=${word%%=*}=
    # The typed word is still quoted. Candidates are quoted again, unless a quote is open.
    local quote=${word#"$prefix"}
    quote=${quote:0:1}
    words[count - 1]=${word//[\\\"\']/}
    COMPREPLY=()
    local replies
    replies=$(_CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$((count - 1)) @VARIABLE@=bash @PROGRAM@ -- "${words[@]}" 2> /dev/null) || return
    while IFS= read -r reply && [[ $reply ]]; do
        reply=${reply#"$prefix"}
        [[ $quote == [\"\'] ]] || printf -v reply %q "$reply"
        COMPREPLY+=("$reply")
    done <<< "$replies"
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == */ ]]; then
        compopt -o nospace 2> /dev/null
    fi
}
if ! complete -o bashdefault -o nosort -F _@NAME@ @PROGRAM@ 2> /dev/null; then
    # bash before 4.4
    complete -o bashdefault -F _@NAME@ @PROGRAM@
fi
