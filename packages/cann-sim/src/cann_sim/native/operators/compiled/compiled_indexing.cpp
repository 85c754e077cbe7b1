// Slices and fills of the older road.

#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>

#include "compiled_operator.h"

namespace cann_sim::operators {

namespace {

bool IsSet(int64_t mask, size_t dim) { return (mask >> dim & 1) != 0; }

}  // namespace

// A bit of a mask stands for a dimension: where it begins and ends is then not read, and a dimension to shrink is left out.
CANN_SIM_COMPILED_OPERATOR(StridedSlice) {
  const Tensor x = call.Input(0, "x"), out = call.Output(0, "y");
  const std::vector<int64_t> begin = call.HostIntegers(1, "begin"), end = call.HostIntegers(2, "end");
  const std::vector<int64_t> strides = call.HostIntegers(3, "strides");
  const auto begin_mask = call.Attribute<int64_t>("begin_mask", 0), end_mask = call.Attribute<int64_t>("end_mask", 0);
  const auto shrink_mask = call.Attribute<int64_t>("shrink_axis_mask", 0);
  if (call.Attribute<int64_t>("ellipsis_mask", 0) != 0 || call.Attribute<int64_t>("new_axis_mask", 0) != 0) {
    RefuseArgument("ellipsis_mask", "0, as new_axis_mask (other values are not simulated)", "another value");
  }
  if (begin.size() != x.sizes().size() || end.size() != begin.size() || strides.size() != begin.size()) {
    RefuseArgument("begin", std::to_string(x.rank()) + " numbers, as 'end' and 'strides'", Describe(begin));
  }
  for (int64_t stride : strides) {
    if (stride <= 0) {
      RefuseArgument("strides", "numbers above 0 (others are not simulated)", Describe(strides));
    }
  }
  return [=] {
    at::Tensor part = x;
    int64_t at = 0;
    for (size_t dim = 0; dim < begin.size(); ++dim) {
      const int64_t size = x.size(static_cast<int>(dim));
      const int64_t first = IsSet(begin_mask, dim) ? 0 : begin[dim];
      if (IsSet(shrink_mask, dim)) {
        part = part.select(at, first);
        continue;
      }
      part = part.slice(at++, first, IsSet(end_mask, dim) ? size : end[dim], strides[dim]);
    }
    out.Store(part.reshape(out.sizes()));
  };
}

// One value everywhere; the shape is given first.
CANN_SIM_COMPILED_OPERATOR(Fill) {
  const Tensor out = call.Output(0, "y");
  const at::Tensor host = call.IsOnHost(1) ? call.HostInput(1, "value") : at::Tensor();
  const OptionalTensor value = host.defined() ? OptionalTensor() : OptionalTensor(call.Input(1, "value"));
  return [=] { out.Store((host.defined() ? host : at::Tensor(value)).flatten().expand({out.numel()}).reshape(out.sizes())); };
}

// `on` where a new axis of `depth` has the index, `off` elsewhere; -1 is the last axis.
CANN_SIM_COMPILED_OPERATOR(OneHotD) {
  const Tensor x = call.Input(0, "x"), on = call.Input(1, "on_value"), off = call.Input(2, "off_value");
  const Tensor out = call.Output(0, "y");
  RequireDtype(x, kIndices | DtypeSet{c10::ScalarType::Byte});
  const auto depth = call.Attribute<int64_t>("depth");
  const int64_t axis = WrapDim(call.Attribute<int64_t>("axis", -1), out.rank(), "axis");
  RequireRank(out, x.rank() + 1, x.rank() + 1);
  return [=] {
    std::vector<int64_t> places(static_cast<size_t>(out.rank()), 1);
    places[static_cast<size_t>(axis)] = depth;
    const at::Tensor chosen = at::Tensor(x).to(at::kLong).unsqueeze(axis).eq(at::arange(depth, at::kLong).view(places));
    out.Store(at::where(chosen, at::Tensor(on).flatten(), at::Tensor(off).flatten()));
  };
}

}  // namespace cann_sim::operators
