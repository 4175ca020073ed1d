// CPU kernels of the OasisKV engine. Plain C functions over caller-owned arrays; no global state,
// no Python. Called through ctypes, which releases the GIL. The contract of each function is the
// docstring of the method of the same name in kernels/contract.py; kernels/reference.py is the
// oracle that the tests compare with.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

namespace {

constexpr uint8_t kFree = 0, kArriving = 1, kResident = 2;   // core/tables.py:SlotState
constexpr uint8_t kAdmission = 1, kCompare = 2, kChooseOnly = 4, kKeep = 8;  // kernels/contract.py:SelectFlag
constexpr float kHysteresis = 4.f;  // kernels/contract.py:HYSTERESIS

// Same field order as kernels/cpu.py:_Tables.
struct Tables {
  int64_t layers, heads, group, dim, block, blocks, slots, page_bytes, max_selected, element_bytes;
  uint8_t* const* host;  // [layers] base of that layer's pages, [blocks, heads, page_bytes]
  uint8_t* fast;         // [layers, slots, page_bytes]
  int32_t* slot_of;      // [layers, heads, blocks]
  int64_t* owner;        // [layers, slots], head * blocks + block
  int32_t* last;         // [layers, slots]
  uint8_t* state;        // [layers, slots]
  uint8_t* present;      // [layers, heads, blocks]
  int8_t* bounds;        // [layers, blocks, heads, 2, dim]: low, high
  uint16_t* scale;       // [layers, blocks, heads], bfloat16
  int32_t* selected;     // [lanes, layers, heads, max_selected]
  int32_t* count;        // [lanes, layers, heads]
  const uint8_t* boost;  // [layers, heads]
  const int32_t* elements;  // [block, 2 * dim]
};

int32_t& slot_of(const Tables& t, int64_t l, int64_t h, int64_t b) {
  return t.slot_of[(l * t.heads + h) * t.blocks + b];
}
uint8_t& present(const Tables& t, int64_t l, int64_t h, int64_t b) {
  return t.present[(l * t.heads + h) * t.blocks + b];
}
uint8_t* host_page(const Tables& t, int64_t l, int64_t h, int64_t b) {
  return t.host[l] + (b * t.heads + h) * t.page_bytes;
}
uint8_t* fast_page(const Tables& t, int64_t l, int64_t s) {
  return t.fast + (l * t.slots + s) * t.page_bytes;
}
int32_t* selected(const Tables& t, int64_t lane, int64_t l, int64_t h) {
  return t.selected + ((lane * t.layers + l) * t.heads + h) * t.max_selected;
}
int32_t& count(const Tables& t, int64_t lane, int64_t l, int64_t h) {
  return t.count[(lane * t.layers + l) * t.heads + h];
}
int64_t blocks_of(const Tables& t, int64_t tokens) { return (tokens + t.block - 1) / t.block; }
uint8_t load_state(const uint8_t* s) { return __atomic_load_n(s, __ATOMIC_ACQUIRE); }
void store_state(uint8_t* s, uint8_t v) { __atomic_store_n(s, v, __ATOMIC_RELEASE); }

void release(const Tables& t, int64_t l, int64_t s) {
  int64_t i = l * t.slots + s;
  if (t.owner[i] >= 0) slot_of(t, l, t.owner[i] / t.blocks, t.owner[i] % t.blocks) = -1;
  t.owner[i] = -1;
  t.last[i] = -1;
  store_state(t.state + i, kFree);
}

void assign(const Tables& t, int64_t l, int64_t h, int64_t b, int64_t s, int32_t step, uint8_t st) {
  int64_t i = l * t.slots + s;
  release(t, l, s);
  t.owner[i] = h * t.blocks + b;
  t.last[i] = step;
  slot_of(t, l, h, b) = static_cast<int32_t>(s);
  store_state(t.state + i, st);
}

// Slots of which `may(slot)` allows that they be given away, in the order to take them: free ones,
// then the least recently selected; a slot still being filled is never one of them.
template <typename May>
void takeable(const Tables& t, int64_t l, size_t want, std::vector<int32_t>& out, May may) {
  std::vector<int64_t> v;  // last step above, slot below
  v.reserve(t.slots);
  for (int64_t s = 0; s < t.slots; ++s) {
    int64_t i = l * t.slots + s;
    uint8_t st = load_state(t.state + i);
    if (st == kFree || (st == kResident && may(s))) v.push_back(t.last[i] * (int64_t{1} << 32) + s);
  }
  size_t n = std::min(want, v.size());
  if (n < v.size()) std::nth_element(v.begin(), v.begin() + n, v.end());
  std::sort(v.begin(), v.begin() + n);
  out.clear();
  for (size_t i = 0; i < n; ++i) out.push_back(static_cast<int32_t>(v[i]));
}

// bfloat16: the upper half of a float.
float widen(uint16_t bits) {
  uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float number;
  std::memcpy(&number, &wide, sizeof number);
  return number;
}
uint16_t round_up(float number) {
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  return static_cast<uint16_t>((static_cast<uint64_t>(bits) + 0xffff) >> 16);
}

// One build for every CPU: the loops below are compiled for each of these, and the loader takes the
// best that the CPU has. arm64 has its vectors in the base line.
#if defined(__x86_64__)
#define OASIS_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define OASIS_CLONES
#endif
#define OASIS_INLINE inline __attribute__((always_inline))

// Vectors of any CPU: compilers split them into what the CPU has.
typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef float Eight __attribute__((vector_size(32)));
typedef float Four __attribute__((vector_size(16)));
constexpr int64_t kLanes = 16, kChunk = 64;  // floats of a vector, int8 of a vector
constexpr int64_t kTogether = 4;             // query heads that share one pass over a summary

int64_t chunks(const Tables& t) { return (t.dim + kChunk - 1) / kChunk; }

// A chunk of 64 int8 is read as 16 integers of 4 bytes each, and byte j of all integers is one vector
// of floats. A query head's parts are laid out to match: chunk, j, then max(q,0) and min(q,0) of the
// dimensions 4 * lane + j; 8 vectors a chunk.
void spread(const Tables& t, const float* q, float* out) {
  std::fill(out, out + chunks(t) * 8 * kLanes, 0.f);
  for (int64_t d = 0; d < t.dim; ++d) {
    float* o = out + ((d / kChunk * 4 + d % 4) * 2) * kLanes + d % kChunk / 4;
    o[0] = std::max(q[d], 0.f);
    o[kLanes] = std::min(q[d], 0.f);
  }
}

template <typename Vector>
OASIS_INLINE void load(const void* from, Vector& to) { std::memcpy(&to, from, sizeof to); }

OASIS_INLINE void add_parts(const Floats& v, Four& out) {
  const Eight a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                  __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  out = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
}

// Upper bounds of q.k over the keys of each of n blocks for G query heads of one KV head:
// out[g * n + i] = factor * scale * sum(max(q,0)*high + min(q,0)*low).
template <int G>
OASIS_INLINE void bounds_of(const Tables& t, int64_t l, int64_t h, const int32_t* blocks, int64_t n,
                            const float* parts, float factor, float* out) {
  const int64_t dim = t.dim, width = chunks(t) * 8 * kLanes;
  const auto row_of = [&](int64_t i) { return (l * t.blocks + blocks[i]) * t.heads + h; };
  for (int64_t i = 0; i < n; ++i) {
    constexpr int64_t kAhead = 16;  // the blocks of a request lie anywhere, no CPU foresees them
    if (i + kAhead < n) {
      const int64_t next = row_of(i + kAhead);
      for (int64_t d = 0; d < 2 * dim; d += kChunk)
        __builtin_prefetch(t.bounds + next * 2 * dim + d);
      __builtin_prefetch(t.scale + next);
    }
    const int64_t row = row_of(i);
    const int8_t *lows = t.bounds + row * 2 * dim, *highs = lows + dim;
    Floats sums[G] = {};
    for (int64_t d = 0; d < dim; d += kChunk) {
      Ints low, high;
      if (d + kChunk <= dim) {
        load(lows + d, low);
        load(highs + d, high);
      } else {
        low = high = Ints{};
        std::memcpy(&low, lows + d, dim - d);
        std::memcpy(&high, highs + d, dim - d);
      }
      const float* part = parts + d / kChunk * 8 * kLanes;
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const Floats down = __builtin_convertvector((low << (24 - 8 * j)) >> 24, Floats);
        const Floats up = __builtin_convertvector((high << (24 - 8 * j)) >> 24, Floats);
#pragma GCC unroll 4
        for (int g = 0; g < G; ++g) {
          Floats pos, neg;
          load(part + g * width + 2 * j * kLanes, pos);
          load(part + g * width + (2 * j + 1) * kLanes, neg);
          sums[g] += pos * up;
          sums[g] += neg * down;
        }
      }
    }
    Four s[4] = {};
    for (int g = 0; g < G; ++g) add_parts(sums[g], s[g]);
    const Four a = __builtin_shufflevector(s[0], s[1], 0, 4, 1, 5) +
                   __builtin_shufflevector(s[0], s[1], 2, 6, 3, 7);
    const Four b = __builtin_shufflevector(s[2], s[3], 0, 4, 1, 5) +
                   __builtin_shufflevector(s[2], s[3], 2, 6, 3, 7);
    const Four sum = __builtin_shufflevector(a, b, 0, 1, 4, 5) +
                     __builtin_shufflevector(a, b, 2, 3, 6, 7);
    const float step = factor * widen(t.scale[row]);
    for (int g = 0; g < G; ++g) out[g * n + i] = step * sum[g];
  }
}

