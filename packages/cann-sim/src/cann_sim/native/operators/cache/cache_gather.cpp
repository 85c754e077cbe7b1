// Reading keys and values back out of a paged cache, and quantising what goes into one.

#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/div.h>
#include <ATen/ops/index_select.h>

#include <algorithm>

#include "../interface/operator.h"
#include "../quantization/quantization.h"
#include "paged_cache.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

void RequireGathered(const Tensor& cache, const Tensor& rows, bool nz) {
  RequireDtype(cache, kFloats | kIntegers);
  RequireRank(cache, 4, 4);
  RequireContiguous(cache);
  RequireSameDtype(rows, cache);
  RequireRank(rows, 3, 3);
  const bool fits = nz ? cache.size(1) * cache.size(3) == rows.size(1) * rows.size(2)
                       : cache.size(2) == rows.size(1) && cache.size(3) == rows.size(2);
  if (!fits) {
    RefuseArgument(rows.name(), nz ? "[tokens, heads, dim] as [blocks, heads * dim / last, block size, last] holds them"
                                   : "[tokens, " + std::to_string(cache.size(2)) + ", " + std::to_string(cache.size(3)) + "]",
                   Describe(rows.sizes()));
  }
}

// The slot of each gathered row, -1 where its block is not in the table or not in the cache.
at::Tensor GatheredSlots(const at::Tensor& table, const at::Tensor& lengths, const at::Tensor& offsets, bool cumulative,
                         int64_t block_size, int64_t blocks, int64_t rows) {
  std::vector<at::Tensor> parts{at::arange(0, at::kLong)};
  int64_t total = 0;
  const int64_t batch = cumulative ? lengths.size(0) - 1 : lengths.size(0);
  for (int64_t index = 0; index < batch; ++index) {
    int64_t length = cumulative ? lengths[index + 1].item<int64_t>() - lengths[index].item<int64_t>()
                                : lengths[index].item<int64_t>();
    length = std::clamp<int64_t>(length, 0, rows - total);
    const int64_t first = offsets.defined() ? offsets[index].item<int64_t>() / block_size : 0;
    const at::Tensor places = at::arange(length, at::kLong);
    const at::Tensor columns = at::div(places, block_size, "floor").add(first);
    const at::Tensor outside = columns.ge(table.size(1));
    const at::Tensor own = table[index].to(at::kLong).index_select(0, columns.masked_fill(outside, 0));
    const at::Tensor missing = outside.logical_or(own.lt(0)).logical_or(own.ge(blocks));
    parts.push_back(own.mul(block_size).add(places.remainder(block_size)).masked_fill(missing, -1));
    total += length;
  }
  return at::cat(parts);
}

}  // namespace

// Rows of the sequences one after another, from the blocks that their rows of the table name; zeros for a missing block.
CANN_SIM_OPERATOR(aclnnGatherPaKvCache, (Tensor, keyCache), (Tensor, valueCache), (Tensor, blockTables), (Tensor, seqLens),
                  (Tensor, keyRef), (Tensor, valueRef), (OptionalTensor, seqOffset), (OptionalText, cacheMode),
                  (Bool, isSeqLensCumsum)) {
  const bool nz = cacheMode.value() == "PA_NZ";
  if (!nz && !cacheMode.value().empty() && cacheMode.value() != "Norm") {
    RefuseArgument(cacheMode.name(), "Norm or PA_NZ", cacheMode.value());
  }
  RequireGathered(keyCache, keyRef, nz);
  RequireGathered(valueCache, valueRef, nz);
  RequireDtype(blockTables, kIndices);
  RequireRank(blockTables, 2, 2);
  RequireDtype(seqLens, kIndices);
  RequireShape(seqLens, {blockTables.size(0) + (isSeqLensCumsum ? 1 : 0)});
  if (seqOffset) {
    RequireSameDtype(*seqOffset, seqLens);
    RequireShape(*seqOffset, {blockTables.size(0)});
  }
  return [=] {
    const int64_t block_size = keyCache.size(nz ? 2 : 1);
    const at::Tensor slots = GatheredSlots(blockTables, seqLens, seqOffset, isSeqLensCumsum, block_size, keyCache.size(0),
                                           keyRef.size(0));
    const at::Tensor missing = slots.lt(0);
    for (const auto& [cache, rows] : {std::pair(&keyCache, &keyRef), std::pair(&valueCache, &valueRef)}) {
      const at::Tensor all = *cache;
      const at::Tensor flat = (nz ? all.transpose(1, 2) : all).reshape({all.size(0) * block_size, rows->size(1), rows->size(2)});
      const at::Tensor own = at::index_select(flat, 0, slots.masked_fill(missing, 0)).masked_fill(missing.view({-1, 1, 1}), 0);
      at::Tensor(*rows).narrow(0, 0, slots.size(0)).copy_(own);
    }
  };
}

