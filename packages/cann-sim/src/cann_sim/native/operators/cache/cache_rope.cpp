// Normalising, rotating and storing keys of latent attention (MLA) in one operator. Computed in float32, rounded once.

#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>

#include <array>

#include "../interface/operator.h"
#include "../normalization/norm.h"
#include "../quantization/quantization.h"
#include "../rotary/rotary.h"
#include "paged_cache.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

constexpr int64_t kRopeDim = 64;
constexpr int64_t kLatentDim = 512;
// Head dimensions of keys and values where the values come in a tensor of their own.
constexpr int64_t kKeyDim = 192;
constexpr int64_t kValueDim = 128;

enum class CacheMode { kNorm, kPaged, kPagedNz, kBlocks, kBlocksNz };

struct NamedMode {
  const char* name;
  CacheMode mode;
};

constexpr std::array<NamedMode, 6> kModes{{{"Norm", CacheMode::kNorm},
                                           {"PA", CacheMode::kPaged},
                                           {"PA_BNSD", CacheMode::kPaged},
                                           {"PA_NZ", CacheMode::kPagedNz},
                                           {"PA_BLK_BNSD", CacheMode::kBlocks},
                                           {"PA_BLK_NZ", CacheMode::kBlocksNz}}};

CacheMode ModeOf(const OptionalText& name) {
  std::string known;
  for (const NamedMode& candidate : kModes) {
    if (name.value() == candidate.name) {
      return candidate.mode;
    }
    known += std::string(known.empty() ? "" : ", ") + candidate.name;
  }
  RefuseArgument(name.name(), "one of " + known, name.value());
}

// One of the two caches, with how its rows are quantised.
struct NormRopeDestination {
  Tensor cache;
  OptionalTensor scale, offset;
  Tensor plain;  // the rows as they are before quantisation
};

struct NormRopeCache {
  Tensor kv, gamma, cos, sin, index;
  OptionalTensor value;
  double epsilon;
  CacheMode mode;
  bool outputs_plain;
  NormRopeDestination rope, latent;

  void Require() const;
  void Run() const;

 private:
  int64_t batch() const { return kv.size(0); }
  int64_t length() const { return kv.size(2); }
  bool nz() const { return mode == CacheMode::kPagedNz || mode == CacheMode::kBlocksNz; }
  void RequireDestination(const NormRopeDestination& destination, int64_t width) const;
  void RequireIndex() const;
  at::Tensor Slots(int64_t block_size) const;
  void Write(const NormRopeDestination& destination, const at::Tensor& rows) const;
};

void NormRopeCache::RequireDestination(const NormRopeDestination& destination, int64_t width) const {
  const Tensor& cache = destination.cache;
  RequireRank(cache, 4, 4);
  RequireContiguous(cache);
  const bool fits = mode == CacheMode::kNorm ? cache.size(0) == batch() && cache.size(1) == 1 && cache.size(3) == width
                                             : cache.size(2) == 1 && cache.size(3) == width;
  if (!fits) {
    RefuseArgument(cache.name(),
                   mode == CacheMode::kNorm
                       ? "[" + std::to_string(batch()) + ", 1, length, " + std::to_string(width) + "]"
                       : "[blocks, block size, 1, " + std::to_string(width) + "]",
                   Describe(cache.sizes()));
  }
  if (!destination.scale) {
    RequireDtype(cache, {kv.dtype()});
    if (destination.offset) {
      RefuseArgument(destination.offset.name(), "a scale beside it", "none");
    }
    return;
  }
  RequireDtype(cache, {ScalarType::Char});
  for (const OptionalTensor& parameter : {destination.scale, destination.offset}) {
    if (parameter) {
      RequireDtype(*parameter, {ScalarType::Float});
      RequireShape(*parameter, {width});
    }
  }
}

void NormRopeCache::RequireIndex() const {
  RequireDtype(index, {ScalarType::Long});
  if (mode == CacheMode::kNorm) {
    RequireShape(index, {batch(), length()});
    return;
  }
  const int64_t block_size = rope.cache.size(1);
  const bool blocks = mode == CacheMode::kBlocks || mode == CacheMode::kBlocksNz;
  RequireShape(index, {batch() * (blocks ? (length() + block_size - 1) / block_size : length())});
}

void NormRopeCache::Require() const {
  RequireDtype(kv, kHalves);
  RequireRank(kv, 4, 4);
  if (kv.size(1) != 1) {
    RefuseArgument(kv.name(), "one head, [batch, 1, length, dim]", Describe(kv.sizes()));
  }
  const int64_t width = value ? kKeyDim : kLatentDim + kRopeDim;
  if (kv.size(3) != width) {
    RefuseArgument(kv.name(), "a last dimension of " + std::to_string(width), Describe(kv.sizes()));
  }
  RequireSameDtype(gamma, kv);
  RequireShape(gamma, {value ? kKeyDim : kLatentDim});
  for (const Tensor& angles : {cos, sin}) {
    RequireSameDtype(angles, kv);
    RequireShape(angles, {batch(), 1, length(), kRopeDim});
  }
  if (value) {
    RequireSameDtype(*value, kv);
    RequireShape(*value, {batch(), 1, length(), kValueDim});
  }
  RequireDestination(rope, value ? kKeyDim : kRopeDim);
  RequireDestination(latent, value ? kValueDim : kLatentDim);
  RequireIndex();
  if (outputs_plain) {
    RequireSameDtype(rope.plain, kv);
    RequireSameDtype(latent.plain, kv);
  }
}

