// Gradients of activations and softmax: computed in float32, rounded once.

#include <ATen/ops/cat.h>
#include <ATen/ops/chunk.h>
#include <ATen/ops/elu_backward.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/glu_backward.h>
#include <ATen/ops/hardshrink_backward.h>
#include <ATen/ops/hardsigmoid_backward.h>
#include <ATen/ops/hardswish_backward.h>
#include <ATen/ops/hardtanh_backward.h>
#include <ATen/ops/leaky_relu_backward.h>
#include <ATen/ops/log_sigmoid_backward.h>
#include <ATen/ops/logit_backward.h>
#include <ATen/ops/mish_backward.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/softplus_backward.h>
#include <ATen/ops/softshrink_backward.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <ATen/ops/where.h>

#include <functional>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

using Gradient = std::function<at::Tensor(const at::Tensor& grad, const at::Tensor& value)>;

// f(gradOutput, value), of the broadcast shape of both.
Plan Backward(Gradient gradient, const Tensor& grad, const Tensor& value, const Tensor& out) {
  RequireSimulated(grad, kFloats | kDouble);
  RequireSimulated(value, kFloats | kDouble);
  RequireBroadcast(out, {&grad, &value});
  return [=] { out.Store(gradient(grad.Widened(), value.Widened())); };
}

const char* GeluForm(const Text& approximate) {
  if (approximate.value() == "tanh") {
    return "tanh";
  }
  if (approximate.value() != "none") {
    RefuseArgument(approximate.name(), "'none' or 'tanh'", "'" + approximate.value() + "'");
  }
  return "none";
}

// y * (grad - sum(grad * y)), y the result of softmax.
at::Tensor SoftmaxGradient(const at::Tensor& grad, const at::Tensor& output, int64_t dim) {
  const at::Tensor product = at::mul(grad, output);
  return at::sub(product, at::mul(output, product.sum(dim, true)));
}

}  // namespace

#define CANN_SIM_BACKWARD(Name, function)                                                    \
  CANN_SIM_OPERATOR(aclnn##Name, (Tensor, gradOutput), (Tensor, self), (Tensor, gradInput)) { \
    return Backward([](const at::Tensor& grad, const at::Tensor& value) { return at::function(grad, value); }, \
                    gradOutput, self, gradInput);                                            \
  }

CANN_SIM_BACKWARD(HardsigmoidBackward, hardsigmoid_backward)
CANN_SIM_BACKWARD(HardswishBackward, hardswish_backward)
CANN_SIM_BACKWARD(HardswishBackwardV2, hardswish_backward)
CANN_SIM_BACKWARD(MishBackward, mish_backward)
CANN_SIM_BACKWARD(SigmoidBackward, sigmoid_backward)
CANN_SIM_BACKWARD(SiluBackward, silu_backward)
CANN_SIM_BACKWARD(TanhBackward, tanh_backward)

// Of the tanh form, as aclnnGelu.
CANN_SIM_OPERATOR(aclnnGeluBackward, (Tensor, gradOutput), (Tensor, self), (Tensor, gradInput)) {
  return Backward([](const at::Tensor& grad, const at::Tensor& x) { return at::gelu_backward(grad, x, "tanh"); },
                  gradOutput, self, gradInput);
}

CANN_SIM_OPERATOR(aclnnGeluBackwardV2, (Tensor, gradOutput), (Tensor, self), (Text, approximate), (Tensor, gradInput)) {
  const char* form = GeluForm(approximate);
  return Backward([=](const at::Tensor& grad, const at::Tensor& x) { return at::gelu_backward(grad, x, form); },
                  gradOutput, self, gradInput);
}

// Of x * sigmoid(1.702 * x).
CANN_SIM_OPERATOR(aclnnFastGeluBackward, (Tensor, gradOutput), (Tensor, self), (Tensor, gradInput)) {
  return Backward(
      [](const at::Tensor& grad, const at::Tensor& x) {
        const at::Tensor gate = at::sigmoid(at::mul(x, 1.702));
        return at::mul(grad, at::mul(gate, at::mul(at::mul(x, 1.702), gate.neg().add(1)).add(1)));
      },
      gradOutput, self, gradInput);
}

