"""Triton programs of the kernels. Each one's grid is its first line; arrays are those of
:class:`oasis_runtime.core.tables.Tables` and :class:`oasis_runtime.kernels.contract.Rows`.

Names in capitals are sizes known when a program is compiled: powers of two that hold the count of
the same name. Tensors come as pointers to their first elements. The compiler reads annotations as
code: they may name Triton's types and built-in ones only.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def widen(bits: tl.tensor) -> tl.tensor:
    """bfloat16, loaded as int16, to float32."""
    return ((bits.to(tl.int32) & 0xFFFF) << 16).to(tl.float32, bitcast=True)


@triton.jit
def summarize(
    key: tl.tensor,
    runs: tl.tensor,
    bounds: tl.tensor,
    scale: tl.tensor,
    present: tl.tensor,
    layer: int,
    tokens: int,
    blocks: int,
    heads: int,
    dim: int,
    DIM: tl.constexpr,  # noqa: N803
) -> None:
    """(run, head, layer from ``layer`` on). ``key``: float32 [layers, tokens, H, D]; ``runs``:
    int32 [n, 4] of (first token, end, host block, starts afresh)."""
    run, head = runs + 4 * tl.program_id(0), tl.program_id(1)
    key += tl.program_id(2).to(tl.int64) * tokens * heads * dim
    layer += tl.program_id(2)
    first, end = tl.load(run), tl.load(run + 1)
    block, fresh = tl.load(run + 2), tl.load(run + 3)
    d = tl.arange(0, DIM)
    inside = d < dim
    low = tl.full((DIM,), float("inf"), tl.float32)
    high = tl.full((DIM,), float("-inf"), tl.float32)
    for token in range(first, end):
        k = tl.load(key + (token * heads + head) * dim + d, mask=inside, other=0.0)
        low, high = tl.minimum(low, k), tl.maximum(high, k)
    row = (layer * blocks + block).to(tl.int64) * heads + head
    at = bounds + row * 2 * dim + d
    if fresh == 0:
        old = widen(tl.load(scale + row))
        low = tl.minimum(low, old * tl.load(at, mask=inside, other=0).to(tl.float32))
        high = tl.maximum(high, old * tl.load(at + dim, mask=inside, other=0).to(tl.float32))
    far = tl.where(inside, tl.maximum(tl.abs(low), tl.abs(high)), 0.0)
    top = tl.maximum(tl.max(far), 7.888609052210118e-31)  # reference.py:LEAST_TOP
    near = tl.div_rn(top, 127.0).to(tl.int32, bitcast=True)
    bits = (near + 0xFFFF) >> 16
    bits += (127.0 * widen(bits) < top).to(tl.int32)
    step = widen(bits)
    down, up = tl.floor(tl.div_rn(low, step)), tl.ceil(tl.div_rn(high, step))
    down -= (step * down > low).to(tl.float32)
    up += (step * up < high).to(tl.float32)
    # No number is out of range but where keys are infinite or not numbers.
    tl.store(at, tl.maximum(down, -127.0).to(tl.int8), mask=inside)
    tl.store(at + dim, tl.minimum(up, 127.0).to(tl.int8), mask=inside)
    tl.store(scale + row, bits.to(tl.int16))
    tl.store(present + (layer * heads + head) * blocks + block, 1)


@triton.jit
def drop(
    dropped: tl.tensor,
    count: int,
    slot_of: tl.tensor,
    owner: tl.tensor,
    last: tl.tensor,
    state: tl.tensor,
    present: tl.tensor,
    blocks: int,
    heads: int,
    slots: int,
    TILE: tl.constexpr,  # noqa: N803
) -> None:
    """(layer * heads + head, tile of the dropped blocks)."""
    table = tl.program_id(0)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = i < count
    page = table * blocks + tl.load(dropped + i, mask=inside, other=0)
    slot = tl.load(slot_of + page, mask=inside, other=-1)
    held = slot >= 0
    at = table // heads * slots + slot
    tl.store(owner + at, -1, mask=held)
    tl.store(last + at, -1, mask=held)
    tl.store(state + at, 0, mask=held)
    tl.store(slot_of + page, -1, mask=inside)
    tl.store(present + page, 0, mask=inside)


@triton.jit
def update(
    moves: tl.tensor,
    count: int,
    slot_of: tl.tensor,
    owner: tl.tensor,
    last: tl.tensor,
    state: tl.tensor,
    blocks: int,
    heads: int,
    slots: int,
    step: int,
    become: int,
    TILE: tl.constexpr,  # noqa: N803
) -> None:
    """(tile of the moves). Slots change hands: ``moves`` int32 [n, 4] of (layer, head, host block,
    slot), no slot and no page twice; none of the pages has a slot yet."""
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = i < count
    layer = tl.load(moves + 4 * i, mask=inside, other=0)
    head = tl.load(moves + 4 * i + 1, mask=inside, other=0)
    block = tl.load(moves + 4 * i + 2, mask=inside, other=0)
    slot = tl.load(moves + 4 * i + 3, mask=inside, other=0)
    at = layer * slots + slot
    old = tl.load(owner + at, mask=inside, other=-1)
    tl.store(slot_of + layer * heads * blocks + old, -1, mask=inside & (old >= 0))
    tl.store(owner + at, (head * blocks + block).to(tl.int64), mask=inside)
    tl.store(last + at, step, mask=inside)
    tl.store(state + at, become, mask=inside)
    tl.store(slot_of + (layer * heads + head) * blocks + block, slot, mask=inside)


@triton.jit
def gather(
    moves: tl.tensor,
    host: tl.tensor,
    fast: tl.tensor,
    state: tl.tensor,
    heads: int,
    slots: int,
    words: int,
    TILE: tl.constexpr,  # noqa: N803
) -> None:
    """(move). Copies pages of ``words`` int32 from the host tier, which is pinned memory at the
    addresses in ``host``, into their slots, and marks them resident."""
    move = moves + 4 * tl.program_id(0)
    layer, head = tl.load(move), tl.load(move + 1)
    block, slot = tl.load(move + 2).to(tl.int64), tl.load(move + 3).to(tl.int64)
    source = tl.load(host + layer).to(tl.pointer_type(tl.int32)) + (block * heads + head) * words
    target = fast + (layer * slots + slot) * words
    for first in range(0, words, TILE):
        i = first + tl.arange(0, TILE)
        tl.store(target + i, tl.load(source + i, mask=i < words, other=0), mask=i < words)
    tl.debug_barrier()
    tl.store(state + layer * slots + slot, 2)


@triton.jit
def mirror(
    tokens: tl.tensor,
    host: tl.tensor,
    fast: tl.tensor,
    elements: tl.tensor,
    slot_of: tl.tensor,
    state: tl.tensor,
    layer: int,
    blocks: int,
    heads: int,
    slots: int,
    block: int,
    dim: int,
    PAIR: tl.constexpr,  # noqa: N803
) -> None:
    """(token, head). ``tokens``: int64, each one's host slot; ``fast``: its elements, of whichever
    integer has their size. ``PAIR`` holds a key and a value."""
    token, head = tl.load(tokens + tl.program_id(0)), tl.program_id(1)
    table = slot_of + (layer * heads + head) * blocks
    slot = tl.load(table + token // block, mask=token >= 0, other=-1).to(tl.int64)
    if tl.load(state + layer * slots + slot, mask=slot >= 0, other=0) == 2:
        i = tl.arange(0, PAIR)
        inside = i < 2 * dim
        at = tl.load(elements + token % block * 2 * dim + i, mask=inside, other=0)
        size = 2 * block * dim
        page = tl.load(host + layer).to(fast.dtype) + (token // block * heads + head) * size
        copied = tl.load(page + at, mask=inside, other=0)
        tl.store(fast + (layer * slots + slot) * size + at, copied, mask=inside)


@triton.jit
def rows(
    lanes: tl.tensor,
    tables: tl.tensor,
    sinks: tl.tensor,
    window: tl.tensor,
    lengths: tl.tensor,
    selected: tl.tensor,
    counts: tl.tensor,
    slot_of: tl.tensor,
    state: tl.tensor,
    table: tl.tensor,
    table_lengths: tl.tensor,
    late: tl.tensor,
    absent: tl.tensor,
    layer: int,
    layers: int,
    stride: int,
    width: int,
    most: int,
    blocks: int,
    heads: int,
    slots: int,
    block: int,
    BLOCKS: tl.constexpr,  # noqa: N803
    MOST: tl.constexpr,  # noqa: N803
) -> None:
    """(row, head). ``late``, ``absent``: int32 [n, H], selected pages left out, and sink or window
    pages that are not resident."""
    row, head = tl.program_id(0), tl.program_id(1)
    heads_of_layer = slot_of + (layer * heads + head) * blocks
    length = tl.load(lengths + row)
    used = tl.cdiv(length, block)
    sink = tl.minimum(tl.load(sinks + row), used)
    opening = tl.maximum(tl.load(window + row), sink)
    i = tl.arange(0, BLOCKS)
    host_block = tl.load(tables + row * stride + i, mask=i < used, other=0)
    slot = tl.load(heads_of_layer + host_block, mask=i < used, other=-1)
    here = tl.load(state + layer * slots + slot, mask=slot >= 0, other=0) == 2
    local = (i < sink) | ((i >= opening) & (i < used))
    line = row * heads + head
    tl.store(absent + line, tl.sum((local & (~here)).to(tl.int32)))

    chosen = (tl.load(lanes + row) * layers + layer) * heads + head
    count = tl.load(counts + chosen)
    j = tl.arange(0, MOST)
    logical = tl.load(selected + chosen * most + j, mask=j < count, other=0)
    host_block = tl.load(tables + row * stride + logical, mask=j < count, other=0)
    its_slot = tl.load(heads_of_layer + host_block, mask=j < count, other=-1)
    come = tl.load(state + layer * slots + its_slot, mask=its_slot >= 0, other=0) == 2
    middle = tl.sum(come.to(tl.int32))
    tl.store(late + line, count - middle)

    out = table + line * width
    at = tl.where(i < sink, i, sink + middle + i - opening)
    tl.store(out + at, slot, mask=local & (at < width))
    at = sink + tl.cumsum(come.to(tl.int32)) - 1
    tl.store(out + at, its_slot, mask=come & (at < width))
    attended = sink + middle + tl.maximum(used - opening, 0)
    tail = length - (used - 1) * block
    tl.store(table_lengths + line, (attended - 1) * block + tail)


@triton.jit
def score(
    query: tl.tensor,
    tables: tl.tensor,
    lengths: tl.tensor,
    bounds: tl.tensor,
    scale: tl.tensor,
    scores: tl.tensor,
    softmax_scale: float,
    layer: int,
    stride: int,
    width: int,
    blocks: int,
    heads: int,
    group: int,
    dim: int,
    block: int,
    TILE: tl.constexpr,  # noqa: N803
    DIM: tl.constexpr,  # noqa: N803
) -> None:
    """(row, head, tile of the request's blocks). ``scores``: float32 [n, H, G, width]."""
    row, head = tl.program_id(0), tl.program_id(1)
    used = tl.cdiv(tl.load(lengths + row), block)
    i = tl.program_id(2) * TILE + tl.arange(0, TILE)
    d = tl.arange(0, DIM)
    host_block = tl.load(tables + row * stride + i, mask=i < used, other=0)
    page = (layer * blocks + host_block).to(tl.int64) * heads + head
    inside = (i < used)[:, None] & (d < dim)[None, :]
    at = bounds + page[:, None] * (2 * dim) + d[None, :]
    low = tl.load(at, mask=inside, other=0).to(tl.float32)
    high = tl.load(at + dim, mask=inside, other=0).to(tl.float32)
    step = softmax_scale * widen(tl.load(scale + page, mask=i < used, other=0))
    for g in range(0, group):
        line = (row * heads + head) * group + g
        q = tl.load(query + line * dim + d, mask=d < dim, other=0.0)[None, :]
        sums = tl.sum(tl.maximum(q, 0.0) * high + tl.minimum(q, 0.0) * low, axis=1)
        tl.store(scores + line * width + i, step * sums, mask=i < used)


@triton.jit
def best(mass: tl.tensor, among: tl.tensor, k: tl.tensor) -> tl.tensor:
    """Which of ``among`` are the ``k`` heaviest, the first of equals.

    Floats that are not negative are in the order of their bits, so the k-th largest is found by
    halving the range of bits, without sorting.
    """
    bits = tl.where(among, mass.to(tl.int32, bitcast=True), -1)
    limit, over = tl.max(bits) * 0, tl.max(bits) + 1
    while over - limit > 1:
        middle = limit + (over - limit) // 2
        enough = tl.sum((bits >= middle).to(tl.int32)) >= k
        limit, over = tl.where(enough, middle, limit), tl.where(enough, over, middle)
    equal = (bits == limit).to(tl.int32)
    spare = k - tl.sum((bits > limit).to(tl.int32))
    return (bits > limit) | ((equal == 1) & (tl.cumsum(equal) <= spare))


@triton.jit
def choose(
    scores: tl.tensor,
    lanes: tl.tensor,
    tables: tl.tensor,
    sinks: tl.tensor,
    window: tl.tensor,
    lengths: tl.tensor,
    budget: tl.tensor,
    boost: tl.tensor,
    flags: tl.tensor,
    before: tl.tensor,
    selected: tl.tensor,
    counts: tl.tensor,
    slot_of: tl.tensor,
    last: tl.tensor,
    state: tl.tensor,
    lacking: tl.tensor,
    totals: tl.tensor,
    layer: int,
    layers: int,
    stride: int,
    width: int,
    most: int,
    blocks: int,
    heads: int,
    group: int,
    slots: int,
    block: int,
    step: int,
    BLOCKS: tl.constexpr,  # noqa: N803
    HYSTERESIS: tl.constexpr,  # noqa: N803
) -> None:
    """(row, head). ``before``: int8 [n, H, width], whether the old selection had a block.
    ``lacking``: float32 [n, H, width], the score of a block that needs a slot, infinite for sinks
    and window, -1 for all others. ``totals``: int32 [n, H, 4] of selected, resident, compared,
    agreed."""
    row, head = tl.program_id(0), tl.program_id(1)
    line = row * heads + head
    used = tl.cdiv(tl.load(lengths + row), block)
    first = tl.minimum(tl.load(sinks + row), used)
    end = tl.minimum(tl.maximum(tl.load(window + row), first), used)
    i = tl.arange(0, BLOCKS)
    mass = tl.zeros((BLOCKS,), tl.float32)
    for g in range(0, group):
        s = tl.load(scores + (line * group + g) * width + i, mask=i < used, other=float("-inf"))
        weight = tl.exp(s - tl.max(s))
        mass += weight / tl.sum(weight)
    mass = tl.where(mass == mass, mass, 0.0)  # keys that are not numbers

    between = (i >= first) & (i < end)
    allowed = tl.load(budget + row) * tl.load(boost + layer * heads + head).to(tl.int32)
    k = tl.minimum(tl.minimum(allowed, end - first), most)
    lane = (tl.load(lanes + row) * layers + layer) * heads + head
    flag = tl.load(flags + row)
    old = tl.load(before + line * width + i, mask=i < used, other=0) != 0
    chosen = best(mass, between, k)
    compared = tl.where((flag & 2) != 0, k, 0)  # contract.py:SelectFlag.COMPARE
    agreed = tl.where(compared > 0, tl.sum((chosen & old).to(tl.int32)), 0)
    if (flag & 8) != 0:  # contract.py:SelectFlag.KEEP
        mass = tl.where(old, mass * HYSTERESIS, mass)
        chosen = best(mass, between, k)
    tl.store(selected + lane * most + tl.cumsum(chosen.to(tl.int32)) - 1, i, mask=chosen)
    tl.store(counts + lane, k)

    local = (i < used) & (~between)
    kept = (chosen | local) & ((flag & 4) == 0)  # contract.py:SelectFlag.CHOOSE_ONLY
    host_block = tl.load(tables + row * stride + i, mask=i < used, other=0)
    slot = tl.load(slot_of + (layer * heads + head) * blocks + host_block, mask=i < used, other=-1)
    held = kept & (slot >= 0)
    tl.store(last + layer * slots + slot, step, mask=held)
    here = tl.load(state + layer * slots + slot, mask=held & chosen, other=0) == 2
    need = tl.where(local, float("inf"), mass)
    tl.store(lacking + line * width + i, tl.where(kept & (~held), need, -1.0), mask=i < width)
    out = totals + line * 4
    tl.store(out, k)
    tl.store(out + 1, tl.sum(here.to(tl.int32)))
    tl.store(out + 2, compared)
    tl.store(out + 3, agreed)


@triton.jit
def admit(
    order: tl.tensor,
    missing: tl.tensor,
    lacking: tl.tensor,
    take: tl.tensor,
    takeable: tl.tensor,
    tables: tl.tensor,
    flags: tl.tensor,
    slot_of: tl.tensor,
    owner: tl.tensor,
    last: tl.tensor,
    state: tl.tensor,
    present: tl.tensor,
    loads: tl.tensor,
    wants: tl.tensor,
    found: tl.tensor,
    layer: int,
    stride: int,
    width: int,
    blocks: int,
    heads: int,
    slots: int,
    cap: int,
    step: int,
) -> None:
    """(1). Gives slots to missing pages, one after another, as what is spent on one decides about
    the next. ``order``: int64, where in ``lacking`` they stand, best first, ``missing`` int64 [1]
    of them; ``take``: int64, slots in the order to take them, ``takeable`` int64 [1] of them.
    ``found``: int32 [4], counts of loads, wants, starved, capped.

    Launched with one warp: what one turn stores the next one loads.
    """
    taken = 0
    wanted = 0
    starved = 0
    capped = 0
    spent = 0
    room = tl.load(takeable)
    for j in range(0, tl.load(missing)):
        entry = tl.load(order + j)
        logical = (entry % width).to(tl.int32)
        line = (entry // width).to(tl.int32)
        head = line % heads
        row = line // heads
        block = tl.load(tables + row * stride + logical)
        page = (layer * heads + head) * blocks + block
        admission = tl.load(flags + row).to(tl.int32) & 1  # contract.py:SelectFlag.ADMISSION
        is_local = (tl.load(lacking + entry) == float("inf")).to(tl.int32)
        costs = 1 - tl.maximum(admission, is_local)
        if tl.load(slot_of + page) < 0:  # not shared with an earlier request
            if (costs == 1) & (spent >= cap):
                capped += 1
            elif tl.load(present + page) == 0:
                tl.store(wants + 3 * wanted, row)
                tl.store(wants + 3 * wanted + 1, head)
                tl.store(wants + 3 * wanted + 2, logical)
                wanted += 1
                spent += costs
            elif taken >= room:
                starved += 1
            else:
                slot = tl.load(take + taken).to(tl.int32)
                at = layer * slots + slot
                old = tl.load(owner + at)
                if old >= 0:
                    tl.store(slot_of + layer * heads * blocks + old, -1)
                tl.store(owner + at, (head * blocks + block).to(tl.int64))
                tl.store(last + at, step)
                tl.store(state + at, 1)
                tl.store(slot_of + page, slot)
                tl.store(loads + 4 * taken, head)
                tl.store(loads + 4 * taken + 1, block)
                tl.store(loads + 4 * taken + 2, slot)
                tl.store(loads + 4 * taken + 3, admission)
                taken += 1
                spent += costs
        tl.debug_barrier()
    tl.store(found, taken)
    tl.store(found + 1, wanted)
    tl.store(found + 2, starved)
    tl.store(found + 3, capped)


@triton.jit
def attend(
    query: tl.tensor,
    fast: tl.tensor,
    table: tl.tensor,
    lengths: tl.tensor,
    out: tl.tensor,
    softmax_scale: float,
    layer: int,
    slots: int,
    width: int,
    group: int,
    dim: int,
    block: int,
    GROUP: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    DIM: tl.constexpr,  # noqa: N803
) -> None:
    """(row * heads + head). Attention of one token's query heads over the pages in its table, with
    the softmax kept running (Milakov and Gimelshein, arXiv 1805.02867). ``fast``: [L, S, 2, block,
    D], keys before values."""
    line = tl.program_id(0)
    g = tl.arange(0, GROUP)
    t = tl.arange(0, BLOCK)
    d = tl.arange(0, DIM)
    asked = (g < group)[:, None] & (d < dim)[None, :]
    at = (line * group + g)[:, None] * dim + d[None, :]
    q = tl.load(query + at, mask=asked, other=0.0)
    length = tl.load(lengths + line)
    top = tl.full((GROUP,), float("-inf"), tl.float32)
    total = tl.zeros((GROUP,), tl.float32)
    sums = tl.zeros((GROUP, DIM), tl.float32)
    for j in range(0, tl.cdiv(length, block)):
        slot = tl.load(table + line * width + j).to(tl.int64)
        page = fast + (layer * slots + slot) * (2 * block * dim)
        valid = (t < block) & (j * block + t < length)
        inside = valid[:, None] & (d < dim)[None, :]
        offsets = t[:, None] * dim + d[None, :]
        key = tl.load(page + offsets, mask=inside, other=0.0)
        value = tl.load(page + block * dim + offsets, mask=inside, other=0.0)
        s = tl.dot(q, tl.trans(key), input_precision="ieee") * softmax_scale
        s = tl.where(valid[None, :], s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, axis=1))
        weight = tl.exp(s - higher[:, None])
        shrink = tl.exp(top - higher)
        total = total * shrink + tl.sum(weight, axis=1)
        sums = sums * shrink[:, None]
        sums += tl.dot(weight.to(value.dtype), value, input_precision="ieee")
        top = higher
    tl.store(out + at, (sums / total[:, None]).to(q.dtype), mask=asked)
