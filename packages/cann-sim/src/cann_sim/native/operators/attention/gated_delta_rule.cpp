// The gated delta rule of linear attention, token by token (decoding) and for whole sequences (prefill):
//   S <- a * S + b * (v - a * S k) k^T,  o = scale * S q
// Computed in float32 from the stored state on; every state and output that is stored is rounded once. Lengths and the numbers
// of states are device memory, read when the kernel runs.

#include <ATen/ops/einsum.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/sub.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "../interface/operator.h"
#include "ragged_rows.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

constexpr DtypeSet kBFloat16{ScalarType::BFloat16};
constexpr DtypeSet kInt32{ScalarType::Int};
// Tokens of a sequence in one call of the recurrent form.
constexpr int64_t kMostRecurrentTokens = 8;

// What both forms take; owned by the kernel.
struct GatedDeltaRule {
  Tensor query, key, value, beta, lengths;
  OptionalTensor decay, key_decay;
  double scale;
  Tensor output;

  int64_t tokens() const { return query.size(0); }
  int64_t key_heads() const { return query.size(1); }
  int64_t value_heads() const { return value.size(1); }
  int64_t key_dim() const { return query.size(2); }
  int64_t value_dim() const { return value.size(2); }

  void Require(int64_t most_heads, int64_t most_dim) const;
  void RequireLengths(const std::vector<int64_t>& read, int64_t most) const;
};

void GatedDeltaRule::Require(int64_t most_heads, int64_t most_dim) const {
  for (const Tensor* tensor : {&query, &key, &value}) {
    RequireDtype(*tensor, kBFloat16);
    RequireRank(*tensor, 3, 3);
    if (tensor->size(1) < 1 || tensor->size(1) > most_heads || tensor->size(2) < 1 || tensor->size(2) > most_dim) {
      RefuseArgument(tensor->name(),
                     "[tokens, 1 to " + std::to_string(most_heads) + " heads, 1 to " + std::to_string(most_dim) + "]",
                     Describe(tensor->sizes()));
    }
  }
  RequireShape(key, query.sizes());
  if (value.size(0) != tokens() || value_heads() % key_heads() != 0) {
    RefuseArgument(value.name(),
                   "the " + std::to_string(tokens()) + " tokens of the queries and a multiple of their " +
                       std::to_string(key_heads()) + " heads",
                   Describe(value.sizes()));
  }
  RequireDtype(beta, kBFloat16);
  RequireShape(beta, {tokens(), value_heads()});
  RequireDtype(lengths, kInt32);
  RequireRank(lengths, 1, 1);
  if (decay) {
    RequireDtype(*decay, {ScalarType::Float});
    RequireShape(*decay, {tokens(), value_heads()});
  }
  if (key_decay) {
    RequireDtype(*key_decay, {ScalarType::Float});
    RequireShape(*key_decay, {tokens(), value_heads(), key_dim()});
  }
  RequireDtype(output, kBFloat16);
  RequireShape(output, value.sizes());
}

void GatedDeltaRule::RequireLengths(const std::vector<int64_t>& read, int64_t most) const {
  for (const int64_t length : read) {
    if (length < 1 || length > most) {
      RefuseArgument(lengths.name(), "lengths in [1, " + std::to_string(most) + "]", std::to_string(length));
    }
  }
  const int64_t total = std::accumulate(read.begin(), read.end(), int64_t{0});
  if (total > tokens()) {
    RefuseArgument(lengths.name(), "at most " + std::to_string(tokens()) + " tokens in all", std::to_string(total));
  }
}

// One token after the other, in float32.
class Recurrence {
 public:
  explicit Recurrence(const GatedDeltaRule& call)
      : query_(Spread(call, call.query).mul(call.scale)),
        key_(Spread(call, call.key)),
        value_(call.value.Widened()),
        beta_(call.beta.Widened().unsqueeze(-1)),
        decay_(call.decay ? at::exp(call.decay->Widened()).unsqueeze(-1).unsqueeze(-1) : at::Tensor()),
        key_decay_(call.key_decay ? at::exp(call.key_decay->Widened()).unsqueeze(2) : at::Tensor()),
        output_(call.output) {}

  // Advances `state` [heads, value dim, key dim] by `token` and stores that token's output.
  at::Tensor Step(const at::Tensor& state, int64_t token) const {
    at::Tensor next = state;
    if (decay_.defined()) {
      next = at::mul(next, decay_[token]);
    }
    if (key_decay_.defined()) {
      next = at::mul(next, key_decay_[token]);
    }
    const at::Tensor key = key_[token];
    const at::Tensor known = at::einsum("hvk,hk->hv", {next, key});
    const at::Tensor change = at::mul(at::sub(value_[token], known), beta_[token]);
    next = next.add(at::mul(change.unsqueeze(-1), key.unsqueeze(1)));
    output_[token].copy_(at::einsum("hvk,hk->hv", {next, query_[token]}));
    return next;
  }

