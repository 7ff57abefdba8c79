// A thread that wants the GIL while Python shuts down is ended by CPython (up to 3.13) with
// pthread_exit, and that unwinding aborts the process when it meets a C++ destructor. Autograd's
// threads get there when a script ends right after backward(): on a GPU the script waits for results
// and the threads are long idle, here nothing takes time. CPython 3.14 lets such threads sleep until
// the process is gone; this does the same for older ones.

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <initializer_list>

namespace {

bool is_python_shutting_down() {
  for (const char* name : {"Py_IsFinalizing", "_Py_IsFinalizing"}) {
    if (void* function = dlsym(RTLD_DEFAULT, name)) {
      return reinterpret_cast<int (*)()>(function)() != 0;
    }
  }
  return false;
}

}  // namespace

extern "C" __attribute__((visibility("default"), noreturn)) void pthread_exit(void* value) {
  while (is_python_shutting_down()) pause();
  reinterpret_cast<void (*)(void*)>(dlsym(RTLD_NEXT, "pthread_exit"))(value);
  __builtin_unreachable();
}
