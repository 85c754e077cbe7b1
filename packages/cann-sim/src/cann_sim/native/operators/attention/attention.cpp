#include "attention.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>

#include <limits>

namespace cann_sim::operators {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

at::Tensor HiddenKeys(const Visibility& visibility, int64_t query_length, int64_t key_length) {
  const bool cuts_ahead = visibility.ahead && *visibility.ahead < key_length - 1 - visibility.shift;
  const bool cuts_behind = visibility.behind && *visibility.behind < query_length - 1 + visibility.shift;
  at::Tensor hidden;
  if (!cuts_ahead && !cuts_behind) {
    return hidden;
  }
  const at::Tensor keys = at::arange(key_length, at::kLong).unsqueeze(0);
  const at::Tensor positions = at::arange(query_length, at::kLong).unsqueeze(1);
  const at::Tensor distance = keys.sub(positions, 1).sub(visibility.shift);
  if (cuts_ahead) {
    hidden = distance.gt(*visibility.ahead);
  }
  if (cuts_behind) {
    const at::Tensor behind = distance.lt(-*visibility.behind);
    hidden = hidden.defined() ? hidden.logical_or(behind) : behind;
  }
  return hidden;
}

AttentionResult Attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, double scale,
                       const at::Tensor& hidden, const at::Tensor& sink, const at::Tensor& bias) {
  const int64_t length = query.size(0);
  const int64_t heads = query.size(1);
  const int64_t key_length = key.size(0);
  const int64_t kv_heads = key.size(1);
  const int64_t group = heads / kv_heads;
  const auto options = query.options();
  if (key_length == 0 || length == 0) {
    const at::Tensor none = at::zeros({length, heads}, options);
    return {at::zeros({length, heads, value.size(2)}, options), at::full({length, heads}, kInfinity, options), none, none};
  }
  // [kv_heads, group * length, dim] against [kv_heads, dim, key_length]
  const at::Tensor rows = query.view({length, kv_heads, group, query.size(2)})
                              .permute({1, 2, 0, 3})
                              .reshape({kv_heads, group * length, -1});
  at::Tensor scores = at::bmm(rows, key.permute({1, 2, 0})).mul_(scale).view({kv_heads, group, length, key_length});
  if (bias.defined()) {
    scores.add_(bias.expand({heads, length, key_length}).unflatten(0, {kv_heads, group}));
  }
  if (hidden.defined()) {
    scores.masked_fill_(hidden.dim() == 3 && heads > 1 && hidden.size(0) == heads ? hidden.unflatten(0, {kv_heads, group}) : hidden, -kInfinity);
  }
  at::Tensor largest = at::amax(scores, {3}, true);
  at::Tensor sink_logit;
  if (sink.defined()) {
    sink_logit = sink.view({kv_heads, group, 1, 1});
    largest = at::maximum(largest, sink_logit);
  }
  // A row without a visible key has the largest score -inf; subtracting 0 instead leaves its weights at 0.
  const at::Tensor invisible = largest.eq(-kInfinity);
  const at::Tensor offset = largest.masked_fill(invisible, 0.0);
  const at::Tensor weights = scores.sub_(offset).exp_();
  at::Tensor total = weights.sum({3}, true);
  if (sink.defined()) {
    total = total.add(at::exp(sink_logit.sub(offset)));
  }
  const at::Tensor product = at::bmm(weights.view({kv_heads, group * length, key_length}), value.transpose(0, 1))
                                 .view({kv_heads, group, length, -1});
  const at::Tensor output = at::div(product, total).masked_fill_(total.eq(0.0), 0.0);
  const at::Tensor log_sum_exp = at::log(total).add_(offset).masked_fill_(total.eq(0.0), kInfinity);
  return {output.permute({2, 0, 1, 3}).reshape({length, heads, -1}),
          log_sum_exp.permute({2, 0, 1, 3}).reshape({length, heads}), offset.permute({2, 0, 1, 3}).reshape({length, heads}),
          total.permute({2, 0, 1, 3}).reshape({length, heads})};
}

}  // namespace cann_sim::operators
