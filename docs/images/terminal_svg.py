#!/usr/bin/env python3
"""Draw the output of a terminal session as an SVG: `terminal_svg.py < terminal.bytes > run.svg`.

It understands what delta prints: text, carriage returns, line feeds, "erase line", "erase below", "cursor up" and SGR
attributes.
"""

import re
import sys
from html import escape

COLUMNS = 80
FONT_SIZE = 14
CELL_WIDTH = 8.4
LINE_HEIGHT = 19
PADDING = 20
TITLE_BAR = 34

BACKGROUND = "#0d1117"
FOREGROUND = "#e6edf3"
DIM = "#8b949e"
COLOURS = {31: "#ff7b72", 32: "#3fb950", 33: "#d29922", 34: "#58a6ff", 35: "#bc8cff", 36: "#39c5cf"}
BUTTONS = ("#ff5f57", "#febc2e", "#28c840")

PLAIN = (FOREGROUND, False)
TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


def apply_sgr(style, parameters):
    """The style after an SGR sequence, such as `1;36`."""
    colour, bold = style
    for code in [int(part or 0) for part in parameters.split(";")]:
        if code == 0:
            colour, bold = PLAIN
        elif code == 1:
            bold = True
        elif code == 2:
            colour = DIM
        elif code in COLOURS:
            colour = COLOURS[code]
        elif code in (22, 39):
            colour, bold = PLAIN
    return colour, bold


def read_screen(text):
    """The lines of the screen, each a list of (character, style)."""
    lines = [[]]
    row = 0
    column = 0
    style = PLAIN

    def next_line():
        nonlocal row, column
        row += 1
        column = 0
        if row == len(lines):
            lines.append([])

    for parameters, command, control, printed in TOKEN.findall(text):
        if command == "m":
            style = apply_sgr(style, parameters)
        elif command == "K":
            lines[row] = []
        elif command == "J":
            lines[row] = lines[row][:column]
            del lines[row + 1:]
        elif command == "A":
            row = max(0, row - int(parameters or 1))
        elif control == "\r":
            column = 0
        elif control == "\n":
            next_line()
        for character in printed:
            if column == COLUMNS:
                next_line()
            line = lines[row]
            line.extend([(" ", PLAIN)] * (column - len(line)))
            line[column:column + 1] = [(character, style)]
            column += 1
    while lines and not lines[-1]:
        lines.pop()
    return lines


def spans(line):
    """The runs of one style in a line, as (column, text, style), without blanks at either end."""
    runs = []
    for column, (character, style) in enumerate(line):
        if runs and runs[-1][2] == style:
            runs[-1][1] += character
        else:
            runs.append([column, character, style])
    for column, text, style in runs:
        shown = text.strip()
        if shown:
            yield column + len(text) - len(text.lstrip()), shown, style


def draw(lines):
    width = round(COLUMNS * CELL_WIDTH + 2 * PADDING)
    height = TITLE_BAR + len(lines) * LINE_HEIGHT + PADDING
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" '
        f'font-size="{FONT_SIZE}">'
    )
    yield "<title>A run of examples/hello-world in a terminal</title>"
    yield (
        f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="{BACKGROUND}" stroke="#30363d"/>'
    )
    for number, colour in enumerate(BUTTONS):
        yield f'<circle cx="{PADDING + 20 * number}" cy="18" r="6" fill="{colour}"/>'
    for number, line in enumerate(lines):
        y = TITLE_BAR + number * LINE_HEIGHT + FONT_SIZE
        for column, text, (colour, bold) in spans(line):
            x = PADDING + column * CELL_WIDTH
            weight = ' font-weight="bold"' if bold else ""
            # SVG collapses blanks, but not these.
            length = len(text) * CELL_WIDTH
            text = escape(text, quote=False).replace(" ", "\u00a0")
            yield (
                f'<text x="{x:.1f}" y="{y}" fill="{colour}"{weight} '
                f'textLength="{length:.1f}">{text}</text>'
            )
    yield "</svg>"


def main():
    text = sys.stdin.buffer.read().decode("utf-8")
    print("\n".join(draw(read_screen(text))))


main()