// As ScatterPaKvCache, for keys alone.
CANN_SIM_OPERATOR(aclnnScatterPaCache, (Tensor, key), (Tensor, keyCacheRef), (Tensor, slotMapping),
                  (OptionalTensor, compressLens), (OptionalTensor, compressSeqOffset), (OptionalTensor, seqLens),
                  (OptionalText, cacheMode)) {
  for (const OptionalTensor& compressed : {compressLens, compressSeqOffset, seqLens}) {
    RefuseIfPresent(compressed, "a compressed cache");
  }
  RequireDtype(key, kFloats | kIntegers);
  RequireRank(key, 3, 3);
  RequireSameDtype(keyCacheRef, key);
  RequireRank(keyCacheRef, 4, 4);
  RequireContiguous(keyCacheRef);
  RequireDtype(slotMapping, kIndices);
  RequireShape(slotMapping, {key.size(0)});
  RequireShape(keyCacheRef, {keyCacheRef.size(0), keyCacheRef.size(1), key.size(1), key.size(2)});
  return [=] { WriteSlots(key, at::Tensor(slotMapping).to(at::kLong), keyCacheRef); };
}

// The updates, quantised, into data[b, ..., indices[b] : indices[b] + n, ...]; indices [B, 2] name the batch entry too.
CANN_SIM_OPERATOR(aclnnInplaceQuantScatter, (Tensor, selfRef), (Tensor, indices), (Tensor, updates), (Tensor, quantScales),
                  (OptionalTensor, quantZeroPoints), (Int, axis), (Int, quantAxis), (Int, reduction)) {
  RequireDtype(selfRef, {ScalarType::Char});
  RequireRank(selfRef, 3, 4);
  RequireDtype(indices, kIndices);
  RequireRank(indices, 1, 2);
  RequireDtype(updates, kHalves);
  RequireRank(updates, selfRef.rank(), selfRef.rank());
  RequireDtype(quantScales, {updates.dtype() == ScalarType::BFloat16 ? ScalarType::BFloat16 : ScalarType::Float});
  const int64_t dim = WrapDim(axis, selfRef.rank(), axis.name());
  if (WrapDim(quantAxis, selfRef.rank(), quantAxis.name()) != selfRef.rank() - 1 || dim == 0 || dim == selfRef.rank() - 1) {
    RefuseArgument(quantAxis.name(), "the last dimension, and an axis between the first and the last",
                   std::to_string(quantAxis) + " and " + std::to_string(dim));
  }
  if (quantScales.numel() != updates.size(-1)) {
    RefuseArgument(quantScales.name(), std::to_string(updates.size(-1)) + " elements", Describe(quantScales.sizes()));
  }
  if (quantZeroPoints) {
    RequireDtype(*quantZeroPoints, {ScalarType::BFloat16, ScalarType::Int});
    RequireShape(*quantZeroPoints, quantScales.sizes());
  }
  if (indices.size(0) != updates.size(0) || (indices.rank() == 2 && indices.size(1) != 2)) {
    RefuseArgument(indices.name(), "a place for each of the " + std::to_string(updates.size(0)) + " updates",
                   Describe(indices.sizes()));
  }
  return [=] {
    at::Tensor values = at::div(updates.Widened(), quantScales.Widened().reshape({-1}));
    if (quantZeroPoints) {
      values = at::add(values, quantZeroPoints->Widened().reshape({-1}));
    }
    const at::Tensor rounded = values.nan_to_num(0.0).round().clamp(-128, 127).to(at::kChar);
    const at::Tensor target = selfRef;
    const at::Tensor places = at::Tensor(indices).to(at::kLong);
    for (int64_t index = 0; index < places.size(0); ++index) {
      const bool pairs = places.dim() == 2;
      const int64_t batch = pairs ? places[index][0].item<int64_t>() : index;
      const int64_t start = (pairs ? places[index][1] : places[index]).item<int64_t>();
      const at::Tensor row = rounded.select(0, index);
      target.select(0, batch).narrow(dim - 1, start, row.size(dim - 1)).copy_(row);
    }
  };
}

}  // namespace cann_sim::operators
