# What the tools that walk through directories share. They source it.
# They show nothing that `tools/inside` keeps from the agent.
. "$AGENT_HOME/lib/git.sh"

# A directory of the workspace can look like a repository whose configuration starts programs. Without an update of the
# index, git starts no hook.
export GIT_OPTIONAL_LOCKS=0 GIT_CONFIG_COUNT=2
export GIT_CONFIG_KEY_0=safe.bareRepository GIT_CONFIG_VALUE_0=explicit
export GIT_CONFIG_KEY_1=core.fsmonitor GIT_CONFIG_VALUE_1=false

# print_kept_paths: prints the paths below the workspace that the agent must not use, one on a line. `.env`, `.git` and
# `.delta` can be symlinks to other names.
print_kept_paths() {
    here=$(pwd -P)
    for name in .git .env .delta "$AGENT_HOME"; do
        real=$(realpath -m -- "$name")
        case "$real" in
            "$here"/*) printf '%s\n' "${real#"$here"/}" ;;
        esac
    done
}

# enter_directory DIR: changes to it, sets `walker`, and exports what lib/tree.awk needs.
enter_directory() {
    KEPT=$(print_kept_paths)
    PREFIX=$(realpath -m --relative-to=. -- "$1")/
    [ "$PREFIX" != ./ ] || PREFIX=
    export KEPT PREFIX
    cd -- "$1"
    choose_walker
}

# print_paths: prints the paths below the current directory that git does not ignore. git prints another repository as one
# path, which has a slash at its end here.
print_paths() {
    {
        # git still knows the files that were deleted, and prints them before the empty line.
        git -c core.quotePath=false ls-files --deleted
        echo
        # The mode of a submodule is 160000.
        git -c core.quotePath=false ls-files --stage | sed 's/^160000.*/&\//; s/^[^	]*	//'
        git -c core.quotePath=false ls-files --others --exclude-standard
    } | awk 'past { if (!($0 in deleted)) print; next } $0 == "" { past = 1; next } { deleted[$0] }'
}

# enter_repository DIR: changes to a directory that print_paths printed with a slash, and sets `walker`. Without a repository
# there, git would use the one around it.
enter_repository() {
    here=$(pwd -P)
    cd -- "$1" 2> /dev/null || return 1
    # In place of a submodule there can be a symlink, which leads elsewhere.
    [ "$(pwd -P)/" = "$here/$1" ] || return 1
    walker=plain
    [ ! -e .git ] || choose_walker
}

# choose_walker: sets `walker` for the current directory: git, or plain for what git does not know or ignores.
choose_walker() {
    walker=plain
    if [ "$(git rev-parse --is-inside-work-tree 2> /dev/null)" = true ] && [ -z "$(find_link)" ] &&
        ! git check-ignore -q .; then
        walker=git
    fi
}
