# What git starts and reads because the configuration of a repository names it. The tools source it.

# set_config KEY VALUE: sets a variable of git's configuration for the commands that follow.
set_config() {
    export "GIT_CONFIG_KEY_${GIT_CONFIG_COUNT:=0}=$1" "GIT_CONFIG_VALUE_$GIT_CONFIG_COUNT=$2"
    GIT_CONFIG_COUNT=$((GIT_CONFIG_COUNT + 1))
    export GIT_CONFIG_COUNT
}

# only_look: lets commands of git that only look start no program that the repository names, and read no file that it names.
only_look() {
    # Missing objects are not fetched, by whatever program.
    export GIT_NO_LAZY_FETCH=1 GIT_ALLOW_PROTOCOL=none GIT_OPTIONAL_LOCKS=0
    # The files are the ones here, wherever the repository has its own.
    if git config core.worktree > /dev/null; then
        GIT_WORK_TREE=$(pwd -P)
        export GIT_WORK_TREE
    fi
    set_config core.fsmonitor false
    set_config log.showSignature false
    set_config format.pretty medium
    set_config blame.ignoreRevsFile ""
    set_config core.attributesFile /dev/null
    set_config mailmap.file /dev/null
    # In a submodule, git would follow the configuration there.
    set_config diff.ignoreSubmodules dirty
    set_config diff.submodule short
    set_config status.submoduleSummary false
    # In another locale, a name with bytes that are not UTF-8 would match nothing.
    locale=${LC_ALL-}
    LC_ALL=C
    export LC_ALL
    drivers='^(diff\.external|filter\..*\.(clean|smudge|process)|diff\..*\.(textconv|command)|submodule\..*\.ignore)$'
    keys=$(
        modules=$(git rev-parse --show-toplevel 2> /dev/null)/.gitmodules || :
        for from in "" "--file=$modules" --blob=:.gitmodules --blob=HEAD:.gitmodules; do
            git config ${from:+"$from"} --name-only --get-regexp "$drivers" 2> /dev/null || :
        done | sort -u
    )
    set -f
    IFS='
'
    for key in $keys; do
        case $key in
            filter.*) set_config "$key" "" && set_config "${key%.*}.required" false ;;
            submodule.*) set_config "$key" dirty ;;
            *.textconv) set_config "$key" cat ;;
            *) set_config "$key" 'show() { diff -u -- "$2" "$5"; :; }; show' ;;
        esac
    done
    unset IFS
    set +f
    LC_ALL=$locale
    [ -n "$locale" ] || unset LC_ALL
}

# find_link: prints a file of the repository that is a link to a file of another name, if there is one: git prints the lines
# there that it does not understand.
find_link() {
    # Directories can be links, too.
    find -L "$(git rev-parse --git-dir)/" "$(git rev-parse --git-common-dir)/" -maxdepth 3 \
        \( -path '*/objects/??' -o -path '*/refs' -o -path '*/hooks' -o -path '*/modules' \) -prune -o -type f -print \
        2> /dev/null |
        while IFS= read -r link; do
            [ -L "$link" ] || continue
            target=$(realpath -m -- "$link")
            if [ "${target##*/}" != "${link##*/}" ]; then
                printf '%s\n' "$link"
                break
            fi
        done
}

# find_elsewhere: prints the repository, or a directory in it, if it is outside of its work tree and does not name it. A file
# `.git` can name any, and a link too.
find_elsewhere() {
    top=$(git rev-parse --show-toplevel 2> /dev/null) || return 0
    common=$(realpath -m -- "$(git rev-parse --git-common-dir)")
    own=$(realpath -m -- "$(git rev-parse --git-dir)")
    for dir in "$common"/* "$own"/*; do
        if [ -L "$dir" ] && [ -d "$dir" ]; then
            case $(realpath -m -- "$dir") in
                "$common"/* | "$top"/*) ;;
                *) printf '%s\n' "$dir" && return 0 ;;
            esac
        fi
    done
    case $common in "$top"/*) return 0 ;; esac
    case $own in
        # A linked work tree.
        "$common"/worktrees/*) [ "$(realpath -m -- "$(cat "$own/gitdir")")" != "$top/.git" ] || return 0 ;;
        # A submodule.
        "$common")
            if tree=$(git config --local core.worktree); then
                tree=$(cd -- "$own" && realpath -m -- "$tree")
                case $(pwd -P)/ in "$tree"/*) return 0 ;; esac
            fi
            ;;
    esac
    printf '%s\n' "$common"
}

# is_followed FILE: whether git follows the file: its configuration with what it includes, and hooks, wherever they are.
is_followed() {
    command -v git > /dev/null || return 1
    hooks=$(git rev-parse --git-path hooks 2> /dev/null) || return 1
    hooks=$(realpath -m -- "$hooks")
    # husky has its entry points in a directory below the one with the hooks.
    case $hooks in */_) hooks=${hooks%/_} ;; esac
    case $1 in "$hooks" | "$hooks"/*) return 0 ;; esac
    top=$(git rev-parse --show-toplevel 2> /dev/null) || return 1
    # Files of configuration, and the ones that they include or would include once they exist.
    {
        git config --list --show-origin --name-only 2> /dev/null | sed -n 's/^file:\([^	]*\)	.*/\1/p' | sort -u
        git config --show-origin --get-regexp '^include(if\..*)?\.path$' 2> /dev/null |
            sed -n 's/^file:\([^	]*\)	[^ ]* \(.*\)/\1	\2/p' |
            while IFS='	' read -r origin included; do
                case $included in
                    /*) printf '%s\n' "$included" ;;
                    *) printf '%s/%s\n' "$(dirname -- "$origin")" "$included" ;;
                esac
            done
    } | (
        cd -- "$top" || exit 1
        while IFS= read -r name; do
            [ "$(realpath -m -- "$name")" != "$1" ] || exit 0
        done
        exit 1
    )
}
