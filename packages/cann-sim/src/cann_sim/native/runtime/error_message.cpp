#include "error_message.h"

#include <acl/acl_rt.h>
#include <pthread.h>

#include <atomic>
#include <mutex>

namespace {

thread_local std::string recent_message;
thread_local std::string returned_message;
thread_local aclError last_error = ACL_SUCCESS;

std::atomic<bool> forked_after_use{false};

}  // namespace

namespace cann_sim {

aclError Fail(aclError code, std::string message) {
  last_error = code;
  recent_message = std::move(message);
  return code;
}

aclError LastError() { return last_error; }

void SetErrorMessage(std::string message) { recent_message = std::move(message); }

const char* UnusableReason() {
  return forked_after_use.load(std::memory_order_relaxed)
             ? "the device was used before fork; use multiprocessing with the start method 'spawn'"
             : nullptr;
}

void ForbidUseAfterFork() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { forked_after_use.store(true); }); });
}

}  // namespace cann_sim

extern "C" {

// Valid until the next call on the same thread. Reading takes the message away, as on the device.
const char* aclGetRecentErrMsg() {
  if (recent_message.empty()) {
    return nullptr;
  }
  returned_message.swap(recent_message);
  recent_message.clear();
  return returned_message.c_str();
}

aclError aclrtPeekAtLastError(aclrtLastErrLevel /*level*/) { return last_error; }

aclError aclrtGetLastError(aclrtLastErrLevel /*level*/) {
  const aclError error = last_error;
  last_error = ACL_SUCCESS;
  return error;
}

}  // extern "C"