OASIS_CLONES
void bounds(const Tables& t, int64_t l, int64_t h, const int32_t* blocks, int64_t n,
            const float* parts, float factor, float* out) {
  for (int64_t g = 0; g < t.group; g += kTogether) {
    const float* p = parts + g * chunks(t) * 8 * kLanes;
    float* o = out + g * n;
    switch (std::min(kTogether, t.group - g)) {
      case 1: bounds_of<1>(t, l, h, blocks, n, p, factor, o); break;
      case 2: bounds_of<2>(t, l, h, blocks, n, p, factor, o); break;
      case 3: bounds_of<3>(t, l, h, blocks, n, p, factor, o); break;
      default: bounds_of<4>(t, l, h, blocks, n, p, factor, o);
    }
  }
}

// e^x for x <= 0 within 2 units in the last place, e^-87 below that and for what is not a number.
// The polynomial is that of Cephes' expf; written out because a call would not be vectorised.
OASIS_INLINE float exp_of_negative(float x) {
  x = x > -87.f ? x : -87.f;
  const int32_t n = static_cast<int32_t>(x * 1.44269504f - 0.5f);
  const float whole = static_cast<float>(n);
  x = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * x + 1.3981999507e-3f;
  p = p * x + 8.3334519073e-3f;
  p = p * x + 4.1665795894e-2f;
  p = p * x + 1.6666665459e-1f;
  p = p * x + 5.0000001201e-1f;
  const float y = p * x * x + x + 1.f;
  const int32_t power = (n + 127) << 23;
  float two_to_n;
  std::memcpy(&two_to_n, &power, sizeof power);
  return y * two_to_n;
}

