// Extremes and sorting on the older road.

#include <ATen/ops/max.h>
#include <ATen/ops/min.h>
#include <ATen/ops/sort.h>

#include "compiled_operator.h"

namespace cann_sim::operators {

namespace {

// The extreme along a dimension, and where it is: the first of equal ones.
template <class Extreme>
Plan WithValue(const CompiledArguments& call, Extreme extreme) {
  const Tensor x = call.Input(0, "x"), indices = call.Output(0, "indice"), values = call.Output(1, "values");
  const int64_t dim = WrapDim(call.Attribute<int64_t>("dimension"), x.rank(), "dimension");
  const bool keep = call.Attribute<bool>("keep_dims", false);
  return [=] {
    const auto [value, place] = extreme(at::Tensor(x), dim, keep);
    values.Store(value);
    indices.Store(place);
  };
}

}  // namespace

CANN_SIM_COMPILED_OPERATOR(ArgMaxWithValue) {
  return WithValue(call, [](const at::Tensor& x, int64_t dim, bool keep) { return at::max(x, dim, keep); });
}

CANN_SIM_COMPILED_OPERATOR(ArgMinWithValue) {
  return WithValue(call, [](const at::Tensor& x, int64_t dim, bool keep) { return at::min(x, dim, keep); });
}

CANN_SIM_COMPILED_OPERATOR(SortV2) {
  const Tensor x = call.Input(0, "x"), out = call.Output(0, "y");
  RequireDtype(x, kFloats);
  const int64_t axis = WrapDim(call.Attribute<int64_t>("axis", -1), x.rank(), "axis");
  const bool descending = call.Attribute<bool>("descending", false);
  return [=] { out.Store(std::get<0>(at::sort(at::Tensor(x), axis, descending))); };
}

}  // namespace cann_sim::operators
