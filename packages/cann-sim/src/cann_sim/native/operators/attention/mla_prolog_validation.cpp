#include <algorithm>

#include "../interface/validation.h"
#include "mla_prolog.h"

namespace cann_sim::operators {

using c10::ScalarType;

std::string Listed(const std::vector<int64_t>& values) {
  std::string text;
  for (const int64_t value : values) {
    text += (text.empty() ? "" : ", ") + std::to_string(value);
  }
  return text;
}

namespace {

void RequireOneOf(const Tensor& tensor, int dim, const std::vector<int64_t>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), tensor.size(dim)) == allowed.end()) {
    RefuseArgument(tensor.name(), "one of " + Listed(allowed) + " in dimension " + std::to_string(dim),
                   Describe(tensor.sizes()));
  }
}

}  // namespace

void MlaProlog::RequireWeights(const Limits& limits) const {
  const auto weight_dtype = [&](WeightMode quantized_from) {
    return weight_mode >= quantized_from ? ScalarType::Char : ScalarType::BFloat16;
  };
  RequireDtype(x, {weight_dtype(kQuantizedAll)});
  RequireDtype(down, {weight_dtype(kQuantizedAll)});
  RequireDtype(up, {weight_dtype(kQuantizedUp)});
  RequireDtype(key_down, {weight_dtype(kQuantizedAll)});
  RequireRank(x, 2, 3);
  RequireRank(down, 2, 2);
  RequireRank(absorb, 3, 3);
  RequireOneOf(x, -1, limits.hidden);
  RequireOneOf(down, 1, limits.query_rank);
  RequireOneOf(absorb, 0, {1, 2, 4, 8, 16, 32, 64, 128});
  RequireOneOf(absorb, 1, limits.head_dim);
  if (!packed() && x.size(1) > limits.most_steps) {
    RefuseArgument(x.name(), "at most " + std::to_string(limits.most_steps) + " tokens of a sequence", Describe(x.sizes()));
  }
  RequireShape(down, {x.size(-1), down.size(1)});
  RequireShape(up, {down.size(1), heads() * (absorb.size(1) + kRopeDim)});
  RequireShape(absorb, {heads(), absorb.size(1), kLatentDim});
  RequireShape(key_down, {x.size(-1), kLatentDim + kRopeDim});
  for (const Tensor* weight : {&down, &up, &key_down}) {
    if (!weight->is_nz()) {
      RefuseArgument(weight->name(), "the FRACTAL_NZ format (torch_npu.npu_format_cast(weight, 29), with internal formats allowed)",
                     "a plain format");
    }
  }
  for (const Tensor* plain : {&absorb, &query_gamma, &key_gamma, &sin, &cos}) {
    RequireDtype(*plain, {ScalarType::BFloat16});
    RequireContiguous(*plain);
  }
  RequireShape(query_gamma, {down.size(1)});
  RequireShape(key_gamma, {kLatentDim});
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = kRopeDim;
  RequireShape(sin, shape);
  RequireShape(cos, shape);
  shape.back() = heads();
  shape.push_back(kLatentDim);
  RequireShape(query, shape);
  const bool narrow = weight_mode == kQuantizedAll && cache_mode == kByTensor;
  RequireDtype(query, {narrow ? ScalarType::Char : ScalarType::BFloat16});
  shape.back() = kRopeDim;
  RequireDtype(query_rope, {ScalarType::BFloat16});
  RequireShape(query_rope, shape);
}

void MlaProlog::RequireScale(const OptionalTensor& scale, bool wanted, c10::IntArrayRef sizes) const {
  if (static_cast<bool>(scale) != wanted) {
    RefuseArgument(scale.name(), wanted ? "a tensor, as this quantisation needs it" : "none, as nothing is quantised with it",
                   wanted ? "none" : "a tensor");
  }
  if (scale) {
    RequireDtype(*scale, {ScalarType::Float});
    RequireShape(*scale, sizes);
  }
}