// mass[i] = sum over query heads of the softmax of their n scores. Never not a number.
OASIS_CLONES
void masses(const float* scores, int64_t group, int64_t n, float* e, float* mass) {
  for (int64_t g = 0; g < group; ++g, scores += n) {
    float top = -std::numeric_limits<float>::infinity(), sum = 0.f;
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < n; ++i) top = scores[i] > top ? scores[i] : top;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; ++i) sum += e[i] = exp_of_negative(scores[i] - top);
    const float share = 1.f / sum;
    if (g == 0)
      for (int64_t i = 0; i < n; ++i) mass[i] = e[i] * share;
    else
      for (int64_t i = 0; i < n; ++i) mass[i] += e[i] * share;
  }
}

// The k best of n masses, the lower one of equals, ascending; 0 < k < n. Floats that are not
// negative are in the order of their bits: the k-th largest is found by halving the range of bits,
// which needs no order among the others and has no branch to mispredict.
OASIS_CLONES
void best(const float* mass, int64_t n, int64_t k, int32_t first, int32_t* out) {
  const auto bits = [&](int64_t i) {
    int32_t b;
    std::memcpy(&b, mass + i, sizeof b);
    return b;
  };
  int32_t least = std::numeric_limits<int32_t>::max(), most = 0;
  for (int64_t i = 0; i < n; ++i) {
    least = std::min(least, bits(i));
    most = std::max(most, bits(i));
  }
  // At least k are >= least, fewer than k are >= most + 1.
  int64_t low = least, high = int64_t{most} + 1;
  while (high - low > 1) {
    const int32_t middle = static_cast<int32_t>(low + (high - low) / 2);
    int32_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += bits(i) >= middle;
    if (count >= k) low = middle;
    else high = middle;
    if (count == k) break;
  }
  const int32_t limit = static_cast<int32_t>(low);
  int64_t equals = k;
  for (int64_t i = 0; i < n; ++i) equals -= bits(i) > limit;
  for (int64_t i = 0, m = 0; m < k; ++i) {
    const bool equal = bits(i) == limit && equals > 0;
    out[m] = first + static_cast<int32_t>(i);
    m += bits(i) > limit || equal;
    equals -= equal;
  }
}

