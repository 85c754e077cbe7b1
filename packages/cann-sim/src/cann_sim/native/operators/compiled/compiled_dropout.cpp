// Dropout of the older road, whose masks have a byte for each value; and memory for the flags of overflow.

#include <ATen/ops/softmax.h>

#include <functional>
#include <numeric>

#include "../random/philox.h"
#include "compiled_operator.h"

namespace cann_sim::operators {

namespace {

double KeepProbability(double value, const char* name) {
  if (!(value > 0.0 && value <= 1.0)) {
    RefuseArgument(name, "a probability in (0, 1]", std::to_string(value));
  }
  return value;
}

at::Tensor Kept(const at::Tensor& values, const Tensor& mask, double keep) {
  return values.mul(at::Tensor(mask).view(values.sizes())).div(keep);
}

void RequireMask(const Tensor& mask, const Tensor& values) {
  RequireDtype(mask, {c10::ScalarType::Byte});
  if (mask.numel() != values.numel()) {
    RefuseArgument(mask.name(), "a byte for each of " + std::to_string(values.numel()) + " values", Describe(mask.sizes()));
  }
}

int64_t OneAxis(const std::vector<int64_t>& axes) {
  if (axes.size() != 1) {
    RefuseArgument("axis", "one axis", Describe(axes));
  }
  return axes[0];
}

}  // namespace

// 1 with probability `prob`, 0 otherwise.
CANN_SIM_COMPILED_OPERATOR(DropOutGenMaskV3) {
  const Tensor out = call.Output(0, "y");
  RequireDtype(out, {c10::ScalarType::Byte});
  const std::vector<int64_t> shape = call.HostIntegers(0, "shape");
  const int64_t values = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  if (out.numel() != values) {
    RefuseArgument(out.name(), "a byte for each of " + std::to_string(values) + " values", Describe(out.sizes()));
  }
  const double keep = call.HostInput(1, "prob").item<double>();
  const PhiloxState state{static_cast<uint64_t>(call.Attribute<int64_t>("seed", 0)),
                          static_cast<uint64_t>(call.Attribute<int64_t>("seed2", 0))};
  return [=] { out.Store(UniformValues(state, out.numel()).lt(keep).view(out.sizes())); };
}

CANN_SIM_COMPILED_OPERATOR(DropOutDoMaskV3) {
  const Tensor x = call.Input(0, "x"), mask = call.Input(1, "mask"), out = call.Output(0, "y");
  RequireDtype(x, kFloats);
  RequireMask(mask, x);
  const double keep = KeepProbability(call.HostInput(2, "keep_prob").item<double>(), "keep_prob");
  return [=] { out.Store(Kept(x.Widened(), mask, keep)); };
}

// softmax(x1 + alpha * x2), and that after dropout.
CANN_SIM_COMPILED_OPERATOR(AxpyWithSoftmaxAndDropOutDoMask) {
  const Tensor x1 = call.Input(0, "x1"), x2 = call.Input(1, "x2"), mask = call.Input(2, "mask");
  const Tensor softmax = call.Output(0, "y1"), dropped = call.Output(1, "y2");
  RequireDtype(x1, kFloats);
  RequireSameDtype(x2, x1);
  RequireMask(mask, softmax);
  const double alpha = call.Attribute<float>("alpha");
  const double keep = KeepProbability(call.Attribute<float>("input_keep_prob"), "input_keep_prob");
  const int64_t axis = OneAxis(call.Attribute<std::vector<int64_t>>("axis", {-1}));
  return [=] {
    const at::Tensor weights = at::softmax(x1.Widened().add(x2.Widened(), alpha), axis);
    softmax.Store(weights);
    dropped.Store(Kept(weights, mask, keep));
  };
}

// The gradient of dropout, then of softmax, times alpha.
CANN_SIM_COMPILED_OPERATOR(DropoutWithMulsAndSoftmaxGrad) {
  const Tensor grad = call.Input(0, "y_grad"), mask = call.Input(1, "mask"), softmax = call.Input(2, "softmax_output");
  const Tensor out = call.Output(0, "x_grad");
  RequireDtype(grad, kFloats);
  RequireMask(mask, grad);
  RequireShape(softmax, grad.sizes());
  const double alpha = call.Attribute<float>("alpha");
  const double keep = KeepProbability(call.Attribute<float>("input_keep_prob"), "input_keep_prob");
  const int64_t axis = OneAxis(call.Attribute<std::vector<int64_t>>("axes", {-1}));
  return [=] {
    const at::Tensor weights = softmax.Widened();
    const at::Tensor product = Kept(grad.Widened(), mask, keep).mul(weights);
    out.Store(product.sub(weights.mul(product.sum(axis, true))).mul(alpha));
  };
}

// Nothing has overflowed yet. Reading the flags is not simulated.
CANN_SIM_COMPILED_OPERATOR(NPUAllocFloatStatus) {
  const Tensor out = call.Output(0, "data");
  return [=] { at::Tensor(out).zero_(); };
}

}  // namespace cann_sim::operators
