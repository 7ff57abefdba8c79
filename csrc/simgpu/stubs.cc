#include "stubs.h"

#include "device.h"
#include "report.h"

int simgpu_refuse(const char* name, int status) {
  simgpu::count_refusal(name);
  return status;
}

int simgpu_refuse_runtime(const char* name) {
  simgpu::count_refusal(name);
  return simgpu::fail(cudaErrorNotSupported);
}
