// Random operators. torch_npu passes a seed and an offset, as numbers or, in a captured graph, as device tensors that
// are read when the kernel runs. The numbers are counter-based (philox.h), so equal seeds and offsets give equal values;
// they are not the device's numbers.

#include <ATen/ops/argsort.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <functional>

#include "../interface/operator.h"
#include "state_source.h"

namespace cann_sim::operators {

namespace {

// Numbers that are made at once where the result is large: a multiple of 4.
constexpr int64_t kPiece = int64_t{1} << 20;

// Stores what `make` gives for `count` numbers from number `first` on, piece by piece where `out` is dense: numbers in
// float64 take more memory than what they are rounded to.
void StorePieces(const Tensor& out, const std::function<at::Tensor(int64_t count, int64_t first)>& make) {
  if (out.is_nz() || !out.is_contiguous()) {
    out.Store(make(out.numel(), 0).view(out.sizes()));
    return;
  }
  const at::Tensor target = at::Tensor(out).view({-1});
  for (int64_t first = 0; first < target.numel(); first += kPiece) {
    const int64_t count = std::min(kPiece, target.numel() - first);
    target.narrow(0, first, count).copy_(make(count, first));
  }
}

// mean + deviation * standard normal values.
Plan Normal(const Tensor& out, std::function<at::Tensor(const at::Tensor&)> scale, StateSource state) {
  RequireSimulated(out, kReals);
  return [=] { out.Store(scale(NormalValues(state(), out.numel()).view(out.sizes()))); };
}

Plan NormalNumbers(const Tensor& out, double mean, double deviation, StateSource state) {
  RequireDtype(out, kReals);
  return [=] {
    const PhiloxState start = state();
    StorePieces(out, [&](int64_t count, int64_t first) {
      return NormalValues(start, count, first).mul_(deviation).add_(mean);
    });
  };
}

// [from, to); a value that rounding would lift to `to` becomes `from`.
Plan Uniform(const Tensor& self, double from, double to, StateSource state) {
  RequireSimulated(self, kFloats | kDouble);
  if (from > to) {
    RefuseArgument("from", "at most 'to' " + std::to_string(to), std::to_string(from));
  }
  return [=] {
    const PhiloxState start = state();
    StorePieces(self, [&](int64_t count, int64_t first) {
      const at::Tensor values = UniformValues(start, count, first).mul_(to - from).add_(from).to(self.dtype());
      return values.masked_fill(values.ge(to), from);
    });
  };
}

// Integers in [from, to).
Plan RandomIntegers(const Tensor& self, int64_t from, int64_t to, StateSource state) {
  RequireSimulated(self, kReals);
  if (from >= to) {
    RefuseArgument("from", "less than 'to' " + std::to_string(to), std::to_string(from));
  }
  return [=] {
    const PhiloxState start = state();
    StorePieces(self, [&](int64_t count, int64_t first) {
      return IntegerValues(start, count, first).remainder_(to - from).add_(from);
    });
  };
}

// The integers that the dtype represents without gaps, from 0.
Plan RandomFullRange(const Tensor& self, StateSource state) {
  switch (self.dtype()) {
    case c10::ScalarType::Bool: return RandomIntegers(self, 0, 2, std::move(state));
    case c10::ScalarType::Byte: return RandomIntegers(self, 0, int64_t{1} << 8, std::move(state));
    case c10::ScalarType::Char: return RandomIntegers(self, 0, int64_t{1} << 7, std::move(state));
    case c10::ScalarType::Short: return RandomIntegers(self, 0, int64_t{1} << 15, std::move(state));
    case c10::ScalarType::Int: return RandomIntegers(self, 0, int64_t{1} << 31, std::move(state));
    case c10::ScalarType::BFloat16: return RandomIntegers(self, 0, (int64_t{1} << 8) + 1, std::move(state));
    case c10::ScalarType::Half: return RandomIntegers(self, 0, (int64_t{1} << 11) + 1, std::move(state));
    case c10::ScalarType::Float: return RandomIntegers(self, 0, (int64_t{1} << 24) + 1, std::move(state));
    case c10::ScalarType::Double: return RandomIntegers(self, 0, (int64_t{1} << 53) + 1, std::move(state));
    default: return RandomIntegers(self, 0, std::numeric_limits<int64_t>::max(), std::move(state));
  }
}

Plan Bernoulli(const Tensor& self, std::function<at::Tensor(const at::Tensor&)> happens, StateSource state) {
  RequireSimulated(self, kReals);
  return [=] { self.Store(happens(UniformValues(state(), self.numel()).view(self.sizes()))); };
}

// Indices drawn in proportion to the rows of `self`.
Plan Multinomial(const Tensor& self, int64_t samples, bool replacement, const Tensor& out, StateSource state) {
  RequireSimulated(self, kFloats | kDouble);
  RequireSimulated(out, {c10::ScalarType::Long});
  RequireRank(self, 1, 2);
  if (samples <= 0 || (!replacement && samples > self.size(-1))) {
    RefuseArgument("numsamples", "between 1 and the " + std::to_string(self.size(-1)) + " categories",
                   std::to_string(samples));
  }
  return [=] {
    const at::Tensor weights = at::Tensor(self).to(at::kDouble);
    if (weights.lt(0).any().item<bool>() || weights.isfinite().logical_not().any().item<bool>() ||
        weights.sum(-1).eq(0).any().item<bool>()) {
      throw Refusal("argument 'self': expected finite weights of at least 0 with a positive sum in each row");
    }
    if (replacement) {
      const at::Tensor totals = at::cumsum(weights, -1);
      std::vector<int64_t> shape = out.sizes().vec();
      const at::Tensor drawn = UniformValues(state(), out.numel()).view(shape).mul(totals.narrow(-1, totals.size(-1) - 1, 1));
      out.Store(at::searchsorted(totals, drawn, false, true));
      return;
    }
    // The smallest of exponential waiting times with these rates (Efraimidis and Spirakis, 2006).
    const at::Tensor waiting = UniformValues(state(), self.numel()).view(self.sizes()).neg().log1p().neg().div(weights);
    out.Store(std::get<1>(at::topk(waiting, samples, -1, false, true)));
  };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnInplaceNormal, (Tensor, selfRef), (Float, mean), (Float, std), (Int, seed), (Int, offset)) {
  return NormalNumbers(selfRef, mean, std, FromNumbers(seed, offset));
}
CANN_SIM_OPERATOR(aclnnInplaceNormalTensor, (Tensor, selfRef), (Float, mean), (Float, std), (Tensor, seedTensor),
                  (Tensor, offsetTensor), (Int, offset)) {
  return NormalNumbers(selfRef, mean, std, FromTensors(seedTensor, offsetTensor, offset));
}
CANN_SIM_OPERATOR(aclnnNormalFloatFloat, (Float, mean), (Float, std), (Int, seed), (Int, offset), (Tensor, out)) {
  return NormalNumbers(out, mean, std, FromNumbers(seed, offset));
}
CANN_SIM_OPERATOR(aclnnNormalTensorFloat, (Tensor, mean), (Float, std), (Int, seed), (Int, offset), (Tensor, out)) {
  RequireShape(out, mean.sizes());
  return Normal(out, [=](const at::Tensor& values) { return values.mul(std.value()).add(at::Tensor(mean)); },
                FromNumbers(seed, offset));
}
CANN_SIM_OPERATOR(aclnnNormalFloatTensor, (Float, mean), (Tensor, std), (Int, seed), (Int, offset), (Tensor, out)) {
  RequireShape(out, std.sizes());
  return Normal(out, [=](const at::Tensor& values) { return values.mul(at::Tensor(std)).add(mean.value()); },
                FromNumbers(seed, offset));
}
CANN_SIM_OPERATOR(aclnnNormalTensorTensor, (Tensor, mean), (Tensor, std), (Int, seed), (Int, offset), (Tensor, out)) {
  RequireBroadcast(out, {&mean, &std});
  return Normal(out, [=](const at::Tensor& values) { return values.mul(at::Tensor(std)).add(at::Tensor(mean)); },
                FromNumbers(seed, offset));
}
CANN_SIM_OPERATOR(aclnnInplaceUniform, (Tensor, selfRef), (Double, from), (Double, to), (Int, seed), (Int, offset)) {
  return Uniform(selfRef, from, to, FromNumbers(seed, offset));
}
CANN_SIM_OPERATOR(aclnnInplaceUniformTensor, (Tensor, selfRef), (Double, from), (Double, to), (Tensor, seedTensor),
                  (Tensor, offsetTensor), (Int, offset)) {
  return Uniform(selfRef, from, to, FromTensors(seedTensor, offsetTensor, offset));
}
CANN_SIM_OPERATOR(aclnnInplaceRandom, (Tensor, selfRef), (Int, from), (Int, to), (Int, seed), (Int, offset)) {
  return RandomIntegers(selfRef, from, to, FromNumbers(seed, offset));
}
CANN_SIM_OPERATOR(aclnnInplaceRandomTensor, (Tensor, selfRef), (Int, from), (Int, to), (Tensor, seedTensor),
                  (Tensor, offsetTensor), (Int, offset)) {
  return RandomIntegers(selfRef, from, to, FromTensors(seedTensor, offsetTensor, offset));
}
CANN_SIM_OPERATOR(aclnnInplaceRandomWithoutFromTo, (Tensor, selfRef), (Int, seed), (Int, offset)) {
  return RandomFullRange(selfRef, FromNumbers(seed, offset));
}
CANN_SIM_OPERATOR(aclnnInplaceRandomWithoutFromToTensor, (Tensor, selfRef), (Tensor, seedTensor), (Tensor, offsetTensor),
                  (Int, offset)) {
  return RandomFullRange(selfRef, FromTensors(seedTensor, offsetTensor, offset));
}
CANN_SIM_OPERATOR(aclnnInplaceBernoulli, (Tensor, selfRef), (Scalar, prob), (Int, seed), (Int, offset)) {
  return Bernoulli(selfRef, [=](const at::Tensor& values) { return at::lt(values, prob); }, FromNumbers(seed, offset));
}
CANN_SIM_OPERATOR(aclnnInplaceBernoulliTensor, (Tensor, selfRef), (Tensor, prob), (Int, seed), (Int, offset)) {
  RequireBroadcast(selfRef, {&selfRef, &prob});
  return Bernoulli(selfRef, [=](const at::Tensor& values) { return at::lt(values, at::Tensor(prob)); },
                   FromNumbers(seed, offset));
}
CANN_SIM_OPERATOR(aclnnMultinomial, (Tensor, self), (Int, numsamples), (Bool, replacement), (Int, seed), (Int, offset),
                  (Tensor, out)) {
  return Multinomial(self, numsamples, replacement, out, FromNumbers(seed, offset));
}
CANN_SIM_OPERATOR(aclnnMultinomialTensor, (Tensor, self), (Int, numsamples), (Bool, replacement), (Tensor, seedTensor),
                  (Tensor, offsetTensor), (Int, offset), (Tensor, out)) {
  return Multinomial(self, numsamples, replacement, out, FromTensors(seedTensor, offsetTensor, offset));
}
// The order of 64-bit random keys.
CANN_SIM_OPERATOR(aclnnRandperm, (Int, n), (Int, seed), (Int, offset), (Tensor, out)) {
  RequireSimulated(out, kReals);
  RequireShape(out, {n.value()});
  const StateSource state = FromNumbers(seed, offset);
  return [=] { out.Store(at::argsort(IntegerValues(state(), n), true, 0, false)); };
}

}  // namespace cann_sim::operators
