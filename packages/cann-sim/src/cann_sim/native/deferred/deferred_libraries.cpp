#include "deferred_libraries.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

extern char** environ;

namespace cann_sim {

namespace {

namespace fs = std::filesystem;

// How often a missing file is looked for; a library takes seconds to compile.
constexpr std::chrono::milliseconds kPoll{50};

struct DeferredLibrary {
  fs::path path;
  std::once_flag loading;
  void* handle = nullptr;
};

// The file next to this library (native_build.py): a Python that can build, then the names of the libraries in their order.
struct DeferredLibraries {
  fs::path build;  // the folder of the whole build
  std::string python;
  std::deque<DeferredLibrary> libraries;

  DeferredLibraries() {
    Dl_info here{};
    dladdr(reinterpret_cast<void*>(&FindDeferred), &here);
    const fs::path folder = fs::canonical(here.dli_fname).parent_path();
    build = folder.parent_path();
    std::ifstream list(folder / "deferred-libraries");
    std::getline(list, python);
    for (std::string name; std::getline(list, name);) {
      libraries.emplace_back().path = folder / name;
    }
    if (libraries.empty()) {
      throw std::runtime_error("expected the names of libraries in " + (folder / "deferred-libraries").string() +
                               ", found none; remove the folder, and it is built again");
    }
  }
};

DeferredLibraries& TheLibraries() {
  static DeferredLibraries libraries;
  return libraries;
}

// Whether a process holds the lock of this build. Where a file system has no locks nobody does.
bool IsBeingBuilt(const fs::path& build) {
  const int file = open((build.parent_path().parent_path() / (build.filename().string() + ".lock")).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return false;
  }
  const bool taken = flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(file);
  return taken;
}

// Runs `python -m cann_sim build` to its end, in the cache of this build, whatever the environment says by now.
void BuildHere(const DeferredLibraries& all) {
  const std::string cache = "CANN_SIM_CACHE=" + all.build.parent_path().parent_path().string();
  std::vector<char*> environment{const_cast<char*>(cache.c_str())};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::string(*variable).rfind("CANN_SIM_CACHE=", 0) != 0) {
      environment.push_back(*variable);
    }
  }
  environment.push_back(nullptr);
  const char* const arguments[] = {all.python.c_str(), "-m", "cann_sim", "build", nullptr};
  // What it prints, the folder, is of no use to whoever reads this program's output.
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int error = posix_spawn(&child, all.python.c_str(), &actions, nullptr, const_cast<char* const*>(arguments), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

void WaitFor(const fs::path& library, const DeferredLibraries& all) {
  for (bool tried = false; !fs::exists(library);) {
    if (IsBeingBuilt(all.build)) {
      std::this_thread::sleep_for(kPoll);
    } else if (fs::exists(library)) {
      return;
    } else if (tried) {
      throw std::runtime_error("expected that " + library.string() + " can be compiled, found that '" + all.python +
                               " -m cann_sim build' did not make it; run that command for its reason");
    } else {
      BuildHere(all);
      tried = true;
    }
  }
}

}  // namespace

void* FindDeferred(const char* name) {
  DeferredLibraries& all = TheLibraries();
  for (DeferredLibrary& library : all.libraries) {
    std::call_once(library.loading, [&] {
      WaitFor(library.path, all);
      library.handle = dlopen(library.path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (library.handle == nullptr) {
        throw std::runtime_error(std::string("expected a library that can be loaded, found: ") + dlerror());
      }
    });
    // A look-up continues in the libraries that a library links to, which includes the functions that jump here.
    void* const found = dlsym(library.handle, name);
    Dl_info where{};
    if (found != nullptr && dladdr(found, &where) != 0 && library.path == fs::canonical(where.dli_fname)) {
      return found;
    }
  }
  return nullptr;
}

}  // namespace cann_sim
