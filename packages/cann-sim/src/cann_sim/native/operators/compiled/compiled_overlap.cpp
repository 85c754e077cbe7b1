// Overlaps of boxes on the older road: generalised, by distance and complete (GIoU, DIoU, CIoU), and their gradients.
//
// Boxes are [4, n]: x1, y1, x2, y2, or with `trans` the centre, width and height.

#include <ATen/ops/atan.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include "../training/differentiation.h"
#include "compiled_operator.h"

namespace cann_sim::operators {

namespace {

constexpr double kFourOverPiSquared = 0.40528473456935109;

struct OverlapOptions {
  bool centred, crossed, of_foreground;

  explicit OverlapOptions(const CompiledArguments& call)
      : centred(call.Attribute<bool>("trans", false)), crossed(call.Attribute<bool>("is_cross", true)),
        of_foreground(call.Attribute<std::string>("mode", "iou") == "iof") {}
};

// Corners of boxes: [2, n] or, to be compared with all others, [2, 1, n] and [2, n, 1].
struct Corners {
  at::Tensor low, high;

  Corners(const at::Tensor& boxes, bool centred) {
    const at::Tensor first = boxes.narrow(0, 0, 2), second = boxes.narrow(0, 2, 2);
    low = centred ? first.sub(second.mul(0.5)) : first;
    high = centred ? first.add(second.mul(0.5)) : second;
  }

  at::Tensor size() const { return high.sub(low); }
  at::Tensor Area() const { return size().select(0, 0).mul(size().select(0, 1)); }
  Corners Spread(int64_t dim) const {
    Corners spread(*this);
    spread.low = low.unsqueeze(dim);
    spread.high = high.unsqueeze(dim);
    return spread;
  }
};

at::Tensor Area(const at::Tensor& sides) { return sides.select(0, 0).mul(sides.select(0, 1)); }

// What all kinds are made of.
struct Pairs {
  Corners boxes, truth;
  at::Tensor overlap, hull;

  Pairs(const at::Tensor& own, const at::Tensor& other, const OverlapOptions& options, double epsilon)
      : boxes(own, options.centred), truth(other, options.centred) {
    if (options.crossed) {
      boxes = boxes.Spread(1);
      truth = truth.Spread(2);
    }
    const at::Tensor inner = Area(at::minimum(boxes.high, truth.high).sub(at::maximum(boxes.low, truth.low)).clamp_min(0));
    hull = at::maximum(boxes.high, truth.high).sub(at::minimum(boxes.low, truth.low));
    united = boxes.Area().add(truth.Area()).sub(inner).add(epsilon);
    overlap = inner.div(options.of_foreground ? truth.Area().add(epsilon) : united);
  }

  // Squared distance of the centres by that of the hull's corners.
  at::Tensor Distance(double epsilon) const {
    const at::Tensor between = truth.low.add(truth.high).sub(boxes.low).sub(boxes.high);
    return between.square().sum(0).div(4).div(hull.square().sum(0).add(epsilon));
  }

