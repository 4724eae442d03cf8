#!/usr/bin/env bash
# Generates the stubs and their types from proto/ into the folder given (default: lib).
# Needs the development tools on PATH, in the versions of requirements-dev.lock.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-lib}
python=${PYTHON:-.venv/bin/python}
# protoc finds its plugins for type stubs on PATH: beside the Python.
PATH="$(dirname "$(command -v "$python")"):$PATH"
export PATH

# The contract: messages and, for the one file that has it, the service.
"$python" -m grpc_tools.protoc -Iproto \
  --python_out="$out" --mypy_out=quiet:"$out" \
  proto/warmindex/v1/*.proto
"$python" -m grpc_tools.protoc -Iproto \
  --grpc_python_out="$out" --mypy_grpc_out=quiet:"$out" \
  proto/warmindex/v1/index_service.proto
# What journals store: messages alone.
"$python" -m grpc_tools.protoc -Iproto \
  --python_out="$out" --mypy_out=quiet:"$out" \
  proto/warmindex/storage/v1/*.proto
