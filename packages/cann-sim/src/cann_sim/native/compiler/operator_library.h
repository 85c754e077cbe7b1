// The operator library, which is loaded later than this one and knows torch.
#pragma once

#include <dlfcn.h>

// One of its functions, or null where the library is not loaded. It stays loaded for as long as the process lives.
template <class Function>
Function* FindInOperatorLibrary(const char* name) {
  void* library = dlopen("libopapi.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) {
    return nullptr;
  }
  auto* function = reinterpret_cast<Function*>(dlsym(library, name));
  dlclose(library);
  return function;
}
