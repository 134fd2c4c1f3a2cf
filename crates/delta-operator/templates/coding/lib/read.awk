# Prints `limit` lines from line `offset` on, at most 20 KiB, and how many follow. `line_ends` lines have an end, `crlf` of
# them CRLF. A dot follows the last line.

NR <= line_ends { show($0) }
{ text = $0 }

END {
    text = substr(text, 1, length(text) - 1)
    lines = line_ends
    if (text != "") {
        lines++
        show(text)
    }
    if (offset > lines) {
        printf "%s has only %d line%s\n", ENVIRON["NAME"], lines, lines == 1 ? "" : "s" > "/dev/stderr"
        exit 1
    }
    if (last < lines) printf "[lines %d to %d of %d; to continue: offset %d]\n", offset, last, lines, last + 1
    else if (text != "") print "[no newline at the end of the file]"
    if (crlf > 0 && crlf == line_ends) print "[the line ends are CRLF]"
    else if (crlf > 0) printf "[%d of %d line ends are CRLF]\n", crlf, line_ends
}

function show(text) {
    if (NR < offset || NR >= offset + limit || is_full) return
    if (crlf == line_ends) sub(/\r$/, "", text)
    text = sprintf("%6d\t", NR) shorten(text)
    printed += length(text) + 1
    if (printed > 20480) {
        is_full = 1
        return
    }
    print text
    last = NR
}

# At most 2000 bytes, and no part of a character.
function shorten(text,    end) {
    if (length(text) <= 2000) return text
    for (end = 2000; end > 1996 && substr(text, end + 1, 1) ~ /[\200-\277]/; end--);
    return substr(text, 1, end) " [... " (length(text) - end) " more bytes in this line]"
}
