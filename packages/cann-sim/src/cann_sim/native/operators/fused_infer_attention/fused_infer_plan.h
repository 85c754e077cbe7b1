// From the arguments of the attention operators for inference to a plan. FusedInferAttentionScore, PromptFlashAttention and
// IncreFlashAttention are interfaces to the same kernels.
#pragma once

#include "../interface/operator.h"
#include "fused_infer_attention.h"

namespace cann_sim::operators {

// The arguments of all of them; those that an operator lacks keep their defaults. The pointers need to be valid only while the
// plan is made.
struct FusedInferArguments {
  Tensor query;
  const TensorList& key;
  const TensorList& value;
  Tensor output;
  OptionalTensor position_shift, mask, block_table, sink, query_rope, key_rope;
  OptionalTensor output_scale, output_offset;
  OptionalTensor query_padding, key_padding;
  OptionalTensor key_prefix, value_prefix;
  OptionalTensor log_sum_exp;
  const OptionalIntArray* query_lengths = nullptr;
  const OptionalIntArray* key_lengths = nullptr;
  const OptionalIntArray* prefix_length = nullptr;
  const Text* layout = nullptr;
  int64_t heads = 1;
  int64_t kv_heads = 0;  // 0 means as many as `heads`
  double scale = 1.0;
  int64_t pre_tokens = 2147483647;
  int64_t next_tokens = 2147483647;
  int64_t sparse_mode = 0;
  int64_t inner_precise = 0;
  int64_t block_size = 0;
  bool wants_log_sum_exp = false;
  // Scales of int8 keys and values: both in one tensor [2, ...], or apart.
  OptionalTensor both_scale, both_offset, key_scale, key_offset, value_scale, value_offset;
  int64_t both_mode = 0;
  int64_t key_mode = 0;
  int64_t value_mode = 0;
  // Scales of int8 queries.
  OptionalTensor query_scale;
  int64_t query_mode = 0;
};

// The scales of a call whose queries are int8, as are its keys and values.
void DequantizeAll(const FusedInferArguments& arguments, FusedInferAttention& call);

// Validates the arguments. Throws Refusal for what the device refuses.
Plan PlanFusedInfer(const FusedInferArguments& arguments);

}  // namespace cann_sim::operators
