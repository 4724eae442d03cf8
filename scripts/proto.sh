#!/usr/bin/env bash
# Generates the stubs and their types from proto/ into the folder given (default: lib).
# Needs the development tools on PATH, in the versions of requirements-dev.lock.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-lib}
python=${PYTHON:-.venv/bin/python}
export PATH="$(dirname "$(command -v "$python")"):$PATH"
"$python" -m grpc_tools.protoc -Iproto \
  --python_out="$out" --grpc_python_out="$out" \
  --mypy_out=quiet:"$out" --mypy_grpc_out=quiet:"$out" \
  proto/warmindex/v1/*.proto
# Files without a service have an empty _grpc half.
rm -f "$out"/warmindex/v1/{event,error_reason}_pb2_grpc.py{,i}
