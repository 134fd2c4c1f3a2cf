# Reads the paths of files, sorted, and prints them; what is deeper than DEPTH as its directory and the number of its files.
# A depth that would print more than 400 lines is made smaller. With a GLOB, prints every file that matches.

BEGIN { prepare_paths() }

{
    sub(/^\.\//, "")
    if (is_shown($0)) path[++files] = $0
}

END {
    if (files == 0) print glob == "" ? "no files" : "no file matches"
    if (glob != "") {
        walk(1000000, 1)
    } else {
        depth = ENVIRON["DEPTH"] + 0
        if (depth < 1) depth = 1
        for (chosen = depth; chosen > 1 && walk(chosen, 0) > 400; chosen--);
        walk(chosen, 1)
        if (chosen < depth && lines <= 400)
            printf "[depth %d, because %d has too many lines; name a directory or a glob]\n", chosen, depth
    }
    if (lines > 400) printf "[... %d more lines; name a directory or a glob]\n", lines - 400
}

# Prints the entries to this depth, or only counts them.
function walk(depth, prints,    i, entry, directory, inside) {
    lines = 0
    for (i = 1; i <= files; i++) {
        entry = cut_path(path[i], depth)
        if (inside > 0 && entry != directory) {
            print_directory(directory, inside, prints)
            inside = 0
        }
        if (entry ~ /\/$/) {
            directory = entry
            inside++
        } else print_entry(entry, prints)
    }
    if (inside > 0) print_directory(directory, inside, prints)
    return lines
}

# The first `depth` names of the path.
function cut_path(path, depth,    names, count, i, text) {
    count = split(path, names, "/")
    if (count <= depth) return path
    for (i = 1; i <= depth; i++) text = text names[i] "/"
    return text
}

function print_directory(directory, inside, prints) {
    print_entry(directory " (" inside (inside == 1 ? " file)" : " files)"), prints)
}

function print_entry(text, prints) {
    lines++
    if (prints && lines <= 400) print shorten(ENVIRON["PREFIX"] text, 300)
}
