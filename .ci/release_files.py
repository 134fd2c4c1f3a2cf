"""Packs the programs of a release: tarballs, a Debian package, wheels, an npm package and an SBOM.

Called by .ci/release. The same programs and the same commit give the same bytes: every time in an archive is
SOURCE_DATE_EPOCH, every list is sorted, every owner is root.
"""

import argparse
import base64
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import zipfile

# The name in registries, where `delta` belongs to others.
NAME = "delta-agents"
PROGRAMS = ["delta", "delta-sessions", "delta-sweep"]
# Those with manual pages and completions of their own: what `delta sweep` has comes from `delta`.
WITH_MANUALS = ["delta", "delta-sessions"]
# A second name of a program, by which it has other commands.
LINKS = {"delta-sessions-pty": "delta-sessions"}
SUMMARY = "Runs AI agents the Unix way: plain files in, commands as tools, one append-only journal out"
# Where a package has the documents, the examples and the licences.
DOC_DIR = f"share/doc/{NAME}"
LICENSES = ["LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-LICENSES"]
# Whose relative links then work.
DOC_SOURCES = [":(glob)*.md", "docs", "examples", "contrib", "LICENSE-MIT", "LICENSE-APACHE"]
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
DEBIAN_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}
NODE_ARCH = {"x86_64": "x64", "aarch64": "arm64"}
LICENCE_FILE = re.compile(r"^(licen[cs]e|copying|notice|unlicense)", re.IGNORECASE)

root = pathlib.Path(__file__).resolve().parent.parent


def workspace_version():
    manifest = (root / "Cargo.toml").read_text()
    return re.search(r'^version = "([^"]+)"', manifest, re.MULTILINE).group(1)


def shipped_crates(arch):
    """The packages that are linked into the programs, from cargo metadata, with those of the workspace first."""
    output = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", f"{arch}-unknown-linux-gnu"],
        cwd=root, check=True, capture_output=True,
    ).stdout
    metadata = json.loads(output)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    queue = [i for i, package in packages.items() if package["name"] in (NAME, f"{NAME}-sessions", f"{NAME}-sweep")]
    linked = set()
    while queue:
        package = queue.pop()
        if package in linked:
            continue
        linked.add(package)
        for dependency in nodes[package]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                queue.append(dependency["pkg"])
    # A procedural macro runs while the program is compiled, and is not a part of it.
    chosen = [packages[i] for i in linked if "proc-macro" not in packages[i]["targets"][0]["kind"]]
    return sorted(chosen, key=lambda package: (package["source"] is not None, package["name"], package["version"]))


def lock_checksums():
    blocks = (root / "Cargo.lock").read_text().split("[[package]]")
    field = lambda block, name: (re.search(rf'^{name} = "([^"]+)"', block, re.MULTILINE) or [None, None])[1]
    return {(field(b, "name"), field(b, "version")): field(b, "checksum") for b in blocks[1:]}


def notices(crates):
    """The licences of everything that is linked in: MIT and others ask to be shipped with the program."""
    parts = ["The programs contain the following crates, and the standard library of Rust (MIT OR Apache-2.0).\n"]
    for package in crates:
        if package["source"] is None:
            continue
        parts.append(f"\n{'=' * 80}\n{package['name']} {package['version']}: {package['license'] or 'see below'}\n")
        directory = pathlib.Path(package["manifest_path"]).parent
        texts = sorted(path for path in directory.iterdir() if path.is_file() and LICENCE_FILE.match(path.name))
        for path in texts:
            parts.append(f"\n--- {path.name}\n\n{path.read_text(errors='replace').strip()}\n")
        if not texts:
            parts.append("\n(its package has no text of the licence)\n")
    prices = (root / "LICENSE-LITELLM").read_text().strip()
    parts.append(f"\n{'=' * 80}\nThe table of prices is made from LiteLLM's list: MIT\n\n{prices}\n")
    return "".join(parts)


def sbom(version, crates):
    """What is in the programs, in CycloneDX 1.6."""
    checksums = lock_checksums()
    components = []
    for package in crates:
        purl = f"pkg:cargo/{package['name']}@{package['version']}"
        component = {"type": "library", "bom-ref": purl, "name": package["name"], "version": package["version"]}
        checksum = checksums.get((package["name"], package["version"]))
        if checksum:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        if package["license"]:
            component["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        component["purl"] = purl
        components.append(component)
    rustc = subprocess.run(["rustc", "--version"], cwd=root, check=True, capture_output=True, text=True).stdout.strip()
    properties = {"commit": os.environ.get("DELTA_BUILD_COMMIT"), "rustc": rustc}
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH)),
            "component": {
                "type": "application",
                "bom-ref": f"{NAME}@{version}",
                "name": NAME,
                "version": version,
                "properties": [{"name": name, "value": value} for name, value in properties.items() if value],
            },
        },
        "components": components,
    }
    return json.dumps(bom, indent=1) + "\n"


