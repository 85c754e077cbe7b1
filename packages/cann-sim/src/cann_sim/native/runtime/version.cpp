// Versions that the simulated software reports. torch_npu chooses operator versions by them.

#include <acl/acl_rt.h>

#include <cstring>
#include <string>

#include "error_message.h"

namespace {

// The CANN that torch_npu's table of versions gives for the minor before this one (it has no row for 2.13 yet), and the
// oldest driver whose functions the runtime simulates.
constexpr const char* kCannVersion = "9.1.0";
constexpr const char* kDriverVersion = "25.5.0";

void CopyText(char* destination, size_t room, const std::string& text) {
  std::strncpy(destination, text.c_str(), room - 1);
  destination[room - 1] = '\0';
}

}  // namespace

extern "C" {

aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion* version) {
  CANN_SIM_REQUIRE_POINTER("aclsysGetCANNVersion", version);
  if (name < ACL_PKG_NAME_CANN || name > ACL_PKG_NAME_DRIVER) {
    return cann_sim::Fail(ACL_ERROR_INVALID_PARAM,
                          "aclsysGetCANNVersion: unknown package number " + std::to_string(name));
  }
  *version = {};
  const std::string text = name == ACL_PKG_NAME_DRIVER ? kDriverVersion : kCannVersion;
  const size_t first = text.find('.');
  const size_t second = text.find('.', first + 1);
  CopyText(version->version, sizeof version->version, text);
  CopyText(version->majorVersion, sizeof version->majorVersion, text.substr(0, first));
  CopyText(version->minorVersion, sizeof version->minorVersion, text.substr(first + 1, second - first - 1));
  CopyText(version->releaseVersion, sizeof version->releaseVersion, text.substr(second + 1));
  return ACL_SUCCESS;
}

aclError aclsysGetVersionStr(char* package, char* version) {
  CANN_SIM_REQUIRE_POINTER("aclsysGetVersionStr", package);
  CANN_SIM_REQUIRE_POINTER("aclsysGetVersionStr", version);
  CopyText(version, ACL_PKG_VERSION_MAX_SIZE, std::strcmp(package, "driver") == 0 ? kDriverVersion : kCannVersion);
  return ACL_SUCCESS;
}

}  // extern "C"
