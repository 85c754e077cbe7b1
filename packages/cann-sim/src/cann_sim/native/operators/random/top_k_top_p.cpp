// Cutting a distribution down before a token is drawn from it.

#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>

#include <limits>

#include "../interface/operator.h"

namespace cann_sim::operators {

// Logits outside the k largest, and then outside the largest that together have the probability p, become -inf. The largest
// always stays.
CANN_SIM_OPERATOR(aclnnApplyTopKTopP, (Tensor, logits), (OptionalTensor, p), (OptionalTensor, k), (Tensor, out)) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  RequireDtype(logits, kFloats);
  RequireRank(logits, 2, 2);
  RequireSameDtype(out, logits);
  RequireShape(out, logits.sizes());
  if (!p && !k) {
    RefuseArgument(p.name(), "p, k, or both", "none");
  }
  if (p) {
    RequireSameDtype(*p, logits);
    RequireShape(*p, {logits.size(0)});
  }
  if (k) {
    RequireDtype(*k, {c10::ScalarType::Int});
    RequireShape(*k, {logits.size(0)});
  }
  return [=] {
    if (logits.numel() == 0) {
      return;
    }
    const int64_t width = logits.size(1);
    const auto [values, order] = at::sort(at::Tensor(logits), /*stable=*/true, /*dim=*/-1, /*descending=*/false);
    at::Tensor kept = values;
    if (k) {
      const at::Tensor places = at::Tensor(*k).to(at::kLong).neg().add(width).clamp(0, width - 1).unsqueeze(1);
      kept = kept.masked_fill(kept.lt(at::gather(kept, 1, places)), -kInfinity);
    }
    if (p) {
      const at::Tensor sums = at::cumsum(at::softmax(kept.to(at::kFloat), -1), -1);
      const at::Tensor hidden = sums.le(p->Widened().neg().add(1.0).unsqueeze(1));
      hidden.select(1, width - 1).fill_(false);
      kept = kept.masked_fill(hidden, -kInfinity);
    }
    out.Store(at::empty_like(kept).scatter_(-1, order, kept));
  };
}

}  // namespace cann_sim::operators
