// One call of MlaProlog, as its workspace phase understood it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "../interface/argument.h"

namespace cann_sim::operators {

inline constexpr int64_t kLatentDim = 512;
inline constexpr int64_t kRopeDim = 64;
// Values of a latent key that share a scale, and a row that holds latent key, rotary part and scales.
inline constexpr int64_t kTile = 128;
inline constexpr int64_t kCombinedRow = kLatentDim + 2 * kRopeDim + 4 * (kLatentDim / kTile);

// The numbers are those of the operator's arguments.
enum WeightMode : int64_t { kPlainWeights = 0, kQuantizedUp = 1, kQuantizedAll = 2 };
enum CacheQuantization : int64_t { kPlainCache = 0, kByTensor = 1, kByChannel = 2, kByTile = 3 };

enum class CacheMode { kPaged, kPagedNz, kBlocks, kBlocksNz, kRows };

// Sizes that one version of the operator takes.
struct Limits {
  std::vector<int64_t> hidden, query_rank, head_dim;
  int64_t most_steps;  // tokens of a sequence where the tokens have a batch
  int64_t largest_block;
};

struct Quantization {
  OptionalTensor x, down, up, key, latent, rope, smooth;
};

// What the workspace phase made of the arguments; owned by the kernel.
struct MlaProlog {
  Tensor x, down, up, absorb, key_down, query_gamma, key_gamma, sin, cos;
  OptionalTensor index, ends, clip;
  Tensor latent_cache, rope_cache;
  Quantization scales;
  double query_epsilon, key_epsilon, query_factor, key_factor;
  WeightMode weight_mode;
  CacheQuantization cache_mode;
  CacheMode mode;
  Tensor query, query_rope;
  OptionalTensor query_scale, query_norm, query_norm_scale;

  void Require(const Limits& limits) const;
  void Run() const;

 private:
  bool packed() const { return x.rank() == 2; }
  int64_t tokens() const { return packed() ? x.size(0) : x.size(0) * x.size(1); }
  int64_t heads() const { return absorb.size(0); }
  bool quantizes_query() const { return query.dtype() == c10::ScalarType::Char; }
  void RequireWeights(const Limits& limits) const;
  void RequireScales() const;
  void RequireScale(const OptionalTensor& scale, bool wanted, c10::IntArrayRef sizes) const;
  void RequireCaches(const Limits& limits) const;
  void RequireCache(const Tensor& cache, int64_t width, c10::ScalarType dtype) const;
  void RequireIndex() const;
  at::Tensor Slots() const;
  at::Tensor Project(const Tensor& weight, const OptionalTensor& weight_scale) const;
  void Write(const Tensor& cache, const at::Tensor& rows) const;
  void RunQueries() const;
  void RunKeys() const;
};

// Numbers, separated by commas.
std::string Listed(const std::vector<int64_t>& values);

}  // namespace cann_sim::operators
