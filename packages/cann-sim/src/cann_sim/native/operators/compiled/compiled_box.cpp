// Boxes of object detection on the older road: (x1, y1, x2, y2) with both ends inside, so that a box is x2 - x1 + 1 wide.

#include <ATen/ops/cat.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "compiled_operator.h"

namespace cann_sim::operators {

namespace {

// Centres and sizes, [n, 2] each.
struct Centred {
  at::Tensor centre, size;

  explicit Centred(const at::Tensor& boxes)
      : centre(boxes.narrow(1, 0, 2).add(boxes.narrow(1, 2, 2)).mul(0.5)),
        size(boxes.narrow(1, 2, 2).sub(boxes.narrow(1, 0, 2)).add(1)) {}
};

void RequireBoxes(const Tensor& boxes) {
  RequireDtype(boxes, {c10::ScalarType::Half, c10::ScalarType::Float});
  RequireRank(boxes, 2, 2);
  RequireShape(boxes, {boxes.size(0), 4});
}

at::Tensor Four(const CompiledArguments& call, const char* name) {
  const auto& values = call.Attribute<std::vector<float>>(name);
  if (values.size() != 4) {
    RefuseArgument(name, "four numbers", std::to_string(values.size()));
  }
  return at::tensor(values);
}

}  // namespace

// How far each true box is from its anchor, in sizes of the anchor and logarithms; normalised. The kernel computes in
// float16, whatever the inputs are.
CANN_SIM_COMPILED_OPERATOR(BoundingBoxEncode) {
  const Tensor anchors = call.Input(0, "anchor_box"), truth = call.Input(1, "ground_truth_box");
  const Tensor out = call.Output(0, "delats");
  RequireBoxes(anchors);
  RequireSameDtype(truth, anchors);
  RequireShape(truth, anchors.sizes());
  const at::Tensor means = Four(call, "means"), deviations = Four(call, "stds");
  const at::Tensor scales = deviations.reciprocal().to(at::kHalf);
  return [=] {
    const Centred from(at::Tensor(anchors).to(at::kHalf)), to(at::Tensor(truth).to(at::kHalf));
    const at::Tensor shift = to.centre.sub(from.centre).div(from.size);
    out.Store(at::cat({shift, to.size.div(from.size).log()}, 1).sub(means.to(at::kHalf)).mul(scales));
  };
}

// The boxes that such differences lead to, cut off at the image; a size changes at most by `wh_ratio_clip`.
CANN_SIM_COMPILED_OPERATOR(BoundingBoxDecode) {
  const Tensor rois = call.Input(0, "rois"), deltas = call.Input(1, "deltas"), out = call.Output(0, "bboxes");
  RequireBoxes(rois);
  RequireSameDtype(deltas, rois);
  RequireShape(deltas, rois.sizes());
  const at::Tensor means = Four(call, "means"), deviations = Four(call, "stds");
  const auto image = call.Attribute<std::vector<int64_t>>("max_shape");
  if (image.size() != 2) {
    RefuseArgument("max_shape", "height and width", Describe(image));
  }
  const double most = std::abs(std::log(call.Attribute<float>("wh_ratio_clip", 0.016F)));
  return [=] {
    const Centred from(rois.Widened());
    const at::Tensor moved = deltas.Widened().mul(deviations).add(means);
    const at::Tensor centre = from.centre.add(from.size.mul(moved.narrow(1, 0, 2)));
    const at::Tensor half = from.size.mul(moved.narrow(1, 2, 2).clamp(-most, most).exp()).mul(0.5);
    const at::Tensor ends = at::stack({centre.sub(half).add(0.5), centre.add(half).sub(0.5)}, 1);
    const at::Tensor limit = at::tensor({static_cast<float>(image[1] - 1), static_cast<float>(image[0] - 1)});
    out.Store(at::minimum(ends.clamp_min(0), limit).view({-1, 4}));
  };
}

// 1 for each anchor of a cell of the feature map that has the centre of a true box, 0 for the others.
CANN_SIM_COMPILED_OPERATOR(AnchorResponseFlags) {
  const Tensor boxes = call.Input(0, "gt_bboxes"), out = call.Output(0, "flags");
  RequireBoxes(boxes);
  const auto map = call.Attribute<std::vector<int64_t>>("featmap_size");
  const auto strides = call.Attribute<std::vector<int64_t>>("strides");
  const auto anchors = call.Attribute<int64_t>("num_base_anchors");
  if (map.size() != 2 || strides.size() != 2) {
    RefuseArgument("featmap_size, strides", "two numbers each", Describe(map) + " and " + Describe(strides));
  }
  RequireShape(out, {map[0] * map[1] * anchors});
  return [=] {
    const at::Tensor wide = boxes.Widened();
    const at::Tensor centre = wide.narrow(1, 0, 2).add(wide.narrow(1, 2, 2)).mul(0.5);
    const at::Tensor cell = centre.div(at::tensor(strides)).floor().to(at::kLong);
    const at::Tensor place = cell.select(1, 1).mul(map[1]).add(cell.select(1, 0));
    at::Tensor flags = at::zeros({map[0] * map[1]}, at::TensorOptions().dtype(at::kByte));
    flags.index_fill_(0, place.masked_select(place.ge(0).logical_and(place.lt(map[0] * map[1]))), 1);
    out.Store(flags.unsqueeze(1).expand({-1, anchors}).reshape({-1}));
  };
}

}  // namespace cann_sim::operators
