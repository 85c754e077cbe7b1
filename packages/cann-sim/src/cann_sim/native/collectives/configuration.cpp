// Settings of collectives. torch_npu sets the deterministic mode here with every change of its own, whether or not there are
// collectives. They are deterministic in any case: the order of a reduction is that of the ranks.

#include <atomic>

#include "interface.h"

namespace {

std::atomic<int32_t> deterministic{0};

HcclResult CheckSetting(const char* function, HcclConfig setting) {
  return setting == HCCL_DETERMINISTIC ? HCCL_SUCCESS
                                       : cann_sim::collectives::Refuse(HCCL_E_NOT_SUPPORT,
                                                                       std::string(function) + ": setting " +
                                                                           std::to_string(setting) + " is not simulated");
}

}  // namespace

HCCL_EXPORT HcclResult HcclSetConfig(HcclConfig setting, HcclConfigValue value) {
  HCCL_RETURN_IF_REFUSED(CheckSetting("HcclSetConfig", setting));
  deterministic.store(value.value);
  return HCCL_SUCCESS;
}

HCCL_EXPORT HcclResult HcclGetConfig(HcclConfig setting, HcclConfigValue* value) {
  HCCL_REQUIRE_POINTER("HcclGetConfig", value);
  HCCL_RETURN_IF_REFUSED(CheckSetting("HcclGetConfig", setting));
  value->value = deterministic.load();
  return HCCL_SUCCESS;
}
