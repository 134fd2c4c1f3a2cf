"""Builds the documents as a site with a search, in DIR/book, and checks every link in it.

    python3 .ci/site_pages.py DIR MDBOOK LYCHEE

The pages are the documents of docs/, the READMEs of the examples and of contrib/, and the documents at the root, at the
paths that they have in the repository, so their links need no change. A file to which one of them links becomes a page
with its text; a link to a directory leads to its README, or is removed.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[([^\[\]]*)\]\(([^()\s#]+)(#[^()\s]*)?\)")
IMAGE_ENDS = (".svg", ".png")
LANGUAGES = {".yaml": "yaml", ".toml": "toml", ".json": "json", ".sh": "sh", ".md": "markdown", ".patch": "diff"}
# The documents at the root, in the order of the site.
PROJECT = ["CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "ARCHITECTURE.md"]


def tracked_files():
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return sorted({name for name in names.split("\0") if (ROOT / name).is_file()})


def title_of(name):
    return next(line[2:] for line in (ROOT / name).read_text().splitlines() if line.startswith("# "))


class Site:
    def __init__(self):
        self.files = tracked_files()
        self.directories = {str(parent) for name in self.files for parent in pathlib.PurePath(name).parents}
        self.pages = [
            name for name in self.files
            if name.endswith(".md") and (name in ["README.md", *PROJECT] or re.match(r"docs/(?!SUMMARY)", name)
                                         or re.match(r"(examples|contrib|tests/labs)/[^/]+/README\.md", name)
                                         or name == "tests/corpus-runs/README.md")
        ]
        # Files with a page of their text, in the order in which they are linked to.
        self.listings = {}
        self.images = set()

    def link(self, page, match):
        """A link of a page as the site needs it."""
        text, path, anchor = match[1], match[2], match[3] or ""
        if "://" in path or path.startswith("mailto:"):
            return match[0]
        target = os.path.normpath(os.path.join(os.path.dirname(page), path))
        if target in self.directories and target + "/README.md" in self.pages:
            return f"[{text}]({path.rstrip('/')}/README.md{anchor})"
        if target == "docs/SUMMARY.md":
            return text
        if target in self.pages:
            return match[0]
        if target.endswith(IMAGE_ENDS) and target in self.files:
            self.images.add(target)
            return match[0]
        if target in self.files:
            self.listings[target] = True
            return f"[{text}]({path}.md)"
        if target in self.directories:
            return text
        raise SystemExit(f"{page}: {path} leads nowhere")

    def staged(self, page):
        """The text of a page, with its links changed; blocks of code are left alone."""
        lines, is_code = [], False
        for line in (ROOT / page).read_text().splitlines():
            if line.startswith("```"):
                is_code = not is_code
                # The word after the language names the file, or what the test of the block needs.
                fence = re.match(r"(```+\w+) (\S+)$", line)
                if fence:
                    if "=" not in fence[2]:
                        lines += [f'<div class="file">{fence[2]}</div>', ""]
                    line = fence[1]
            elif not is_code:
                line = LINK.sub(lambda match: self.link(page, match), line)
            lines.append(line)
        return "\n".join(lines) + "\n"

    def listing(self, name):
        text = (ROOT / name).read_text()
        language = LANGUAGES.get(pathlib.PurePath(name).suffix, "")
        if not language and text.startswith("#!"):
            language = "python" if "python" in text.split("\n")[0] else "sh"
        fence = "`" * (3 + max([len(run) for run in re.findall(r"`{3,}", text)] or [0]))
        return f"# {name}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"

    def summary(self):
        """What mdBook makes the sidebar of: docs/SUMMARY.md, then the examples and the documents of the project."""
        text = (ROOT / "docs/SUMMARY.md").read_text()
        assert text.startswith("# Summary\n")
        lines = ["# Summary", "", "[delta](README.md)", "", "# About"]
        lines += re.sub(r"\]\(", "](docs/", text.partition("\n")[2]).rstrip().splitlines()
        sections = [
            ("Examples", [name for name in self.pages if name.startswith("examples/")]),
            ("Project", PROJECT + [name for name in self.pages if name.startswith(("contrib/", "tests/"))]),
        ]
        rest = list(self.listings)
        for heading, pages in sections:
            lines += ["", f"# {heading}", ""]
            for page in pages:
                lines.append(f"- [{title_of(page)}]({page})")
                directory = os.path.dirname(page) + "/"
                for name in [name for name in rest if directory != "/" and name.startswith(directory)]:
                    lines.append(f"  - [{name.removeprefix(directory)}]({name}.md)")
                    rest.remove(name)
        if rest:
            lines += ["", "# Files", ""] + [f"- [{name}]({name}.md)" for name in sorted(rest)]
        return "\n".join(lines) + "\n"

    def write(self, directory):
        def put(name, text):
            path = directory / "source" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

        for page in self.pages:
            put(page, self.staged(page))
        for name in self.listings:
            put(f"{name}.md", self.listing(name))
        for name in self.images:
            path = directory / "source" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, path)
        put("SUMMARY.md", self.summary())
        shutil.copyfile(ROOT / ".ci/site.toml", directory / "book.toml")
        shutil.copyfile(ROOT / ".ci/site.css", directory / "site.css")


def main():
    directory, mdbook, lychee = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3]
    for name in ["source", "book"]:
        shutil.rmtree(directory / name, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    site = Site()
    site.write(directory)
    subprocess.run([mdbook, "build", directory], check=True)
    check = [lychee, "--offline", "--include-fragments", "--no-progress", "--quiet", "--root-dir", directory / "book"]
    subprocess.run([*check, directory / "book"], check=True)
    print(f"{len(site.pages)} documents and {len(site.listings)} files: {directory / 'book/index.html'}")


if __name__ == "__main__":
    main()
