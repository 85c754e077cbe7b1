// Loss functions and their gradients: computed in float32, rounded once. The number that says how a loss is reduced is
// torch's: 0 none, 1 mean, 2 sum.

#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_ctc_loss_backward.h>
#include <ATen/ops/binary_cross_entropy.h>
#include <ATen/ops/binary_cross_entropy_backward.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/kl_div.h>
#include <ATen/ops/l1_loss.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/mse_loss_backward.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/multilabel_margin_loss_forward.h>
#include <ATen/ops/nll_loss2d_backward.h>
#include <ATen/ops/nll_loss2d_forward.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/smooth_l1_loss.h>
#include <ATen/ops/smooth_l1_loss_backward.h>
#include <ATen/ops/soft_margin_loss.h>
#include <ATen/ops/soft_margin_loss_backward.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/xlogy.h>

#include <functional>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

constexpr int64_t kNoReduction = 0;
constexpr int64_t kMean = 1;

void RequireReduction(const Int& reduction) {
  if (reduction < 0 || reduction > 2) {
    RefuseArgument(reduction.name(), "0 (none), 1 (mean) or 2 (sum)", std::to_string(reduction));
  }
}

using Loss = std::function<at::Tensor(const at::Tensor& self, const at::Tensor& target)>;

// A loss of broadcast operands.
Plan ElementwiseLoss(Loss loss, const Tensor& self, const Tensor& target, const Int& reduction, const Tensor& out) {
  RequireSimulated(self, kFloats | kDouble);
  RequireSimulated(target, kReals);
  RequireReduction(reduction);
  if (reduction == kNoReduction) {
    RequireBroadcast(out, {&self, &target});
  } else {
    RequireShape(out, {});
  }
  return [=] { out.Store(loss(self.Widened(), target.Widened())); };
}

using LossGradient =
    std::function<at::Tensor(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target)>;

Plan ElementwiseBackward(LossGradient gradient, const Tensor& grad, const Tensor& self, const Tensor& target,
                         const Int& reduction, const Tensor& out) {
  RequireSimulated(self, kFloats | kDouble);
  RequireReduction(reduction);
  return [=] { out.Store(gradient(grad.Widened(), self.Widened(), target.Widened()).expand(out.sizes())); };
}

// What the mean of `count` values makes of a gradient.
at::Tensor Averaged(const at::Tensor& grad, int64_t reduction, int64_t count) {
  return reduction == kMean ? grad.div(static_cast<double>(count)) : grad;
}

void RequireClasses(const Tensor& self, const Tensor& target, const Tensor& weight, int least, int most) {
  RequireSimulated(self, kFloats | kDouble);
  RequireSimulated(target, kIndices | DtypeSet{c10::ScalarType::Byte});
  RequireRank(self, least, most);
  RequireShape(weight, {self.size(self.rank() == 1 ? 0 : 1)});
}

at::Tensor Classes(const Tensor& target) { return at::Tensor(target).to(at::kLong).contiguous(); }

}  // namespace

#define CANN_SIM_LOSS(Name, function)                                                                              \
  CANN_SIM_OPERATOR(aclnn##Name, (Tensor, self), (Tensor, target), (Int, reduction), (Tensor, out)) {              \
    return ElementwiseLoss([=](const at::Tensor& x, const at::Tensor& y) { return at::function(x, y, reduction); }, \
                           self, target, reduction, out);                                                          \
  }

CANN_SIM_LOSS(L1Loss, l1_loss)
CANN_SIM_LOSS(MseLoss, mse_loss)
CANN_SIM_LOSS(SoftMarginLoss, soft_margin_loss)

#define CANN_SIM_LOSS_BACKWARD(Name, function)                                                              \
  CANN_SIM_OPERATOR(aclnn##Name, (Tensor, gradOutput), (Tensor, self), (Tensor, target), (Int, reduction),  \
                    (Tensor, out)) {                                                                        \
    return ElementwiseBackward(                                                                             \
        [=](const at::Tensor& grad, const at::Tensor& x, const at::Tensor& y) {                             \
          return at::function(grad, x, y, reduction);                                                       \
        },                                                                                                  \
        gradOutput, self, target, reduction, out);                                                          \
  }

CANN_SIM_LOSS_BACKWARD(MseLossBackward, mse_loss_backward)
CANN_SIM_LOSS_BACKWARD(SoftMarginLossBackward, soft_margin_loss_backward)

CANN_SIM_OPERATOR(aclnnL1LossBackward, (Tensor, gradOutput), (Tensor, self), (Tensor, target), (Int, reduction),
                  (Tensor, gradInput)) {
  return ElementwiseBackward(
      [=](const at::Tensor& grad, const at::Tensor& x, const at::Tensor& y) {
        const at::Tensor sign = at::sub(x, y).sign();
        return Averaged(at::mul(sign, grad), reduction, sign.numel());
      },
      gradOutput, self, target, reduction, gradInput);
}

