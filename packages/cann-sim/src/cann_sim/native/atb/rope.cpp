// Rope: rotary position embedding of packed queries and keys, in place.

#include <ATen/ops/cat.h>

#include "operations.h"

namespace cann_sim::atb_library {

namespace {

using operators::RefuseArgument;
using operators::Tensor;

// Rotates the two halves of each of `groups` parts of every head against each other.
at::Tensor Rotated(const at::Tensor& rows, const at::Tensor& cos, const at::Tensor& sin, int64_t groups) {
  const at::Tensor parts = rows.unflatten(-1, {groups, -1});
  const auto halves = parts.chunk(2, -1);
  const at::Tensor turned = at::cat({halves[1].neg(), halves[0]}, -1).flatten(-2);
  return rows.mul(cos).add(turned.mul(sin));
}

}  // namespace

operators::Plan MakePlan(const atb::infer::RopeParam& parameters, const Arguments& tensors) {
  tensors.RequireCounts(5, 2);
  const Tensor inputs[] = {tensors.Input(0, "query"), tensors.Input(1, "key")};
  const Tensor outputs[] = {tensors.Output(0, "query"), tensors.Output(1, "key")};
  const Tensor cos = tensors.Input(2, "cos");
  const Tensor sin = tensors.Input(3, "sin");
  const Tensor lengths = tensors.Input(4, "seqlen");
  operators::RequireDtype(cos, operators::kFloats);
  operators::RequireSameDtype(sin, cos);
  operators::RequireRank(cos, 2, 2);
  operators::RequireShape(sin, cos.sizes());
  operators::RequireDtype(lengths, {c10::ScalarType::Int});
  const int64_t head_dim = cos.size(1);
  const int64_t coefficient = parameters.rotaryCoeff;
  if (parameters.cosFormat != 0) {
    RefuseArgument("cosFormat", "0 (1 is for training)", std::to_string(parameters.cosFormat));
  }
  if ((coefficient != 2 && coefficient != 4 && coefficient != head_dim) || head_dim % coefficient != 0) {
    RefuseArgument("head_size", "the last dimension of the cosines, " + std::to_string(head_dim), std::to_string(coefficient));
  }
  for (size_t index = 0; index < 2; ++index) {
    operators::RequireDtype(inputs[index], operators::kFloats);
    operators::RequireSameDtype(outputs[index], inputs[index]);
    operators::RequireShape(outputs[index], inputs[index].sizes());
    operators::RequireRank(inputs[index], 2, 4);
    if (inputs[index].size(0) != cos.size(0) || inputs[index].numel() % (cos.size(0) * head_dim) != 0) {
      RefuseArgument(inputs[index].name(), std::to_string(cos.size(0)) + " rows of heads of " + std::to_string(head_dim),
                     operators::Describe(inputs[index].sizes()));
    }
  }
  // The lengths are not read: torch_npu frees them while captured graphs still hold their address.
  return [=, query = inputs[0], key = inputs[1], query_out = outputs[0], key_out = outputs[1]] {
    const at::Tensor cosines = cos.Widened().unsqueeze(1);
    const at::Tensor sines = sin.Widened().unsqueeze(1);
    const std::pair<const Tensor*, const Tensor*> rotated[] = {{&query, &query_out}, {&key, &key_out}};
    for (const auto& [from, to] : rotated) {
      const at::Tensor rows = from->Widened().view({from->size(0), -1, head_dim});
      at::Tensor(*to).view(rows.sizes()).copy_(Rotated(rows, cosines, sines, coefficient / 2));
    }
  };
}

}  // namespace cann_sim::atb_library
