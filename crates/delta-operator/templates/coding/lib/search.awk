# Reads PATH:LINE:TEXT, and an exit code at the end. Prints at most 200 matches and 20 KiB, and how many are left out.

BEGIN { prepare_paths() }

# The last line is not a match.
NR > 1 { show_match(previous) }
{ previous = $0 }

END {
    if (matches == 0 && previous > 1) exit previous
    if (matches == 0) print glob == "" ? "no match" : "no match in files that match the glob"
    if (left_out > 0)
        printf "[... %d more matches; %d in all, in %d files; narrow the pattern, the path or the glob]\n", \
            left_out, matches, files
}

function show_match(text,    path) {
    sub(/^\.\//, "", text)
    sub(/\r$/, "", text)
    # A line that does not begin with a path is a note of the program.
    if (!match(text, /:[0-9]+:/)) return
    path = substr(text, 1, RSTART - 1)
    if (!is_shown(path)) return
    matches++
    if (path != last_path) files++
    last_path = path
    text = shorten(ENVIRON["PREFIX"] text, 300)
    bytes += length(text) + 1
    if (matches > 200 || bytes > 20480) left_out++
    else print text
}
