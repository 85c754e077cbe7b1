// Activation functions, softmax and normalisations of the older road, in float32, rounded once.

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/mish_backward.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/softmax.h>

#include "compiled_operator.h"

namespace cann_sim::operators {

CANN_SIM_COMPILED_OPERATOR(Mish) {
  const Tensor x = call.Input(0, "x"), out = call.Output(0, "y");
  RequireDtype(x, kFloats);
  return [=] { out.Store(at::mish(x.Widened())); };
}

CANN_SIM_COMPILED_OPERATOR(MishGrad) {
  const Tensor grad = call.Input(0, "grad"), x = call.Input(1, "x"), out = call.Output(0, "x_grad");
  RequireDtype(x, kFloats);
  return [=] { out.Store(at::mish_backward(grad.Widened(), x.Widened())); };
}

// x * sigmoid(scale * x)
CANN_SIM_COMPILED_OPERATOR(Swish) {
  const Tensor x = call.Input(0, "x"), out = call.Output(0, "y");
  RequireDtype(x, kFloats);
  const float scale = call.Attribute<float>("scale", 1);
  return [=] {
    const at::Tensor wide = x.Widened();
    out.Store(wide.mul(at::sigmoid(wide.mul(scale))));
  };
}

CANN_SIM_COMPILED_OPERATOR(SwishGrad) {
  const Tensor grad = call.Input(0, "grad"), x = call.Input(1, "x"), out = call.Output(0, "grad_x");
  RequireDtype(x, kFloats);
  return [=] { out.Store(at::silu_backward(grad.Widened(), x.Widened())); };
}

// The cross entropy of each row with its distribution of labels, and its gradient: softmax less labels.
CANN_SIM_COMPILED_OPERATOR(SoftmaxCrossEntropyWithLogits) {
  const Tensor features = call.Input(0, "features"), labels = call.Input(1, "labels");
  const Tensor loss = call.Output(0, "loss"), backprop = call.Output(1, "backprop");
  RequireDtype(features, kFloats);
  RequireSameDtype(labels, features);
  RequireRank(features, 2, 2);
  RequireShape(labels, features.sizes());
  return [=] {
    const at::Tensor logits = features.Widened(), weights = labels.Widened();
    loss.Store(weights.mul(at::log_softmax(logits, 1)).sum(1).neg().view(loss.sizes()));
    backprop.Store(at::softmax(logits, 1).sub(weights));
  };
}

// Less the mean, by the standard deviation (of n - 1) plus epsilon, over the first seq_len values of each row or batch entry.
CANN_SIM_COMPILED_OPERATOR(NormalizeBatch) {
  const Tensor x = call.Input(0, "input_x"), lengths = call.Input(1, "seq_len"), out = call.Output(0, "output_y");
  RequireDtype(x, kFloats);
  RequireRank(x, 3, 3);
  const auto kind = call.Attribute<std::string>("normalize_type");
  const double epsilon = call.Attribute<float>("epsilon", 1e-5F);
  const bool by_row = kind == "per_feature";
  if (!by_row && kind != "all_features") {
    RefuseArgument("normalize_type", "'per_feature' or 'all_features'", "'" + kind + "'");
  }
  return [=] {
    at::Tensor wide = x.Widened().clone();
    const at::Tensor counts = at::Tensor(lengths).to(at::kLong);
    for (int64_t entry = 0; entry < wide.size(0); ++entry) {
      at::Tensor rows = by_row ? wide[entry] : wide[entry].unsqueeze(0);
      const at::Tensor valid = wide[entry].narrow(1, 0, counts[entry].item<int64_t>());
      const at::Tensor used = by_row ? valid : valid.reshape({1, -1});
      const at::Tensor mean = used.mean(1), deviation = used.std(1, /*unbiased=*/true).add(epsilon);
      const std::vector<int64_t> shape = by_row ? std::vector<int64_t>{-1, 1} : std::vector<int64_t>{1, 1, 1};
      rows.copy_(rows.sub(mean.view(shape)).div(deviation.view(shape)));
    }
    out.Store(wide);
  };
}

}  // namespace cann_sim::operators
