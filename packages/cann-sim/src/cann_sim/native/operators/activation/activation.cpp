// Activation functions and softmax: computed in float32, rounded once.

#include <ATen/ops/celu.h>
#include <ATen/ops/chunk.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/hardshrink.h>
#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/hardtanh.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/softshrink.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/threshold.h>
#include <ATen/ops/where.h>

#include <functional>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

using Function = at::Tensor (*)(const at::Tensor&);

Plan Activate(Function function, const Tensor& self, const Tensor& out) {
  RequireSimulated(self, kReals);
  RequireShape(out, self.sizes());
  return [=] { out.Store(function(self.Widened())); };
}

void RequireFloatElementwise(const Tensor& self, const Tensor& out) {
  RequireSimulated(self, kFloats | kDouble);
  RequireShape(out, self.sizes());
}

}  // namespace

#define CANN_SIM_ACTIVATION(Name, function)                               \
  CANN_SIM_OPERATOR(aclnn##Name, (Tensor, self), (Tensor, out)) {         \
    return Activate(at::function, self, out);                             \
  }                                                                       \
  CANN_SIM_OPERATOR(aclnnInplace##Name, (Tensor, self)) {                 \
    return Activate(at::function, self, self);                            \
  }

CANN_SIM_ACTIVATION(Sigmoid, sigmoid)
CANN_SIM_ACTIVATION(Tanh, tanh)
CANN_SIM_ACTIVATION(Hardswish, hardswish)
CANN_SIM_ACTIVATION(Hardsigmoid, hardsigmoid)
CANN_SIM_ACTIVATION(Mish, mish)

CANN_SIM_OPERATOR(aclnnSilu, (Tensor, self), (Tensor, out)) {
  RequireFloatElementwise(self, out);
  return Activate(at::silu, self, out);
}

CANN_SIM_OPERATOR(aclnnRelu, (Tensor, self), (Tensor, out)) {
  RequireSimulated(self, kFloats | kDouble | kIntegers);
  RequireShape(out, self.sizes());
  return [=] { out.Store(at::relu(self)); };
}

CANN_SIM_OPERATOR(aclnnInplaceRelu, (Tensor, self)) {
  RequireSimulated(self, kFloats | kDouble | kIntegers);
  return [=] { self.Store(at::relu(self)); };
}

// The tanh form: of the error function there is only V2.
CANN_SIM_OPERATOR(aclnnGelu, (Tensor, self), (Tensor, out)) {
  RequireFloatElementwise(self, out);
  return [=] { out.Store(at::gelu(self.Widened(), "tanh")); };
}

// approximate: 0 the error function, 1 the tanh form.
CANN_SIM_OPERATOR(aclnnGeluV2, (Tensor, self), (Int, approximate), (Tensor, out)) {
  RequireFloatElementwise(self, out);
  if (approximate != 0 && approximate != 1) {
    RefuseArgument(approximate.name(), "0 (none) or 1 (tanh)", std::to_string(approximate));
  }
  const char* form = approximate == 1 ? "tanh" : "none";
  return [=] { out.Store(at::gelu(self.Widened(), form)); };
}

// x * sigmoid(1.702 * x)
CANN_SIM_OPERATOR(aclnnFastGelu, (Tensor, self), (Tensor, out)) {
  RequireFloatElementwise(self, out);
  return [=] {
    const at::Tensor wide = self.Widened();
    out.Store(at::mul(wide, at::sigmoid(at::mul(wide, 1.702))));
  };
}

namespace {

using ScalarFunction = std::function<at::Tensor(const at::Tensor&)>;

Plan ActivateFloats(ScalarFunction function, const Tensor& self, const Tensor& out) {
  RequireFloatElementwise(self, out);
  return [=] { out.Store(function(self.Widened())); };
}

Plan LeakyRelu(const Tensor& self, const c10::Scalar& slope, const Tensor& out) {
  return ActivateFloats([=](const at::Tensor& x) { return at::leaky_relu(x, slope); }, self, out);
}

Plan Elu(const Tensor& self, const c10::Scalar& alpha, const c10::Scalar& scale, const c10::Scalar& input_scale,
         const Tensor& out) {
  return ActivateFloats([=](const at::Tensor& x) { return at::elu(x, alpha, scale, input_scale); }, self, out);
}

Plan Celu(const Tensor& self, const c10::Scalar& alpha, const Tensor& out) {
  if (alpha.toDouble() == 0.0) {
    RefuseArgument("alpha", "a number other than 0", "0");
  }
  return ActivateFloats([=](const at::Tensor& x) { return at::celu(x, alpha); }, self, out);
}

// Exact, and on integers as well.
Plan Hardtanh(const Tensor& self, const c10::Scalar& least, const c10::Scalar& most, const Tensor& out) {
  RequireSimulated(self, kFloats | kDouble | kIntegers);
  RequireShape(out, self.sizes());
  return [=] { out.Store(at::hardtanh(self, least, most)); };
}

Plan Threshold(const Tensor& self, const c10::Scalar& threshold, const c10::Scalar& value, const Tensor& out) {
  RequireSimulated(self, kFloats | kIntegers);
  RequireShape(out, self.sizes());
  return [=] { out.Store(at::threshold(self, threshold, value)); };
}

}  // namespace

