"""The contract on CPU: a small C++ library, called through ctypes with the GIL released."""

from __future__ import annotations

import ctypes
import importlib.util
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oasis_runtime.core.tables import Tables
from oasis_runtime.kernels.contract import F32, I32, I64, U8, Rows, Selected

_LIBRARY = "oasis_runtime.kernels._oasis_cpu"
_INTERFACE = 6
"""Same in oasis_cpu.cpp; raise both when the tables or a signature change."""
_INSTALL = "install the package (pip install .), or in a checkout `pip install --no-deps -e .`"


class _Tables(ctypes.Structure):
    """Same field order as ``struct Tables`` in oasis_cpu.cpp."""

    _fields_ = (
        *(
            (name, c_int64)
            for name in (
                "layers",
                "heads",
                "group",
                "dim",
                "block",
                "blocks",
                "slots",
                "page_bytes",
                "max_selected",
                "element_bytes",
            )
        ),
        *(
            (name, c_void_p)
            for name in (
                "host",
                "fast",
                "slot_of",
                "owner",
                "last",
                "state",
                "present",
                "bounds",
                "scale",
                "selected",
                "count",
                "boost",
                "elements",
            )
        ),
    )


def library_path() -> Path:
    """Raises RuntimeError with the remedy when the library has not been built."""
    spec = importlib.util.find_spec(_LIBRARY)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"the CPU kernels are not built: {_INSTALL}")
    return Path(spec.origin)


def _load() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(library_path()))
    try:
        interface = int(lib.oasis_interface())
    except AttributeError:  # the first version did not say
        interface = 1
    if interface != _INTERFACE:
        raise RuntimeError(f"{library_path()} was built from another version: {_INSTALL}")
    tables, ptr, i64 = POINTER(_Tables), c_void_p, c_int64
    lib.oasis_summarize.argtypes = (tables, i64, i64, ptr, ptr, i64)
    lib.oasis_drop.argtypes = (tables, ptr, i64)
    lib.oasis_pin.argtypes = (tables, ptr, i64, c_int32)
    lib.oasis_place.argtypes = (tables, i64, ptr, ptr, i64, ptr, ptr, ptr, ptr, c_int32, ptr)
    lib.oasis_mirror.argtypes = (tables, i64, ptr, i64)
    lib.oasis_rows.argtypes = (tables, i64, i64, ptr, ptr, i64, ptr, ptr, ptr, i64, ptr, ptr)
    lib.oasis_select.argtypes = (
        *(tables, i64, i64, ptr, ptr, c_float, ptr, i64, ptr, ptr, ptr, ptr, ptr, i64, c_int32),
        *(ptr, ptr, ptr, ptr, ptr),
    )
    lib.oasis_copy.argtypes = (tables, ptr, i64, ptr)
    lib.oasis_read_pages.argtypes = (tables, ptr, i64, ptr)
    lib.oasis_write_pages.argtypes = (tables, ptr, i64, ptr)
    for name in ("summarize", "drop", "mirror", "select", "copy", "read_pages", "write_pages"):
        getattr(lib, f"oasis_{name}").restype = None
    lib.oasis_pin.restype = i64
    lib.oasis_place.restype = i64
    lib.oasis_rows.restype = i64
    return lib


def _address(array: npt.NDArray[np.generic], dtype: type[np.generic]) -> int:
    if array.dtype != dtype or not array.flags.c_contiguous:
        raise TypeError(f"needs a contiguous {dtype.__name__} array, got {array.dtype}")
    return array.ctypes.data


class _Shared:
    """Address of an array that the calls of many layers share: ``ctypes.data`` takes longer than
    some of the kernels. Keeps the last array alive."""

    def __init__(self, dtype: type[np.generic]) -> None:
        self._dtype = dtype
        self._array: npt.NDArray[np.generic] | None = None
        self._at = 0

    def address(self, array: npt.NDArray[np.generic]) -> int:
        if array is not self._array:
            self._array, self._at = array, _address(array, self._dtype)
        return self._at


@dataclass(frozen=True)
class _Requests:
    """Addresses of what a call takes of its :class:`Rows`, made once for all layers of a step.
    ``rows`` keeps the arrays alive."""

    rows: Rows
    lanes: int
    blocks: tuple[int, int, int, int, int]
    """Of tables with their stride, sinks, window and lengths, as every kernel takes them."""

    @staticmethod
    def of(rows: Rows) -> _Requests:
        lanes, tables, sinks, window, lengths = (
            _address(array, np.int32)
            for array in (rows.lanes, rows.tables, rows.sinks, rows.window, rows.lengths)
        )
        return _Requests(rows, lanes, (tables, rows.tables.shape[1], sinks, window, lengths))


@dataclass(frozen=True)
class _Table:
    """Room for the block tables of the layers of a step, one after the other."""

    requests: _Requests
    slots: I32
    lengths: I32
    outputs: tuple[int, int]

    @staticmethod
    def make(rows: Rows, width: int, heads: int) -> _Table:
        slots = np.empty((len(rows) * heads, width), np.int32)
        lengths = np.empty(len(slots), np.int32)
        addresses = (slots.ctypes.data, lengths.ctypes.data)
        return _Table(_Requests.of(rows), slots, lengths, addresses)

    def is_of(self, rows: Rows, width: int) -> bool:
        return self.requests.rows is rows and self.slots.shape[1] == width