def write(path, content, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)


def pages_and_completions(programs, prefix):
    """Manual pages and completions, printed by the programs, below `prefix`."""
    quiet = {"check": True, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    for program in WITH_MANUALS:
        # The pages of `delta-sessions pty` have the names that those of its link would have.
        subprocess.run([programs / program, "man", "--all", prefix / "share/man/man1"], **quiet)
    for program in [*WITH_MANUALS, *LINKS]:
        with tempfile.TemporaryDirectory() as home:
            for shell, target in [
                ("bash", f"share/bash-completion/completions/{program}"),
                ("zsh", f"share/zsh/site-functions/_{program}"),
                ("fish", f"share/fish/vendor_completions.d/{program}.fish"),
            ]:
                # The installed script of zsh differs from the printed one, which is for `source`.
                environment = {"HOME": home, "PATH": os.environ["PATH"]}
                command = [programs / program, "completions", shell, "--install"]
                result = subprocess.run(command, env=environment, **quiet)
                write(prefix / target, pathlib.Path(result.stdout.decode().strip()).read_bytes())
    for page in (prefix / "share/man/man1").iterdir():
        page.chmod(0o644)


def files_below(directory):
    return sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def tarball(directory, output):
    """A .tar.gz of a directory, whose name is the first part of every path."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(path for path in directory.rglob("*") if not path.is_dir()):
            info = tarfile.TarInfo(str(path.relative_to(directory.parent)))
            info.mtime, info.uname, info.gname = EPOCH, "root", "root"
            info.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            if path.is_symlink():
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
            else:
                info.size = path.stat().st_size
            archive.addfile(info, None if path.is_symlink() else io.BytesIO(path.read_bytes()))
    output.write_bytes(gzip.compress(buffer.getvalue(), 9, mtime=0))


def debian_package(tree, version, arch, output, work):
    """A .deb with the programs in /usr."""
    package = work / "deb"
    shutil.copytree(tree / "bin", package / "usr/bin", symlinks=True)
    shutil.copytree(tree / "share", package / "usr/share")
    completions = package / "usr/share/zsh"
    (completions / "site-functions").rename(completions / "vendor-completions")
    write(package / "usr" / DOC_DIR / "copyright", (
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n"
        "Files: *\nCopyright: the authors of delta\nLicense: MIT or Apache-2.0\n"
        f" The texts are LICENSE-MIT and LICENSE-APACHE in /usr/share/doc/{NAME};\n"
        " THIRD-PARTY-LICENSES has the licences of the libraries in the programs.\n"
    ))
    for page in files_below(package / "usr/share/man"):
        page.with_name(page.name + ".gz").write_bytes(gzip.compress(page.read_bytes(), 9, mtime=0))
        page.unlink()
    size = sum(path.stat().st_size for path in files_below(package)) // 1024
    write(package / "DEBIAN/control", (
        f"Package: {NAME}\nVersion: {version}\nArchitecture: {DEBIAN_ARCH[arch]}\n"
        "Maintainer: the authors of delta <delta@localhost>\n"
        f"Installed-Size: {size}\nDepends: libc6 (>= 2.28)\nRecommends: ca-certificates, git\n"
        # Both have a program of this name, too.
        "Conflicts: git-delta\n"
        f"Section: utils\nPriority: optional\nDescription: {SUMMARY}\n"
        " An agent is a directory of plain files, its tools are ordinary commands, and its\n"
        " state is one append-only journal. A run survives crashes, reboots and weeks of\n"
        " waiting for an answer, without a server or a database.\n"
    ))
    sums = "".join(
        f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(package)}\n"
        for path in files_below(package / "usr")
    )
    write(package / "DEBIAN/md5sums", sums)
    for path in [package, *package.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", "-Zxz", package, output],
                   check=True, stdout=subprocess.DEVNULL)


def wheel(tree, version, tag, output_dir):
    """A wheel with the programs as scripts; pip and uv put them into bin/."""
    info = f"{NAME.replace('-', '_')}-{version}.dist-info"
    data = f"{NAME.replace('-', '_')}-{version}.data"
    entries = {}
    # The link becomes a copy: a wheel cannot contain links, and a script of sh could not pass the name on.
    for path in sorted((tree / "bin").iterdir()):
        entries[f"{data}/scripts/{path.name}"] = (path.read_bytes(), 0o755)
    for path in files_below(tree / "share"):
        entries[f"{data}/data/{path.relative_to(tree)}"] = (path.read_bytes(), path.stat().st_mode & 0o777)
    for name in LICENSES:
        entries[f"{info}/licenses/{name}"] = ((tree / DOC_DIR / name).read_bytes(), 0o644)
    readme = (root / "docs/install.md").read_text()
    metadata = (
        f"Metadata-Version: 2.4\nName: {NAME}\nVersion: {version}\nSummary: {SUMMARY}\n"
        "License-Expression: MIT OR Apache-2.0\nLicense-File: LICENSE-MIT\nLicense-File: LICENSE-APACHE\n"
        "License-File: THIRD-PARTY-LICENSES\nClassifier: Operating System :: POSIX :: Linux\n"
        f"Classifier: Programming Language :: Rust\nDescription-Content-Type: text/markdown\n\n{readme}"
    )
    entries[f"{info}/METADATA"] = (metadata.encode(), 0o644)
    tags = "".join(f"Tag: py3-none-{one}\n" for one in tag.split("."))
    entries[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: delta\nRoot-Is-Purelib: false\n{tags}".encode(), 0o644)
    record = ""
    for name in sorted(entries):
        digest = base64.urlsafe_b64encode(hashlib.sha256(entries[name][0]).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(entries[name][0])}\n"
    entries[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)
    moment = time.gmtime(max(EPOCH, 315532800))[:6]
    path = output_dir / f"{NAME.replace('-', '_')}-{version}-py3-none-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(entries):
            content, mode = entries[name]
            entry = zipfile.ZipInfo(name, moment)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            archive.writestr(entry, content, compresslevel=9)


def npm_package(tree, version, arch, output, work):
    """An npm package with the static programs, for every Linux on this processor."""
    package = work / "npm" / "package"
    # npm leaves links out, and makes one for each name in `bin`.
    shutil.copytree(tree / "bin", package / "bin", ignore=shutil.ignore_patterns(*LINKS))
    shutil.copytree(tree / "share", package / "share")
    pages = [str(path.relative_to(package)) for path in files_below(package / "share/man")]
    write(package / "README.md", (root / "docs/install.md").read_bytes())
    write(package / "package.json", json.dumps({
        "name": NAME, "version": version, "description": SUMMARY, "license": "MIT OR Apache-2.0",
        "os": ["linux"], "cpu": [NODE_ARCH[arch]],
        "bin": {name: f"bin/{LINKS.get(name, name)}" for name in [*PROGRAMS, *LINKS]},
        "man": pages, "preferUnplugged": True,
    }, indent=2) + "\n")
    tarball(package, output)


def build_tree(programs, directory, crates, runnable):
    """What every package contains: bin/ and share/."""
    for program in PROGRAMS:
        write(directory / "bin" / program, (programs / program).read_bytes(), 0o755)
    for link, program in LINKS.items():
        (directory / "bin" / link).symlink_to(program)
    pages_and_completions(runnable, directory)
    listed = subprocess.run(["git", "ls-files", "-z", "--", *DOC_SOURCES], cwd=root, check=True, stdout=subprocess.PIPE)
    for name in listed.stdout.decode().split("\0")[:-1]:
        mode = 0o755 if os.access(root / name, os.X_OK) else 0o644
        write(directory / DOC_DIR / name, (root / name).read_bytes(), mode)
    write(directory / DOC_DIR / "THIRD-PARTY-LICENSES", notices(crates))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--arch", choices=DEBIAN_ARCH, required=True)
    arguments = parser.parse_args()
    version, arch, output = workspace_version(), arguments.arch, arguments.output
    crates = shipped_crates(arch)
    write(output / f"{NAME}-{version}-{arch}.cdx.json", sbom(version, crates))
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        for kind in ["gnu", "static"]:
            programs = arguments.programs / f"{arch}-{kind}"
            if not programs.is_dir():
                print(f"left out: there are no programs in {programs}")
                continue
            # The pages do not depend on the processor.
            native = arguments.programs / f"{os.uname().machine}-{kind}"
            runnable = native if native.is_dir() else programs
            tree = work / f"delta-{version}-{arch}-linux-{kind}"
            build_tree(programs, tree, crates, runnable)
            tarball(tree, output / f"{tree.name}.tar.gz")
            if kind == "gnu":
                debian_package(tree, version, arch, output / f"{NAME}_{version}_{DEBIAN_ARCH[arch]}.deb", work)
                wheel(tree, version, f"manylinux_2_28_{arch}", output)
            else:
                wheel(tree, version, f"musllinux_1_1_{arch}", output)
                npm_package(tree, version, arch, output / f"{NAME}-{version}-{NODE_ARCH[arch]}.tgz", work)


if __name__ == "__main__":
    main()
