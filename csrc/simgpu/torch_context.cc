// cuDNN is not simulated. Where torch would take it, it must take another kernel, whatever the
// script sets (`torch.backends.cudnn.enabled = True` is common): these are the questions that torch
// asks itself before it turns to cuDNN, answered here because a preloaded symbol comes first.
//
// Members of at::Context in libtorch_cpu, called through its PLT (checked by the tests on every
// supported torch: a convolution runs).

#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "cuda_api.h"
#include "report.h"

// bool at::Context::userEnabledCuDNN() const: convolution, batch norm, RNN, CTC loss, grid sampling
SIMGPU_API bool simgpu_user_enabled_cudnn(const void*) __asm__(
    "_ZNK2at7Context16userEnabledCuDNNEv");
// bool at::Context::userEnabledCuDNNSDP() const: scaled dot product attention
SIMGPU_API bool simgpu_user_enabled_cudnn_sdp(const void*) __asm__(
    "_ZNK2at7Context19userEnabledCuDNNSDPEv");

namespace {

// Python code reads torch.backends.cudnn.enabled where no cuDNN is at stake (F.layer_norm does).
bool is_python_binding(const void* caller) {
  static std::atomic<const void*> known[4];
  for (const auto& address : known) {
    if (address.load(std::memory_order_relaxed) == caller) return true;
  }
  Dl_info info;
  if (dladdr(caller, &info) == 0 || std::strstr(info.dli_fname, "libtorch_python") == nullptr) {
    return false;
  }
  for (auto& address : known) {
    const void* none = nullptr;
    if (address.compare_exchange_strong(none, caller, std::memory_order_relaxed)) break;
  }
  return true;
}

}  // namespace

bool simgpu_user_enabled_cudnn(const void*) {
  if (!is_python_binding(__builtin_return_address(0))) {
    simgpu::count_approximation("cuDNN",
                                "not simulated: torch asked for it (convolution, RNN, ...) and "
                                "took its own kernels, whose workspaces differ");
  }
  return false;
}

// kernels.cc tells when this mattered.
bool simgpu_user_enabled_cudnn_sdp(const void*) { return false; }

// Only compared with the version torch was built with: new enough for any.
SIMGPU_API size_t cudnnGetVersion(void) { return 92400; }
SIMGPU_API const char* cudnnGetErrorString(int) { return "cuDNN is not simulated"; }
