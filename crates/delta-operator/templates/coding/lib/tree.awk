# Functions for paths. The environment has PREFIX, the directory that was walked through, as a path with a slash at its end,
# KEPT, the paths that are not shown, and GLOB, a pattern that shown paths match.

function prepare_paths(    i) {
    kept_count = split(ENVIRON["KEPT"], kept, "\n")
    glob = ENVIRON["GLOB"] == "" ? "" : glob_to_regex(ENVIRON["GLOB"])
}

# Whether the path, relative to the directory, is shown. Its name in the workspace is PREFIX and the path.
function is_shown(path,    i, name) {
    name = ENVIRON["PREFIX"] path
    if (("/" name "/") ~ /\/\.(git|env|delta)\//) return 0
    for (i = 1; i <= kept_count; i++)
        if (index(name "/", kept[i] "/") == 1) return 0
    return glob == "" || path ~ glob
}

# `*` and `?` match within a name, `**` any directories, `{a,b}` either. A pattern without a slash matches the last name.
function glob_to_regex(pattern,    i, c, regex, braces) {
    sub(/^\.?\//, "", pattern)
    for (i = 1; i <= length(pattern); i++) {
        c = substr(pattern, i, 1)
        if (substr(pattern, i, 3) == "**/") {
            regex = regex "(.*/)?"
            i += 2
        } else if (substr(pattern, i, 2) == "**") {
            regex = regex ".*"
            i++
        } else if (c == "*") regex = regex "[^/]*"
        else if (c == "?") regex = regex "[^/]"
        else if (c == "{") {
            regex = regex "("
            braces++
        } else if (c == "}" && braces > 0) {
            regex = regex ")"
            braces--
        } else if (c == "," && braces > 0) regex = regex "|"
        else if (c ~ /[.+^$()|{}\\\[\]]/) regex = regex "\\" c
        else regex = regex c
    }
    for (; braces > 0; braces--) regex = regex ")"
    return (pattern ~ /\// ? "^" : "^(.*/)?") regex "$"
}

# At most `limit` bytes, and no part of a character.
function shorten(text, limit,    end) {
    if (length(text) <= limit) return text
    for (end = limit; end > limit - 4 && substr(text, end + 1, 1) ~ /[\200-\277]/; end--);
    return substr(text, 1, end) " [...]"
}
