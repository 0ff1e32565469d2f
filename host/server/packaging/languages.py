"""Makes what package managers of languages, and scanners, take of a release: `release` calls it.

    languages.py wheel|npm|sbom --binary PATH --out DIR --version V --architecture amd64|arm64 --glibc N --level N

The wheel and the npm packages hold the server as it is; `unalike` and `unalike-server` start it. Their bytes are the
same each time: times are SOURCE_DATE_EPOCH.
"""

import argparse
import base64
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
LICENCES = ["LICENSE-APACHE", "LICENSE-MIT"]
SUMMARY = "Distributed id generator, no two ids alike: the server and the command line"
DESCRIPTION = """\
# unalike-server

The server and the command line of unalike, a distributed id generator: no two ids alike. The first id:

    unalike serve
    curl http://127.0.0.1:8080/v1/sequences/order/ids

Without an option the ids are kept in `./unalike.sqlite`; `--store` names a database instead: MySQL, MariaDB,
PostgreSQL, Redis or etcd. `unalike serve --help` has all that it serves, `unalike --help` the other commands.

This package holds a program for Linux with glibc, and needs nothing else.
"""
# Starts the server that is beside it: `uvx` and `pipx run` look for the name of the package.
BESIDE = b"""\
#!python
import os
import sys

server = os.path.join(os.path.dirname(os.path.realpath(sys.argv[0])), "unalike")
os.execv(server, [server, *sys.argv[1:]])
"""
# The server of a machine is in a package of its own, as npm chooses packages by machine.
LAUNCHER = b"""\
#!/usr/bin/env node
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import process from 'node:process';

const name = `unalike-server-${process.platform}-${process.arch}`;
let server;
try {
  server = createRequire(import.meta.url).resolve(`${name}/bin/unalike`);
} catch {
  console.error(
    `unalike: there is no server for ${process.platform} on ${process.arch}: npm has not installed ${name}. It is an ` +
      'optional dependency: install without --omit=optional',
  );
  process.exit(1);
}
const child = spawn(server, process.argv.slice(2), { stdio: 'inherit' });
// A terminal sends it to both, and the server takes a second one for impatience.
process.on('SIGINT', () => process.stdin.isTTY || child.kill('SIGINT'));
for (const signal of ['SIGTERM', 'SIGHUP']) {
  process.on(signal, () => child.kill(signal));
}
child.on('error', (error) => {
  console.error(`unalike: ${server} does not start: ${error.message}`);
  process.exit(1);
});
child.on('exit', (code, signal) => {
  if (signal === null) {
    process.exit(code ?? 1);
  }
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
"""


def wheel(given: argparse.Namespace) -> None:
    """`unalike_server-V-py3-none-manylinux_2_N_x86_64.whl`"""
    # Python writes 1.2.3-rc.1 as 1.2.3rc1.
    version = re.sub(r"-([a-z]+)\.?", r"\1", given.version)
    machine = {"amd64": "x86_64", "arm64": "aarch64"}[given.architecture]
    tag = f"py3-none-manylinux_2_{max(given.glibc, 17)}_{machine}"
    name = f"unalike_server-{version}"
    info = f"{name}.dist-info"
    metadata = "\n".join([
        "Metadata-Version: 2.4", "Name: unalike-server", f"Version: {version}", f"Summary: {SUMMARY}",
        "License-Expression: Apache-2.0 OR MIT", *(f"License-File: {licence}" for licence in LICENCES),
        "Requires-Python: >=3.8", "Description-Content-Type: text/markdown", "", DESCRIPTION,
    ])
    about = f"Wheel-Version: 1.0\nGenerator: unalike release\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files = {
        f"{name}.data/scripts/unalike": (Path(given.binary).read_bytes(), 0o755),
        f"{name}.data/scripts/unalike-server": (BESIDE, 0o755),
        **{f"{info}/licenses/{licence}": ((TOP / licence).read_bytes(), 0o644) for licence in LICENCES},
        f"{info}/METADATA": (metadata.encode(), 0o644),
        f"{info}/WHEEL": (about.encode(), 0o644),
    }
    record = ""
    for path, (content, _) in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)
    at = time.gmtime(max(epoch(), 315_532_800))[:6]
    with zipfile.ZipFile(Path(given.out) / f"{name}-{tag}.whl", "w") as archive:
        for path, (content, mode) in files.items():
            entry = zipfile.ZipInfo(path, at)
            entry.create_system = 3
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, given.level)