// How many of two ascending lists are in both.
int64_t in_both(const int32_t* a, int64_t n, const int32_t* b, int64_t m) {
  int64_t both = 0;
  for (int64_t i = 0, j = 0; i < n && j < m;) {
    const int32_t x = a[i], y = b[j];
    both += x == y;
    i += x <= y;
    j += y <= x;
  }
  return both;
}

// The products scale * low and scale * high are exact, so comparing them with the bounds is too.
OASIS_CLONES
void quantise(const Tables& t, int64_t l, int64_t b, int64_t h, float* lo, float* hi, bool fresh) {
  int64_t row = (l * t.blocks + b) * t.heads + h;
  int8_t *low = t.bounds + row * 2 * t.dim, *high = low + t.dim;
  float old = widen(t.scale[row]), top = 0x1p-100f;  // kernels/reference.py:LEAST_TOP
  for (int64_t d = 0; d < t.dim; ++d) {
    if (!fresh) {
      lo[d] = std::min(lo[d], old * low[d]);
      hi[d] = std::max(hi[d], old * high[d]);
    }
    top = std::max(top, std::max(std::fabs(lo[d]), std::fabs(hi[d])));
  }
  uint16_t bits = round_up(top / 127.f);
  if (127.f * widen(bits) < top) ++bits;
  float scale = widen(bits);
  for (int64_t d = 0; d < t.dim; ++d) {
    float down = std::floor(lo[d] / scale), up = std::ceil(hi[d] / scale);
    down -= scale * down > lo[d] ? 1.f : 0.f;
    up += scale * up < hi[d] ? 1.f : 0.f;
    // No number is out of range but where keys are infinite or not numbers.
    low[d] = static_cast<int8_t>(std::max(-127.f, down));
    high[d] = static_cast<int8_t>(std::min(127.f, up));
  }
  t.scale[row] = bits;
}

