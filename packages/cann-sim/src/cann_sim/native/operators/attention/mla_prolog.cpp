// MlaProlog: the operators before latent attention (MLA) in a decode step, in one operator. Queries are projected
// down, normalised and projected up to latent ones; keys are projected down, normalised, rotated and stored in the caches. Computed in float32;
// rounded to bfloat16 where the device's matrix unit takes a product's result.

#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/div.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "../cache/paged_cache.h"
#include "../interface/operator.h"
#include "../normalization/norm.h"
#include "../quantization/quantization.h"
#include "../rotary/rotary.h"
#include "mla_prolog.h"
#include "ragged_rows.h"

namespace cann_sim::operators {

using c10::ScalarType;

namespace {

at::Tensor RoundToBFloat16(const at::Tensor& values) { return values.to(at::kBFloat16).to(at::kFloat); }

at::Tensor RoundToInt8(const at::Tensor& values) { return values.nan_to_num(0.0).round().clamp(-128, 127); }

// Products of int8, exact in float64.
at::Tensor MultiplyIntegers(const at::Tensor& x, const at::Tensor& weight) {
  return at::matmul(x.to(at::kDouble), weight.to(at::kDouble)).to(at::kFloat);
}

at::Tensor Normalize(const at::Tensor& x, const Tensor& gamma, double epsilon, double factor) {
  return at::mul(at::mul(at::mul(x, ReciprocalRms(x, {-1}, epsilon)), gamma.Widened()), factor);
}

}  // namespace

at::Tensor MlaProlog::Project(const Tensor& weight, const OptionalTensor& weight_scale) const {
  const at::Tensor rows = at::Tensor(x).reshape({tokens(), x.size(-1)});
  if (weight_mode != kQuantizedAll) {
    return at::matmul(rows.to(at::kFloat), weight.Widened());
  }
  const at::Tensor products = MultiplyIntegers(rows, weight);
  return at::mul(at::mul(products, scales.x->Widened()), weight_scale->Widened());
}

void MlaProlog::RunQueries() const {
  at::Tensor compressed = Project(down, scales.down);
  if (weight_mode != kQuantizedAll) {
    compressed = RoundToBFloat16(compressed);
  }
  at::Tensor normalized = Normalize(compressed, query_gamma, query_epsilon, query_factor);
  at::Tensor raised;
  if (weight_mode == kPlainWeights) {
    normalized = RoundToBFloat16(normalized);
    raised = RoundToBFloat16(at::matmul(normalized, up.Widened()));
  } else {
    const ScaledRows scaled = ScaleRows(scales.smooth ? at::mul(normalized, scales.smooth->Widened()) : normalized, 127);
    normalized = RoundToInt8(scaled.values);
    const at::Tensor row_scale = scaled.scale.unsqueeze(-1);
    raised = at::mul(at::mul(MultiplyIntegers(normalized, up), row_scale), scales.up->Widened());
    if (query_norm_scale) {
      query_norm_scale->Store(row_scale);
    }
  }
  if (query_norm) {
    query_norm->Store(normalized.view(query_norm->sizes()));
  }
  const int64_t dim = absorb.size(1);
  raised = raised.view({tokens(), heads(), dim + kRopeDim});
  const at::Tensor own = RoundToBFloat16(raised.narrow(-1, 0, dim)).transpose(0, 1);
  at::Tensor latent = RoundToBFloat16(at::bmm(own, absorb.Widened())).transpose(0, 1);
  const auto angles = [&](const Tensor& tensor) { return tensor.Widened().view({tokens(), 1, kRopeDim}); };
  at::Tensor rotated = RoundToBFloat16(Rotate(SplitNeighbours(raised.narrow(-1, dim, kRopeDim)), angles(cos), angles(sin), false));
  if (quantizes_query()) {
    const ScaledRows scaled = ScaleRows(latent, 127);
    latent = RoundToInt8(scaled.values);
    const at::Tensor scale = scaled.scale.unsqueeze(-1);
    query_scale->Store(scale.view(query_scale->sizes()));
    // So that one scale serves the scores of both parts.
    rotated = at::div(at::mul(rotated, scales.latent->Widened().flatten()[0]), scale);
  }
  query.Store(latent.reshape(query.sizes()));
  query_rope.Store(rotated.reshape(query_rope.sizes()));
}

// The slot of each token; -1 for a token that is left out.
at::Tensor MlaProlog::Slots() const {
  if (mode == CacheMode::kRows) {
    return at::arange(tokens(), at::kLong);
  }
  const at::Tensor given = at::Tensor(*index).reshape({-1});
  if (mode == CacheMode::kPaged || mode == CacheMode::kPagedNz) {
    return given;
  }
  // The index names a block for each so many tokens of a sequence.
  const int64_t block = latent_cache.size(1);
  const std::vector<RowSpan> spans =
      packed() ? RaggedRows{RowLayout::kPacked, ends->numel(), tokens(), ends}.Read()
               : std::vector<RowSpan>(static_cast<size_t>(x.size(0)), {0, x.size(1)});
  std::vector<at::Tensor> slots;
  int64_t first = 0;
  for (const RowSpan& span : spans) {
    const at::Tensor rows = at::arange(span.length, at::kLong);
    const at::Tensor blocks = given.index_select(0, rows.div(block, "floor").add(first));
    slots.push_back(blocks.mul(block).add(rows.remainder(block)).masked_fill(blocks.lt(0), -1));
    first += (span.length + block - 1) / block;
  }
  return at::cat(slots);
}

void MlaProlog::Write(const Tensor& cache, const at::Tensor& rows) const {
  const at::Tensor memory = cache;
  const at::Tensor stored = rows.to(memory.scalar_type()).unsqueeze(1);
  if (mode == CacheMode::kRows) {
    memory.view({-1, 1, stored.size(-1)}).narrow(0, 0, tokens()).copy_(stored);
  } else if (mode == CacheMode::kPagedNz || mode == CacheMode::kBlocksNz) {
    WriteNzSlots(stored, Slots(), memory, cache.size(1), cache.dtype() == ScalarType::Char ? 32 : 16);
  } else {
    WriteSlots(stored, Slots(), memory);
  }
}

void MlaProlog::RunKeys() const {
  if (latent_cache.numel() == 0) {
    return;
  }
  const at::Tensor projected = Project(key_down, scales.key);
  at::Tensor latent = Normalize(projected.narrow(-1, 0, kLatentDim), key_gamma, key_epsilon, key_factor);
  const auto angles = [&](const Tensor& tensor) { return tensor.Widened().view({tokens(), kRopeDim}); };
  at::Tensor rotated = Rotate(SplitNeighbours(projected.narrow(-1, kLatentDim, kRopeDim)), angles(cos), angles(sin), false);
  if (cache_mode == kByTile) {
    const ScaledRows scaled = ScaleRows(latent.view({tokens(), -1, kTile}), 127);
    const at::Tensor alpha = clip ? clip->Widened() : at::ones({1}, at::kFloat);
    const at::Tensor values = RoundToInt8(at::div(scaled.values, alpha)).to(at::kChar).view({tokens(), kLatentDim});
    const at::Tensor tile_scales = at::mul(scaled.scale, alpha).contiguous();
    Write(latent_cache, at::cat({values, rotated.to(at::kBFloat16).contiguous().view(at::kChar), tile_scales.view(at::kChar)}, -1));
    return;
  }
  if (cache_mode != kPlainCache) {
    const at::Tensor scale = scales.latent->Widened();
    latent = RoundToInt8(at::mul(latent, cache_mode == kByTensor ? scale.flatten()[0] : scale));
  }
  if (cache_mode == kByChannel) {
    rotated = RoundToInt8(at::mul(rotated, scales.rope->Widened()));
  }
  Write(latent_cache, latent);
  Write(rope_cache, rotated);
}

void MlaProlog::Run() const {
  if (tokens() == 0) {
    return;
  }
  RunQueries();
  RunKeys();
}

namespace {

struct NamedMode {
  const char* name;
  CacheMode mode;
};

constexpr std::array<NamedMode, 6> kModes{{{"PA_BSND", CacheMode::kPaged},
                                           {"PA_NZ", CacheMode::kPagedNz},
                                           {"PA_BLK_BSND", CacheMode::kBlocks},
                                           {"PA_BLK_NZ", CacheMode::kBlocksNz},
                                           {"TND", CacheMode::kRows},
                                           {"BSND", CacheMode::kRows}}};

// The first `count` modes are those of the version.
CacheMode ModeOf(const OptionalText& name, size_t count, bool packed) {
  std::string known;
  for (size_t number = 0; number < count; ++number) {
    if (name.value() == kModes[number].name) {
      if (kModes[number].mode == CacheMode::kRows && packed != (name.value() == "TND")) {
        RefuseArgument(name.name(), packed ? "TND for packed tokens" : "BSND for tokens with a batch", name.value());
      }
      return kModes[number].mode;
    }
    known += std::string(known.empty() ? "" : ", ") + kModes[number].name;
  }
  RefuseArgument(name.name(), "one of " + known, name.value());
}

Plan PlanProlog(const MlaProlog& given, const Limits& limits) {
  given.Require(limits);
  const auto call = std::make_shared<MlaProlog>(given);
  return Plan([call] { call->Run(); });
}

WeightMode WeightModeOf(const Tensor& x, const Tensor& up) {
  if (x.dtype() == ScalarType::Char) {
    return kQuantizedAll;
  }
  return up.dtype() == ScalarType::Char ? kQuantizedUp : kPlainWeights;
}

// The modes that occur together: those of the weights, the caches and the queries.
void RequireModes(int64_t weights, int64_t caches, int64_t queries) {
  constexpr std::array<std::array<int64_t, 3>, 7> kTogether{
      {{0, 0, 0}, {1, 0, 0}, {1, 2, 0}, {1, 3, 0}, {2, 0, 0}, {2, 1, 1}, {2, 3, 0}}};
  if (std::find(kTogether.begin(), kTogether.end(), std::array<int64_t, 3>{weights, caches, queries}) == kTogether.end()) {
    RefuseArgument("weightQuantMode, kvCacheQuantMode and queryQuantMode",
                   "(0, 0, 0), (1, 0, 0), (1, 2, 0), (1, 3, 0), (2, 0, 0), (2, 1, 1) or (2, 3, 0)",
                   "(" + Listed({weights, caches, queries}) + ")");
  }
}

}  // namespace

#define CANN_SIM_MLA_WEIGHTS                                                                                          \
  (Tensor, tokenX), (Tensor, weightDq), (Tensor, weightUqQr), (Tensor, weightUk), (Tensor, weightDkvKr),              \
      (Tensor, rmsnormGammaCq), (Tensor, rmsnormGammaCkv), (Tensor, ropeSin), (Tensor, ropeCos)

#define CANN_SIM_MLA_SCALES                                                                                           \
  (OptionalTensor, dequantScaleX), (OptionalTensor, dequantScaleWDq), (OptionalTensor, dequantScaleWUqQr),            \
      (OptionalTensor, dequantScaleWDkvKr), (OptionalTensor, quantScaleCkv), (OptionalTensor, quantScaleCkr),         \
      (OptionalTensor, smoothScalesCq)

CANN_SIM_OPERATOR(aclnnMlaPrologV2WeightNz, CANN_SIM_MLA_WEIGHTS, (Tensor, cacheIndex), (Tensor, kvCacheRef),
                  (Tensor, krCacheRef), CANN_SIM_MLA_SCALES, (Double, rmsnormEpsilonCq), (Double, rmsnormEpsilonCkv),
                  (OptionalText, cacheMode), (Tensor, queryOut), (Tensor, queryRopeOut), (Tensor, dequantScaleQNopeOut)) {
  const Limits limits{{6144, 7168, 7680}, {1536}, {128}, 16, 128};
  const WeightMode weights = WeightModeOf(tokenX, weightUqQr);
  CacheQuantization caches = kPlainCache;
  if (kvCacheRef.dtype() == ScalarType::Char) {
    caches = weights == kQuantizedAll ? kByTensor : kByChannel;
  }
  RequireModes(weights, caches, caches == kByTensor ? 1 : 0);
  const OptionalTensor none;
  return PlanProlog({tokenX, weightDq, weightUqQr, weightUk, weightDkvKr, rmsnormGammaCq, rmsnormGammaCkv, ropeSin, ropeCos,
                   cacheIndex, none, none, kvCacheRef, krCacheRef,
                   {dequantScaleX, dequantScaleWDq, dequantScaleWUqQr, dequantScaleWDkvKr, quantScaleCkv, quantScaleCkr,
                    smoothScalesCq},
                   rmsnormEpsilonCq, rmsnormEpsilonCkv, 1.0, 1.0, weights, caches, ModeOf(cacheMode, 2, tokenX.rank() == 2),
                   queryOut, queryRopeOut, dequantScaleQNopeOut, none, none}, limits);
}

CANN_SIM_OPERATOR(aclnnMlaPrologV3WeightNz, CANN_SIM_MLA_WEIGHTS, (Tensor, kvCacheRef), (Tensor, krCacheRef),
                  (OptionalTensor, cacheIndex), CANN_SIM_MLA_SCALES, (OptionalTensor, actualSeqLen),
                  (OptionalTensor, kNopeClipAlpha), (Double, rmsnormEpsilonCq), (Double, rmsnormEpsilonCkv),
                  (OptionalText, cacheMode), (Int, weightQuantMode), (Int, kvCacheQuantMode), (Int, queryQuantMode),
                  (Int, ckvkrRepoMode), (Int, quantScaleRepoMode), (Int, tileSize), (Double, qcQrScale), (Double, kcScale),
                  (Tensor, queryOut), (Tensor, queryRopeOut), (OptionalTensor, dequantScaleQNopeOut),
                  (OptionalTensor, queryNormOut), (OptionalTensor, dequantScaleQNormOut)) {
  const Limits limits{{1024, 2048, 3072, 4096, 5120, 6144, 7168, 7680, 8192}, {1536, 2048}, {128, 192},
                      std::numeric_limits<int64_t>::max(), 1024};
  RequireModes(weightQuantMode, kvCacheQuantMode, queryQuantMode);
  const bool combined = kvCacheQuantMode == kByTile;
  for (const Int& repository : {ckvkrRepoMode, quantScaleRepoMode}) {
    if (repository != (combined ? 1 : 0)) {
      RefuseArgument(repository.name(), combined ? "1, since scales are by tile" : "0, since scales are not by tile",
                     std::to_string(repository));
    }
  }
  if (combined && tileSize != kTile) {
    RefuseArgument(tileSize.name(), "128", std::to_string(tileSize));
  }
  if (kNopeClipAlpha) {
    RequireDtype(*kNopeClipAlpha, {ScalarType::Float});
    RequireShape(*kNopeClipAlpha, {1});
  }
  return PlanProlog({tokenX, weightDq, weightUqQr, weightUk, weightDkvKr, rmsnormGammaCq, rmsnormGammaCkv, ropeSin, ropeCos,
                   cacheIndex, actualSeqLen, kNopeClipAlpha, kvCacheRef, krCacheRef,
                   {dequantScaleX, dequantScaleWDq, dequantScaleWUqQr, dequantScaleWDkvKr, quantScaleCkv, quantScaleCkr,
                    smoothScalesCq},
                   rmsnormEpsilonCq, rmsnormEpsilonCkv, qcQrScale, kcScale, static_cast<WeightMode>(int64_t{weightQuantMode}),
                   static_cast<CacheQuantization>(int64_t{kvCacheQuantMode}), ModeOf(cacheMode, 6, tokenX.rank() == 2),
                   queryOut, queryRopeOut, dequantScaleQNopeOut, queryNormOut, dequantScaleQNormOut}, limits);
}

}  // namespace cann_sim::operators
