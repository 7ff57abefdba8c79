// NVRTC: run-time compilation succeeds and yields an image that modules.cc takes unread.

#include <cstring>
#include <set>
#include <string>

#include "cuda_api.h"

namespace {

struct Program {
  std::set<std::string> names;  // their addresses stay valid: lowered names point into them
};

constexpr char kImage[] = "simulated";

int give_size(size_t* size) {
  *size = sizeof kImage;
  return 0;
}

int give_image(char* out) {
  std::memcpy(out, kImage, sizeof kImage);
  return 0;
}

}  // namespace

SIMGPU_API int nvrtcVersion(int* major, int* minor) {
  *major = CUDART_VERSION / 1000;
  *minor = CUDART_VERSION % 1000 / 10;
  return 0;
}
SIMGPU_API const char* nvrtcGetErrorString(int status) {
  return status == 0 ? "NVRTC_SUCCESS" : "NVRTC_ERROR_INTERNAL_ERROR";
}
SIMGPU_API int nvrtcGetNumSupportedArchs(int* count) {
  *count = 0;
  return 0;
}
SIMGPU_API int nvrtcGetSupportedArchs(int*) { return 0; }
SIMGPU_API int nvrtcCreateProgram(Program** out, const char*, const char*, int, const char* const*,
                                  const char* const*) {
  *out = new Program;
  return 0;
}
SIMGPU_API int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return 0;
}
SIMGPU_API int nvrtcCompileProgram(Program*, int, const char* const*) { return 0; }
SIMGPU_API int nvrtcAddNameExpression(Program* program, const char* name) {
  program->names.insert(name);
  return 0;
}
SIMGPU_API int nvrtcGetLoweredName(Program* program, const char* name, const char** lowered) {
  *lowered = program->names.insert(name).first->c_str();
  return 0;
}
SIMGPU_API int nvrtcGetPTXSize(Program*, size_t* size) { return give_size(size); }
SIMGPU_API int nvrtcGetPTX(Program*, char* out) { return give_image(out); }
SIMGPU_API int nvrtcGetCUBINSize(Program*, size_t* size) { return give_size(size); }
SIMGPU_API int nvrtcGetCUBIN(Program*, char* out) { return give_image(out); }
SIMGPU_API int nvrtcGetProgramLogSize(Program*, size_t* size) {
  *size = 1;
  return 0;
}
SIMGPU_API int nvrtcGetProgramLog(Program*, char* log) {
  *log = '\0';
  return 0;
}
