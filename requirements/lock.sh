#!/bin/sh
# Resolve every lock for all Pythons from 3.11 on. Usage: requirements/lock.sh path/to/uv
set -eu
cd "$(dirname "$0")/.."
lock() {
	out=requirements/$1.txt
	shift
	"$UV" pip compile --universal --python-version 3.11 --quiet --no-emit-index-url \
		--no-emit-find-links --custom-compile-command "make lock" pyproject.toml "$@" -o "$out"
}
UV=$1
lock core --extra draw
HOST="--extra draw --extra ant --extra atari --extra doom --extra mujoco --extra racing --extra cluster --extra demonstrations --extra demo --extra export"
lock test --extra test $HOST -c requirements/core.txt
lock dev --extra test $HOST --extra docs --extra dev -c requirements/test.txt
# By hand, and installed with --no-deps: PyTorch's own dependencies on CUDA stay out
