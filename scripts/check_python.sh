#!/usr/bin/env bash
# Says whether a Python can make warmindex's environment, and if not, what to do.
#
#   scripts/check_python.sh python3
set -euo pipefail
python=${1:-python3}

command -v "$python" >/dev/null || {
  echo "There is no '$python'. Install Python 3.11 or newer, or name one: make test PYTHON=python3.12" >&2
  exit 1
}
# Old enough a Python may not even parse newer syntax, so this is plain Python 2.
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "warmindex needs Python 3.11 or newer, and '$python' is $("$python" -V 2>&1)." >&2
  echo "Name another: make test PYTHON=python3.12" >&2
  exit 1
}
"$python" -c 'import ensurepip, venv' 2>/dev/null || {
  echo "'$python' cannot make virtual environments: its venv or ensurepip module is missing." >&2
  echo "On Debian and Ubuntu they come with the package python3-venv." >&2
  exit 1
}