#define CANN_SIM_BACKWARD_WITH_SCALAR(Name, function, scalar)                                                     \
  CANN_SIM_OPERATOR(aclnn##Name, (Tensor, gradOutput), (Tensor, self), (Scalar, scalar), (Tensor, gradInput)) {   \
    const c10::Scalar value = scalar;                                                                             \
    return Backward([=](const at::Tensor& grad, const at::Tensor& x) { return at::function(grad, x, value); },    \
                    gradOutput, self, gradInput);                                                                 \
  }

CANN_SIM_BACKWARD_WITH_SCALAR(HardshrinkBackward, hardshrink_backward, lambd)
CANN_SIM_BACKWARD_WITH_SCALAR(SoftshrinkBackward, softshrink_backward, lambd)
CANN_SIM_BACKWARD_WITH_SCALAR(ThresholdBackward, threshold_backward, threshold)

CANN_SIM_OPERATOR(aclnnHardtanhBackward, (Tensor, gradOutput), (Tensor, self), (Scalar, min), (Scalar, max),
                  (Tensor, gradInput)) {
  const c10::Scalar least = min;
  const c10::Scalar most = max;
  return Backward(
      [=](const at::Tensor& grad, const at::Tensor& x) { return at::hardtanh_backward(grad, x, least, most); },
      gradOutput, self, gradInput);
}

CANN_SIM_OPERATOR(aclnnLeakyReluBackward, (Tensor, gradOutput), (Tensor, self), (Scalar, negativeSlope),
                  (Bool, selfIsResult), (Tensor, gradInput)) {
  const c10::Scalar slope = negativeSlope;
  return Backward(
      [=](const at::Tensor& grad, const at::Tensor& x) {
        return at::leaky_relu_backward(grad, x, slope, selfIsResult);
      },
      gradOutput, self, gradInput);
}

CANN_SIM_OPERATOR(aclnnEluBackward, (Tensor, gradOutput), (Scalar, alpha), (Scalar, scale), (Scalar, inputScale),
                  (Bool, isResult), (Tensor, selfOrResult), (Tensor, gradInput)) {
  const c10::Scalar negative = alpha;
  const c10::Scalar factor = scale;
  const c10::Scalar input_factor = inputScale;
  return Backward(
      [=](const at::Tensor& grad, const at::Tensor& x) {
        return at::elu_backward(grad, negative, factor, input_factor, isResult, x);
      },
      gradOutput, selfOrResult, gradInput);
}

CANN_SIM_OPERATOR(aclnnSoftplusBackward, (Tensor, gradOutput), (Tensor, self), (Scalar, beta), (Scalar, threshold),
                  (Tensor, gradInput)) {
  const c10::Scalar slope = beta;
  const c10::Scalar linear_above = threshold;
  return Backward(
      [=](const at::Tensor& grad, const at::Tensor& x) {
        return at::softplus_backward(grad, x, slope, linear_above);
      },
      gradOutput, self, gradInput);
}

// `buffer` is what the device's forward kernel left; the CPU's needs none.
CANN_SIM_OPERATOR(aclnnLogSigmoidBackward, (Tensor, gradOutput), (Tensor, self), (Tensor, buffer), (Tensor, gradInput)) {
  return Backward([](const at::Tensor& grad, const at::Tensor& x) { return at::mul(grad, at::sigmoid(x.neg())); },
                  gradOutput, self, gradInput);
}

CANN_SIM_OPERATOR(aclnnLogitGrad, (Tensor, self), (Tensor, gradOutput), (Double, eps), (Tensor, gradInput)) {
  const std::optional<double> bound = eps < 0 ? std::nullopt : std::optional<double>(eps);
  return Backward([=](const at::Tensor& grad, const at::Tensor& x) { return at::logit_backward(grad, x, bound); },
                  gradOutput, self, gradInput);
}

