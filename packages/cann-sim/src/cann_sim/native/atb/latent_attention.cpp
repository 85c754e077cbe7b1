// Multi-head latent attention (MLA): decode over a paged cache of latent keys, which are the values too, and of rotary keys.

#include <ATen/ops/cat.h>

#include "../operators/cost/attention_work.h"
#include "operation.h"
#include "packed_sequences.h"

namespace cann_sim::atb_library {

using operators::Describe;
using operators::Float;
using operators::Int;
using operators::Int32;
using operators::OptionalTensor;
using operators::RefuseArgument;
using operators::Tensor;

namespace {

enum Mask : int32_t { kNoMask = 0, kSpecMask = 1 };
enum Calculation : int32_t { kOneQuery = 0, kSeveralQueries = 1, kWithLogSumExp = 2 };
constexpr int32_t kSplitCache = 1;

}  // namespace

CANN_SIM_ATB_FUNCTION(AtbMLA, (Tensor, q_nope), (Tensor, q_rope), (Tensor, ctkv), (Tensor, k_rope), (Tensor, block_tables),
                      (Tensor, context_lens), (OptionalTensor, mask), (OptionalTensor, qseqlen), (OptionalTensor, qk_descale),
                      (OptionalTensor, pv_descale), (Int, head_num), (Float, qk_scale), (Int, kv_headnum), (Int32, mask_type),
                      (Int32, calc_type), (Int32, cache_mode), (Tensor, output), (OptionalTensor, lse)) {
  operators::RefuseIfPresent(qk_descale, "an int8 cache");
  operators::RefuseIfPresent(pv_descale, "an int8 cache");
  if (cache_mode != kSplitCache) {
    RefuseArgument(cache_mode.name(), "krope_ctkv (NZ caches are not simulated)", std::to_string(cache_mode));
  }
  const bool several = calc_type == kSeveralQueries;
  if (mask_type != (several ? kSpecMask : kNoMask)) {
    RefuseArgument(mask_type.name(), several ? "mask_type_spec with calc_type_spec" : "undefined without calc_type_spec",
                   std::to_string(mask_type));
  }
  const int64_t kv_heads = kv_headnum == 0 ? head_num : kv_headnum;
  RequireHeads(head_num, kv_heads);
  for (const Tensor* rows : {&q_nope, &q_rope}) {
    RequirePackedRows(*rows, head_num);
  }
  operators::RequireSameDtype(q_rope, q_nope);
  const std::pair<const Tensor*, const Tensor*> parts[] = {{&ctkv, &q_nope}, {&k_rope, &q_rope}};
  for (const auto& [cache, rows] : parts) {
    RequireCache(*cache, *rows, kv_heads);
    if (CacheDim(*cache, kv_heads) != HeadDim(*rows, head_num) || rows->size(0) != q_nope.size(0)) {
      RefuseArgument(cache->name(), "heads as those of '" + std::string(rows->name()) + "' " + Describe(rows->sizes()),
                     Describe(cache->sizes()));
    }
  }
  const std::vector<int64_t> key_lengths = HostValues(context_lens);
  if (several != static_cast<bool>(qseqlen)) {
    RefuseArgument(qseqlen.name(), several ? "the numbers of queries" : "none without calc_type_spec", several ? "none" : "lengths");
  }
  const auto sequences =
      several ? PackSequences(HostValues(*qseqlen), key_lengths, q_nope.size(0), qseqlen.name(), context_lens.name())
              : SingleQueries(key_lengths, q_nope.size(0), context_lens.name());
  RequireBlockTable(block_tables, sequences.size());
  operators::RequireSameDtype(output, q_rope);
  operators::RequireShape(output, q_nope.sizes());
  if (several) {
    if (!mask || mask->rank() != 2 || mask->size(0) < q_nope.size(0)) {
      RefuseArgument(mask.name(), "[tokens, keys]", mask ? Describe(mask->sizes()) : "none");
    }
    operators::RequireSameDtype(*mask, q_nope);
  }
  const bool wants_lse = calc_type == kWithLogSumExp;
  if (wants_lse) {
    if (!lse) {
      RefuseArgument(lse.name(), "an output for calc_type_ring", "none");
    }
    operators::RequireShape(*lse, {q_nope.size(0), head_num, 1});
  }
  operators::Plan plan([=] {
    const at::Tensor rows = at::Tensor(output).view({output.size(0), head_num, -1});
    const auto queries = [&](const Tensor& tensor, size_t index) {
      return PackedRows(tensor, head_num, sequences[index].query_start, sequences[index].query_length);
    };
    const auto keys = [&](const Tensor& tensor, size_t index) {
      return CachedRows(tensor, block_tables, kv_heads, index, sequences[index].key_length);
    };
    AttendSequences(
        sequences, qk_scale, [&](size_t index) { return at::cat({queries(q_nope, index), queries(q_rope, index)}, -1); },
        [&](size_t index) { return at::cat({keys(ctkv, index), keys(k_rope, index)}, -1); },
        [&](size_t index) { return keys(ctkv, index); },
        [&](size_t index) {
          if (!several) {
            return SequenceMask();
          }
          const PackedSequence& own = sequences[index];
          const at::Tensor whole = at::Tensor(*mask).to(at::kFloat);
          return SequenceMask{{}, whole.narrow(0, own.query_start, own.query_length).narrow(1, 0, own.key_length)};
        },
        [&](size_t index, const operators::AttentionResult& result) {
          const PackedSequence& own = sequences[index];
          rows.narrow(0, own.query_start, own.query_length).copy_(result.output);
          if (wants_lse) {
            at::Tensor(*lse).squeeze(-1).narrow(0, own.query_start, own.query_length).copy_(result.log_sum_exp);
          }
        });
  });
  plan.workspace_size = DecodeWorkspace(output, sequences);
  if (KernelsAreTimed()) {
    const auto item = [](const Tensor& tensor) { return static_cast<double>(c10::elementSize(tensor.dtype())); };
    const int64_t dims = HeadDim(q_nope, head_num);
    const int64_t rope_dims = HeadDim(q_rope, head_num);
    plan.duration = KernelTime(operators::WorkOfAttention(
        {.heads = head_num,
         .kv_heads = kv_heads,
         .query_dims = dims + rope_dims,
         .value_dims = dims,
         .query_item = item(q_nope),
         .cached_bytes = static_cast<double>(dims) * item(ctkv) + static_cast<double>(rope_dims) * item(k_rope)},
        sequences));
  }
  return plan;
}

}  // namespace cann_sim::atb_library