@dataclass(frozen=True)
class _Choice:
    """Arguments of a selection besides the query, and room for what comes of it.

    ``kept``: the arrays that ``inputs`` are the addresses of.
    """

    requests: _Requests
    kept: tuple[I32, U8]
    inputs: tuple[int, int]
    loads: I32
    wants: I32
    counts: I64
    outputs: tuple[int, int, int, int, int]

    @staticmethod
    def make(rows: Rows, budget: I32, flags: U8, heads: int) -> _Choice:
        most = rows.tables.size * heads
        loads, wants = np.empty((most, 4), np.int32), np.empty((most, 3), np.int32)
        counts = np.zeros(8, np.int64)  # loads, wants, and the totals
        at = counts.ctypes.data
        return _Choice(
            _Requests.of(rows),
            (budget, flags),
            (_address(budget, np.int32), _address(flags, np.uint8)),
            loads,
            wants,
            counts,
            (loads.ctypes.data, at, wants.ctypes.data, at + 8, at + 16),
        )

    def is_of(self, rows: Rows, budget: I32, flags: U8) -> bool:
        return self.requests.rows is rows and self.kept[0] is budget and self.kept[1] is flags


class CpuKernels:
    """See :class:`oasis_runtime.kernels.contract.Kernels`."""

    def __init__(self, tables: Tables) -> None:
        g = tables.geometry
        self._lib = _load()
        self._geometry = g
        self._tables = tables  # keeps the arrays that the structure points to
        self._struct = _Tables(
            g.layers,
            g.heads,
            g.group,
            g.dim,
            g.block,
            g.host_blocks,
            g.slots,
            g.page_bytes,
            tables.selected.shape[3],
            g.element_bytes,
            *(
                array.ctypes.data
                for array in (
                    tables.host,
                    tables.fast,
                    tables.slot_of,
                    tables.owner,
                    tables.last,
                    tables.state,
                    tables.present,
                    tables.bounds,
                    tables.scale,
                    tables.selected,
                    tables.count,
                    tables.boost,
                    tables.elements,
                )
            ),
        )
        self._ref = ctypes.byref(self._struct)
        self._keys, self._written = _Shared(np.float32), _Shared(np.int64)
        self._mirrored, self._queries = _Shared(np.int64), _Shared(np.float32)
        self._table: _Table | None = None
        self._choice: _Choice | None = None

    def summarize(self, layer: int, key: F32, slots: I64) -> None:
        self._lib.oasis_summarize(
            self._ref,
            layer,
            len(key),
            self._keys.address(key),
            self._written.address(slots),
            len(slots),
        )

    def drop(self, blocks: I32) -> None:
        self._lib.oasis_drop(self._ref, _address(blocks, np.int32), len(blocks))

    def pin(self, blocks: I32, step: int) -> int:
        copied = int(self._lib.oasis_pin(self._ref, _address(blocks, np.int32), len(blocks), step))
        if copied < 0:
            raise MemoryError(f"no slots to pin {len(blocks)} blocks; raise tiers.fast_bytes")
        return copied

    def place(self, rows: Rows, old: U8, step: int) -> I32:
        moves = np.empty((int(self._tables.count[rows.lanes].sum()), 4), np.int32)
        r = _Requests.of(rows)
        placed = self._lib.oasis_place(
            self._ref,
            len(rows),
            r.lanes,
            *r.blocks,
            _address(old, np.uint8),
            step,
            moves.ctypes.data,
        )
        return moves[:placed]

    def mirror(self, layer: int, slots: I64) -> None:
        self._lib.oasis_mirror(self._ref, layer, self._mirrored.address(slots), len(slots))

    def rows(self, layer: int, rows: Rows, width: int) -> tuple[I32, I32, int]:
        table = self._table
        if table is None or not table.is_of(rows, width):
            table = self._table = _Table.make(rows, width, self._geometry.heads)
        r = table.requests
        late = int(
            self._lib.oasis_rows(
                self._ref,
                layer,
                len(rows),
                r.lanes,
                *r.blocks,
                width,
                *table.outputs,
            )
        )
        if late < 0:
            raise LookupError(f"a sink or window block is not resident in layer {layer}")
        return table.slots, table.lengths, late

    def select(
        self,
        layer: int,
        rows: Rows,
        query: F32,
        softmax_scale: float,
        budget: I32,
        flags: U8,
        cap: int,
        step: int,
    ) -> Selected:
        chosen = self._prepared(rows, budget, flags)
        r = chosen.requests
        self._lib.oasis_select(
            self._ref,
            layer,
            len(rows),
            r.lanes,
            self._queries.address(query),
            softmax_scale,
            *r.blocks,
            *chosen.inputs,
            cap,
            step,
            *chosen.outputs,
        )
        n_loads, n_wants, *totals = chosen.counts.tolist()
        return Selected(chosen.loads[:n_loads].copy(), chosen.wants[:n_wants].copy(), *totals)

    def _prepared(self, rows: Rows, budget: I32, flags: U8) -> _Choice:
        """What the selections of all layers of a step share, made once."""
        choice = self._choice
        if choice is None or not choice.is_of(rows, budget, flags):
            choice = self._choice = _Choice.make(rows, budget, flags, self._geometry.heads)
        return choice

    def copy(self, moves: I32, progress: I64) -> None:
        self._lib.oasis_copy(
            self._ref, _address(moves, np.int32), len(moves), _address(progress, np.int64)
        )

    def read_pages(self, pages: I32, out: U8) -> None:
        if out.size != len(pages) * self._geometry.page_bytes:
            raise ValueError(f"{len(pages)} pages do not fill {out.size} bytes")
        self._lib.oasis_read_pages(
            self._ref, _address(pages, np.int32), len(pages), _address(out, np.uint8)
        )

    def write_pages(self, pages: I32, data: U8) -> None:
        if data.size != len(pages) * self._geometry.page_bytes:
            raise ValueError(f"{len(pages)} pages are not {data.size} bytes")
        self._lib.oasis_write_pages(
            self._ref, _address(pages, np.int32), len(pages), _address(data, np.uint8)
        )