  at::Tensor united;
};

// [1, n], or crossed [m, n].
at::Tensor AsRows(const at::Tensor& values, const OverlapOptions& options) {
  return options.crossed ? values : values.unsqueeze(0);
}

at::Tensor Generalised(const at::Tensor& boxes, const at::Tensor& truth, const OverlapOptions& options) {
  const Pairs pairs(boxes, truth, options, 1e-16);
  const at::Tensor hull = Area(pairs.hull);
  return AsRows(pairs.overlap.sub(hull.sub(pairs.united).div(hull)), options);
}

at::Tensor ByDistance(const at::Tensor& boxes, const at::Tensor& truth, const OverlapOptions& options) {
  const Pairs pairs(boxes, truth, options, 1e-9);
  return AsRows(pairs.overlap.sub(pairs.Distance(1e-9)), options);
}

at::Tensor AngleOf(const Corners& boxes) {
  const at::Tensor size = boxes.size();
  return at::atan(size.select(0, 0).div(size.select(0, 1).add(1e-9)));
}

// The complete overlap, and the difference of the angles of the diagonals that it is made with.
std::pair<at::Tensor, at::Tensor> Complete(const at::Tensor& boxes, const at::Tensor& truth, const OverlapOptions& options) {
  const Pairs pairs(boxes, truth, options, 1e-9);
  const at::Tensor turned = AngleOf(pairs.truth).sub(AngleOf(pairs.boxes));
  const at::Tensor shape = turned.square().mul(kFourOverPiSquared);
  // The weight of the shape counts as a constant in the gradient.
  const at::Tensor weight = shape.div(pairs.overlap.neg().add(1 + 1e-9).add(shape)).detach();
  return {AsRows(pairs.overlap.sub(pairs.Distance(1e-9)).sub(shape.mul(weight)), options), AsRows(turned, options)};
}

void RequireOverlap(const Tensor& boxes, const Tensor& truth, const OverlapOptions& options) {
  RequireDtype(boxes, kFloats);
  RequireSameDtype(truth, boxes);
  RequireRank(boxes, 2, 2);
  RequireShape(boxes, {4, boxes.size(1)});
  RequireShape(truth, {4, options.crossed ? truth.size(-1) : boxes.size(1)});
}

template <class Overlap>
Plan Forward(const CompiledArguments& call, Overlap overlap) {
  const OverlapOptions options(call);
  const Tensor boxes = call.Input(0, "bboxes"), truth = call.Input(1, "gtboxes"), out = call.Output(0, "overlap");
  RequireOverlap(boxes, truth, options);
  return [=] { out.Store(overlap(boxes.Widened(), truth.Widened(), options).view(out.sizes())); };
}

template <class Overlap>
Plan Backward(const CompiledArguments& call, Overlap overlap) {
  const OverlapOptions options(call);
  const Tensor grad = call.Input(0, "dy"), boxes = call.Input(1, "bboxes"), truth = call.Input(2, "gtboxes");
  const Tensor of_boxes = call.Output(0, "dbboxes"), of_truth = call.Output(1, "dgtboxes");
  RequireOverlap(boxes, truth, options);
  return [=] {
    const auto both = [&](const std::vector<at::Tensor>& pair) {
      return std::vector<at::Tensor>{overlap(pair[0], pair[1], options)};
    };
    const std::vector<at::Tensor> found = Gradients(both, {boxes.Widened(), truth.Widened()}, {grad.Widened()});
    of_boxes.Store(found[0]);
    of_truth.Store(found[1]);
  };
}

at::Tensor CompleteAlone(const at::Tensor& boxes, const at::Tensor& truth, const OverlapOptions& options) {
  return Complete(boxes, truth, options).first;
}

}  // namespace

CANN_SIM_COMPILED_OPERATOR(GIoU) { return Forward(call, Generalised); }
CANN_SIM_COMPILED_OPERATOR(GIoUGrad) { return Backward(call, Generalised); }
CANN_SIM_COMPILED_OPERATOR(DIoU) { return Forward(call, ByDistance); }
CANN_SIM_COMPILED_OPERATOR(DIoUGrad) { return Backward(call, ByDistance); }

CANN_SIM_COMPILED_OPERATOR(CIoU) {
  const OverlapOptions options(call);
  const Tensor boxes = call.Input(0, "bboxes"), truth = call.Input(1, "gtboxes");
  const Tensor out = call.Output(0, "overlap"), angle = call.Output(1, "atan_sub");
  RequireOverlap(boxes, truth, options);
  return [=] {
    const auto [overlap, turned] = Complete(boxes.Widened(), truth.Widened(), options);
    out.Store(overlap.view(out.sizes()));
    angle.Store(turned.view(angle.sizes()));
  };
}

// The fourth input is the difference of angles that the forward pass kept; it follows from the boxes.
CANN_SIM_COMPILED_OPERATOR(CIoUGrad) { return Backward(call, CompleteAlone); }

}  // namespace cann_sim::operators