def npm(given: argparse.Namespace) -> None:
    """`unalike-server-V.tgz`, and the package of one machine that it depends on."""
    processor = {"amd64": "x64", "arm64": "arm64"}[given.architecture]
    common = {"version": given.version, "description": SUMMARY, "license": "Apache-2.0 OR MIT"}
    licences = {licence: ((TOP / licence).read_bytes(), 0o644) for licence in LICENCES}
    name = f"unalike-server-linux-{processor}"
    about = {"name": name, **common, "os": ["linux"], "cpu": [processor], "libc": ["glibc"], "files": ["bin"]}
    pack(given, name, about, {"bin/unalike": (Path(given.binary).read_bytes(), 0o755), **licences})
    about = {
        "name": "unalike-server",
        **common,
        "type": "module",
        "bin": {"unalike": "bin/unalike.js", "unalike-server": "bin/unalike.js"},
        "files": ["bin"],
        "engines": {"node": ">=18"},
        # No others: whoever registers a name that is missing would be installed.
        "optionalDependencies": {name: given.version},
    }
    readme = (DESCRIPTION.encode(), 0o644)
    pack(given, "unalike-server", about, {"bin/unalike.js": (LAUNCHER, 0o755), "README.md": readme, **licences})


def pack(given: argparse.Namespace, name: str, about: dict, files: dict[str, tuple[bytes, int]]) -> None:
    """Writes a package as npm packs it."""
    files = {"package.json": (f"{json.dumps(about, indent=2)}\n".encode(), 0o644), **files}
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, (content, mode) in files.items():
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size, entry.mode, entry.mtime = len(content), mode, epoch()
            archive.addfile(entry, io.BytesIO(content))
    packed = gzip.compress(tar.getvalue(), given.level, mtime=0)
    (Path(given.out) / f"{name}-{given.version}.tgz").write_bytes(packed)


def sbom(given: argparse.Namespace) -> None:
    """`unalike-V.cdx.json`: the crates that the server may be built from, in the form of CycloneDX.

    Features are those of all crates of the workspace, so that some of its crates may be in no server.
    """
    platform = {"amd64": "x86_64", "arm64": "aarch64"}[given.architecture]
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path",
               str(TOP / "host/server/Cargo.toml"), "--filter-platform", f"{platform}-unknown-linux-gnu"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    # What tests alone need is left out.
    needs = {
        node["id"]: [dep["pkg"] for dep in node["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
        for node in metadata["resolve"]["nodes"]
    }
    root = next(package["id"] for package in packages.values() if package["name"] == "unalike-server")
    reached, left = set(), [root]
    while left:
        at = left.pop()
        if at not in reached:
            reached.add(at)
            left.extend(needs[at])
    checksums = {
        (name, version): checksum
        for name, version, checksum in re.findall(
            r'name = "([^"]+)"\nversion = "([^"]+)"\nsource = [^\n]+\nchecksum = "([0-9a-f]{64})"',
            (TOP / "Cargo.lock").read_text(),
        )
    }

    def purl(package: dict) -> str:
        return f"pkg:cargo/{package['name']}@{package['version']}"

    def component(package: dict) -> dict:
        known = {"type": "library", "bom-ref": purl(package), "name": package["name"], "version": package["version"]}
        if package["license"]:
            known["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        if checksum := checksums.get((package["name"], package["version"])):
            known["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        return {**known, "purl": purl(package)}

    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch()))
    others = sorted((packages[at] for at in reached if at != root), key=purl)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": at, "component": {**component(packages[root]), "type": "application"}},
        "components": [component(package) for package in others],
        "dependencies": [
            {"ref": purl(packages[at]), "dependsOn": sorted({purl(packages[other]) for other in needs[at]})}
            for at in sorted(reached, key=lambda at: purl(packages[at]))
        ],
    }
    (Path(given.out) / f"unalike-{given.version}.cdx.json").write_text(f"{json.dumps(document, indent=1)}\n")


def epoch() -> int:
    """The time of the release, in Unix seconds."""
    return int(os.environ["SOURCE_DATE_EPOCH"])


def main() -> None:
    parts = {"wheel": wheel, "npm": npm, "sbom": sbom}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=parts)
    for option in ["binary", "out", "version"]:
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--architecture", required=True, choices=["amd64", "arm64"])
    parser.add_argument("--glibc", type=int, default=0, help="the minor version of glibc 2 that it needs; 0: none")
    parser.add_argument("--level", type=int, default=6, help="how hard files are compressed, 1 to 9")
    given = parser.parse_args()
    parts[given.part](given)


if __name__ == "__main__":
    main()
