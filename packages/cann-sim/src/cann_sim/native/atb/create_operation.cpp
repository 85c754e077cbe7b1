// Making the operations that have parameters.

#include "../runtime/launch.h"
#include "operation.h"
#include "operations.h"

namespace atb {

namespace {

const char* NameOf(const infer::ElewiseParam&) { return "ElewiseOperation"; }
const char* NameOf(const infer::GroupTopkParam&) { return "GroupTopkOperation"; }
const char* NameOf(const infer::LinearParam&) { return "LinearOperation"; }
const char* NameOf(const infer::PagedAttentionParam&) { return "PagedAttentionOperation"; }
const char* NameOf(const infer::ReshapeAndCacheParam&) { return "ReshapeAndCacheOperation"; }
const char* NameOf(const infer::RmsNormParam&) { return "RmsNormOperation"; }
const char* NameOf(const infer::RopeParam&) { return "RopeOperation"; }
const char* NameOf(const infer::SelfAttentionParam&) { return "SelfAttentionOperation"; }

}  // namespace

template <class Parameters>
Status CreateOperation(const Parameters& parameters, Operation** operation) {
  using cann_sim::atb_library::Arguments;
  *operation = cann_sim::atb_library::NewOperation(NameOf(parameters), [parameters](const Arguments& tensors) {
    return cann_sim::atb_library::MakePlan(parameters, tensors);
  });
  return kOk;
}

template CANN_SIM_EXPORT Status CreateOperation(const infer::ElewiseParam&, Operation**);
template CANN_SIM_EXPORT Status CreateOperation(const infer::GroupTopkParam&, Operation**);
template CANN_SIM_EXPORT Status CreateOperation(const infer::LinearParam&, Operation**);
template CANN_SIM_EXPORT Status CreateOperation(const infer::PagedAttentionParam&, Operation**);
template CANN_SIM_EXPORT Status CreateOperation(const infer::ReshapeAndCacheParam&, Operation**);
template CANN_SIM_EXPORT Status CreateOperation(const infer::RmsNormParam&, Operation**);
template CANN_SIM_EXPORT Status CreateOperation(const infer::RopeParam&, Operation**);
template CANN_SIM_EXPORT Status CreateOperation(const infer::SelfAttentionParam&, Operation**);

}  // namespace atb
