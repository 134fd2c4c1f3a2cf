# What the tools that walk through directories share. They source it.
# They show nothing that `tools/inside` keeps from the agent.
. "$AGENT_HOME/lib/git.sh"

# A directory of the workspace can look like a repository whose configuration starts programs. Without an update of the
# index, git starts no hook.
export GIT_OPTIONAL_LOCKS=0 GIT_CONFIG_COUNT=3
export GIT_CONFIG_KEY_0=safe.bareRepository GIT_CONFIG_VALUE_0=explicit
export GIT_CONFIG_KEY_1=core.fsmonitor GIT_CONFIG_VALUE_1=false
# What a repository of another user ignores is ignored, too. This comes last: is_refused leaves it out.
export GIT_CONFIG_KEY_2=safe.directory GIT_CONFIG_VALUE_2='*'

# is_refused: whether git refuses the repository, because it belongs to another user.
is_refused() {
    ! GIT_CONFIG_COUNT=2 git rev-parse --git-dir > /dev/null 2>&1
}

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
        # git still knows the files that were deleted or that a sparse checkout left out. They come before the empty line.
        git -c core.quotePath=false ls-files --deleted
        git -c core.quotePath=false ls-files -t | sed -n 's/^S //p' | while IFS= read -r path; do
            [ -e "$path" ] || [ -L "$path" ] || printf '%s\n' "$path"
        done
        echo
        # The mode of a submodule is 160000.
        git -c core.quotePath=false ls-files --stage | sed 's/^160000.*/&\//; s/^[^	]*	//'
        git -c core.quotePath=false ls-files --others --exclude-standard
    } | awk 'past { if (!($0 in deleted)) print; next } $0 == "" { past = 1; next } { deleted[$0] }'
}

# print_ignored_files: prints the files that git knows, and would ignore otherwise, each with a NUL at its end.
print_ignored_files() {
    git ls-files -z --cached --ignored --exclude-standard | HERE=$(pwd -P) xargs -0 -r sh -c '
        for path; do
            case $path in */*) directory=/${path%/*} ;; *) directory= ;; esac
            # In place of a directory there can be a symlink, which leads elsewhere.
            if [ "$directory" != "$last" ]; then
                last=$directory
                real=$(cd -- "$HERE$directory" 2> /dev/null && pwd -P)
            fi
            if [ "$HERE$directory" = "${real-$HERE}" ] && [ -f "$path" ] && [ ! -L "$path" ]; then
                printf "%s\0" "$path"
            fi
        done
    ' sh
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
