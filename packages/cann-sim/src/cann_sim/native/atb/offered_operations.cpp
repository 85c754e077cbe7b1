// What torch_npu links to of ATB and what it looks up there: each name is a jump to the library that defines it, so that
// torch_npu can be imported before that library is compiled.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>

#include "../deferred/deferred_libraries.h"
#include "../deferred/trampoline.h"

// Functions of C++ by their names in the library: those that libop_plugin_atb.so does not define itself, and the pairs of C.
#define CANN_SIM_OFFERED_OPERATIONS(OFFER)                                                          \
  OFFER(_ZN3atb13CreateContextEPPNS_7ContextE)                                                      \
  OFFER(_ZN3atb14DestroyContextEPNS_7ContextE)                                                      \
  OFFER(_ZN3atb15CreateOperationINS_5infer11LinearParamEEEiRKT_PPNS_9OperationE)                    \
  OFFER(_ZN3atb15CreateOperationINS_5infer12ElewiseParamEEEiRKT_PPNS_9OperationE)                   \
  OFFER(_ZN3atb15CreateOperationINS_5infer12RmsNormParamEEEiRKT_PPNS_9OperationE)                   \
  OFFER(_ZN3atb15CreateOperationINS_5infer14GroupTopkParamEEEiRKT_PPNS_9OperationE)                 \
  OFFER(_ZN3atb15CreateOperationINS_5infer18SelfAttentionParamEEEiRKT_PPNS_9OperationE)             \
  OFFER(_ZN3atb15CreateOperationINS_5infer19PagedAttentionParamEEEiRKT_PPNS_9OperationE)            \
  OFFER(_ZN3atb15CreateOperationINS_5infer20ReshapeAndCacheParamEEEiRKT_PPNS_9OperationE)           \
  OFFER(_ZN3atb15CreateOperationINS_5infer9RopeParamEEEiRKT_PPNS_9OperationE)                       \
  OFFER(_ZN3atb16DestroyOperationEPNS_9OperationE)                                                  \
  OFFER(_ZN3atb5Utils13GetTensorSizeERKNS_6TensorE)                                                 \
  OFFER(AtbFusedAddTopkDiv)                                                                         \
  OFFER(AtbFusedAddTopkDivGetWorkspaceSize)                                                         \
  OFFER(AtbMLA)                                                                                     \
  OFFER(AtbMLAGetWorkspaceSize)                                                                     \
  OFFER(AtbPagedCacheLoad)                                                                          \
  OFFER(AtbPagedCacheLoadGetWorkspaceSize)                                                          \
  OFFER(AtbRingMLA)                                                                                 \
  OFFER(AtbRingMLAGetWorkspaceSize)                                                                 \
  OFFER(AtbSelfAttentionPrefixEncoder)                                                              \
  OFFER(AtbSelfAttentionPrefixEncoderGetWorkspaceSize)

namespace {

#define CANN_SIM_NAME(NAME) #NAME,
constexpr const char* kOffered[] = {CANN_SIM_OFFERED_OPERATIONS(CANN_SIM_NAME)};

}  // namespace

extern "C" {

__attribute__((visibility("hidden"))) void* cann_sim_targets[std::size(kOffered)];

// Of these functions not all can report a failure; one that is not there ends the process, as an unresolved symbol would.
__attribute__((visibility("hidden"))) void* cann_sim_target(unsigned number) noexcept {
  try {
    if (void* const found = cann_sim::FindDeferred(kOffered[number]); found != nullptr) {
      __atomic_store_n(&cann_sim_targets[number], found, __ATOMIC_RELEASE);
      return found;
    }
    std::fprintf(stderr, "cann-sim: %s is in none of the libraries\n", kOffered[number]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cann-sim: %s: %s\n", kOffered[number], error.what());
  }
  std::abort();
}

}  // extern "C"

asm(CANN_SIM_TRAMPOLINE_MACROS CANN_SIM_OFFERED_OPERATIONS(CANN_SIM_TRAMPOLINE));