template <typename Element>
void copy_elements(const uint8_t* from, uint8_t* to, const int32_t* elements, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    reinterpret_cast<Element*>(to)[elements[i]] = reinterpret_cast<const Element*>(from)[elements[i]];
}

struct Missing {
  float score;
  int32_t request, head, logical, block;
};

}  // namespace

extern "C" {

int oasis_interface() { return 6; }  // kernels/cpu.py:_INTERFACE

void oasis_summarize(const Tables* t, int64_t layer, int64_t layers, const float* key,
                     const int64_t* slots, int64_t tokens) {
  std::vector<float> lo(t->dim), hi(t->dim);
  for (int64_t l = layer; l < layer + layers; ++l, key += tokens * t->heads * t->dim)
    for (int64_t i = 0; i < tokens;) {
      if (slots[i] < 0) {
        ++i;
        continue;
      }
      int64_t b = slots[i] / t->block, j = i;
      while (j < tokens && slots[j] >= 0 && slots[j] / t->block == b) ++j;
      bool fresh = slots[i] % t->block == 0;
      for (int64_t h = 0; h < t->heads; ++h) {
        const float* k = key + (i * t->heads + h) * t->dim;
        std::copy(k, k + t->dim, lo.begin());
        std::copy(k, k + t->dim, hi.begin());
        for (int64_t n = i + 1; n < j; ++n) {
          k = key + (n * t->heads + h) * t->dim;
          for (int64_t d = 0; d < t->dim; ++d) {
            lo[d] = std::min(lo[d], k[d]);
            hi[d] = std::max(hi[d], k[d]);
          }
        }
        quantise(*t, l, b, h, lo.data(), hi.data(), fresh);
        present(*t, l, h, b) = 1;
      }
      i = j;
    }
}

void oasis_drop(const Tables* t, const int32_t* blocks, int64_t n) {
  for (int64_t l = 0; l < t->layers; ++l)
    for (int64_t h = 0; h < t->heads; ++h)
      for (int64_t i = 0; i < n; ++i) {
        int32_t s = slot_of(*t, l, h, blocks[i]);
        if (s >= 0) release(*t, l, s);
        present(*t, l, h, blocks[i]) = 0;
      }
}

int64_t oasis_pin(const Tables* t, const int32_t* blocks, int64_t n, int32_t step) {
  std::vector<std::vector<uint8_t>> keep(t->layers);
  std::vector<size_t> want(t->layers, 0);
  for (int64_t l = 0; l < t->layers; ++l) {
    keep[l].assign(t->slots, 0);
    for (int64_t h = 0; h < t->heads; ++h)
      for (int64_t i = 0; i < n; ++i) {
        int32_t s = slot_of(*t, l, h, blocks[i]);
        if (s >= 0)
          keep[l][s] = 1;
        else
          ++want[l];
      }
    if (want[l] == 0) continue;
    size_t have = 0;
    for (int64_t s = 0; s < t->slots; ++s)
      have += !keep[l][s] && load_state(t->state + l * t->slots + s) != kArriving;
    if (have < want[l]) return -1;
  }
  int64_t copied = 0;
  std::vector<int32_t> take;
  for (int64_t l = 0; l < t->layers; ++l) {
    for (int64_t s = 0; s < t->slots; ++s)
      if (keep[l][s]) t->last[l * t->slots + s] = step;
    if (want[l] == 0) continue;
    takeable(*t, l, want[l], take, [&](int64_t s) { return !keep[l][s]; });
    size_t next = 0;
    for (int64_t h = 0; h < t->heads; ++h)
      for (int64_t i = 0; i < n; ++i)
        if (slot_of(*t, l, h, blocks[i]) < 0) {
          int32_t s = take[next++];
          assign(*t, l, h, blocks[i], s, step, kResident);
          if (present(*t, l, h, blocks[i])) {
            std::memcpy(fast_page(*t, l, s), host_page(*t, l, h, blocks[i]), t->page_bytes);
            ++copied;
          }
        }
  }
  return copied;
}

// moves: room for every selected page of the lanes.
int64_t oasis_place(const Tables* t, int64_t n, const int32_t* lanes, const int32_t* tables,
                    int64_t stride, const int32_t* sinks, const int32_t* window,
                    const int32_t* lengths, const uint8_t* old, int32_t step, int32_t* moves) {
  int64_t placed = 0;
  std::vector<int32_t> take;
  std::vector<uint8_t> keep;
  std::vector<std::pair<int32_t, int32_t>> missing;  // (head, block)
  for (int64_t l = 0; l < t->layers; ++l) {
    missing.clear();
    keep.assign(t->slots, 0);
    for (int64_t i = 0; i < n; ++i) {
      int64_t nb = blocks_of(*t, lengths[i]), first = std::min<int64_t>(sinks[i], nb);
      for (int64_t h = 0; h < t->heads; ++h) {
        auto kept = [&](int64_t logical) {
          int32_t s = slot_of(*t, l, h, tables[i * stride + logical]);
          if (s >= 0) keep[s] = 1;
          return s;
        };
        for (int64_t b = 0; b < first; ++b) kept(b);
        for (int64_t b = std::max<int64_t>(window[i], first); b < nb; ++b) kept(b);
        const int32_t* sel = selected(*t, lanes[i], l, h);
        for (int32_t j = 0; j < count(*t, lanes[i], l, h); ++j) {
          int32_t s = kept(sel[j]), b = tables[i * stride + sel[j]];
          if (!old[i]) continue;
          if (s >= 0)
            t->last[l * t->slots + s] = step;
          else if (present(*t, l, h, b))
            missing.emplace_back(static_cast<int32_t>(h), b);
        }
      }
    }
    if (missing.empty()) continue;
    takeable(*t, l, missing.size(), take, [&](int64_t s) { return !keep[s]; });
    size_t next = 0;
    for (auto [h, b] : missing) {
      if (slot_of(*t, l, h, b) >= 0) continue;  // shared with an earlier request
      if (next == take.size()) break;
      int32_t s = take[next++];
      assign(*t, l, h, b, s, step, kArriving);
      int32_t* m = moves + 4 * placed++;
      m[0] = static_cast<int32_t>(l);
      m[1] = h;
      m[2] = b;
      m[3] = s;
    }
  }
  return placed;
}

void oasis_mirror(const Tables* t, int64_t layer, const int64_t* slots, int64_t tokens) {
  for (int64_t i = 0; i < tokens; ++i) {
    if (slots[i] < 0) continue;
    const int64_t b = slots[i] / t->block;
    const int32_t* elements = t->elements + slots[i] % t->block * 2 * t->dim;
    for (int64_t h = 0; h < t->heads; ++h) {
      const int32_t s = slot_of(*t, layer, h, b);
      if (s < 0 || load_state(t->state + layer * t->slots + s) != kResident) continue;
      const uint8_t* from = host_page(*t, layer, h, b);
      uint8_t* to = fast_page(*t, layer, s);
      switch (t->element_bytes) {
        case 1: copy_elements<uint8_t>(from, to, elements, 2 * t->dim); break;
        case 2: copy_elements<uint16_t>(from, to, elements, 2 * t->dim); break;
        default: copy_elements<uint32_t>(from, to, elements, 2 * t->dim); break;
      }
    }
  }
}

int64_t oasis_rows(const Tables* t, int64_t layer, int64_t n, const int32_t* lanes,
                   const int32_t* tables, int64_t stride, const int32_t* sinks,
                   const int32_t* window, const int32_t* lengths, int64_t width, int32_t* rows,
                   int32_t* row_lengths) {
  int64_t late = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t* table = tables + i * stride;
    int64_t blocks = blocks_of(*t, lengths[i]);
    int32_t tail = static_cast<int32_t>((lengths[i] - 1) % t->block + 1);
    for (int64_t h = 0; h < t->heads; ++h) {
      int32_t* row = rows + (i * t->heads + h) * width;
      int64_t m = 0;
      auto take = [&](int64_t logical, bool forced) {
        int32_t s = slot_of(*t, layer, h, table[logical]);
        bool here = s >= 0 && load_state(t->state + layer * t->slots + s) == kResident;
        if (here && m < width) row[m++] = s;
        return here || !forced;
      };
      int64_t first = std::min<int64_t>(sinks[i], blocks), open = std::max<int64_t>(window[i], first);
      for (int64_t b = 0; b < first; ++b)
        if (!take(b, true)) return -1;
      const int32_t* sel = selected(*t, lanes[i], layer, h);
      int64_t before = m, k = count(*t, lanes[i], layer, h);
      for (int64_t j = 0; j < k; ++j) take(sel[j], false);
      late += k - (m - before);
      for (int64_t b = open; b < blocks; ++b)
        if (!take(b, true)) return -1;
      row_lengths[i * t->heads + h] = static_cast<int32_t>((m - 1) * t->block) + tail;
      for (; m < width; ++m) row[m] = 0;
    }
  }
  return late;
}

