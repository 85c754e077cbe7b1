// Options of the operator compiler and of the system: kept, so that what was set is what is read. Nothing is compiled when
// an operator is called, so they have no other effect.

#include <acl/acl_op_compiler.h>
#include <acl/acl_rt.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "../runtime/error_message.h"

namespace {

constexpr size_t kOptionRoom = 256;

struct Options {
  std::mutex mutex;
  std::map<int, std::string> compile;
  std::map<int, int64_t> system;
};

Options& TheOptions() {
  static auto* options = new Options;
  return *options;
}

aclError SetSystemOption(aclSysParamOpt option, int64_t value) {
  Options& options = TheOptions();
  const std::lock_guard<std::mutex> lock(options.mutex);
  options.system[option] = value;
  return ACL_SUCCESS;
}

aclError GetSystemOption(const char* function, aclSysParamOpt option, int64_t* value) {
  CANN_SIM_REQUIRE_POINTER(function, value);
  Options& options = TheOptions();
  const std::lock_guard<std::mutex> lock(options.mutex);
  *value = options.system[option];  // 0, that is off, before it was set
  return ACL_SUCCESS;
}

}  // namespace

extern "C" {

aclError aclSetCompileopt(aclCompileOpt option, const char* value) {
  CANN_SIM_REQUIRE_POINTER("aclSetCompileopt", value);
  if (std::strlen(value) >= kOptionRoom) {
    return cann_sim::Fail(ACL_ERROR_INVALID_PARAM, "aclSetCompileopt: the value is longer than 255 characters");
  }
  Options& options = TheOptions();
  const std::lock_guard<std::mutex> lock(options.mutex);
  options.compile[option] = value;
  return ACL_SUCCESS;
}

size_t aclGetCompileoptSize(aclCompileOpt /*option*/) { return kOptionRoom; }

aclError aclGetCompileopt(aclCompileOpt option, char* value, size_t length) {
  CANN_SIM_REQUIRE_POINTER("aclGetCompileopt", value);
  Options& options = TheOptions();
  const std::lock_guard<std::mutex> lock(options.mutex);
  std::strncpy(value, options.compile[option].c_str(), length);
  return ACL_SUCCESS;
}

aclError aclrtSetSysParamOpt(aclSysParamOpt option, int64_t value) { return SetSystemOption(option, value); }

aclError aclrtGetSysParamOpt(aclSysParamOpt option, int64_t* value) {
  return GetSystemOption("aclrtGetSysParamOpt", option, value);
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt option, int64_t value) { return SetSystemOption(option, value); }

aclError aclrtCtxGetSysParamOpt(aclSysParamOpt option, int64_t* value) {
  return GetSystemOption("aclrtCtxGetSysParamOpt", option, value);
}

}  // extern "C"
