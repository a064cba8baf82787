#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Training steps of terapipe beside those of PyTorch, and of llm.c and nanoGPT where their checkouts are
# named: same model, weights, batch and threads, in turn round by round. From the build folder:
#
#     sh .../bench/peers.sh --install DIR [OPTION...]   makes a Python environment in DIR with the newest
#                                                       PyTorch that pip finds, and uses it
#     sh .../bench/peers.sh --python PY [OPTION...]     uses an interpreter that has torch and numpy
#
# Other options are those of peers/compare.py: --models, --threads, --rounds, --compile, --json,
# --llmc DIR, --nanogpt DIR; --help lists them.
set -e
here=$(cd "$(dirname "$0")" && pwd)

fail() {
    echo "peers.sh: $1" >&2
    exit 2
}

python=
case ${1:-} in
--install)
    [ -n "${2:-}" ] || fail "--install: expected a folder"
    [ -x "$2/bin/python" ] || python3 -m venv "$2"
    "$2/bin/python" -m pip install --quiet torch numpy
    python=$(cd "$2" && pwd)/bin/python
    shift 2
    ;;
--python)
    [ -n "${2:-}" ] || fail "--python: expected an interpreter"
    python=$2
    shift 2
    ;;
*)
    fail "expected --install DIR or --python PY first, of a Python with torch and numpy"
    ;;
esac
"$python" -c 'import torch, numpy' 2>/dev/null || fail "$python: has no torch or no numpy"
[ -x ./terapipe ] || fail "no ./terapipe here: start it in the build folder, after make"

exec "$python" "$here/peers/compare.py" --terapipe ./terapipe --python "$python" "$@"
