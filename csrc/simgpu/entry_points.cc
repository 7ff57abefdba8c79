// Driver functions by name: torch asks the runtime for them instead of linking libcuda.

#include <dlfcn.h>

#include <cstdio>
#include <string>

#include "cuda_api.h"
#include "device.h"

namespace simgpu {
namespace {

void* open_this_library() {
  Dl_info here;
  if (dladdr(reinterpret_cast<void*>(&open_this_library), &here) == 0) return nullptr;
  return dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD);
}

// The version that CUDA's headers map the name to, else the plain name (which may only lead there).
void* find_driver_function(const char* name) {
  static void* const library = open_this_library();
  if (library == nullptr) return nullptr;
  for (const char* suffix : {"_v3", "_v2", ""}) {
    if (void* found = dlsym(library, (std::string(name) + suffix).c_str())) return found;
  }
  if (config().verbose) {
    std::fprintf(stderr, "gpumemtrace simulated GPU: no driver function %s\n", name);
  }
  return nullptr;
}

cudaError_t find(const char* name, void** function, cudaDriverEntryPointQueryResult* result) {
  *function = find_driver_function(name);
  if (result != nullptr) {
    *result =
        *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace simgpu

using namespace simgpu;

#if CUDART_VERSION < 13000
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* result) {
  return find(name, function, result);
}
#endif

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  return find(name, function, result);
}
#endif

CUresult cuGetProcAddress(const char* name, void** function, int, cuuint64_t,
                          CUdriverProcAddressQueryResult* result) {
  *function = find_driver_function(name);
  if (result != nullptr) {
    *result =
        *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
