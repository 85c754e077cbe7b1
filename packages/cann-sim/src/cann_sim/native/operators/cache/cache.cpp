// Writing keys and values into a cache.

#include <ATen/ops/index_put.h>

#include "../interface/operator.h"
#include "paged_cache.h"

namespace cann_sim::operators {

// var[indices[i, ...]] = updates[i]; the last dimension of `indices` addresses the leading dimensions of `var`.
CANN_SIM_OPERATOR(aclnnScatterNdUpdate, (Tensor, varRef), (Tensor, indices), (Tensor, updates)) {
  RequireDtype(varRef, kReals);
  RequireDtype(indices, kIndices);
  RequireSameDtype(updates, varRef);
  RequireRank(indices, 1, kMaxRank);
  const int64_t depth = indices.size(-1);
  if (depth > varRef.rank()) {
    RefuseArgument(indices.name(), "a last dimension of at most " + std::to_string(varRef.rank()),
                   "shape " + Describe(indices.sizes()));
  }
  std::vector<int64_t> expected = indices.sizes().slice(0, static_cast<size_t>(indices.rank()) - 1).vec();
  expected.insert(expected.end(), varRef.sizes().begin() + depth, varRef.sizes().end());
  RequireShape(updates, expected);
  return [=] {
    c10::List<std::optional<at::Tensor>> list;
    for (const at::Tensor& index : at::Tensor(indices).to(at::kLong).unbind(-1)) {
      list.push_back(index);
    }
    at::index_put_(Out(varRef), list, updates, false);
  };
}

namespace {

void RequireCache(const Tensor& rows, const Tensor& cache, bool nz) {
  RequireSameDtype(cache, rows);
  RequireContiguous(rows);
  RequireContiguous(cache);
  RequireRank(cache, 4, 4);
  const bool fits = nz ? cache.size(1) * cache.size(3) == rows.size(1) * rows.size(2)
                       : cache.size(2) == rows.size(1) && cache.size(3) == rows.size(2);
  if (!fits) {
    RefuseArgument(cache.name(),
                   nz ? "[blocks, heads * dim / last, block size, last] for rows of " + Describe(rows.sizes())
                      : "[blocks, block size, heads, dim] for rows of " + Describe(rows.sizes()),
                   Describe(cache.sizes()));
  }
}

void WriteCache(const Tensor& rows, const at::Tensor& slots, const Tensor& cache, bool nz) {
  if (nz) {
    WriteNzSlots(rows, slots, cache, cache.size(2), cache.size(3));
  } else {
    WriteSlots(rows, slots, cache);
  }
}

}  // namespace

CANN_SIM_OPERATOR(aclnnScatterPaKvCache, (Tensor, key), (Tensor, keyCacheRef), (Tensor, slotMapping), (Tensor, value),
                  (Tensor, valueCacheRef), (OptionalTensor, compressLens), (OptionalTensor, compressSeqOffset),
                  (OptionalTensor, seqLens), (OptionalText, cacheMode), (Text, scatterMode), (IntArray, strides),
                  (IntArray, offsets)) {
  RefuseIfPresent(compressLens, "a compressed cache");
  RefuseIfPresent(compressSeqOffset, "a compressed cache");
  RefuseIfPresent(seqLens, "a compressed cache");
  RequireDtype(slotMapping, kIndices);
  RequireRank(slotMapping, 1, 1);
  for (const Tensor* rows : {&key, &value}) {
    RequireDtype(*rows, kFloats | kIntegers);
    RequireRank(*rows, 3, 3);
  }
  RequireSameDtype(value, key);
  RequireShape(slotMapping, {key.size(0)});
  if (value.size(0) != key.size(0) || value.size(1) != key.size(1)) {
    RefuseArgument(value.name(), "the tokens and heads of 'key' " + Describe(key.sizes()), Describe(value.sizes()));
  }
  if (cacheMode.value() != "" && cacheMode.value() != "Norm" && cacheMode.value() != "PA_NZ") {
    RefuseArgument(cacheMode.name(), "Norm or PA_NZ", cacheMode.value());
  }
  const bool nz = cacheMode.value() == "PA_NZ";
  RequireCache(key, keyCacheRef, nz);
  RequireCache(value, valueCacheRef, nz);
  return [=] {
    const at::Tensor slots = at::Tensor(slotMapping).to(at::kLong);
    WriteCache(key, slots, keyCacheRef, nz);
    WriteCache(value, slots, valueCacheRef, nz);
  };
}

// self[b, ..., indices[b] : indices[b] + n, ...] = updates[b] along `axis`.
CANN_SIM_OPERATOR(aclnnInplaceScatterUpdate, (Tensor, data), (Tensor, indices), (Tensor, updates), (Int, axis)) {
  RequireDtype(data, kReals);
  RequireSameDtype(updates, data);
  RequireDtype(indices, kIndices);
  RequireRank(indices, 1, 1);
  const int64_t dim = WrapDim(axis, data.rank(), axis.name());
  if (dim == 0 || updates.rank() != data.rank() || indices.size(0) != updates.size(0)) {
    RefuseArgument(updates.name(), "one update for each index, axis not 0, " + std::to_string(data.rank()) + " dimensions",
                   Describe(updates.sizes()) + " along " + std::to_string(dim));
  }
  return [=] {
    const at::Tensor target = data;
    const at::Tensor source = updates;
    const at::Tensor starts = at::Tensor(indices).to(at::kLong);
    for (int64_t batch = 0; batch < starts.size(0); ++batch) {
      const at::Tensor row = source.select(0, batch);
      target.select(0, batch).narrow(dim - 1, starts[batch].item<int64_t>(), row.size(dim - 1)).copy_(row);
    }
  };
}

}  // namespace cann_sim::operators