// totals: selected, resident, compared, agreed, starved, capped.
void oasis_select(const Tables* t, int64_t layer, int64_t n, const int32_t* lanes, const float* query,
                  float softmax_scale, const int32_t* tables, int64_t stride, const int32_t* sinks,
                  const int32_t* window, const int32_t* lengths, const int32_t* budget,
                  const uint8_t* flags, int64_t cap, int32_t step, int32_t* loads,
                  int64_t* n_loads, int32_t* wants, int64_t* n_wants, int64_t* totals) {
  std::fill(totals, totals + 6, 0);
  const int64_t width = t->group * t->dim;
  const int64_t longest = n ? blocks_of(*t, *std::max_element(lengths, lengths + n)) : 0;
  const int64_t spread_width = chunks(*t) * 8 * kLanes;
  std::vector<float> parts(t->group * spread_width), scores(t->group * longest), work(longest), mass(longest);
  std::vector<int32_t> order;
  std::vector<Missing> missing;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t* table = tables + i * stride;
    int64_t nb = blocks_of(*t, lengths[i]), lo = std::min<int64_t>(sinks[i], nb);
    int64_t hi = std::min<int64_t>(std::max<int64_t>(window[i], lo), nb);
    for (int64_t h = 0; h < t->heads; ++h) {
      const float* q = query + (i * t->heads + h) * width;
      for (int64_t g = 0; g < t->group; ++g)
        spread(*t, q + g * t->dim, &parts[g * spread_width]);
      bounds(*t, layer, h, table, nb, parts.data(), softmax_scale, scores.data());
      masses(scores.data(), t->group, nb, work.data(), mass.data());
      int64_t k = std::min<int64_t>(
          {int64_t{budget[i]} * t->boost[layer * t->heads + h], hi - lo, t->max_selected});
      order.resize(k);
      auto choose = [&] {
        if (k == hi - lo)
          std::iota(order.begin(), order.end(), static_cast<int32_t>(lo));
        else if (k > 0)
          best(mass.data() + lo, hi - lo, k, static_cast<int32_t>(lo), order.data());
      };
      int32_t* sel = selected(*t, lanes[i], layer, h);
      int32_t& m = count(*t, lanes[i], layer, h);
      if (flags[i] & kCompare) {
        choose();
        totals[2] += k;
        totals[3] += in_both(sel, m, order.data(), k);
      }
      if (flags[i] & kKeep)
        for (int32_t j = 0; j < m && sel[j] < nb; ++j) mass[sel[j]] *= kHysteresis;
      if (!(flags[i] & kCompare) || (flags[i] & kKeep)) choose();
      std::copy(order.begin(), order.end(), sel);
      m = static_cast<int32_t>(k);
      totals[0] += k;
      if (flags[i] & kChooseOnly) continue;
      auto touch = [&](int64_t b, float score, bool chosen) {
        int32_t slot = slot_of(*t, layer, h, table[b]);
        if (slot >= 0) {
          t->last[layer * t->slots + slot] = step;
          if (chosen) totals[1] += load_state(t->state + layer * t->slots + slot) == kResident;
        } else {
          missing.push_back({score, static_cast<int32_t>(i), static_cast<int32_t>(h),
                             static_cast<int32_t>(b), table[b]});
        }
      };
      for (int32_t b : order) touch(b, mass[b], true);
      // Sinks and window go first: rows() refuses to work without them.
      for (int64_t b = 0; b < lo; ++b) touch(b, std::numeric_limits<float>::infinity(), false);
      for (int64_t b = hi; b < nb; ++b) touch(b, std::numeric_limits<float>::infinity(), false);
    }
  }
  *n_loads = *n_wants = 0;
  if (missing.empty()) return;
  std::stable_sort(missing.begin(), missing.end(),
                   [](const Missing& a, const Missing& b) { return a.score > b.score; });
  std::vector<int32_t> take;
  takeable(*t, layer, missing.size(), take,
           [&](int64_t s) { return t->last[layer * t->slots + s] < step; });
  size_t next = 0;
  int64_t admitted = 0;
  for (const Missing& m : missing) {
    if (slot_of(*t, layer, m.head, m.block) >= 0) continue;  // shared with an earlier request
    bool free_of_cap = (flags[m.request] & kAdmission) || std::isinf(m.score);
    if (!free_of_cap && admitted >= cap) {
      ++totals[5];
      continue;
    }
    if (!present(*t, layer, m.head, m.block)) {
      int32_t* w = wants + 3 * (*n_wants)++;
      w[0] = m.request;
      w[1] = m.head;
      w[2] = m.logical;
      if (!free_of_cap) ++admitted;
      continue;
    }
    if (next == take.size()) {
      ++totals[4];
      continue;
    }
    int32_t slot = take[next++];
    assign(*t, layer, m.head, m.block, slot, step, kArriving);
    int32_t* o = loads + 4 * (*n_loads)++;
    o[0] = m.head;
    o[1] = m.block;
    o[2] = slot;
    o[3] = flags[m.request] & kAdmission;
    if (!free_of_cap) ++admitted;
  }
}