CANN_SIM_OPERATOR(aclnnGluBackward, (Tensor, gradOut), (Tensor, self), (Int, dim), (Tensor, out)) {
  RequireSimulated(self, kFloats | kDouble);
  RequireShape(out, self.sizes());
  WrapDim(dim, self.rank());
  return [=] { out.Store(at::glu_backward(gradOut.Widened(), self.Widened(), dim)); };
}

CANN_SIM_OPERATOR(aclnnPreluBackward, (Tensor, gradOutput), (Tensor, self), (Tensor, weight), (Tensor, gradInput),
                  (Tensor, gradWeight)) {
  RequireSimulated(self, kFloats);
  RequireShape(gradInput, self.sizes());
  // One slope for all values, or one for each channel.
  if (weight.numel() != 1 && (self.rank() < 2 || weight.numel() != self.size(1))) {
    RefuseArgument(weight.name(), "one value, or one for each channel of '" + std::string(self.name()) + "'",
                   "shape " + Describe(weight.sizes()));
  }
  return [=] {
    const at::Tensor grad = gradOutput.Widened();
    const at::Tensor x = self.Widened();
    const at::Tensor positive = x.gt(0);
    std::vector<int64_t> over_channels(static_cast<size_t>(self.rank()), 1);
    if (weight.numel() != 1) {
      over_channels[1] = weight.numel();
    }
    const at::Tensor slopes = weight.Widened().reshape(over_channels);
    gradInput.Store(at::where(positive, grad, at::mul(grad, slopes)));
    const at::Tensor share = at::mul(x, grad).masked_fill(positive, 0);
    if (gradWeight.numel() == 1) {
      gradWeight.Store(share.sum().reshape(gradWeight.sizes()));
      return;
    }
    std::vector<int64_t> summed;
    for (int64_t axis = 0; axis < x.dim(); ++axis) {
      if (axis != 1) {
        summed.push_back(axis);
      }
    }
    gradWeight.Store(share.sum(summed).reshape(gradWeight.sizes()));
  };
}

CANN_SIM_OPERATOR(aclnnSoftmaxBackward, (Tensor, gradOutput), (Tensor, output), (Int, dim), (Tensor, gradInput)) {
  WrapDim(dim, output.rank());
  return Backward([=](const at::Tensor& grad, const at::Tensor& y) { return SoftmaxGradient(grad, y, dim); },
                  gradOutput, output, gradInput);
}

// grad - exp(y) * sum(grad), y the result of log-softmax.
CANN_SIM_OPERATOR(aclnnLogSoftmaxBackward, (Tensor, gradOutput), (Tensor, output), (Int, dim), (Tensor, gradInput)) {
  WrapDim(dim, output.rank());
  return Backward(
      [=](const at::Tensor& grad, const at::Tensor& y) { return at::sub(grad, at::mul(y.exp(), grad.sum(dim.value(), true))); },
      gradOutput, output, gradInput);
}

CANN_SIM_OPERATOR(aclnnGeGluV3Backward, (Tensor, gradOutput), (Tensor, self), (Tensor, gelu), (Int, dim),
                  (Int, approximate), (Bool, activateLeft), (Tensor, gradInput)) {
  RequireSimulated(self, kFloats);
  RequireShape(gradInput, self.sizes());
  WrapDim(dim, self.rank());
  const char* form = approximate == 1 ? "tanh" : "none";
  return [=] {
    const std::vector<at::Tensor> halves = at::chunk(self.Widened(), 2, dim);
    const at::Tensor& activated = halves[activateLeft ? 0 : 1];
    const at::Tensor& factor = halves[activateLeft ? 1 : 0];
    const at::Tensor grad = gradOutput.Widened();
    const at::Tensor inner = at::gelu_backward(at::mul(grad, factor), activated, form);
    const at::Tensor outer = at::mul(grad, gelu.Widened());
    gradInput.Store(activateLeft ? at::cat({inner, outer}, dim) : at::cat({outer, inner}, dim));
  };
}

}  // namespace cann_sim::operators
