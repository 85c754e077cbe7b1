// Log lines of torch_npu. CANN_SIM_LOG=missing shows those that name a function it looked up and did not find.

#include <acl/acl_base_rt.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "configuration.h"

extern "C" void aclAppLog(aclLogLevel level, const char* file, const char* function, uint32_t line, const char* format,
                          ...) {
  if (!cann_sim::configuration::LogsMissingFunctions()) {
    return;
  }
  char text[2048];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const bool missing = std::strstr(text, "dlsym") != nullptr || std::strstr(text, "not find") != nullptr ||
                       std::strstr(text, "Failed to find") != nullptr || std::strstr(text, "not in lib") != nullptr;
  if (missing || cann_sim::configuration::LogsEverything()) {
    const char* name = std::strrchr(file, '/');
    std::fprintf(stderr, "cann-sim: log level %d, %s (%s:%u): %s\n", level, function, name != nullptr ? name + 1 : file,
                 line, text);
  }
}
