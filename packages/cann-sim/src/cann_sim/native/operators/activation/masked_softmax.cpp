// Softmax of scaled scores with a mask and a bias, for attention inside windows. Float32 inside, rounded once.

#include <ATen/ops/softmax.h>

#include <algorithm>

#include "../interface/operator.h"

namespace cann_sim::operators {

// softmax(scaleValue * x + attenMask + relativePosBias). The mask is one a window, the bias one a head.
CANN_SIM_OPERATOR(aclnnMaskedSoftmaxWithRelPosBias, (Tensor, x), (OptionalTensor, attenMask), (Tensor, relativePosBias),
                  (Double, scaleValue), (Int, innerPrecisionMode), (Tensor, out)) {
  RequireDtype(x, kFloats);
  RequireRank(x, 4, 5);
  RequireSameDtype(out, x);
  RequireShape(out, x.sizes());
  const int64_t heads = x.size(-3);
  const int64_t rows = x.size(-2);
  const int64_t columns = x.size(-1);
  const int64_t windows = attenMask ? attenMask->numel() / std::max<int64_t>(rows * columns, 1)
                          : x.rank() == 5 ? x.size(1)
                                          : 1;
  const auto require_count = [&](const Tensor& tensor, int64_t count, const char* what) {
    RequireSameDtype(tensor, x);
    RequireRank(tensor, 3, 5);
    if (tensor.size(-1) != columns || tensor.size(-2) != rows || tensor.numel() != count * rows * columns) {
      RefuseArgument(tensor.name(), std::string("one matrix ") + what + " of " + Describe({rows, columns}),
                     Describe(tensor.sizes()));
    }
  };
  require_count(relativePosBias, heads, "a head");
  if (attenMask) {
    require_count(*attenMask, windows, "a window");
    if (windows == 0 || x.numel() % (windows * heads * rows * columns) != 0 || (x.rank() == 5 && x.size(1) != windows)) {
      RefuseArgument(attenMask->name(), "as many windows as 'x' has, or a part of its batch", Describe(attenMask->sizes()));
    }
  }
  return [=] {
    const at::Tensor scores = x.Widened().mul(scaleValue.value()).view({-1, windows, heads, rows, columns});
    scores.add_(relativePosBias.Widened().reshape({1, 1, heads, rows, columns}));
    if (attenMask) {
      scores.add_(attenMask->Widened().reshape({1, windows, 1, rows, columns}));
    }
    out.Store(at::softmax(scores, -1).view(x.sizes()));
  };
}

}  // namespace cann_sim::operators