// The slot of each row in a cache of blocks; -1 for a row that is left out.
at::Tensor NormRopeCache::Slots(int64_t block_size) const {
  const at::Tensor given = index;
  if (mode != CacheMode::kBlocks && mode != CacheMode::kBlocksNz) {
    return given;
  }
  // The index names the first slot of each block.
  const at::Tensor rows = at::arange(length(), at::kLong);
  const at::Tensor blocks = given.view({batch(), -1}).index_select(1, rows.div(block_size, "floor"));
  const at::Tensor first = blocks.div(block_size, "floor").mul(block_size);
  return first.add(rows.remainder(block_size)).masked_fill(blocks.lt(0), -1).reshape({-1});
}

void NormRopeCache::Write(const NormRopeDestination& destination, const at::Tensor& rows) const {
  const at::Tensor cache = destination.cache;
  const int64_t width = rows.size(-1);
  at::Tensor stored = rows;
  if (destination.scale) {
    stored = at::mul(stored, destination.scale->Widened());
    stored = destination.offset ? at::add(stored, destination.offset->Widened()) : stored;
    stored = stored.nan_to_num(0.0).round().clamp(-128, 127);
  }
  stored = stored.to(cache.scalar_type()).view({-1, 1, width});
  if (mode == CacheMode::kNorm) {
    const int64_t span = cache.size(2);
    const at::Tensor starts = at::arange(batch(), at::kLong).unsqueeze(-1).mul(span);
    const at::Tensor places = at::Tensor(index);
    const at::Tensor slots = places.add(starts).masked_fill(places.lt(0), -1).reshape({-1});
    WriteSlots(stored, slots, cache.view({batch(), span, 1, width}));
    return;
  }
  const int64_t block_size = cache.size(1);
  if (nz()) {
    WriteNzSlots(stored, Slots(block_size), cache, block_size, destination.scale ? 32 : 16);
  } else {
    WriteSlots(stored, Slots(block_size), cache);
  }
  if (outputs_plain) {
    destination.plain.Store(rows);
  }
}

void NormRopeCache::Run() const {
  const at::Tensor wide = kv.Widened();
  const auto normalized = [&](const at::Tensor& x) {
    return at::mul(at::mul(x, ReciprocalRms(x, {-1}, epsilon)), gamma.Widened());
  };
  const auto rotated = [&](const at::Tensor& x) {
    return Rotate(SplitNeighbours(x), cos.Widened(), sin.Widened(), false);
  };
  if (value) {
    const at::Tensor keys = normalized(wide);
    const at::Tensor turned = rotated(keys.narrow(-1, 0, kRopeDim));
    Write(rope, at::cat({turned, keys.narrow(-1, kRopeDim, kKeyDim - kRopeDim)}, -1));
    Write(latent, value->Widened());
    return;
  }
  Write(rope, rotated(wide.narrow(-1, kLatentDim, kRopeDim)));
  Write(latent, normalized(wide.narrow(-1, 0, kLatentDim)));
}

Plan MakePlan(const NormRopeCache& call) {
  call.Require();
  return [call] { call.Run(); };
}

}  // namespace

#define CANN_SIM_ROPE_CACHE_TENSORS                                                                                  \
  (Tensor, kv), (Tensor, gamma), (Tensor, cos), (Tensor, sin), (Tensor, index), (Tensor, kCacheRef), (Tensor, ckvCacheRef), \
      (OptionalTensor, kRopeScale), (OptionalTensor, ckvScale), (OptionalTensor, kRopeOffset), (OptionalTensor, ckvOffset)

CANN_SIM_OPERATOR(aclnnKvRmsNormRopeCache, CANN_SIM_ROPE_CACHE_TENSORS, (Double, epsilon), (OptionalText, cacheMode),
                  (Bool, isOutputKv), (Tensor, kRopeOut), (Tensor, ckvOut)) {
  return MakePlan({kv, gamma, cos, sin, index, OptionalTensor(), epsilon, ModeOf(cacheMode), isOutputKv,
                   {kCacheRef, kRopeScale, kRopeOffset, kRopeOut}, {ckvCacheRef, ckvScale, ckvOffset, ckvOut}});
}

CANN_SIM_OPERATOR(aclnnKvRmsNormRopeCacheV2, CANN_SIM_ROPE_CACHE_TENSORS, (OptionalTensor, v), (Double, epsilon),
                  (OptionalText, cacheMode), (Bool, isOutputKv), (Tensor, kRopeOut), (Tensor, ckvOut)) {
  return MakePlan({kv, gamma, cos, sin, index, v, epsilon, ModeOf(cacheMode), isOutputKv,
                   {kCacheRef, kRopeScale, kRopeOffset, kRopeOut}, {ckvCacheRef, ckvScale, ckvOffset, ckvOut}});
}

}  // namespace cann_sim::operators