void MlaProlog::RequireScales() const {
  const bool all = weight_mode == kQuantizedAll;
  RequireScale(scales.x, all, {tokens(), 1});
  RequireScale(scales.down, all, {1, down.size(1)});
  RequireScale(scales.up, weight_mode != kPlainWeights, {1, up.size(1)});
  RequireScale(scales.key, all, {1, key_down.size(1)});
  if (scales.smooth) {
    RequireScale(scales.smooth, weight_mode != kPlainWeights, {1, down.size(1)});
  }
  const bool shares = cache_mode == kByTensor && scales.latent && scales.latent->numel() == 1;
  const std::vector<int64_t> latent = shares ? scales.latent->sizes().vec() : std::vector<int64_t>{1, kLatentDim};
  RequireScale(scales.latent, cache_mode == kByTensor || cache_mode == kByChannel, latent);
  RequireScale(scales.rope, cache_mode == kByChannel, {1, kRopeDim});
}

void MlaProlog::RequireCache(const Tensor& cache, int64_t width, ScalarType dtype) const {
  RequireDtype(cache, {dtype});
  RequireContiguous(cache);
  std::vector<int64_t> shape;
  if (mode == CacheMode::kRows) {
    shape = x.sizes().vec();
    shape.back() = 1;
  } else {
    RequireRank(cache, 4, 4);
    shape = {cache.size(0), latent_cache.size(1), 1};
  }
  shape.push_back(width);
  RequireShape(cache, shape);
}

void MlaProlog::RequireCaches(const Limits& limits) const {
  const bool narrow = cache_mode != kPlainCache;
  RequireCache(latent_cache, cache_mode == kByTile ? kCombinedRow : kLatentDim, narrow ? ScalarType::Char : ScalarType::BFloat16);
  if (cache_mode != kByTile) {
    RequireCache(rope_cache, kRopeDim, cache_mode == kByChannel ? ScalarType::Char : ScalarType::BFloat16);
  }
  if (mode == CacheMode::kRows) {
    return;
  }
  const int64_t block = latent_cache.size(1);
  const bool fits = limits.largest_block > 128 ? block % 16 == 0 && block <= limits.largest_block : block == 16 || block == 128;
  if (block < 1 || !fits) {
    RefuseArgument(latent_cache.name(),
                   limits.largest_block > 128 ? "blocks of a multiple of 16, of at most 1024 keys" : "blocks of 16 or 128 keys",
                   std::to_string(block));
  }
}

void MlaProlog::RequireIndex() const {
  if (mode == CacheMode::kRows) {
    if (index) {
      RefuseArgument(index.name(), "none, since the caches are not paged", "a tensor");
    }
    return;
  }
  if (!index) {
    RefuseArgument(index.name(), "a tensor, since the caches are paged", "none");
  }
  RequireDtype(*index, {ScalarType::Long});
  if (mode == CacheMode::kPaged || mode == CacheMode::kPagedNz) {
    RequireShape(*index, packed() ? std::vector<int64_t>{tokens()} : std::vector<int64_t>{x.size(0), x.size(1)});
    return;
  }
  if (!packed()) {
    const int64_t block = latent_cache.size(1);
    RequireShape(*index, {x.size(0), (x.size(1) + block - 1) / block});
    return;
  }
  RequireRank(*index, 1, 1);
  if (!ends) {
    RefuseArgument(ends.name(), "a tensor, since the index names blocks and the sequences are packed", "none");
  }
  RequireRank(*ends, 1, 1);
  RequireDtype(*ends, {ScalarType::Int});
}

void MlaProlog::Require(const Limits& limits) const {
  RequireWeights(limits);
  RequireScales();
  RequireCaches(limits);
  RequireIndex();
  if (quantizes_query()) {
    if (!query_scale) {
      RefuseArgument(query_scale.name(), "a tensor, since the queries are quantised", "none");
    }
    RequireShape(*query_scale, {tokens(), heads(), 1});
  }
}

}  // namespace cann_sim::operators
