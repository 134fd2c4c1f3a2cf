# What the tools that read and write files share. They source it.

fail() {
    printf '%s\n' "$1" >&2
    exit 1
}

# resolve_file PATH: sets `file` to the real path. It is absolute, so no program takes it for an option.
resolve_file() {
    # The dot preserves newlines at the end of a name.
    file=$(realpath -m -- "$1" && printf .)
    file=${file%??}
}

# require_text_file PATH: sets `file` and `size`; fails if the agent cannot read PATH as text.
require_text_file() {
    resolve_file "$1"
    [ ! -d "$file" ] || fail "$1 is a directory; \`list\` shows what is in it"
    [ -e "$file" ] || fail "there is no file $1"
    [ -f "$file" ] || fail "$1 is not a regular file"
    [ -r "$file" ] || fail "$1 is not readable"
    size=$(($(wc -c < "$file")))
    [ "$(($(tr -d '\000' < "$file" | wc -c)))" -eq "$size" ] || fail "$1 is a binary file of $size bytes"
}

. "$AGENT_HOME/lib/git.sh"

# create_temporary: creates an empty file next to `file`, with the owner and the mode of `file` if that exists; sets
# `temporary`. replace_file makes it the file in one step: an interrupted or failed write changes nothing.
create_temporary() {
    ! is_followed "$file" || fail "git reads or runs $1 because its configuration names it, so this agent may not change it; say what to change"
    if [ -e "$file" ] && [ ! -w "$file" ]; then
        fail "$1 is read-only"
    fi
    temporary=$(mktemp -- "${file%/*}/.delta-write-XXXXXX")
    trap 'rm -f -- "$temporary"' EXIT
    trap 'exit 143' HUP INT TERM
    if [ -e "$file" ]; then
        cp -p -- "$file" "$temporary"
    else
        chmod "$(printf '%o' "$((0666 & ~$(umask)))")" "$temporary"
    fi
}

replace_file() {
    mv -f -- "$temporary" "$file"
}
