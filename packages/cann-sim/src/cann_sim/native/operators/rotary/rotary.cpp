// Rotary position embeddings. Computed in float32, rounded once.

#include "rotary.h"

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

// The vector that is multiplied by the sine: each pair (a, b) becomes (-b, a). The pairs are the two halves of the last
// dimension, or its neighbours.
at::Tensor Rotated(const at::Tensor& x, bool interleave) {
  if (interleave) {
    const at::Tensor pairs = x.unflatten(-1, {-1, 2});
    return at::stack({at::neg(pairs.select(-1, 1)), pairs.select(-1, 0)}, -1).flatten(-2);
  }
  const int64_t half = x.size(-1) / 2;
  return at::cat({at::neg(x.narrow(-1, half, half)), x.narrow(-1, 0, half)}, -1);
}

}  // namespace

at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool interleave) {
  return at::add(at::mul(x, cos), at::mul(Rotated(x, interleave), sin));
}

at::Tensor SplitNeighbours(const at::Tensor& x) { return x.unflatten(-1, {-1, 2}).transpose(-1, -2).flatten(-2); }

namespace {

// Time, height and width, whose positions an interleaved cache mixes.
constexpr int64_t kPlanes = 3;

void RequireAngles(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  RequireDtype(x, kFloats);
  RequireDtype(cos, kFloats);
  RequireSameDtype(sin, cos);
  RequireShape(sin, cos.sizes());
  RequireBroadcast(x, {&x, &cos});
  if (x.rank() == 0 || x.size(-1) % 2 != 0) {
    RefuseArgument(x.name(), "an even last dimension", "shape " + Describe(x.sizes()));
  }
  if (cos.rank() == 0 || cos.size(-1) != x.size(-1)) {
    RefuseArgument(cos.name(), "a last dimension of " + std::to_string(x.size(-1)) + " as '" + x.name() + "'",
                   "shape " + Describe(cos.sizes()));
  }
}

Plan RotaryPositionEmbedding(const Tensor& x, const Tensor& cos, const Tensor& sin, const Int& mode, const Tensor& out) {
  RequireAngles(x, cos, sin);
  RequireRank(x, 3, 4);
  if (mode != kHalf && mode != kInterleave) {
    RefuseArgument(mode.name(), "0 (half) or 1 (interleave); other modes are not simulated", std::to_string(mode));
  }
  RequireSameDtype(out, x);
  RequireShape(out, x.sizes());
  return [=] { out.Store(Rotate(x.Widened(), cos.Widened(), sin.Widened(), mode == kInterleave)); };
}

// Rotates query and key in place.
Plan ApplyRotaryPosEmb(const Tensor& query, const Tensor& key, const Tensor& cos, const Tensor& sin, bool interleave) {
  RequireAngles(query, cos, sin);
  RequireAngles(key, cos, sin);
  RequireSameDtype(key, query);
  RequireRank(query, 3, 4);
  return [=] {
    const at::Tensor wide_cos = cos.Widened();
    const at::Tensor wide_sin = sin.Widened();
    query.Store(Rotate(query.Widened(), wide_cos, wide_sin, interleave));
    key.Store(Rotate(key.Widened(), wide_cos, wide_sin, interleave));
  };
}

// The part of `cache` for each token: cosines or sines [tokens, rotary_dim / 2]. With several rows of positions (time,
// height, width) the sections of the dimension come from one row each; interleaved, every third element up to the end of the
// section comes from the second and third row, the others from the first.
at::Tensor Angles(const at::Tensor& cache, const at::Tensor& positions, c10::IntArrayRef sections, bool interleaved) {
  if (positions.dim() == 1) {
    return at::index_select(cache, 0, positions);
  }
  if (interleaved) {
    const at::Tensor mixed = at::index_select(cache, 0, positions.select(0, 0));
    // The documents end both at the second section.
    const int64_t end = std::min(kPlanes * sections[1], cache.size(1));
    for (int64_t plane = 1; plane < kPlanes; ++plane) {
      const at::Tensor own = at::index_select(cache, 0, positions.select(0, plane));
      mixed.slice(1, plane, end, kPlanes).copy_(own.slice(1, plane, end, kPlanes));
    }
    return mixed;
  }
  std::vector<at::Tensor> parts;
  int64_t start = 0;
  for (size_t row = 0; row < sections.size(); ++row) {
    const at::Tensor all = at::index_select(cache, 0, positions.select(0, static_cast<int64_t>(row)));
    parts.push_back(all.narrow(-1, start, sections[row]));
    start += sections[row];
  }
  return at::cat(parts, -1);
}

Plan RopeWithSinCosCache(const Tensor& positions, const Tensor& query, const Tensor& key, const Tensor& cache,
                         const IntArray& sections, const Int& head_size, bool half, bool interleaved,
                         const Tensor& query_out, const Tensor& key_out) {
  RequireDtype(positions, kIndices);
  RequireRank(positions, 1, 2);
  RequireDtype(query, kFloats);
  RequireSameDtype(key, query);
  RequireSameDtype(cache, query);
  RequireRank(query, 2, 2);
  RequireRank(key, 2, 2);
  RequireRank(cache, 2, 2);
  RequireShape(query_out, query.sizes());
  RequireShape(key_out, key.sizes());
  const int64_t rotary = cache.size(1);
  if (head_size <= 0 || rotary > head_size || rotary % 2 != 0 || query.size(1) % head_size != 0 ||
      key.size(1) % head_size != 0) {
    RefuseArgument(head_size.name(), "a divisor of the widths of query and key, at least the rotary dimension " +
                                         std::to_string(rotary), std::to_string(head_size));
  }
  int64_t total = 0;
  for (int64_t section : sections.values()) {
    total += section;
  }
  if (positions.rank() == 2 && (sections.values().size() != static_cast<size_t>(positions.size(0)) || total != rotary / 2)) {
    RefuseArgument(sections.name(), "one section for each row of 'positions', " + std::to_string(rotary / 2) + " in all",
                   Describe(sections));
  }
  if (interleaved && positions.rank() == 2 && positions.size(0) != kPlanes) {
    RefuseArgument(positions.name(), "three rows for an interleaved cache", Describe(positions.sizes()));
  }
  return [=] {
    const at::Tensor wide = cache.Widened();
    const at::Tensor cos = Angles(wide.narrow(1, 0, rotary / 2), positions, sections, interleaved);
    const at::Tensor sin = Angles(wide.narrow(1, rotary / 2, rotary / 2), positions, sections, interleaved);
    const auto doubled = [&](const at::Tensor& angles) {
      return (half ? at::cat({angles, angles}, -1) : angles.repeat_interleave(2, -1)).unsqueeze(1);
    };
    for (const auto& [in, out] : {std::pair(&query, &query_out), std::pair(&key, &key_out)}) {
      const at::Tensor heads = in->Widened().view({in->size(0), -1, head_size.value()});
      const at::Tensor turned = Rotate(heads.narrow(-1, 0, rotary), doubled(cos), doubled(sin), !half);
      const at::Tensor rest = heads.narrow(-1, rotary, head_size - rotary);
      out->Store(at::cat({turned, rest}, -1).view(in->sizes()));
    }
  };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnRotaryPositionEmbedding, (Tensor, x), (Tensor, cos), (Tensor, sin), (Int, mode), (Tensor, out)) {
  return RotaryPositionEmbedding(x, cos, sin, mode, out);
}

CANN_SIM_OPERATOR(aclnnRotaryPositionEmbeddingV2, (Tensor, x), (Tensor, cos), (Tensor, sin), (Int, mode),
                  (OptionalTensor, rotate), (Tensor, out)) {
  RefuseIfPresent(rotate, "a rotation matrix");
  return RotaryPositionEmbedding(x, cos, sin, mode, out);
}

CANN_SIM_OPERATOR(aclnnApplyRotaryPosEmb, (Tensor, queryRef), (Tensor, keyRef), (Tensor, cos), (Tensor, sin),
                  (Int, layout)) {
  return ApplyRotaryPosEmb(queryRef, keyRef, cos, sin, false);
}

CANN_SIM_OPERATOR(aclnnApplyRotaryPosEmbV2, (Tensor, queryRef), (Tensor, keyRef), (Tensor, cos), (Tensor, sin),
                  (Int, layout), (Text, rotaryMode)) {
  if (rotaryMode.value() != "half" && rotaryMode.value() != "interleave") {
    RefuseArgument(rotaryMode.name(), "half or interleave; other modes are not simulated", rotaryMode.value());
  }
  return ApplyRotaryPosEmb(queryRef, keyRef, cos, sin, rotaryMode.value() == "interleave");
}

CANN_SIM_OPERATOR(aclnnRopeWithSinCosCache, (Tensor, positions), (Tensor, queryIn), (Tensor, keyIn),
                  (Tensor, cosSinCache), (IntArray, mropeSection), (Int, headSize), (Bool, isNeoxStyle),
                  (Tensor, queryOut), (Tensor, keyOut)) {
  return RopeWithSinCosCache(positions, queryIn, keyIn, cosSinCache, mropeSection, headSize, isNeoxStyle, false, queryOut,
                             keyOut);
}

CANN_SIM_OPERATOR(aclnnRopeWithSinCosCacheV2, (Tensor, positions), (Tensor, queryIn), (Tensor, keyIn),
                  (Tensor, cosSinCache), (IntArray, mropeSection), (Int, headSize), (Bool, isNeoxStyle), (Int, cacheMode),
                  (Tensor, queryOut), (Tensor, keyOut)) {
  if (cacheMode != 0 && cacheMode != 1) {
    RefuseArgument(cacheMode.name(), "0 (default) or 1 (interleave)", std::to_string(cacheMode));
  }
  return RopeWithSinCosCache(positions, queryIn, keyIn, cosSinCache, mropeSection, headSize, isNeoxStyle, cacheMode == 1,
                             queryOut, keyOut);
}

// The neighbours of the last dimension become its halves, which are then rotated.
CANN_SIM_OPERATOR(aclnnInterleaveRope, (Tensor, x), (Tensor, cos), (Tensor, sin), (Tensor, out)) {
  constexpr int64_t kDim = 64;
  RequireDtype(x, kHalves);
  RequireRank(x, 4, 4);
  RequireSameDtype(cos, x);
  RequireRank(cos, 4, 4);
  RequireAngles(x, cos, sin);
  if (x.size(-1) != kDim || cos.size(1) != 1 || cos.size(0) != x.size(0)) {
    RefuseArgument(cos.name(), "shape [batch, 1, 1 or sequence, 64] beside an 'x' of 64", Describe(cos.sizes()));
  }
  RequireSameDtype(out, x);
  RequireShape(out, x.sizes());
  return [=] {
    const at::Tensor halves = SplitNeighbours(x.Widened());
    out.Store(Rotate(halves, cos.Widened(), sin.Widened(), false));
  };
}

}  // namespace cann_sim::operators
