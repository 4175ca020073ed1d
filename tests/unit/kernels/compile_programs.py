"""Compiles every Triton program for a GPU that need not be there, and prints its name when done.

    python -m tests.unit.kernels.compile_programs

Each one twice: for sizes that differ, and with 1 for the sizes that Triton then compiles in.
"""

from __future__ import annotations

from collections.abc import Mapping

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from oasis_runtime.kernels import triton_programs as programs

TARGET = GPUTarget("cuda", 90, 32)
SIZES = {
    "DIM": 128,
    "PAIR": 256,
    "TILE": 64,
    "BLOCKS": 1024,
    "MOST": 128,
    "GROUP": 16,
    "BLOCK": 32,
    "HYSTERESIS": 4.0,
}
ONES = ("layer", "layers", "heads", "group", "count", "step", "cap")
TABLES = {
    **dict.fromkeys(("slot_of", "last", "selected", "counts"), "*i32"),
    **dict.fromkeys(("owner", "host"), "*i64"),
    **dict.fromkeys(("state", "present", "flags", "boost"), "*u8"),
    **dict.fromkeys(("lanes", "tables", "sinks", "window", "lengths", "budget"), "*i32"),
    **{"bounds": "*i8", "scale": "*i16", "fast": "*i32", "softmax_scale": "fp32"},
    **dict.fromkeys(("query", "scores", "lacking"), "*fp32"),
    **dict.fromkeys(("order", "missing", "take", "takeable"), "*i64"),
}
PROGRAMS: Mapping[str, Mapping[str, str]] = {
    "summarize": {"key": "*fp32", "runs": "*i32", "tokens": "i32"},
    "drop": {"dropped": "*i32"},
    "update": {"moves": "*i32"},
    "gather": {"moves": "*i32"},
    "mirror": {"tokens": "*i64", "fast": "*i16", "elements": "*i32"},
    "rows": {"table": "*i32", "table_lengths": "*i32", "late": "*i32", "absent": "*i32"},
    "score": {},
    "choose": {"before": "*i8", "totals": "*i32"},
    "admit": {"loads": "*i32", "wants": "*i32", "found": "*i32"},
    "attend": {"query": "*bf16", "fast": "*bf16", "out": "*bf16", "table": "*i32"},
}
"""Types of the arguments that are not integers, besides those of ``TABLES``."""


def compile_program(name: str, ones: tuple[str, ...]) -> None:
    program = getattr(programs, name)
    types = {**TABLES, **PROGRAMS[name]}
    known = {argument: SIZES[argument] for argument in program.arg_names if argument in SIZES}
    known |= {argument: 1 for argument in program.arg_names if argument in ones}
    signature = {
        argument: "constexpr" if argument in known else types.get(argument, "i32")
        for argument in program.arg_names
    }
    options = {"num_warps": 1 if name == "admit" else 4}
    triton.compile(ASTSource(program, signature, known), target=TARGET, options=options)


def main() -> None:
    for name in PROGRAMS:
        compile_program(name, ())
        compile_program(name, ONES)
        print(name)


if __name__ == "__main__":
    main()