CANN_SIM_OPERATOR(aclnnSmoothL1Loss, (Tensor, self), (Tensor, target), (Int, reduction), (Float, beta), (Tensor, out)) {
  return ElementwiseLoss(
      [=](const at::Tensor& x, const at::Tensor& y) { return at::smooth_l1_loss(x, y, reduction, beta); }, self, target,
      reduction, out);
}

CANN_SIM_OPERATOR(aclnnSmoothL1LossBackward, (Tensor, gradOut), (Tensor, self), (Tensor, target), (Int, reduction),
                  (Float, beta), (Tensor, gradInput)) {
  return ElementwiseBackward(
      [=](const at::Tensor& grad, const at::Tensor& x, const at::Tensor& y) {
        return at::smooth_l1_loss_backward(grad, x, y, reduction, beta);
      },
      gradOut, self, target, reduction, gradInput);
}

CANN_SIM_OPERATOR(aclnnKlDiv, (Tensor, self), (Tensor, target), (Int, reduction), (Bool, logTarget), (Tensor, out)) {
  return ElementwiseLoss(
      [=](const at::Tensor& x, const at::Tensor& y) { return at::kl_div(x, y, reduction, logTarget); }, self, target,
      reduction, out);
}

CANN_SIM_OPERATOR(aclnnKlDivBackward, (Tensor, gradOutput), (Tensor, self), (Tensor, target), (Int, reduction),
                  (Bool, logTarget), (Tensor, out)) {
  return ElementwiseBackward(
      [=](const at::Tensor& grad, const at::Tensor& x, const at::Tensor& y) {
        const at::Tensor slope = logTarget ? y.exp().neg() : y.clamp_min(0).neg();
        return Averaged(at::mul(slope, grad), reduction, x.numel());
      },
      gradOutput, self, target, reduction, out);
}

CANN_SIM_OPERATOR(aclnnKlDivTargetBackward, (Tensor, gradOutput), (Tensor, self), (Tensor, target), (Int, reduction),
                  (Bool, logTarget), (Tensor, gradTarget)) {
  return ElementwiseBackward(
      [=](const at::Tensor& grad, const at::Tensor& x, const at::Tensor& y) {
        const at::Tensor slope = logTarget ? at::mul(y.exp(), at::sub(y, x).add(1))
                                           : at::where(y.gt(0), at::sub(y.log().add(1), x), at::Scalar(0));
        return Averaged(at::mul(slope, grad), reduction, x.numel());
      },
      gradOutput, self, target, reduction, gradTarget);
}

CANN_SIM_OPERATOR(aclnnBinaryCrossEntropy, (Tensor, self), (Tensor, target), (OptionalTensor, weight), (Int, reduction),
                  (Tensor, out)) {
  return ElementwiseLoss(
      [=](const at::Tensor& x, const at::Tensor& y) {
        return at::binary_cross_entropy(x, y, weight.Widened(), reduction);
      },
      self, target, reduction, out);
}

CANN_SIM_OPERATOR(aclnnBinaryCrossEntropyBackward, (Tensor, gradOutput), (Tensor, self), (Tensor, target),
                  (OptionalTensor, weight), (Int, reduction), (Tensor, out)) {
  return ElementwiseBackward(
      [=](const at::Tensor& grad, const at::Tensor& x, const at::Tensor& y) {
        return at::binary_cross_entropy_backward(grad, x, y, weight.Widened(), reduction);
      },
      gradOutput, self, target, reduction, out);
}

CANN_SIM_OPERATOR(aclnnBinaryCrossEntropyWithLogits, (Tensor, self), (Tensor, target), (OptionalTensor, weight),
                  (OptionalTensor, posWeight), (Int, reduction), (Tensor, out)) {
  return ElementwiseLoss(
      [=](const at::Tensor& x, const at::Tensor& y) {
        return at::binary_cross_entropy_with_logits(x, y, weight.Widened(), posWeight.Widened(), reduction);
      },
      self, target, reduction, out);
}

CANN_SIM_OPERATOR(aclnnBinaryCrossEntropyWithLogitsBackward, (Tensor, gradOutput), (Tensor, self), (Tensor, target),
                  (OptionalTensor, weight), (OptionalTensor, posWeight), (Int, reduction), (Tensor, out)) {
  return ElementwiseBackward(
      [=](const at::Tensor& grad, const at::Tensor& x, const at::Tensor& y) {
        at::Tensor slope = at::sub(at::sigmoid(x), y);
        if (posWeight) {
          const at::Tensor positive = at::mul(posWeight->Widened(), y);
          slope = at::sub(at::mul(at::sub(positive.add(1), y), at::sigmoid(x)), positive);
        }
        if (weight) {
          slope = at::mul(slope, weight->Widened());
        }
        return Averaged(at::mul(slope, grad), reduction, x.numel());
      },
      gradOutput, self, target, reduction, out);
}