CANN_SIM_OPERATOR(aclnnLeakyRelu, (Tensor, self), (Scalar, negativeSlope), (Tensor, out)) {
  return LeakyRelu(self, negativeSlope, out);
}
CANN_SIM_OPERATOR(aclnnInplaceLeakyRelu, (Tensor, selfRef), (Scalar, negativeSlope)) {
  return LeakyRelu(selfRef, negativeSlope, selfRef);
}
CANN_SIM_OPERATOR(aclnnElu, (Tensor, self), (Scalar, alpha), (Scalar, scale), (Scalar, inputScale), (Tensor, out)) {
  return Elu(self, alpha, scale, inputScale, out);
}
CANN_SIM_OPERATOR(aclnnInplaceElu, (Tensor, selfRef), (Scalar, alpha), (Scalar, scale), (Scalar, inputScale)) {
  return Elu(selfRef, alpha, scale, inputScale, selfRef);
}
CANN_SIM_OPERATOR(aclnnCelu, (Tensor, self), (Scalar, alpha), (Tensor, out)) { return Celu(self, alpha, out); }
CANN_SIM_OPERATOR(aclnnInplaceCelu, (Tensor, selfRef), (Scalar, alpha)) { return Celu(selfRef, alpha, selfRef); }
CANN_SIM_OPERATOR(aclnnSoftplus, (Tensor, self), (Scalar, beta), (Scalar, threshold), (Tensor, out)) {
  const c10::Scalar slope = beta;
  const c10::Scalar linear_above = threshold;
  return ActivateFloats([=](const at::Tensor& x) { return at::softplus(x, slope, linear_above); }, self, out);
}
CANN_SIM_OPERATOR(aclnnHardtanh, (Tensor, self), (Scalar, minVal), (Scalar, maxVal), (Tensor, out)) {
  return Hardtanh(self, minVal, maxVal, out);
}
CANN_SIM_OPERATOR(aclnnInplaceHardtanh, (Tensor, selfRef), (Scalar, minVal), (Scalar, maxVal)) {
  return Hardtanh(selfRef, minVal, maxVal, selfRef);
}
CANN_SIM_OPERATOR(aclnnThreshold, (Tensor, self), (Scalar, threshold), (Scalar, value), (Tensor, out)) {
  return Threshold(self, threshold, value, out);
}
CANN_SIM_OPERATOR(aclnnInplaceThreshold, (Tensor, selfRef), (Scalar, threshold), (Scalar, value)) {
  return Threshold(selfRef, threshold, value, selfRef);
}
CANN_SIM_OPERATOR(aclnnHardshrink, (Tensor, self), (Scalar, lambd), (Tensor, out)) {
  const c10::Scalar bound = lambd;
  return ActivateFloats([=](const at::Tensor& x) { return at::hardshrink(x, bound); }, self, out);
}
CANN_SIM_OPERATOR(aclnnSoftshrink, (Tensor, self), (Scalar, lambd), (Tensor, out)) {
  const c10::Scalar bound = lambd;
  return ActivateFloats([=](const at::Tensor& x) { return at::softshrink(x, bound); }, self, out);
}
CANN_SIM_OPERATOR(aclnnLogSigmoid, (Tensor, self), (Tensor, out)) { return ActivateFloats(at::log_sigmoid, self, out); }
// `buffer` is scratch memory of the device's kernel.
CANN_SIM_OPERATOR(aclnnLogSigmoidForward, (Tensor, self), (Tensor, out), (Tensor, buffer)) {
  return ActivateFloats(at::log_sigmoid, self, out);
}
CANN_SIM_OPERATOR(aclnnPrelu, (Tensor, self), (Tensor, weight), (Tensor, out)) {
  RequireFloatElementwise(self, out);
  RequireSameDtype(weight, self);
  return [=] {
    const at::Tensor x = self.Widened();
    out.Store(at::where(x.gt(0), x, at::mul(x, weight.Widened())));
  };
}

CANN_SIM_OPERATOR(aclnnSoftmax, (Tensor, self), (Int, dim), (Tensor, out)) {
  RequireFloatElementwise(self, out);
  WrapDim(dim, self.rank());
  return [=] { out.Store(at::softmax(self.Widened(), dim)); };
}

CANN_SIM_OPERATOR(aclnnLogSoftmax, (Tensor, self), (Int, dim), (Tensor, out)) {
  RequireFloatElementwise(self, out);
  WrapDim(dim, self.rank());
  return [=] { out.Store(at::log_softmax(self.Widened(), dim)); };
}

// The first half along `dim` times the sigmoid of the second half.
CANN_SIM_OPERATOR(aclnnGlu, (Tensor, self), (Int, dim), (Tensor, out)) {
  RequireSimulated(self, kFloats | kDouble);
  WrapDim(dim, self.rank());
  return [=] {
    const std::vector<at::Tensor> halves = at::chunk(self.Widened(), 2, dim);
    out.Store(at::mul(halves[0], at::sigmoid(halves[1])));
  };
}

// The first half along `dim` through silu, times the second half.
CANN_SIM_OPERATOR(aclnnSwiGlu, (Tensor, x), (Int, dim), (Tensor, out)) {
  RequireSimulated(x, kFloats);
  RequireSameDtype(out, x);
  const int64_t axis = WrapDim(dim, x.rank());
  if (x.rank() == 0 || x.size(static_cast<int>(axis)) % 2 != 0) {
    RefuseArgument(x.name(), "an even size of dimension " + std::to_string(axis), "shape " + Describe(x.sizes()));
  }
  std::vector<int64_t> expected = x.sizes().vec();
  expected[static_cast<size_t>(axis)] /= 2;
  RequireShape(out, expected);
  return [=] {
    const std::vector<at::Tensor> halves = at::chunk(x.Widened(), 2, axis);
    out.Store(at::mul(at::silu(halves[0]), halves[1]));
  };
}

}  // namespace cann_sim::operators
