// Normalisations of the older road: float32 inside, rounded once.

#include <ATen/ops/native_layer_norm.h>

#include <tuple>

#include "compiled_operator.h"

namespace cann_sim::operators {

// Over the dimensions from begin_norm_axis on.
CANN_SIM_COMPILED_OPERATOR(LayerNormV3) {
  const Tensor x = call.Input(0, "x"), gamma = call.Input(1, "gamma"), beta = call.Input(2, "beta");
  const Tensor out = call.Output(0, "y"), mean = call.Output(1, "mean"), rstd = call.Output(2, "rstd");
  RequireDtype(x, kFloats);
  RequireSameDtype(out, x);
  RequireShape(out, x.sizes());
  const int64_t axis = WrapDim(call.Attribute<int64_t>("begin_norm_axis"), x.rank(), "begin_norm_axis");
  const double epsilon = call.Attribute<float>("epsilon");
  const std::vector<int64_t> normalized = x.sizes().slice(static_cast<size_t>(axis)).vec();
  RequireShape(gamma, normalized);
  RequireShape(beta, normalized);
  return [=] {
    const auto [result, average, scale] =
        at::native_layer_norm(x.Widened().contiguous(), normalized, gamma.Widened(), beta.Widened(), epsilon);
    out.Store(result);
    mean.Store(average.reshape(mean.sizes()));
    rstd.Store(scale.reshape(rstd.sizes()));
  };
}

}  // namespace cann_sim::operators
