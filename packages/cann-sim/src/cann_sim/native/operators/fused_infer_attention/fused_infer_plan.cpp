#include "fused_infer_plan.h"

#include <memory>

#include "../cost/attention_work.h"
#include "../interface/validation.h"
#include "fused_infer_validation.h"

namespace cann_sim::operators {

namespace {

constexpr int64_t kWorkspaceAlignment = 512;

// A part of a tensor of two, for the keys (0) or for the values (1), as a tensor of its own.
at::Tensor Half(const OptionalTensor& both, int64_t part) {
  return both ? at::Tensor(both).select(0, part) : at::Tensor();
}

// Keys and values are int8 with scales for both, or of the dtype of the query.
void Dequantize(const FusedInferArguments& arguments, FusedInferAttention& call) {
  if (call.query.dtype() == c10::ScalarType::Char) {
    DequantizeAll(arguments, call);
    return;
  }
  RefuseIfPresent(arguments.query_scale, "a scale of queries that are not int8");
  if (arguments.both_scale) {
    for (const OptionalTensor* apart : {&arguments.key_scale, &arguments.value_scale}) {
      if (*apart) {
        RefuseArgument(apart->name(), "none beside one tensor of scales for keys and values", "a tensor");
      }
    }
    const Tensor& scale = *arguments.both_scale;
    if (scale.rank() < 1 || scale.size(0) != 2) {
      RefuseArgument(scale.name(), "a first dimension of 2, for keys and values", Describe(scale.sizes()));
    }
    RequireContiguous(scale);
    if (arguments.both_offset) {
      RequireSameDtype(*arguments.both_offset, scale);
      RequireShape(*arguments.both_offset, scale.sizes());
      RequireContiguous(*arguments.both_offset);
    }
    const c10::IntArrayRef own = scale.sizes().slice(1);
    call.key_dequantization = {Half(arguments.both_scale, 0), Half(arguments.both_offset, 0)};
    call.value_dequantization = {Half(arguments.both_scale, 1), Half(arguments.both_offset, 1)};
    const std::vector<int64_t> shape = own.empty() ? std::vector<int64_t>{1} : own.vec();
    RequireDequantization(call, call.key, scale, shape, arguments.both_mode, call.key_dequantization);
    RequireDequantization(call, call.value, scale, shape, arguments.both_mode, call.value_dequantization);
    return;
  }
  if (!arguments.key_scale && !arguments.value_scale) {
    RequireSameDtype(call.key, call.query);
    RequireSameDtype(call.value, call.query);
    return;
  }
  if (!arguments.key_scale || !arguments.value_scale) {
    const OptionalTensor& absent = arguments.key_scale ? arguments.value_scale : arguments.key_scale;
    RefuseArgument(absent.name(), "scales of keys and values, or of none", "one of them");
  }
  if (arguments.key_mode != arguments.value_mode && !(arguments.key_mode == 0 && arguments.value_mode == 1)) {
    RefuseArgument("valueAntiquantMode", "the mode of the keys, or 1 beside 0", std::to_string(arguments.value_mode));
  }
  const auto make = [&](const Tensor& cache, const OptionalTensor& scale, const OptionalTensor& offset, int64_t mode) {
    RequireContiguous(*scale);
    if (offset) {
      RequireSameDtype(*offset, *scale);
      RequireShape(*offset, scale->sizes());
      RequireContiguous(*offset);
    }
    Dequantization how{at::Tensor(scale), at::Tensor(offset)};
    RequireDequantization(call, cache, *scale, scale->sizes(), mode, how);
    return how;
  };
  call.key_dequantization = make(call.key, arguments.key_scale, arguments.key_offset, arguments.key_mode);
  call.value_dequantization = make(call.value, arguments.value_scale, arguments.value_offset, arguments.value_mode);
}

// One tensor of keys or values, or one for each batch entry.
void TakeCaches(const FusedInferArguments& arguments, FusedInferAttention& call) {
  for (const TensorList* list : {&arguments.key, &arguments.value}) {
    if (list->size() == 0 || !(*list)[0]) {
      RefuseArgument(list->name(), "at least one tensor", "none");
    }
    if (list->size() == 1) {
      continue;
    }
    std::vector<Tensor>& tensors = list == &arguments.key ? call.key_list : call.value_list;
    for (const OptionalTensor& tensor : *list) {
      if (!tensor || tensor->rank() < 1 || tensor->size(0) != 1) {
        RefuseArgument(list->name(), "a batch of 1 in each tensor of a list", "another");
      }
      RequireContiguous(*tensor);
      tensors.push_back(*tensor);
    }
  }
  if (call.key_list.size() != call.value_list.size()) {
    RefuseArgument(arguments.value.name(), std::to_string(arguments.key.size()) + " tensors as keys",
                   std::to_string(arguments.value.size()));
  }
  if (!call.key_list.empty() &&
      (call.packed() || call.block_table || call.key_padding || static_cast<int64_t>(call.key_list.size()) != call.query.size(0))) {
    RefuseArgument(arguments.key.name(), "one tensor for each batch entry, without pages, packing or padding",
                   std::to_string(call.key_list.size()) + " tensors");
  }
}

Work WorkOf(const FusedInferAttention& call) {
  const auto item = [](const Tensor& tensor) { return static_cast<double>(c10::elementSize(tensor.dtype())); };
  const int64_t dims = DimOf(call.query, call.query_layout, call.heads);
  const int64_t rope_dims = call.query_rope ? DimOf(*call.query_rope, call.query_layout, call.heads) : 0;
  const int64_t value_dims = CacheDim(call, call.value);
  const bool is_shared = at::Tensor(call.key).data_ptr() == at::Tensor(call.value).data_ptr();
  return WorkOfAttention({.heads = call.heads,
                          .kv_heads = call.kv_heads,
                          .query_dims = dims + rope_dims,
                          .value_dims = value_dims,
                          .query_item = item(call.query),
                          .cached_bytes = static_cast<double>(dims) * item(call.key) +
                                          (call.key_rope ? static_cast<double>(rope_dims) * item(*call.key_rope) : 0) +
                                          (is_shared ? 0 : static_cast<double>(value_dims) * item(call.value)),
                          .is_causal = call.sparse_mode == 2 || call.sparse_mode == 3},
                         call.sequences);
}

}  // namespace

Plan PlanFusedInfer(const FusedInferArguments& arguments) {
  static const OptionalIntArray kNoLengths(nullptr, "actualSeqLengths");
  const OptionalIntArray& query_lengths = arguments.query_lengths ? *arguments.query_lengths : kNoLengths;
  const OptionalIntArray& key_lengths = arguments.key_lengths ? *arguments.key_lengths : kNoLengths;
  const LayoutPair& layout = FindLayout(*arguments.layout);
  auto call = std::make_shared<FusedInferAttention>();
  call->query = arguments.query;
  call->output = arguments.output;
  call->mask = arguments.mask;
  call->block_table = arguments.block_table;
  call->sink = arguments.sink;
  call->query_rope = arguments.query_rope;
  call->key_rope = arguments.key_rope;
  call->position_shift = arguments.position_shift;
  call->query_padding = arguments.query_padding;
  call->key_padding = arguments.key_padding;
  call->key_prefix = arguments.key_prefix;
  call->value_prefix = arguments.value_prefix;
  call->output_scale = arguments.output_scale;
  call->output_offset = arguments.output_offset;
  call->query_layout = layout.query;
  call->output_layout = layout.output;
  call->heads = arguments.heads;
  call->kv_heads = arguments.kv_heads == 0 ? arguments.heads : arguments.kv_heads;
  call->block_size = arguments.block_size;
  call->sparse_mode = arguments.sparse_mode;
  call->pre_tokens = arguments.pre_tokens;
  call->next_tokens = arguments.next_tokens;
  call->scale = arguments.scale;
  call->wants_log_sum_exp = arguments.wants_log_sum_exp;
  if (call->wants_log_sum_exp) {
    if (!arguments.log_sum_exp) {
      RefuseArgument(arguments.log_sum_exp.name(), "a tensor where the flag is set", "none");
    }
    call->log_sum_exp = *arguments.log_sum_exp;
  }
  const int query_rank = layout.query == QueryLayout::kBSND || layout.query == QueryLayout::kBNSD ? 4 : 3;
  RequireDtype(call->query, arguments.query_scale ? kHalves | DtypeSet{c10::ScalarType::Char} : kHalves);
  RequireRank(call->query, query_rank, query_rank);
  TakeCaches(arguments, *call);
  call->key = *arguments.key[0];
  call->value = *arguments.value[0];
  for (const Tensor* cache : {&call->key, &call->value}) {
    RequireContiguous(*cache);
    if (!call->block_table) {
      RequireRank(*cache, query_rank, query_rank);
    }
  }
  if (arguments.inner_precise < 0 || arguments.inner_precise > 3) {
    RefuseArgument("innerPrecise", "0, 1, 2 or 3", std::to_string(arguments.inner_precise));
  }
  RequireHeads(*call);
  if (call->block_table) {
    const int64_t batch =
        call->packed() ? static_cast<int64_t>(query_lengths.values().size()) : call->query.size(0);
    RequirePages(*call, batch);
  }
  Dequantize(arguments, *call);
  if (CacheDim(*call, call->key) != DimOf(call->query, layout.query, call->heads)) {
    RefuseArgument(call->key.name(),
                   "a head dimension of " + std::to_string(DimOf(call->query, layout.query, call->heads)) + " as 'query'",
                   std::to_string(CacheDim(*call, call->key)));
  }
  RequireRope(*call);
  RequirePrefix(*call, arguments.prefix_length);
  call->sequences = call->packed() ? PackedSequences(*call, query_lengths, key_lengths)
                                   : BatchSequences(*call, query_lengths, key_lengths);
  RequirePadding(*call, query_lengths, key_lengths);
  RequireMask(*call);
  RequirePositionShift(*call);
  RequireOutputs(*call);
  if (call->sink) {
    RequireShape(*call->sink, {call->heads});
  }
  Plan plan([call] { call->Run(); });
  if (KernelsAreTimed()) {
    plan.duration = KernelTime(WorkOf(*call));
  }
  // Depends on the query alone, so one workspace is enough for every length. The amount is the simulator's own.
  const int64_t bytes = call->query.numel() * static_cast<int64_t>(sizeof(float));
  plan.workspace_size = static_cast<uint64_t>((bytes / kWorkspaceAlignment + 1) * kWorkspaceAlignment);
  return plan;
}

}  // namespace cann_sim::operators
