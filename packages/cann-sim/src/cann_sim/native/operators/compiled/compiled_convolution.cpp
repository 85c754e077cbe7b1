// Convolutions of the older road, and their transposes.

#include <ATen/ops/convolution.h>

#include <optional>

#include "compiled_operator.h"

namespace cann_sim::operators {

namespace {

// Strides and dilations are given for batch and channels too, paddings for both ends of the other dimensions.
struct Geometry {
  std::vector<int64_t> strides, paddings, dilations, output_paddings;
  int64_t groups;
};

std::vector<int64_t> BehindChannels(const std::vector<int64_t>& values, size_t dims, const char* name) {
  if (values.size() != dims + 2) {
    RefuseArgument(name, std::to_string(dims + 2) + " numbers", Describe(values));
  }
  return {values.begin() + 2, values.end()};
}

Geometry GeometryOf(const CompiledArguments& call, size_t dims) {
  const auto pads = call.Attribute<std::vector<int64_t>>("pads");
  if (pads.size() != 2 * dims) {
    RefuseArgument("pads", "two numbers for each of " + std::to_string(dims) + " dimensions", Describe(pads));
  }
  Geometry geometry;
  for (size_t dim = 0; dim < dims; ++dim) {
    if (pads[2 * dim] != pads[2 * dim + 1]) {
      RefuseArgument("pads", "as much before a dimension as behind it (others are not simulated)", Describe(pads));
    }
    geometry.paddings.push_back(pads[2 * dim]);
  }
  geometry.strides = BehindChannels(call.Attribute<std::vector<int64_t>>("strides"), dims, "strides");
  geometry.dilations = BehindChannels(call.Attribute<std::vector<int64_t>>("dilations"), dims, "dilations");
  geometry.output_paddings = std::vector<int64_t>(dims, 0);
  geometry.groups = call.Attribute<int64_t>("groups", 1);
  return geometry;
}

// What a transposed convolution leaves open of the size of its result. The attribute of that name is not read: in three
// dimensions torch_npu gives zeros, and says with the shape of the result what it wants.
void TakeOutputPaddings(const Tensor& x, const Tensor& filter, const Tensor& out, Geometry& geometry) {
  for (size_t dim = 0; dim < geometry.strides.size(); ++dim) {
    const int axis = static_cast<int>(dim) + 2;
    const int64_t least = (x.size(axis) - 1) * geometry.strides[dim] - 2 * geometry.paddings[dim] +
                          geometry.dilations[dim] * (filter.size(axis) - 1) + 1;
    geometry.output_paddings[dim] = out.size(axis) - least;
  }
}

// A transposed one is given the shape of its result first.
Plan Convolution(const CompiledArguments& call, int dims, bool transposed) {
  const size_t first = transposed ? 1 : 0;
  const Tensor x = call.Input(first, "x"), filter = call.Input(first + 1, "filter"), out = call.Output(0, "y");
  const OptionalTensor bias = call.OptionalInput(first + 2, "bias");
  RequireDtype(x, kFloats);
  RequireSameDtype(filter, x);
  RequireRank(x, dims + 2, dims + 2);
  RequireRank(filter, dims + 2, dims + 2);
  RequireRank(out, dims + 2, dims + 2);
  Geometry geometry = GeometryOf(call, static_cast<size_t>(dims));
  if (transposed) {
    TakeOutputPaddings(x, filter, out, geometry);
  }
  if (bias) {
    RequireShape(*bias, {out.size(1)});
  }
  return [=] {
    const std::optional<at::Tensor> shift = bias ? std::optional(bias->Widened()) : std::nullopt;
    out.Store(at::convolution(x.Widened(), filter.Widened(), shift, geometry.strides, geometry.paddings,
                              geometry.dilations, transposed, geometry.output_paddings, geometry.groups));
  };
}

}  // namespace

CANN_SIM_COMPILED_OPERATOR(Conv2D) { return Convolution(call, 2, false); }
CANN_SIM_COMPILED_OPERATOR(Conv3D) { return Convolution(call, 3, false); }
CANN_SIM_COMPILED_OPERATOR(Conv2DTranspose) { return Convolution(call, 2, true); }
CANN_SIM_COMPILED_OPERATOR(Conv3DTranspose) { return Convolution(call, 3, true); }

}  // namespace cann_sim::operators
