// Writing rows of keys and values into a paged cache, and reading them back as packed rows.

#include "../operators/cache/paged_cache.h"

#include "operation.h"
#include "operations.h"

namespace cann_sim::atb_library {

using atb::infer::ReshapeAndCacheParam;
using operators::Bool;
using operators::Describe;
using operators::Int8;
using operators::OptionalTensor;
using operators::RefuseArgument;
using operators::Tensor;

namespace {

constexpr operators::DtypeSet kCached = operators::kHalves | operators::DtypeSet{c10::ScalarType::Char};
constexpr int8_t kPlainCache = 1;

void RequireRowsAndCache(const Tensor& rows, const Tensor& cache) {
  operators::RequireDtype(rows, kCached);
  operators::RequireSameDtype(cache, rows);
  operators::RequireRank(rows, 3, 3);
  operators::RequireRank(cache, 4, 4);
  operators::RequireContiguous(cache);
  if (cache.size(2) != rows.size(1) || cache.size(3) != rows.size(2)) {
    RefuseArgument(cache.name(), "[blocks, block size, heads, dim] for rows of " + Describe(rows.sizes()),
                   Describe(cache.sizes()));
  }
}

void Write(const Tensor& rows, const Tensor& slots, const Tensor& cache) {
  const at::Tensor numbers = at::Tensor(slots).to(at::kLong);
  const int64_t count = cache.size(0) * cache.size(1);
  if (numbers.numel() > 0 && numbers.max().item<int64_t>() >= count) {
    throw operators::Refusal(std::string("argument '") + slots.name() + "': expected slots below " + std::to_string(count) +
                             ", found " + std::to_string(numbers.max().item<int64_t>()));
  }
  operators::WriteSlots(rows, numbers, cache);
}

}  // namespace

operators::Plan MakePlan(const ReshapeAndCacheParam& parameters, const Arguments& tensors) {
  if (parameters.compressType != 0) {
    RefuseArgument("compressType", "0 (compressed caches are not simulated)", std::to_string(parameters.compressType));
  }
  if (parameters.kvCacheCfg == ReshapeAndCacheParam::kKeysAndValuesNz) {
    RefuseArgument("key_cache", "a cache of plain format", "one of format NZ, which is not simulated");
  }
  const size_t kinds = parameters.kvCacheCfg == ReshapeAndCacheParam::kKeysOnly ? 1 : 2;
  tensors.RequireCounts(2 * kinds + 1, kinds);
  const Tensor slots = tensors.Input(2 * kinds, "slot_indices");
  operators::RequireDtype(slots, {c10::ScalarType::Int});
  std::vector<std::pair<Tensor, Tensor>> written;
  for (size_t kind = 0; kind < kinds; ++kind) {
    const Tensor rows = tensors.Input(kind, kind == 0 ? "key" : "value");
    const Tensor cache = tensors.Input(kinds + kind, kind == 0 ? "key_cache" : "value_cache");
    RequireRowsAndCache(rows, cache);
    operators::RequireShape(slots, {rows.size(0)});
    written.emplace_back(rows, cache);
  }
  return [=] {
    for (const auto& [rows, cache] : written) {
      Write(rows, slots, cache);
    }
  };
}

CANN_SIM_ATB_FUNCTION(AtbPagedCacheLoad, (Tensor, key_cache), (Tensor, value_cache), (Tensor, block_table),
                      (Tensor, context_lens), (Tensor, key), (Tensor, value), (OptionalTensor, seq_starts),
                      (Int8, kv_cache_cfg), (Bool, cumsum), (Bool, has_seq_starts)) {
  if (kv_cache_cfg != kPlainCache) {
    RefuseArgument("key_cache", "a cache of plain format", "one of format NZ, which is not simulated");
  }
  RequireRowsAndCache(key, key_cache);
  RequireRowsAndCache(value, value_cache);
  operators::RequireDtype(block_table, {c10::ScalarType::Int});
  operators::RequireDtype(context_lens, {c10::ScalarType::Int});
  operators::RequireRank(block_table, 2, 2);
  operators::RequireShape(context_lens, {block_table.size(0) + (cumsum ? 1 : 0)});
  if (has_seq_starts) {
    operators::RequireDtype(*seq_starts, {c10::ScalarType::Int});
    operators::RequireShape(*seq_starts, {block_table.size(0)});
  }
  return [=] {
    const at::Tensor lengths = at::Tensor(context_lens).to(at::kLong);
    const int64_t block_size = key_cache.size(1);
    int64_t start = 0;
    for (int64_t index = 0; index < block_table.size(0); ++index) {
      const int64_t length = cumsum ? lengths[index + 1].sub(lengths[index]).item<int64_t>() : lengths[index].item<int64_t>();
      at::Tensor row = at::Tensor(block_table).select(0, index);
      if (has_seq_starts) {  // a start within a block counts as that of the block
        const int64_t skipped = at::Tensor(*seq_starts)[index].item<int32_t>() / block_size;
        row = row.narrow(0, skipped, row.size(0) - skipped);
      }
      const std::pair<const Tensor*, const Tensor*> kinds[] = {{&key_cache, &key}, {&value_cache, &value}};
      for (const auto& [cache, out] : kinds) {
        at::Tensor(*out).narrow(0, start, length)
            .copy_(operators::PagedRows(*cache, row, length, block_table.name(), static_cast<size_t>(index)));
      }
      start += length;
    }
  };
}

}  // namespace cann_sim::atb_library