CANN_SIM_OPERATOR(aclnnNLLLoss, (Tensor, self), (Tensor, target), (Tensor, weight), (Int, reduction), (Int, ignoreIndex),
                  (Tensor, out), (Tensor, totalWeightOut)) {
  RequireClasses(self, target, weight, 1, 2);
  RequireReduction(reduction);
  return [=] {
    const auto [loss, total] =
        at::nll_loss_forward(self.Widened(), Classes(target), weight.Widened(), reduction, ignoreIndex);
    out.Store(loss);
    totalWeightOut.Store(total);
  };
}

CANN_SIM_OPERATOR(aclnnNLLLossBackward, (Tensor, gradOutput), (Tensor, self), (Tensor, target), (Tensor, weight),
                  (Int, reduction), (Int, ignoreIndex), (Tensor, totalWeight), (Tensor, out)) {
  RequireClasses(self, target, weight, 1, 2);
  RequireReduction(reduction);
  RequireShape(out, self.sizes());
  return [=] {
    out.Store(at::nll_loss_backward(gradOutput.Widened(), self.Widened(), Classes(target), weight.Widened(), reduction,
                                    ignoreIndex, totalWeight.Widened()));
  };
}

CANN_SIM_OPERATOR(aclnnNLLLoss2d, (Tensor, self), (Tensor, target), (Tensor, weight), (Int, reduction),
                  (Int, ignoreIndex), (Tensor, out), (Tensor, totalWeightOut)) {
  RequireClasses(self, target, weight, 4, 4);
  RequireReduction(reduction);
  return [=] {
    const auto [loss, total] =
        at::nll_loss2d_forward(self.Widened().contiguous(), Classes(target), weight.Widened(), reduction, ignoreIndex);
    out.Store(loss);
    totalWeightOut.Store(total);
  };
}

CANN_SIM_OPERATOR(aclnnNLLLoss2dBackward, (Tensor, gradOutput), (Tensor, self), (Tensor, target), (Tensor, weight),
                  (Int, reduction), (Int, ignoreIndex), (Tensor, totalWeight), (Tensor, out)) {
  RequireClasses(self, target, weight, 4, 4);
  RequireReduction(reduction);
  RequireShape(out, self.sizes());
  return [=] {
    out.Store(at::nll_loss2d_backward(gradOutput.Widened().contiguous(), self.Widened().contiguous(), Classes(target),
                                      weight.Widened(), reduction, ignoreIndex, totalWeight.Widened()));
  };
}

CANN_SIM_OPERATOR(aclnnMultilabelMarginLoss, (Tensor, self), (Tensor, target), (Int, reduction), (Tensor, out),
                  (Tensor, isTarget)) {
  RequireSimulated(self, kFloats);
  RequireSimulated(target, kIndices);
  RequireShape(target, self.sizes());
  RequireReduction(reduction);
  return [=] {
    const auto [loss, members] = at::multilabel_margin_loss_forward(self.Widened(), Classes(target), reduction);
    out.Store(loss);
    isTarget.Store(members);
  };
}

CANN_SIM_OPERATOR(aclnnCtcLoss, (Tensor, logProbs), (Tensor, targets), (IntArray, inputLengths),
                  (IntArray, targetLengths), (Int, blank), (Bool, zeroInfinity), (Tensor, negLogLikelihood),
                  (Tensor, logAlpha)) {
  RequireSimulated(logProbs, {c10::ScalarType::Float, c10::ScalarType::Double});
  RequireSimulated(targets, kIndices);
  return [=] {
    const auto [loss, alpha] =
        at::_ctc_loss(logProbs, at::Tensor(targets), inputLengths, targetLengths, blank, zeroInfinity);
    negLogLikelihood.Store(loss);
    at::Tensor(logAlpha).narrow(2, 0, alpha.size(2)).copy_(alpha);
  };
}

CANN_SIM_OPERATOR(aclnnCtcLossBackward, (Tensor, gradOut), (Tensor, logProbs), (Tensor, targets), (IntArray, inputLengths),
                  (IntArray, targetLengths), (Tensor, negLogLikelihood), (Tensor, logAlpha), (Int, blank),
                  (Bool, zeroInfinity), (Tensor, out)) {
  RequireSimulated(logProbs, {c10::ScalarType::Float, c10::ScalarType::Double});
  RequireSimulated(targets, kIndices);
  RequireShape(out, logProbs.sizes());
  return [=] {
    int64_t longest = 0;
    for (const int64_t length : targetLengths.values()) {
      longest = std::max(longest, length);
    }
    const at::Tensor alpha = at::Tensor(logAlpha).narrow(2, 0, 2 * longest + 1).contiguous();
    out.Store(at::_ctc_loss_backward(gradOut, logProbs, at::Tensor(targets), inputLengths, targetLengths,
                                     negLogLikelihood, alpha, blank, zeroInfinity));
  };
}

}  // namespace cann_sim::operators
