# Reads the lines of a file and of a new text, replaces OLD in the file, writes the result to OUT, and prints the changes.
#
# If every line of the file ends with CRLF, line ends in OLD and in the new text mean CRLF too: an LLM does not see the
# difference. In any other file, bytes are compared as they are.

# The empty string makes it a string: awk compares numbers as numbers, and 1.0 is not 1 here.
NR <= file_lines { line[NR] = $0 ""; next }
{ new[++new_lines] = $0 "" }

END {
    remove_dots()
    newline = "\n"
    old_text = ENVIRON["OLD"]
    if (has_crlf()) use_crlf()
    width_of_old = split(old_text, old, "\n")
    if (old_text == "") fail("`old` is empty; `write` replaces a whole file")
    if (is_same()) fail("`old` and `new` are the same text")

    find_matches(ENVIRON["ALL"] == "true")
    if (count == 0) fail("the text is not in " ENVIRON["NAME"] nearest_text())
    if (count > 1 && ENVIRON["ALL"] != "true")
        fail("the text is " count " times in " ENVIRON["NAME"] ", at " line_numbers() \
            "; add lines around it to `old`, or set `replace_all`")
    write_result()
    if (count == 1) print_diff()
    else printf "%s: replaced %d times, at %s\n", ENVIRON["NAME"], count, line_numbers()
}

function fail(message) {
    printf "%s\n", message > "/dev/stderr"
    exit 1
}

function remove_dots(    i, bytes) {
    line[file_lines] = substr(line[file_lines], 1, length(line[file_lines]) - 1)
    new[new_lines] = substr(new[new_lines], 1, length(new[new_lines]) - 1)
    bytes = file_lines - 1
    for (i = 1; i <= file_lines; i++) bytes += length(line[i])
    if (bytes != file_size) fail(ENVIRON["NAME"] " changed while it was read")
}

function has_crlf(    i) {
    for (i = 1; i < file_lines; i++)
        if (substr(line[i], length(line[i])) != "\r") return 0
    return file_lines > 1
}

# From here on, lines have no CR at their end.
function use_crlf(    i) {
    newline = "\r\n"
    for (i = 1; i < file_lines; i++) line[i] = substr(line[i], 1, length(line[i]) - 1)
    for (i = 1; i < new_lines; i++) sub(/\r$/, "", new[i])
    gsub(/\r\n/, "\n", old_text)
}

function is_same(    i) {
    if (width_of_old != new_lines) return 0
    for (i = 1; i <= new_lines; i++)
        if (old[i] "" != new[i]) return 0
    return 1
}

# Finds the matches: `match_line` and `match_column` of 1 to `count`. If all are to be replaced they do not overlap.
function find_matches(all,    i, column, next_line, next_column) {
    i = 1
    column = 1
    while (i <= file_lines) {
        column = find_in_line(i, column)
        if (column == 0) {
            i++
            column = 1
            continue
        }
        match_line[++count] = i
        match_column[count] = column
        if (all) {
            column = end_column(count)
            i += width_of_old - 1
        } else {
            column++
        }
    }
}

# The column of the first match that begins in line i at the column or after it, or 0.
function find_in_line(i, column,    length_of_first, last, j, place) {
    length_of_first = length(old[1])
    last = length(line[i]) - length_of_first + 1
    if (width_of_old > 1) {
        if (last < column || i + width_of_old - 1 > file_lines || substr(line[i], last) != old[1]) return 0
        for (j = 2; j < width_of_old; j++)
            if (line[i + j - 1] != old[j]) return 0
        j = width_of_old
        return substr(line[i + j - 1], 1, length(old[j])) == old[j] "" ? last : 0
    }
    # In pieces: a line can be the whole file, with a thousand matches.
    for (; column <= last; column += 65536) {
        place = index(substr(line[i], column, 65535 + length_of_first), old[1])
        if (place) return column + place - 1
    }
    return 0
}

# The column after the match, in the last line of the match.
function end_column(match_number) {
    if (width_of_old > 1) return length(old[width_of_old]) + 1
    return match_column[match_number] + length(old[1])
}

# The lines of the matches: `line 3`, or `lines 3, 9 and more`.
function line_numbers(    i, text, shown) {
    for (i = 1; i <= count && shown < 20; i++) {
        if (i > 1 && match_line[i] == match_line[i - 1]) continue
        text = text (shown++ ? ", " : "") match_line[i]
    }
    return (shown > 1 ? "lines " : "line ") text (i <= count ? " and more" : "")
}