// moves: int32 [n, 4] of (layer, head, block, slot).
void oasis_copy(const Tables* t, const int32_t* moves, int64_t n, int64_t* progress) {
  for (int64_t i = 0; i < n; ++i) {
    const int32_t* m = moves + 4 * i;
    std::memcpy(fast_page(*t, m[0], m[3]), host_page(*t, m[0], m[1], m[2]), t->page_bytes);
    store_state(t->state + m[0] * t->slots + m[3], kResident);
    __atomic_store_n(progress, i + 1, __ATOMIC_RELEASE);
  }
}

// pages: int32 [n, 3] of (layer, head, block).
void oasis_read_pages(const Tables* t, const int32_t* pages, int64_t n, uint8_t* out) {
  for (int64_t i = 0; i < n; ++i)
    std::memcpy(out + i * t->page_bytes,
                host_page(*t, pages[3 * i], pages[3 * i + 1], pages[3 * i + 2]), t->page_bytes);
}

void oasis_write_pages(const Tables* t, const int32_t* pages, int64_t n, const uint8_t* data) {
  for (int64_t i = 0; i < n; ++i) {
    const int32_t* p = pages + 3 * i;
    std::memcpy(host_page(*t, p[0], p[1], p[2]), data + i * t->page_bytes, t->page_bytes);
    present(*t, p[0], p[1], p[2]) = 1;
  }
}

}  // extern "C"
