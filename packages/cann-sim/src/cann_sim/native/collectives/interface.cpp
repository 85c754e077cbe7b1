#include "interface.h"

#include "../runtime/launch.h"

namespace cann_sim::collectives {

HcclResult Refuse(HcclResult code, const std::string& message) {
  SetErrorMessage(message);
  return code;
}

}  // namespace cann_sim::collectives

HCCL_EXPORT const char* HcclGetErrorString(HcclResult code) {
  switch (code) {
    case HCCL_SUCCESS: return "no error";
    case HCCL_E_PARA: return "parameter error";
    case HCCL_E_PTR: return "empty pointer";
    case HCCL_E_MEMORY: return "memory error";
    case HCCL_E_INTERNAL: return "internal error";
    case HCCL_E_NOT_SUPPORT: return "not support feature";
    case HCCL_E_NOT_FOUND: return "not found specific resource";
    case HCCL_E_UNAVAIL: return "resource unavailable";
    case HCCL_E_SYSCALL: return "call system interface error";
    case HCCL_E_TIMEOUT: return "timeout";
    case HCCL_E_RUNTIME: return "call runtime api fail";
    case HCCL_E_REMOTE: return "error cqe";
    default: return "unknown error";
  }
}
