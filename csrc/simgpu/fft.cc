// cuFFT: plans are made and "executed"; the workspace that a real plan asks for is not known here.

#include <atomic>
#include <cstddef>

#include "contents.h"
#include "cuda_api.h"
#include "report.h"
#include "stream.h"

namespace {

constexpr int kInvalidPlan = 1;  // CUFFT_INVALID_PLAN

// A plan is a small number; all it keeps is the stream.
constexpr int kMostPlans = 1 << 16;
std::atomic<void*> streams[kMostPlans];
std::atomic<int> plans{0};

bool is_plan(int plan) { return plan > 0 && plan <= plans.load() && plan < kMostPlans; }

}  // namespace

SIMGPU_API int cufftCreate(int* plan) {
  const int made = plans.fetch_add(1) + 1;
  if (made >= kMostPlans) return 2;  // CUFFT_ALLOC_FAILED
  *plan = made;
  return 0;
}
SIMGPU_API int cufftDestroy(int plan) { return is_plan(plan) ? 0 : kInvalidPlan; }
SIMGPU_API int cufftSetAutoAllocation(int plan, int) { return is_plan(plan) ? 0 : kInvalidPlan; }
SIMGPU_API int cufftSetWorkArea(int plan, void*) { return is_plan(plan) ? 0 : kInvalidPlan; }
SIMGPU_API int cufftSetStream(int plan, void* stream) {
  if (!is_plan(plan)) return kInvalidPlan;
  streams[plan] = stream;
  return 0;
}
SIMGPU_API int cufftXtMakePlanMany(int plan, int, long long*, long long*, long long, long long, int,
                                   long long*, long long, long long, int, long long,
                                   size_t* workspace_bytes, int) {
  if (!is_plan(plan)) return kInvalidPlan;
  simgpu::count_approximation("cuFFT plan",
                              "its workspace, which a real plan may need, is not counted");
  *workspace_bytes = 0;
  return 0;
}
SIMGPU_API int cufftXtExec(int plan, void*, void*, int) {
  if (!is_plan(plan)) return kInvalidPlan;
  simgpu::note_kernel();
  simgpu::submit(simgpu::stream_of(streams[plan]));
  return 0;
}
