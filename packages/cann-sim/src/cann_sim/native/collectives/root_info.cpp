#include "root_info.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

namespace {

constexpr const char* kFormat = "cann-sim root %x %llx %x %llx";

struct OpenRoots {
  std::mutex mutex;
  std::map<uint64_t, int> files;
};

OpenRoots& TheOpenRoots() {
  static auto* roots = new OpenRoots;
  return *roots;
}

}  // namespace

namespace cann_sim::collectives {

HcclResult CreateRoot(const char* function, RootInfo& root) {
  std::random_device random;
  root.process = ThisProcess();
  root.identity = (uint64_t{random()} << 32) | random();
  root.file = SharedSegment::CreateFile(root.identity);
  if (root.file < 0) {
    return Refuse(HCCL_E_SYSCALL, std::string(function) + ": no file in memory could be made: " + std::strerror(errno));
  }
  OpenRoots& roots = TheOpenRoots();
  const std::lock_guard<std::mutex> lock(roots.mutex);
  roots.files[root.identity] = root.file;
  return HCCL_SUCCESS;
}

void ReleaseRoot(uint64_t identity) {
  OpenRoots& roots = TheOpenRoots();
  const std::lock_guard<std::mutex> lock(roots.mutex);
  if (const auto found = roots.files.find(identity); found != roots.files.end()) {
    close(found->second);
    roots.files.erase(found);
  }
}

void Write(const RootInfo& root, HcclRootInfo& blob) {
  std::memset(blob.internal, 0, sizeof blob.internal);
  std::snprintf(blob.internal, sizeof blob.internal, kFormat, static_cast<unsigned>(root.process.number),
                static_cast<unsigned long long>(root.process.start), static_cast<unsigned>(root.file),
                static_cast<unsigned long long>(root.identity));
}

HcclResult Read(const char* function, const HcclRootInfo& blob, RootInfo& root) {
  char text[128];
  std::memcpy(text, blob.internal, sizeof text - 1);
  text[sizeof text - 1] = '\0';
  unsigned process = 0;
  unsigned file = 0;
  unsigned long long start = 0;
  unsigned long long identity = 0;
  if (std::sscanf(text, kFormat, &process, &start, &file, &identity) != 4) {
    return Refuse(HCCL_E_PARA, std::string(function) + ": expected a root info that HcclGetRootInfo made");
  }
  root = {{static_cast<int32_t>(process), start}, static_cast<int32_t>(file), identity};
  return HCCL_SUCCESS;
}

HcclResult MapSegment(const char* function, const RootInfo& root, uint32_t ranks, std::unique_ptr<SharedSegment>& segment) {
  const std::string path = "/proc/" + std::to_string(root.process.number) + "/fd/" + std::to_string(root.file);
  const int file = IsAlive(root.process) ? open(path.c_str(), O_RDWR | O_CLOEXEC) : -1;
  if (file >= 0) {
    segment = SharedSegment::Map(file, root.identity, ranks);
    close(file);
  }
  if (segment != nullptr) {
    return HCCL_SUCCESS;
  }
  return Refuse(HCCL_E_PARA, std::string(function) + ": the root info is that of process " +
                                 std::to_string(root.process.number) +
                                 ", which has ended, belongs to another user, or has all its ranks already");
}

}  // namespace cann_sim::collectives

HCCL_EXPORT HcclResult HcclGetRootInfo(HcclRootInfo* blob) {
  HCCL_REQUIRE_POINTER("HcclGetRootInfo", blob);
  cann_sim::collectives::RootInfo root{};
  HCCL_RETURN_IF_REFUSED(cann_sim::collectives::CreateRoot("HcclGetRootInfo", root));
  cann_sim::collectives::Write(root, *blob);
  return HCCL_SUCCESS;
}