function write_result(    i, column, match_number, j, out) {
    out = ENVIRON["OUT"]
    ORS = ""
    i = 1
    column = 1
    printf "" > out
    for (match_number = 1; match_number <= count; match_number++) {
        for (; i < match_line[match_number]; i++) {
            print substr(line[i], column) newline > out
            column = 1
        }
        print substr(line[i], column, match_column[match_number] - column) > out
        for (j = 1; j <= new_lines; j++) print (j > 1 ? newline : "") new[j] > out
        i = match_line[match_number] + width_of_old - 1
        column = end_column(match_number)
    }
    for (; i < file_lines; i++) {
        print substr(line[i], column) newline > out
        column = 1
    }
    print substr(line[i], column) > out
    if (close(out) != 0) fail("could not write " ENVIRON["NAME"])
}

# Prints the whole lines that a single replacement changed.
function print_diff(    first, i, before, after, same, removed, added) {
    first = match_line[1]
    for (i = 1; i <= width_of_old; i++) before[i] = line[first + i - 1]
    for (i = 1; i <= new_lines; i++) after[i] = new[i]
    after[1] = substr(line[first], 1, match_column[1] - 1) after[1]
    after[new_lines] = after[new_lines] substr(line[first + width_of_old - 1], end_column(1))
    removed = width_of_old
    added = new_lines
    while (removed > 0 && added > 0 && before[removed] == after[added]) {
        removed--
        added--
    }
    while (same < removed && same < added && before[same + 1] == after[same + 1]) same++
    printf "%s, line %d:\n", ENVIRON["NAME"], first + same
    print_lines("-", before, same, removed)
    print_lines("+", after, same, added)
}

function print_lines(sign, lines, from, to,    i) {
    for (i = from + 1; i <= to && i <= from + 30; i++) printf "%s%s\n", sign, shorten(lines[i])
    if (i <= to) printf "%s[... %d more lines]\n", sign, to - i + 1
}

# At most 300 bytes, and no part of a character.
function shorten(text,    end) {
    if (length(text) <= 300) return text
    for (end = 300; end > 296 && substr(text, end + 1, 1) ~ /[\200-\277]/; end--);
    return substr(text, 1, end) " [...]"
}

# A hint for a text that was not found: the place where it begins to differ, or a line that begins alike.
function nearest_text(    key, first, i, run, best, best_run, prefix, best_prefix, similar) {
    if (old[1] ~ /^ *[0-9]+\t/) return "; leave out the line numbers, which `read` adds"
    for (first = 1; first < width_of_old && trim(old[first]) == ""; first++);
    key = trim(old[first])
    if (key == "") return ""
    for (i = 1; i <= file_lines; i++) {
        if (trim(line[i]) == key) {
            for (run = 1; i + run <= file_lines && first + run <= width_of_old; run++)
                if (trim(line[i + run]) != trim(old[first + run])) break
            if (run > best_run) {
                best_run = run
                best = i
            }
        } else if (best_run == 0) {
            prefix = common_prefix(trim(line[i]), key, best_prefix)
            if (prefix > best_prefix) {
                best_prefix = prefix
                similar = i
            }
        }
    }
    if (best_run > 0) return difference(best, first, best_run)
    if (best_prefix >= 6 || best_prefix * 2 >= length(key))
        return ". The nearest line is " similar ":\n" visible(line[similar])
    return ""
}

# `run` lines of the file from line i are like lines of OLD from line `first`, but for the space around them.
function difference(i, first, run,    j) {
    for (j = 0; j < run; j++)
        if (line[i + j] != old[first + j] && (j + first > 1 && j + first < width_of_old || \
            j + first == width_of_old && index(line[i + j], old[first + j]) != 1 || \
            j + first == 1 && substr(line[i + j], length(line[i + j]) - length(old[1]) + 1) != old[1])) {
            return "; line " (i + j) " differs in its white space:\nfile: " visible(line[i + j]) \
                "\nold:  " visible(old[first + j])
        }
    if (first + run > width_of_old) return ""
    if (i + run > file_lines) return "; the file ends at line " file_lines ", without a newline"
    return "; line " (i + run) " is the first that differs:\nfile: " visible(line[i + run]) \
        "\nold:  " visible(old[first + run])
}

function trim(text) {
    sub(/^[ \t\r]+/, "", text)
    sub(/[ \t\r]+$/, "", text)
    return text
}

function visible(text) {
    gsub(/\t/, "\\t", text)
    gsub(/\r/, "\\r", text)
    return shorten(text)
}

# The length of the longest common prefix, if it is longer than `least`.
function common_prefix(a, b, least) {
    if (substr(a, 1, least + 1) != substr(b, 1, least + 1)) return 0
    while (least < length(a) && least < length(b) && substr(a, least + 1, 1) == substr(b, least + 1, 1)) least++
    return least
}
