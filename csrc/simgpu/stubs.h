// What generated stubs (generate_stubs.py) call.
#pragma once

// A cuBLAS computation: work on the stream of `handle` (the first argument of every such function).
extern "C" int simgpu_blas_work(void* handle);

// A call that is not simulated: counted by name. Returns `status`, its library's code for that.
extern "C" int simgpu_refuse(const char* name, int status);
// The same for the CUDA runtime, whose last error it becomes.
extern "C" int simgpu_refuse_runtime(const char* name);
