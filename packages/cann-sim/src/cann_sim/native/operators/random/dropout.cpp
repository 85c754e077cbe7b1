// Dropout, and functions of random numbers that are neither plain distributions nor sampling. The numbers are
// counter-based (philox.h): equal seeds and offsets give equal values; they are not the device's numbers.

#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "../interface/operator.h"
#include "state_source.h"

namespace cann_sim::operators {

namespace {

constexpr int64_t kBitsOfByte = 8;
// A mask is written in pieces of this many bits.
constexpr int64_t kMaskPiece = 128;

void RequireProbability(const Double& probability) {
  if (!(probability >= 0.0 && probability <= 1.0)) {
    RefuseArgument(probability.name(), "a probability in [0, 1]", std::to_string(probability));
  }
}

int64_t Product(const IntArray& shape) {
  int64_t count = 1;
  for (const int64_t size : shape.values()) {
    count *= size;
  }
  return count;
}

// A bit for each value, lowest first, set where it is kept: where aclnnInplaceBernoulli of the same state gives 1.
Plan GenerateMask(const IntArray& shape, const Double& probability, StateSource state, const Tensor& out) {
  RequireProbability(probability);
  RequireSimulated(out, {c10::ScalarType::Byte});
  RequireContiguous(out);
  const int64_t count = Product(shape);
  const int64_t bytes = (count + kMaskPiece - 1) / kMaskPiece * kMaskPiece / kBitsOfByte;
  if (out.numel() < bytes) {
    RefuseArgument(out.name(), "at least " + std::to_string(bytes) + " bytes", std::to_string(out.numel()));
  }
  return [=] {
    const at::Tensor kept = UniformValues(state(), count).lt(1 - probability.value()).contiguous();
    const bool* keep = kept.const_data_ptr<bool>();
    const at::Tensor packed = at::zeros({out.numel()}, at::kByte);
    auto* bytes_of = packed.mutable_data_ptr<uint8_t>();
    for (int64_t index = 0; index < count; ++index) {
      bytes_of[index / kBitsOfByte] |= static_cast<uint8_t>(keep[index] ? 1U << (index % kBitsOfByte) : 0U);
    }
    out.Store(packed.view(out.sizes()));
  };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnDropoutGenMask, (IntArray, shape), (Double, prob), (Int, seed), (Int, offset), (Tensor, out)) {
  return GenerateMask(shape, prob, FromNumbers(seed, offset), out);
}
CANN_SIM_OPERATOR(aclnnDropoutGenMaskV2, (IntArray, shape), (Double, prob), (Int, seed), (Int, offset),
                  (DataType, probDataType), (Tensor, out)) {
  return GenerateMask(shape, prob, FromNumbers(seed, offset), out);
}
CANN_SIM_OPERATOR(aclnnDropoutGenMaskV2Tensor, (IntArray, shape), (Double, prob), (Tensor, seedTensor),
                  (Tensor, offsetTensor), (Int, offset), (DataType, probDataType), (Tensor, out)) {
  return GenerateMask(shape, prob, FromTensors(seedTensor, offsetTensor, offset), out);
}

// Values whose bit is set, divided by 1 - prob; 0 elsewhere.
CANN_SIM_OPERATOR(aclnnDropoutDoMask, (Tensor, self), (Tensor, mask), (Double, prob), (Tensor, out)) {
  RequireSimulated(self, kFloats);
  RequireSameDtype(out, self);
  RequireShape(out, self.sizes());
  RequireSimulated(mask, {c10::ScalarType::Byte});
  RequireProbability(prob);
  if (mask.numel() * kBitsOfByte < self.numel()) {
    RefuseArgument(mask.name(), "a bit for each of " + std::to_string(self.numel()) + " values",
                   std::to_string(mask.numel()) + " bytes");
  }
  return [=] {
    const at::Tensor packed = at::Tensor(mask).contiguous();
    const auto* bytes = packed.const_data_ptr<uint8_t>();
    const at::Tensor kept = at::zeros({self.numel()}, at::kBool);
    bool* keep = kept.mutable_data_ptr<bool>();
    for (int64_t index = 0; index < self.numel(); ++index) {
      keep[index] = (bytes[index / kBitsOfByte] >> (index % kBitsOfByte)) & 1U;
    }
    const double scale = prob < 1.0 ? 1.0 / (1.0 - prob) : 0.0;
    out.Store(at::where(kept.view(self.sizes()), at::mul(self.Widened(), scale), at::Scalar(0)));
  };
}

// Exponential values of rate `lambd`, of the inverse of the distribution function.
CANN_SIM_OPERATOR(aclnnSimThreadExponential, (Tensor, selfRef), (Int, count), (Double, lambd), (Int, seed),
                  (Int, offset)) {
  RequireSimulated(selfRef, kFloats);
  if (!(lambd > 0.0)) {
    RefuseArgument(lambd.name(), "a rate above 0", std::to_string(lambd));
  }
  const StateSource state = FromNumbers(seed, offset);
  return [=] {
    const at::Tensor uniform = UniformValues(state(), selfRef.numel()).view(selfRef.sizes());
    selfRef.Store(at::log1p(uniform.neg()).mul(-1.0 / lambd));
  };
}

namespace {

// In training negative values are multiplied by numbers of [lower, upper), which `noise` keeps; otherwise by their middle.
Plan RandomLeakyRelu(const Tensor& self, const Tensor& noise, const Scalar& lower, const Scalar& upper, bool training,
                     StateSource state, const Tensor& out) {
  RequireSimulated(self, kFloats);
  RequireShape(out, self.sizes());
  const double least = lower.value().toDouble();
  const double most = upper.value().toDouble();
  if (least > most) {
    RefuseArgument(lower.name(), "at most 'upper' " + std::to_string(most), std::to_string(least));
  }
  if (!training) {
    return [=] { out.Store(at::leaky_relu(self.Widened(), (least + most) / 2)); };
  }
  RequireShape(noise, self.sizes());
  return [=] {
    const at::Tensor values = self.Widened();
    const at::Tensor drawn = UniformValues(state(), self.numel()).view(self.sizes()).mul(most - least).add(least);
    noise.Store(at::where(values.le(0), drawn, at::Scalar(1)));
    out.Store(at::mul(values, noise.Widened()));
  };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnRReluWithNoise, (Tensor, self), (Tensor, noise), (Scalar, lower), (Scalar, upper), (Bool, training),
                  (Int, seed), (Int, offset), (Tensor, out)) {
  return RandomLeakyRelu(self, noise, lower, upper, training, FromNumbers(seed, offset), out);
}
CANN_SIM_OPERATOR(aclnnInplaceRReluWithNoise, (Tensor, selfRef), (Tensor, noise), (Scalar, lower), (Scalar, upper),
                  (Bool, training), (Int, seed), (Int, offset)) {
  return RandomLeakyRelu(selfRef, noise, lower, upper, training, FromNumbers(seed, offset), selfRef);
}

}  // namespace cann_sim::operators
