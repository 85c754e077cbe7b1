// The gradient of rotary position embeddings. Computed in float32, rounded once.

#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>

#include "../interface/operator.h"
#include "rotary.h"

namespace cann_sim::operators {

// x -> x * cos + rotated(x) * sin has the gradient dy * cos - rotated(dy * sin), because the rotation turns by a right angle.
CANN_SIM_OPERATOR(aclnnRotaryPositionEmbeddingGrad, (Tensor, dy), (Tensor, cos), (Tensor, sin), (OptionalTensor, x),
                  (Int, mode), (Tensor, dxOut), (OptionalTensor, dcosOut), (OptionalTensor, dsinOut)) {
  RequireDtype(dy, kFloats);
  RequireRank(dy, 3, 4);
  for (const Tensor& tensor : {cos, sin, dxOut}) {
    RequireSameDtype(tensor, dy);
  }
  RequireShape(sin, cos.sizes());
  RequireShape(dxOut, dy.sizes());
  RequireBroadcast(dy, {&dy, &cos});
  if (mode != kHalf && mode != kInterleave) {
    RefuseArgument(mode.name(), "0 (half) or 1 (interleave); other modes are not simulated", std::to_string(mode));
  }
  if (dy.size(-1) % 2 != 0 || cos.size(-1) != dy.size(-1)) {
    RefuseArgument(cos.name(), "the even last dimension of 'dy', " + std::to_string(dy.size(-1)), Describe(cos.sizes()));
  }
  const bool wants_angles = x && dcosOut && dsinOut && dcosOut->numel() != 0;
  if (wants_angles) {
    RequireSameDtype(*x, dy);
    RequireShape(*x, dy.sizes());
    for (const OptionalTensor& angles : {dcosOut, dsinOut}) {
      RequireSameDtype(*angles, cos);
      RequireShape(*angles, cos.sizes());
    }
  }
  return [=] {
    const bool interleave = mode == kInterleave;
    const at::Tensor gradient = dy.Widened();
    const at::Tensor zero = at::Tensor(gradient.new_zeros({1}));
    const at::Tensor one = at::Tensor(gradient.new_ones({1}));
    const auto rotated = [&](const at::Tensor& values) { return Rotate(values, zero, one, interleave); };
    dxOut.Store(gradient.mul(cos.Widened()).sub(rotated(gradient.mul(sin.Widened()))));
    if (wants_angles) {
      const at::Tensor wide = x->Widened();
      dcosOut->Store(gradient.mul(wide).sum_to_size(cos.sizes()));
      dsinOut->Store(gradient.mul(rotated(wide)).sum_to_size(cos.sizes()));
    }
  };
}

}  // namespace cann_sim::operators
