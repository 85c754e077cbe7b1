// Attention of one sequence, shared by the attention operators of both libraries.
#pragma once

#include <ATen/core/Tensor.h>

#pragma GCC visibility push(default)
namespace cann_sim::operators {

// Which keys a query position may see. Position i of `query_length` and key j of `key_length` have the distance
// j - i - shift, where `shift` aligns the two ends of the sequences the mask is anchored to.
struct Visibility {
  int64_t shift = 0;
  // A key further ahead than this many positions is invisible.
  std::optional<int64_t> ahead;
  // A key more than this many positions back is invisible.
  std::optional<int64_t> behind;
};

struct AttentionResult {
  at::Tensor output;           // [query_length, heads, value_dim] float32; zeros where no key is visible
  at::Tensor log_sum_exp;      // [query_length, heads] float32; +inf where no key is visible
  at::Tensor largest;          // [query_length, heads] float32; the largest score, 0 where no key is visible
  at::Tensor total;            // [query_length, heads] float32; sum of exp(score - largest)
};

// softmax(scale * query @ key^T) @ value in float32. Every head of `key` serves heads / kv_heads heads of `query`.
//   query [query_length, heads, dim], key [key_length, kv_heads, dim], value [key_length, kv_heads, value_dim]: float32.
//   hidden: bool, broadcastable to [query_length, key_length], or [heads, query_length, key_length]; true where a key is
//     invisible; undefined for none.
//   sink: float32 [heads], a learnable extra logit that takes part in the normalisation only; undefined for none.
//   bias: float32, broadcastable to [heads, query_length, key_length], added to the scaled scores; undefined for none.
AttentionResult Attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double scale,
                       const at::Tensor& hidden, const at::Tensor& sink, const at::Tensor& bias = {});

// The mask of `visibility`: bool [query_length, key_length], true where a key is invisible; undefined where all are visible.
at::Tensor HiddenKeys(const Visibility& visibility, int64_t query_length, int64_t key_length);

}  // namespace cann_sim::operators
#pragma GCC visibility pop