 private:
  // A head of `tensor` for each head of the values.
  static at::Tensor Spread(const GatedDeltaRule& call, const Tensor& tensor) {
    return at::repeat_interleave(tensor.Widened(), call.value_heads() / call.key_heads(), 1);
  }

  at::Tensor query_, key_, value_, beta_, decay_, key_decay_, output_;
};

void RunRecurrent(const GatedDeltaRule& call, const Tensor& states, const Tensor& places, const OptionalTensor& accepted) {
  const std::vector<int64_t> lengths = ReadIntegers(call.lengths);
  call.RequireLengths(lengths, kMostRecurrentTokens);
  const std::vector<int64_t> place = ReadIntegers(places);
  const std::vector<int64_t> counts =
      accepted ? ReadIntegers(*accepted) : std::vector<int64_t>(lengths.size(), 1);
  const auto state_of = [&](int64_t token) {
    const int64_t number = place[static_cast<size_t>(token)];
    if (number < 0 || number >= states.size(0)) {
      RefuseArgument(places.name(), "numbers in [0, " + std::to_string(states.size(0)) + ")", std::to_string(number));
    }
    return at::Tensor(states).select(0, number);
  };
  const Recurrence recurrence(call);
  int64_t start = 0;
  for (size_t index = 0; index < lengths.size(); ++index) {
    if (counts[index] < 1 || counts[index] > lengths[index]) {
      RefuseArgument(accepted.name(), "counts in [1, " + std::to_string(lengths[index]) + "], the length of the sequence",
                     std::to_string(counts[index]));
    }
    at::Tensor state = state_of(start + counts[index] - 1).to(at::kFloat, false, true);
    for (int64_t token = start; token < start + lengths[index]; ++token) {
      state = recurrence.Step(state, token);
      state_of(token).copy_(state);
    }
    start += lengths[index];
  }
}

void RunSequences(const GatedDeltaRule& call, const Tensor& initial, const Tensor& final_state) {
  const std::vector<int64_t> lengths = ReadIntegers(call.lengths);
  call.RequireLengths(lengths, call.tokens());
  const Recurrence recurrence(call);
  const at::Tensor first = initial.Widened();
  int64_t start = 0;
  for (size_t index = 0; index < lengths.size(); ++index) {
    at::Tensor state = first[static_cast<int64_t>(index)];
    for (int64_t token = start; token < start + lengths[index]; ++token) {
      state = recurrence.Step(state, token);
    }
    at::Tensor(final_state)[static_cast<int64_t>(index)].copy_(state);
    start += lengths[index];
  }
}

}  // namespace

// The state after each token goes to state[ssmStateIndices[token]]. A sequence begins with the state after its last accepted
// token, or after its first one.
CANN_SIM_OPERATOR(aclnnRecurrentGatedDeltaRule, (Tensor, query), (Tensor, key), (Tensor, value), (Tensor, beta),
                  (Tensor, stateRef), (Tensor, actualSeqLengths), (Tensor, ssmStateIndices), (OptionalTensor, g),
                  (OptionalTensor, gk), (OptionalTensor, numAcceptedTokens), (Float, scaleValue), (Tensor, out)) {
  const GatedDeltaRule call{query, key, value, beta, actualSeqLengths, g, gk, scaleValue, out};
  call.Require(256, 512);
  RequireDtype(stateRef, kBFloat16);
  RequireRank(stateRef, 4, 4);
  RequireContiguous(stateRef);
  RequireShape(stateRef, {stateRef.size(0), call.value_heads(), call.value_dim(), call.key_dim()});
  RequireDtype(ssmStateIndices, kInt32);
  RequireShape(ssmStateIndices, {call.tokens()});
  if (numAcceptedTokens) {
    RequireDtype(*numAcceptedTokens, kInt32);
    RequireShape(*numAcceptedTokens, actualSeqLengths.sizes());
  }
  return [=] { RunRecurrent(call, stateRef, ssmStateIndices, numAcceptedTokens); };
}

CANN_SIM_OPERATOR(aclnnChunkGatedDeltaRule, (Tensor, query), (Tensor, key), (Tensor, value), (Tensor, beta),
                  (Tensor, initialState), (Tensor, actualSeqLengths), (Float, scaleValue), (OptionalTensor, g), (Tensor, out),
                  (Tensor, finalState)) {
  const GatedDeltaRule call{query, key, value, beta, actualSeqLengths, g, OptionalTensor(), scaleValue, out};
  call.Require(64, 128);
  for (const Tensor* state : {&initialState, &finalState}) {
    RequireDtype(*state, kBFloat16);
    RequireShape(*state, {actualSeqLengths.size(0), call.value_heads(), call.value_dim(), call.key_dim()});
  }
  return [=] { RunSequences(call, initialState, finalState); };
}

}  // namespace cann_sim::operators
